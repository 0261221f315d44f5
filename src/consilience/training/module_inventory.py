"""The modules and tensors of a method, found once: whether it is ready to predict is then known in microseconds."""

from __future__ import annotations

from operator import is_

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
        self._parts = [(part, list(part.values())) for part in held if part]
        self._empty = [part for part in held if not part]
        self._tensors = [*module.parameters(), *module.buffers()]
        self._parameters = list(module.parameters())

    def is_of(self, module: nn.Module) -> bool:
        """Whether it is of this module, and nothing was added, replaced or removed since."""
        return (
            module is self.module
            and not any(self._empty)
            and all(len(part) == len(known) and all(map(is_, part.values(), known)) for part, known in self._parts)
        )

    @property
    def training(self) -> bool:
        """Whether any part is in training mode."""
        return any(module.training for module in self.modules)

    @property
    def input_type(self) -> torch.dtype:
        """The type of numbers that the module reads: float64 if any parameter is, else float32."""
        return torch.float64 if any(tensor.dtype is torch.float64 for tensor in self._parameters) else torch.float32

    def is_on(self, device: torch.device) -> bool:
        """Whether every tensor is on a device; one without a number means any of its kind."""
        for tensor in self._tensors:
            place = tensor.device
            if place.type != device.type or (device.index is not None and place.index != device.index):
                return False
        return True


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
