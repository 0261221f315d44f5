"""What a corruption is, and the registry of all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from consilience.core.errors import ConsilienceError, unknown_name
from consilience.core.registry import Registry
from consilience.core.samples import KINDS, Kind, Modality
from consilience.core.settings import checked
from consilience.corruption.reference import Reference
from consilience.corruption.seeded_noise import Noise

NUMBERS: tuple[Kind, ...] = ("vector", "image", "sequence")
# One level for all samples, or one for each `[rows]`.
Level = float | np.ndarray
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
        y: The targets of the samples `[rows]`, for corruptions that follow the class; None where there are none.
    """

    modality: Modality
    values: np.ndarray
    index: np.ndarray
    lengths: np.ndarray | None
    present: np.ndarray
    noise: Noise
    reference: Reference
    y: np.ndarray | None = None

    def rows(self, rows: np.ndarray) -> Portion:
        """Some of the samples."""
        lengths = None if self.lengths is None else self.lengths[rows]
        values, index, present = self.values[rows], self.index[rows], self.present[rows]
        y = None if self.y is None else self.y[rows]
        return replace(self, values=values, index=index, lengths=lengths, present=present, y=y)

    def having(self, values: np.ndarray, lengths: np.ndarray | None = None) -> Portion:
        """The same samples with these values, and these lengths if given."""
        return replace(self, values=values, lengths=self.lengths if lengths is None else lengths)

    def uniform(self, shape: tuple[int, ...] = (), part: str = "") -> np.ndarray:
        """Random numbers from [0, 1), `[rows, *shape]`; `part` names one of several streams of a corruption."""
        return (self.noise.within(part) if part else self.noise).uniform(self.index, shape)

    def across(self, level: Level) -> Level:
        """A level or share in a shape that broadcasts over `values`: one number, or `[rows]` → `[rows, 1, …]`."""
        return level if np.ndim(level) == 0 else np.reshape(level, (-1, *[1] * len(self.modality.shape)))

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
        by_sample: Whether the function accepts an array of levels `[rows]`, one for each sample.
    """

    name: str
    function: Callable[..., Portion]
    kinds: tuple[Kind, ...]
    level: str
    options: tuple[str, ...]
    hides: bool
    by_sample: bool = False

    def apply(self, portion: Portion, level: Level, options: Mapping[str, Any] | None = None) -> Portion:
        """Corrupt a portion at one level, or each of its samples at a level of its own `[rows]`."""
        options = options or {}
        if np.ndim(level) == 0 or self.by_sample:
            return self.function(portion, level, **options)
        parts = [
            (rows, self.function(portion.rows(rows), float(own), **options))
            for own in np.unique(level)
            for rows in [np.flatnonzero(level == own)]
        ]
        after = [part for _, part in parts]
        order = np.argsort(np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in parts)]))
        return replace(
            portion,
            values=_joined([part.values for part in after], portion.values)[order],
            present=_joined([part.present for part in after], portion.present)[order],
            lengths=None
            if portion.lengths is None
            else _joined([part.lengths for part in after], portion.lengths)[order],
        )


def _joined(parts: Sequence[Any], usual: np.ndarray) -> np.ndarray:
    return np.concatenate(parts) if parts else usual


CORRUPTIONS: Registry[Corruption] = Registry("corruption", group="consilience.corruptions")


def register_corruption(
    name: str, *, kinds: tuple[Kind, ...], level: str, hides: bool = False, by_sample: bool = False
) -> Callable[[Callable[..., Portion]], Callable[..., Portion]]:
    """Make a function of (portion, level, *, options…) known as a corruption.

    At level 0 it is never called. To make curves over levels smooth, draw the same random numbers at every level and
    let the level only scale or threshold them. Training with corruptions draws a level for each sample: with by_sample
    the function is called once with an array of levels `[rows]`, else once for every level. `portion.across(level)`
    broadcasts both over the values.

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
        CORRUPTIONS.add(name, Corruption(name, function, tuple(kinds), level, tuple(parameters[2:]), hides, by_sample))
        return function

    return register


@checked
def find_corruption(name: str) -> Corruption:
    """The corruption of this name."""
    return CORRUPTIONS.find(name)


@checked
def corruption_names(kind: Kind | None = None) -> tuple[str, ...]:
    """The names of all corruptions, or of those that apply to a kind.

    >>> corruption_names("text")  # doctest: +NORMALIZE_WHITESPACE
    ('blank', 'conflicting', 'drop', 'missing', 'qmf-gaussian', 'qmf-salt-and-pepper', 'rcml-conflict',
     'structured-drop', 'swapped')
    """
    return tuple(name for name, corruption in CORRUPTIONS.items() if kind is None or kind in corruption.kinds)
