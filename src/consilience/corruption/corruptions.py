"""What a corruption is, and the registry of all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from consilience.core.errors import ConsilienceError, unknown_name
from consilience.core.registry import Registry
from consilience.core.samples import KINDS, Kind, Modality
from consilience.core.settings import checked
from consilience.corruption.reference import Reference
from consilience.corruption.seeded_noise import Noise

NUMBERS: tuple[Kind, ...] = ("vector", "image", "sequence")
DEFAULT: dict[Kind, str] = {
    "vector": "gaussian",
    "image": "gaussian",
    "sequence": "gaussian",
    "tokens": "blank",
    "text": "blank",
}


@dataclass(frozen=True)
class Portion:
    """The samples of one modality that a corruption changes. All of them have the modality.

    Attributes:
        modality: Its name, kind and shape.
        values: A copy `[rows, *shape]`; numbers are 32-bit floats or wider, padding is zero.
        index: The indices of the samples `[rows]`.
        lengths: `[rows]` for sequences and tokens, else None.
        present: `[rows]`, all True; a corruption may return False.
        noise: The stream of random numbers; `uniform` draws from it.
        reference: The samples or statistics that set the scale.
    """

    modality: Modality
    values: np.ndarray
    index: np.ndarray
    lengths: np.ndarray | None
    present: np.ndarray
    noise: Noise
    reference: Reference

    def having(self, values: np.ndarray, lengths: np.ndarray | None = None) -> Portion:
        """The same samples with these values, and these lengths if given."""
        return replace(self, values=values, lengths=self.lengths if lengths is None else lengths)

    def uniform(self, shape: tuple[int, ...] = (), part: str = "") -> np.ndarray:
        """Random numbers from [0, 1), `[rows, *shape]`; `part` names one of several streams of a corruption."""
        return (self.noise.within(part) if part else self.noise).uniform(self.index, shape)

    def statistic(self, what: Literal["std", "low", "high"]) -> np.ndarray:
        """The std, minimum or maximum of the reference, in a shape that broadcasts over `values`."""
        return self.reference.statistics(self.modality.name).around(self.modality, what)


@dataclass(frozen=True)
class Corruption:
    """A registered corruption.

    Attributes:
        name: Lower case, with hyphens.
        function: (portion, level, **options) → portion.
        kinds: The kinds of modalities that it applies to.
        level: The meaning of its level, in one sentence.
        options: The names of further arguments of the function.
        hides: Whether it only makes samples missing, without reading values.
    """

    name: str
    function: Callable[..., Portion]
    kinds: tuple[Kind, ...]
    level: str
    options: tuple[str, ...]
    hides: bool


CORRUPTIONS: Registry[Corruption] = Registry("corruption", group="consilience.corruptions")


def register_corruption(
    name: str, *, kinds: tuple[Kind, ...], level: str, hides: bool = False
) -> Callable[[Callable[..., Portion]], Callable[..., Portion]]:
    """Make a function of (portion, level, *, options…) known as a corruption.

    At level 0 it is never called. To make curves over levels smooth, draw the same random numbers at every level and
    let the level only scale or threshold them.

        @register_corruption("upside-down", kinds=("image",), level="turned over at any level above 0")
        def upside_down(portion: Portion, level: float) -> Portion:
            return portion.having(portion.values[:, :, ::-1])
    """
    for kind in kinds:
        if kind not in KINDS:
            raise unknown_name("kind", kind, KINDS, f"The corruption {name!r} was registered for it")

    def register(function: Callable[..., Portion]) -> Callable[..., Portion]:
        parameters = list(inspect.signature(function).parameters)
        if len(parameters) < 2:
            raise ConsilienceError(f"the corruption {name!r} must take (portion, level), got {parameters}")
        CORRUPTIONS.add(name, Corruption(name, function, tuple(kinds), level, tuple(parameters[2:]), hides))
        return function

    return register


@checked
def find_corruption(name: str) -> Corruption:
    """The corruption of this name."""
    return CORRUPTIONS.find(name)


@checked
def corruption_names(kind: Kind | None = None) -> tuple[str, ...]:
    """The names of all corruptions, or of those that apply to a kind.

    >>> corruption_names("text")
    ('blank', 'drop', 'missing', 'qmf-gaussian', 'qmf-salt-and-pepper', 'structured-drop', 'swapped')
    """
    return tuple(name for name, corruption in CORRUPTIONS.items() if kind is None or kind in corruption.kinds)
