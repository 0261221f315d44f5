"""Training in one process on the CPU in single precision, where Lightning Fabric has nothing to add.

Fabric imports torchmetrics where it is installed, only to learn its version, and torchmetrics imports transformers. A
process that trains a small model on the CPU does not need to wait for them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn


class OneDevice:
    """The part of Lightning Fabric's interface that training uses, for one process on the CPU in float32."""

    device = torch.device("cpu")
    world_size = 1
    global_rank = 0
    is_global_zero = True

    @property
    def strategy(self) -> OneDevice:
        """As in Fabric, what has the precision."""
        return self

    @property
    def precision(self) -> OneDevice:
        """As in Fabric, what has the state of the precision: in float32 there is none."""
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the precision."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of the precision."""

    def launch(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Return `work(self, *arguments)`."""
        return work(self, *arguments)

    def setup_module(self, module: nn.Module) -> nn.Module:
        """Return the module on the CPU."""
        return module.to(self.device)

    def setup_optimizers(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Return the optimizer as it is."""
        return optimizer

    def no_backward_sync(self, module: nn.Module, enabled: bool = True) -> AbstractContextManager[None]:
        """Return a context in which gradients are not exchanged: there is nobody to exchange them with."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients."""
        loss.backward()

    def clip_gradients(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, max_norm: float, error_if_nonfinite: bool
    ) -> Tensor:
        """Scale the gradients of what the optimizer trains to a norm of at most `max_norm`; return their norm."""
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        return nn.utils.clip_grad_norm_(parameters, max_norm, error_if_nonfinite=error_if_nonfinite)
