"""The modules and tensors of a method, found once: whether it is ready to predict is then known in microseconds."""

from __future__ import annotations

from itertools import chain
from operator import attrgetter, is_, methodcaller

import torch
from torch import nn


class ModuleInventory:
    """What a module consists of, and whether it still does.

    Walking through a module takes longer than the prediction of one row by a small network. This keeps the modules, and
    the dictionaries in which they hold their parts, which are compared at every call.
    """

    def __init__(self, module: nn.Module):
        self.module = module
        self.modules = list(module.modules())
        held = [part for each in self.modules for part in (each._modules, each._parameters, each._buffers)]
        self._full = [part for part in held if part]
        self._empty = [part for part in held if not part]
        self._sizes = list(map(len, self._full))
        self._parts = self._held()
        self._tensors = [*module.parameters(), *module.buffers()]
        self._parameters = list(module.parameters())

    def is_of(self, module: nn.Module) -> bool:
        """Whether it is of this module, and nothing was added, replaced or removed since."""
        return (
            module is self.module
            and not any(self._empty)
            and list(map(len, self._full)) == self._sizes
            and all(map(is_, self._held(), self._parts))
        )

    def _held(self) -> list[object]:
        """Return all that the dictionaries hold, one after the other."""
        return list(chain.from_iterable(map(methodcaller("values"), self._full)))

    @property
    def training(self) -> bool:
        """Whether any part is in training mode."""
        return any(map(attrgetter("training"), self.modules))

    @property
    def input_type(self) -> torch.dtype:
        """The type of numbers that the module reads: float64 if any parameter is, else float32."""
        return torch.float64 if torch.float64 in map(attrgetter("dtype"), self._parameters) else torch.float32

    def is_on(self, device: torch.device) -> bool:
        """Whether every tensor is on a device; one without a number means any of its kind."""
        places = set(map(attrgetter("device"), self._tensors))
        return all(
            place.type == device.type and (device.index is None or place.index == device.index) for place in places
        )


def ready_to_predict(module: nn.Module, known: ModuleInventory | None, device: torch.device) -> ModuleInventory:
    """Bring a module to a device and into evaluation mode, and return its inventory.

    A module that is ready already is not touched, since another thread may be using it.

    Args:
        module: The module.
        known: Its inventory as it was returned before, which is used again if it still holds; None at first.
        device: Where to predict.
    """
    parts = known if known is not None and known.is_of(module) else ModuleInventory(module)
    if not parts.is_on(device):
        module.to(device)
    if parts.training:
        module.eval()
    return parts
