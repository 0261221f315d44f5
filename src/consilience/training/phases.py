"""Phases of a training run, each with its own epochs, learning rate and parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn

from consilience.core.errors import InputError
from consilience.core.settings import PositiveFloat, PositiveInt, check_fields


@dataclass
class Phase:
    """A phase of training.

    Args:
        name: In the log and in `Step.phase`.
        epochs: At most so many. None: as in the training settings.
        lr: Learning rate. None: as in the training settings.
        parameters: Returns the parameters of a module that this phase trains. None: all.
    """

    name: str = "fit"
    epochs: PositiveInt | None = None
    lr: PositiveFloat | None = None
    parameters: Callable[[nn.Module], Iterable[nn.Parameter]] | None = None

    def __post_init__(self) -> None:
        check_fields(self, f"training phase {self.name!r}")

    def chosen(self, module: nn.Module) -> list[str]:
        """Return the names of the parameters that this phase trains. Unlike a function, names can be pickled."""
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        wanted = list(module.parameters() if self.parameters is None else self.parameters(module))
        if foreign := [tuple(parameter.shape) for parameter in wanted if id(parameter) not in names]:
            raise InputError(
                f"training phase {self.name!r} is to train parameters that {type(module).__name__} does not have, of "
                f"shapes {foreign}"
            )
        if not any(parameter.requires_grad for parameter in wanted):
            raise InputError(f"training phase {self.name!r} of {type(module).__name__} has no parameters to train")
        return [names[id(parameter)] for parameter in wanted]


@contextmanager
def training_only(module: nn.Module, names: Collection[str]) -> Iterator[list[nn.Parameter]]:
    """Yield the named parameters without gradients; within the block all others are frozen."""
    module.zero_grad(set_to_none=True)
    chosen = set(names)
    named = list(module.named_parameters())
    others = [parameter for name, parameter in named if name not in chosen and parameter.requires_grad]
    for parameter in others:
        parameter.requires_grad_(False)
    try:
        yield [parameter for name, parameter in named if name in chosen]
    finally:
        for parameter in others:
            parameter.requires_grad_(True)
        module.zero_grad(set_to_none=True)
