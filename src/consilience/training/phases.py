"""Phases: stretches of a training run, each with its own length, rate and parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn

from consilience.core.errors import InputError


@dataclass
class Phase:
    """A stretch of training with its own name, length, rate and parameters (by default all of them)."""

    name: str = "fit"
    epochs: int | None = None
    lr: float | None = None
    parameters: Callable[[nn.Module], Iterable[nn.Parameter]] | None = None

    def __post_init__(self) -> None:
        if self.epochs is not None and self.epochs < 1:
            raise InputError(f"training phase {self.name!r}: epochs must be ≥ 1, got {self.epochs!r}")
        if self.lr is not None and not self.lr > 0:
            raise InputError(f"training phase {self.name!r}: lr must be > 0, got {self.lr!r}")

    def chosen(self, module: nn.Module) -> list[str]:
        """The names of the parameters that this phase trains. Unlike a function, names reach other processes."""
        known = {id(one): name for name, one in module.named_parameters()}
        wanted = list(module.parameters() if self.parameters is None else self.parameters(module))
        if foreign := [tuple(one.shape) for one in wanted if id(one) not in known]:
            raise InputError(
                f"training phase {self.name!r} is to train parameters that {type(module).__name__} does not have, of "
                f"shapes {foreign}"
            )
        if not any(one.requires_grad for one in wanted):
            raise InputError(f"training phase {self.name!r} of {type(module).__name__} has no parameters to train")
        return [known[id(one)] for one in wanted]


@contextmanager
def training_only(module: nn.Module, names: Collection[str]) -> Iterator[list[nn.Parameter]]:
    """The named parameters, with all others frozen for the time being and no gradient left from before."""
    module.zero_grad(set_to_none=True)
    chosen = set(names)
    others = [one for name, one in module.named_parameters() if name not in chosen and one.requires_grad]
    for one in others:
        one.requires_grad_(False)
    try:
        yield [one for name, one in module.named_parameters() if name in chosen]
    finally:
        for one in others:
            one.requires_grad_(True)
        module.zero_grad(set_to_none=True)
