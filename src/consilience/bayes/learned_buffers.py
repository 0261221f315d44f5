"""State that is computed from training data, not trained by gradients, and kept in buffers of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Learned(nn.Module):
    """A module whose `fit` computes its buffers. They are moved, converted and saved with the model.

    The size of some of them is known only after fitting (the number of neighbours, of components), so that loading
    takes the saved sizes.
    """

    def learn(self, **values: np.ndarray | Tensor | float) -> None:
        """Store values as buffers, in the type and on the device of the buffers they replace."""
        for name, value in values.items():
            before = self._buffers.get(name)
            tensor = torch.as_tensor(value)
            if before is None:
                self.register_buffer(name, tensor.clone())
            else:
                self._buffers[name] = tensor.to(before.device, before.dtype, copy=True)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name, before in self._buffers.items():
            saved = state_dict.get(prefix + name)
            if saved is not None and before is not None and saved.shape != before.shape:
                self._buffers[name] = before.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)
