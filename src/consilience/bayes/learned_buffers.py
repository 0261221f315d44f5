"""State that is computed from the training data and not trained by gradients, kept as buffers of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Learned(nn.Module):
    """A module whose `fit` computes its buffers. They move, convert and save with the model around them.

    How large some of them are is known only after fitting (so many neighbours to compare with, so many components),
    so loading takes the saved sizes instead of asking for those of a module that has not been fitted.
    """

    def learn(self, **values: np.ndarray | Tensor | float) -> None:
        """Keep these as buffers, in the type and on the device of those they replace."""
        for name, value in values.items():
            before = self._buffers.get(name)
            found = torch.as_tensor(value)
            if before is None:
                self.register_buffer(name, found.clone())
            else:
                self._buffers[name] = found.to(before.device, before.dtype, copy=True)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name, before in self._buffers.items():
            saved = state_dict.get(prefix + name)
            if saved is not None and before is not None and saved.shape != before.shape:
                self._buffers[name] = before.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)
