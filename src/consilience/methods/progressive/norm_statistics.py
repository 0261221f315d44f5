"""Running statistics of batch norms in a loop: one layer is called in several passes, whose statistics differ."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import partial

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from consilience.methods.progressive.call_state import call_state, state_of
from consilience.methods.progressive.loop_settings import NormChoice

_NO_UPDATE = -1


class NormStatistics(nn.Module):
    """Which pass updates the running statistics of the batch norms in a loop.

    With "per-step" every pass has its own statistics, so that it computes at test time what it computed in training.
    With "last" or "first" only that pass updates them, and the other passes use at test time statistics that they
    did not have in training. A batch norm left alone would average over all passes and fit none of them.

    The statistics of later passes start as a copy of the module's: load a trained base model before it is looped.

    Args:
        module: The module whose batch norms are meant.
        steps: The number of passes.
        which: "per-step", "last" or "first".
        once: Parts of the module that run in the first pass only. Their norms are left alone.
    """

    def __init__(self, module: nn.Module, steps: int, which: NormChoice = "per-step", once: Iterable[nn.Module] = ()):
        super().__init__()
        self.steps, self.which = steps, which
        left_alone = {part for parent in once for part in parent.modules()}
        # A tuple is not registered: the norms belong to the base model and are saved with it.
        self.norms = tuple(
            part
            for part in module.modules()
            if isinstance(part, _BatchNorm) and part.track_running_stats and part not in left_alone
        )
        if which == "per-step":
            for number, norm in enumerate(self.norms):
                for step in range(1, steps):
                    for name, buffer in norm.named_buffers(recurse=False):
                        self.register_buffer(f"{name}_{number}_{step}", buffer.clone())

    def attach(self) -> None:
        """Let the norms ask for the current pass whenever they are called. Norms of an inner loop stay with that."""
        for number, norm in enumerate(self.norms):
            if "forward" not in vars(norm):
                norm.forward = partial(self._normalise, number)  # type: ignore[method-assign]

    def remove(self) -> None:
        """Undo `attach`."""
        for norm in self.norms:
            if getattr(vars(norm).get("forward"), "func", None) == self._normalise:
                del norm.forward

    def during(self, step: int) -> AbstractContextManager[None]:
        """Run a pass, counted from 0."""
        updating = {"first": 0, "last": self.steps - 1, "per-step": step}[self.which]
        return call_state({self: step if step == updating else _NO_UPDATE})

    def without_update(self) -> AbstractContextManager[None]:
        """Run something that leaves all running statistics as they are, also in training."""
        return call_state({self: _NO_UPDATE})

    def _normalise(self, number: int, x: Tensor) -> Tensor:
        norm, step = self.norms[number], state_of(self)
        forward = type(norm).forward
        if not step or (step != _NO_UPDATE and self.which != "per-step"):
            return forward(norm, x)
        # A view of the norm that shares its weights. The norm itself is not changed: other threads may be using it.
        view = object.__new__(type(norm))
        view.__dict__.update(norm.__dict__)
        if step == _NO_UPDATE:  # in training the running statistics are then neither read nor written
            view.__dict__["track_running_stats"] = False
        else:
            view.__dict__["_buffers"] = {name: getattr(self, f"{name}_{number}_{step}") for name in norm._buffers}
        return forward(view, x)
