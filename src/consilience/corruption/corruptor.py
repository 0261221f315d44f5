"""Corrupting samples: who is hit, with what, how hard; the same for every batch the same sample comes in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, overload

import numpy as np

from consilience.core.errors import InputError, UnsupportedError, unknown_name
from consilience.core.samples import SCAN_BYTES, Modality, Samples, Values
from consilience.corruption.corruptions import DEFAULT, NUMBERS, Corruption, Portion, corruption_names, find_corruption
from consilience.corruption.feature_statistics import Statistics
from consilience.corruption.mapping_output import like_given
from consilience.corruption.reference import Reference
from consilience.corruption.seeded_noise import Noise

# Several arrays of one piece are alive at a time, and texts are of any length.
_PIECE_BYTES = SCAN_BYTES // 8
_TEXTS_AT_ONCE = 256


class Corruptor:
    """Corrupts set after set, or batch after batch, on the scale of one reference, which is measured once.

    reference: the training samples (`Samples`, or a mapping name → values), or a mapping name → `Statistics` where
    only those were kept. Memory-mapped values are read in pieces, and only those of modalities that need measuring.

    >>> train = {"image": np.random.default_rng(0).normal(size=(100, 1, 8, 8)), "audio": np.zeros((100, 3))}
    >>> corruptor = Corruptor(train)
    >>> weak, strong = (corruptor.apply(train, "gaussian", level, modalities=["image"]) for level in (1, 10))
    >>> bool(np.allclose(10 * (weak["image"] - train["image"]), strong["image"] - train["image"], atol=1e-4))
    True
    """

    def __init__(self, reference: Samples | Mapping[str, Any]):
        self.reference = Reference(reference)

    @property
    def statistics(self) -> dict[str, Statistics]:
        """Spread and range of each modality of numbers: enough to make another corruptor without the data."""
        return self.reference.measured()

    @overload
    def apply(self, X: Samples, *args: Any, **kwargs: Any) -> Samples: ...

    @overload
    def apply(self, X: Mapping[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]: ...

    def apply(
        self,
        X: Samples | Mapping[str, Any],
        corruption: str | Mapping[str, str] | None = None,
        level: float = 1.0,
        *,
        probability: float = 0.5,
        modalities: str | Iterable[str] | None = None,
        random_state: int = 0,
        clip: bool = False,
        index: Any = None,
        **options: Any,
    ) -> Samples | dict[str, Any]:
        """Corrupt samples or a mapping of arrays; see `corrupt` for the arguments."""
        samples = _read(X, index)
        level, probability = _check_level(level), _check_probability(probability)
        if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
            raise InputError(f"corrupt: random_state must be a whole number, got {random_state!r}")
        chosen = _choose(samples.modalities, corruption, modalities)
        _check_options(options, chosen)
        for name in chosen:
            self.reference.check(samples.modalities[name])
        damaged = samples
        if level > 0 and probability > 0:
            for name, one in chosen.items():
                rows = _hit(samples, name, probability, int(random_state))
                taken = {key: value for key, value in options.items() if key in one.options}
                strike = partial(_strike, one, level=level, clip=clip, options=taken)
                noise = Noise(int(random_state), name, one.name)
                damaged = _damage(damaged, name, rows, strike, noise, self.reference, reads=not one.hides)
        return damaged if isinstance(X, Samples) else like_given(X, samples, damaged)


@overload
def corrupt(X: Samples, *args: Any, **kwargs: Any) -> Samples: ...


@overload
def corrupt(X: Mapping[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]: ...


def corrupt(
    X: Samples | Mapping[str, Any],
    corruption: str | Mapping[str, str] | None = None,
    level: float = 1.0,
    *,
    probability: float = 0.5,
    modalities: str | Iterable[str] | None = None,
    reference: Samples | Mapping[str, Any] | None = None,
    random_state: int = 0,
    clip: bool = False,
    index: Any = None,
    **options: Any,
) -> Samples | dict[str, Any]:
    """Make modalities of some samples unsound: a copy of X with noise, gaps, swaps or missing modalities.

    Args:
        X: `Samples` (returned as such), or a mapping name → values, returned as arrays, or tensors where they were
            tensors; a modality gone missing is then a row of NaN, or None in text and in lists of unequal length.
            X itself is never changed. What is not hit is shared with X, not copied. Integers leave as floats, not
            clipped and not wrapped around. A memory-mapped modality that is hit comes to lie in memory: corrupt
            batch by batch (`Corruptor`), which gives the same numbers.
        corruption: one name for all modalities (`corruption_names()`), or a mapping modality → name. What is not
            named gets the default of its kind: gaussian on numbers, blank on text and tokens.
        level: how hard, ≥ 0. 0 changes nothing, not a bit; every corruption says what its level means.
        probability: that a modality of a sample is hit, independently of all others: ½ in Zhang et al., "Provable
            Dynamic Fusion for Low-Quality Multimodal Data". The same samples are hit, with the same random numbers,
            whatever the level, so that curves over levels are paired.
        modalities: corrupt these only.
        reference: whose standard deviation, minimum and maximum set the scale, and who lends samples to swap: the
            training set, or its `Statistics` by modality. Without it X itself, so give it when X is a batch or small.
        random_state: with another whole number, other samples are hit by other noise. A sample's noise depends on
            this, its index and the modality's name only: not on the batch, the order, the process or the device.
        clip: keep corrupted numbers within the reference's minimum and maximum.
        index: who is who `[n]`, where X is a mapping that holds a part of a set; 0 … n − 1 without it.
        options: `scale="raw"` (gaussian), `density=0.1` (salt-and-pepper), `unknown=1` (blank, on tokens).

    >>> noisy = corrupt({"image": np.ones((4, 1, 2, 2)), "caption": ["a red square"] * 4}, level=10, probability=1)
    >>> noisy["caption"].tolist()
    ['_ _ _', '_ _ _', '_ _ _', '_ _ _']
    """
    corruptor = Corruptor(_read(X, index) if reference is None else reference)
    return corruptor.apply(
        X,
        corruption,
        level,
        probability=probability,
        modalities=modalities,
        random_state=random_state,
        clip=clip,
        index=index,
        **options,
    )


def _read(X: Samples | Mapping[str, Any], index: Any) -> Samples:
    if isinstance(X, Samples) and index is not None:
        raise InputError("corrupt: Samples carry their own index; give index= with a mapping only")
    return Samples.of(X, index=index)


def _check_level(level: Any) -> float:
    try:
        number = float(level)
    except (TypeError, ValueError):
        raise InputError(f"corrupt: level must be a number ≥ 0, got {level!r}") from None
    if not math.isfinite(number) or number < 0:
        raise InputError(f"corrupt: level must be finite and ≥ 0, got {level!r}")
    return number


def _check_probability(probability: Any) -> float:
    if not isinstance(probability, int | float | np.number) or not 0 <= probability <= 1:
        raise InputError(f"corrupt: probability must be between 0 and 1, got {probability!r}")
    return float(probability)


def _check_options(options: Mapping[str, Any], chosen: Mapping[str, Corruption]) -> None:
    taken = sorted({option for one in chosen.values() for option in one.options})
    for option in options:
        if option not in taken:
            names = ", ".join(sorted({one.name for one in chosen.values()}))
            raise unknown_name("option", option, taken, f"Those are what {names} takes")


def _choose(
    modalities: Mapping[str, Modality], corruption: str | Mapping[str, str] | None, only: str | Iterable[str] | None
) -> dict[str, Corruption]:
    """What is to happen to each modality that may be hit."""
    names = list(modalities) if only is None else [only] if isinstance(only, str) else list(only)
    for name in names:
        if name not in modalities:
            raise unknown_name("modality", name, modalities, "It was to be corrupted")
    named = corruption if isinstance(corruption, Mapping) else {}
    for name in named:
        if name not in modalities:
            raise unknown_name("modality", name, modalities, "A corruption was named for it")
    chosen = {}
    for name in dict.fromkeys(names):
        modality = modalities[name]
        default = corruption if isinstance(corruption, str) else DEFAULT[modality.kind]
        one = find_corruption(named.get(name, default))
        if modality.kind not in one.kinds:
            raise UnsupportedError(
                f"the corruption {one.name!r} does not apply to {modality.describe()}, only to {', '.join(one.kinds)}. "
                f"Give a mapping, corruption={{{name!r}: {DEFAULT[modality.kind]!r}, …}} "
                f"({', '.join(corruption_names(modality.kind))}), or leave it out of modalities=[…]"
            )
        chosen[name] = one
    return chosen


def _hit(samples: Samples, name: str, probability: float, seed: int) -> np.ndarray:
    """The rows to corrupt: those who have the modality, each with this probability."""
    return np.flatnonzero(samples.present_in(name) & (Noise(seed, name).uniform(samples.index) < probability))


def _strike(corruption: Corruption, portion: Portion, level: float, clip: bool, options: Mapping[str, Any]) -> Portion:
    after = corruption.function(portion, level, **options)
    if clip and portion.modality.kind in NUMBERS and not corruption.hides:
        after = after.having(np.clip(after.values, portion.statistic("low"), portion.statistic("high")))
    return after


def _damage(
    samples: Samples,
    name: str,
    hit: np.ndarray,
    strike: Callable[[Portion], Portion],
    noise: Noise,
    reference: Reference,
    reads: bool,
) -> Samples:
    """The samples with one modality struck in the rows `hit`; what only hides it does not read its values."""
    modality, column = samples.modalities[name], samples.names.index(name)
    values = _copy(modality, samples.values[name]) if reads else np.empty((len(samples), 0))
    present = samples.present.copy()
    lengths = samples.lengths[name].copy() if name in samples.lengths else None
    for rows in _pieces(modality, hit):
        length = None if lengths is None else lengths[rows]
        there = present[rows, column]
        before = _without_padding(values[rows], length) if reads else values[rows]
        after = strike(Portion(modality, before, samples.index[rows], length, there, noise, reference))
        present[rows, column] = after.present
        if reads:
            values[rows] = _without_padding(after.values, after.lengths)
        if lengths is not None:
            lengths[rows] = after.lengths
    return samples.replaced({name: values} if reads else {}, present, {} if lengths is None else {name: lengths})


def _copy(modality: Modality, source: Values) -> np.ndarray:
    """The values in memory, in a type that can hold what a corruption makes of them."""
    if modality.kind == "text":
        return np.array(source, dtype=object)
    least = np.int64 if modality.kind == "tokens" else np.float32
    return np.array(source, dtype=np.result_type(source.dtype, least))


def _pieces(modality: Modality, rows: np.ndarray) -> Iterator[np.ndarray]:
    at_once = max(1, _PIECE_BYTES // (8 * max(1, math.prod(modality.shape))))
    if modality.kind == "text":
        at_once = _TEXTS_AT_ONCE
    for start in range(0, len(rows), at_once):
        yield rows[start : start + at_once]


def _without_padding(values: np.ndarray, lengths: np.ndarray | None) -> np.ndarray:
    """The same with zeros beyond each sample's length."""
    if lengths is None:
        return values
    beyond = np.arange(values.shape[1]) >= lengths[:, None]
    if not beyond.any():
        return values
    return np.where(beyond.reshape(*beyond.shape, *[1] * (values.ndim - 2)), values.dtype.type(0), values)
