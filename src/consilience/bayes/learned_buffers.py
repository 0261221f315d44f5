"""State that is computed from training data, not trained by gradients, and kept in buffers of any size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# Of a buffer whose values decide what is computed.
_MOST_VALUES = 2**20
_TABLE = "table_"


class Learned(nn.Module):
    """A module whose `fit` computes its buffers. They are moved, converted and saved with the model.

    The size of some of them is known only after fitting (the number of neighbours, of components), so that loading
    takes the saved sizes.
    """

    def learn(self, **values: np.ndarray | Tensor | float) -> None:
        """Store values as buffers, in the type and on the device of the buffers they replace.

        All of them are replaced in one step: another thread finds the old ones or the new ones, and if one of the
        values cannot be stored, none is.
        """
        replaced = {}
        for name, value in values.items():
            before = self._buffers.get(name)
            tensor = torch.as_tensor(value)
            if before is None:
                self.register_buffer(name, tensor.clone())
            else:
                replaced[name] = tensor.to(before.device, before.dtype, copy=True)
        self._buffers = {**self._buffers, **replaced}

    def known(self, name: str) -> Any:
        """Return a buffer as Python values, also while the module is traced (see `knowing_values`)."""
        fixed = self.__dict__.get("_known")
        return self.get_buffer(name).tolist() if fixed is None else fixed[name]

    def tables(self) -> Mapping[str, Tensor]:
        """Return what a traced computation looks up because exported files cannot compute it, such as inverses."""
        return {}

    def table(self, name: str) -> Tensor:
        """Return one of the `tables` while the module is traced."""
        return self.get_buffer(f"{_TABLE}{name}")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name, before in self._buffers.items():
            saved = state_dict.get(prefix + name)
            if saved is not None and before is not None and saved.shape != before.shape:
                self._buffers[name] = before.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)


@contextmanager
def knowing_values(module: nn.Module) -> Iterator[None]:
    """Fix what `Learned.known` returns for a module and all its parts, and give them their tables, for tracing.

    The module must not be used by another thread meanwhile: trace a copy.
    """
    parts = [part for part in module.modules() if isinstance(part, Learned)]
    try:
        for part in parts:
            tables = part.tables()
            small = {name: value for name, value in part.named_buffers(recurse=False) if value.numel() <= _MOST_VALUES}
            part.__dict__["_known"] = {name: value.tolist() for name, value in small.items()}
            for name, values in tables.items():
                part.register_buffer(f"{_TABLE}{name}", values, persistent=False)
        yield
    finally:
        for part in parts:
            part.__dict__.pop("_known", None)
            for name in [name for name in part._buffers if name.startswith(_TABLE)]:
                del part._buffers[name]
                part._non_persistent_buffers_set.discard(name)
