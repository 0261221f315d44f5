"""`corrupt`: applies corruptions to samples.

Which samples are hit, and with which random numbers, depends on the seed and the index of a sample, not on its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, overload

import numpy as np

from consilience.core.errors import InputError, UnsupportedError, unknown_name
from consilience.core.modalities import without_padding
from consilience.core.moments import rows_at_once
from consilience.core.samples import SCAN_BYTES, Modality, Samples, Values
from consilience.core.settings import Fraction, NonNegativeFloat, checked
from consilience.corruption.corruptions import DEFAULT, NUMBERS, Corruption, Portion, corruption_names, find_corruption
from consilience.corruption.mapping_output import like_given
from consilience.corruption.reference import Reference, Statistics
from consilience.corruption.seeded_noise import Noise

# Several arrays of one piece are in memory at a time, and texts are of any length.
_PIECE_BYTES = SCAN_BYTES // 8
_TEXTS_AT_ONCE = 256


class Corruptor:
    """Corrupts several sets, or batches of a set, on the scale of one reference, which is measured once.

    Args:
        reference: The training samples (`Samples`, or a mapping name → values), or a mapping name → `Statistics`.
            Memory-mapped values are read in pieces, and only those of modalities whose statistics are needed.

    Example:
        >>> train = {"image": np.random.default_rng(0).normal(size=(100, 1, 8, 8)), "audio": np.zeros((100, 3))}
        >>> corruptor = Corruptor(train)
        >>> weak, strong = (corruptor.apply(train, "gaussian", level, modalities=["image"]) for level in (1, 10))
        >>> bool(np.allclose(10 * (weak["image"] - train["image"]), strong["image"] - train["image"], atol=1e-4))
        True
    """

    @checked
    def __init__(self, reference: Samples | Mapping[str, Any]):
        self.reference = Reference(reference)

    @property
    def statistics(self) -> dict[str, Statistics]:
        """The statistics of each modality of numbers, from which another corruptor can be made without the data."""
        return self.reference.measured()

    @overload
    def apply(self, X: Samples, *args: Any, **kwargs: Any) -> Samples: ...

    @overload
    def apply(self, X: Mapping[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]: ...

    @checked
    def apply(
        self,
        X: Samples | Mapping[str, Any],
        corruption: str | Mapping[str, str] | None = None,
        level: NonNegativeFloat = 1.0,
        *,
        probability: Fraction = 0.5,
        modalities: str | Iterable[str] | None = None,
        random_state: int = 0,
        clip: bool = False,
        index: Any = None,
        **options: Any,
    ) -> Samples | dict[str, Any]:
        """Corrupt samples or a mapping of arrays; the arguments are those of `corrupt`."""
        samples = _read(X, index)
        chosen = _choose(samples.modalities, corruption, modalities)
        _check_options(options, chosen)
        for name in chosen:
            self.reference.check(samples.modalities[name])
        damaged = samples
        if level > 0 and probability > 0:
            for name, entry in chosen.items():
                rows = _draw_rows(samples, name, probability, int(random_state))
                own = {key: value for key, value in options.items() if key in entry.options}
                change = partial(_change, entry, level=level, clip=clip, options=own)
                noise = Noise(int(random_state), name, entry.name)
                damaged = corrupt_rows(damaged, name, rows, change, noise, self.reference, reads=not entry.hides)
        return damaged if isinstance(X, Samples) else like_given(X, samples, damaged)

    def hits(
        self,
        samples: Samples,
        corruption: str | Mapping[str, str] | None = None,
        *,
        probability: float = 0.5,
        random_state: int = 0,
    ) -> dict[str, np.ndarray]:
        """Return which samples `apply` hits at any level above 0: modality → booleans `[n]`.

        Modalities whose corruption removes them are left out: what is missing is seen without it.

        Args:
            samples: What would be corrupted.
            corruption: As of `apply`.
            probability: As of `apply`.
            random_state: As of `apply`.
        """
        chosen = [name for name, entry in _choose(samples.modalities, corruption, None).items() if not entry.hides]
        hit = {name: np.zeros(len(samples), dtype=bool) for name in chosen}
        for name, mask in hit.items():
            mask[_draw_rows(samples, name, probability, random_state)] = True
        return hit


@overload
def corrupt(X: Samples, *args: Any, **kwargs: Any) -> Samples: ...


@overload
def corrupt(X: Mapping[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]: ...


@checked
def corrupt(
    X: Samples | Mapping[str, Any],
    corruption: str | Mapping[str, str] | None = None,
    level: NonNegativeFloat = 1.0,
    *,
    probability: Fraction = 0.5,
    modalities: str | Iterable[str] | None = None,
    reference: Samples | Mapping[str, Any] | None = None,
    random_state: int = 0,
    clip: bool = False,
    index: Any = None,
    **options: Any,
) -> Samples | dict[str, Any]:
    """Corrupt modalities of some samples: noise, gaps, swaps or missing modalities.

    Args:
        X: `Samples`, or a mapping name → values. It is never changed. A memory-mapped modality that is hit is read
            into memory; to avoid that, corrupt batch by batch with `Corruptor`, which gives the same numbers.
        corruption: One name for all modalities (`corruption_names()`); a mapping modality → name, which corrupts only
            the modalities that it names; or None for the default of each kind: gaussian on numbers, blank on text and
            tokens.
        level: The strength, ≥ 0. Level 0 changes nothing. The meaning of a level depends on the corruption.
        probability: That a modality of a sample is hit, independently of all others: ½ in Zhang et al., "Provable
            Dynamic Fusion for Low-Quality Multimodal Data". The same samples are hit with the same random numbers at
            every level, so that curves over levels are paired.
        modalities: Corrupt these only; a mapping must name a corruption for each of them.
        reference: The training set, or its `Statistics` by modality. Its standard deviation, minimum and maximum set
            the scale, and its samples are swapped in. By default X itself, so give it if X is a batch or small.
        random_state: The seed. The noise of a sample depends on the seed, its index and the name of the modality, not
            on the batch, the order, the process or the device.
        clip: Clip corrupted numbers to the minimum and maximum of the reference.
        index: The indices of the samples `[n]`, if X is a mapping that holds a part of a set; by default 0 … n − 1.
        options: `scale="raw"` (gaussian), `density=0.1` (salt-and-pepper), `unknown=1` (blank, on tokens).

    Returns:
        `Samples` for `Samples`, else a mapping of arrays, or of tensors where X has tensors. Values that are not hit
        are shared with X. Integers become floats. In a mapping, a modality that went missing is a row of NaN, or None
        in text and in lists of unequal length.

    Example:
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


def _check_options(options: Mapping[str, Any], chosen: Mapping[str, Corruption]) -> None:
    known = sorted({option for entry in chosen.values() for option in entry.options})
    for option in options:
        if option not in known:
            names = ", ".join(sorted({entry.name for entry in chosen.values()}))
            raise unknown_name("option", option, known, f"Those are what {names} takes")


def _choose(
    modalities: Mapping[str, Modality], corruption: str | Mapping[str, str] | None, only: str | Iterable[str] | None
) -> dict[str, Corruption]:
    """The corruption of each modality that may be hit."""
    named = corruption if isinstance(corruption, Mapping) else None
    if named is not None and not named:
        raise InputError("an empty mapping names no modality to corrupt; None is the default of each kind")
    for name in named or ():
        if name not in modalities:
            raise unknown_name("modality", name, modalities, "A corruption was named for it")
    every = list(modalities if named is None else named)
    names = every if only is None else [only] if isinstance(only, str) else list(only)
    for name in names:
        if name not in modalities:
            raise unknown_name("modality", name, modalities, "It was to be corrupted")
        if named is not None and name not in named:
            raise InputError(
                f"modality {name!r} is to be corrupted, and the mapping names a corruption only for "
                f"{', '.join(map(repr, named))}: name one for {name!r}, or leave it out of modalities=[…]"
            )
    chosen = {}
    for name in (name for name in modalities if name in set(names)):
        modality = modalities[name]
        default = corruption if isinstance(corruption, str) else DEFAULT[modality.kind]
        entry = find_corruption(default if named is None else named[name])
        if modality.kind not in entry.kinds:
            raise UnsupportedError(
                f"the corruption {entry.name!r} does not apply to {modality.describe()}, only to "
                f"{', '.join(entry.kinds)}. "
                f"Give a mapping, corruption={{{name!r}: {DEFAULT[modality.kind]!r}, …}} "
                f"({', '.join(corruption_names(modality.kind))}), or leave it out of modalities=[…]"
            )
        chosen[name] = entry
    return chosen


def _draw_rows(samples: Samples, name: str, probability: float, seed: int) -> np.ndarray:
    """The rows to corrupt: each that has the modality, with this probability."""
    return np.flatnonzero(samples.present_in(name) & (Noise(seed, name).uniform(samples.index) < probability))


def _change(corruption: Corruption, portion: Portion, level: float, clip: bool, options: Mapping[str, Any]) -> Portion:
    after = corruption.function(portion, level, **options)
    if clip and portion.modality.kind in NUMBERS and not corruption.hides:
        after = after.having(np.clip(after.values, portion.statistic("low"), portion.statistic("high")))
    return after


def corrupt_rows(
    samples: Samples,
    name: str,
    hit: np.ndarray,
    change: Callable[[Portion], Portion],
    noise: Noise,
    reference: Reference,
    reads: bool,
) -> Samples:
    """The samples with one modality changed in the rows `hit`; without `reads` only its presence may change."""
    modality, column = samples.modalities[name], samples.names.index(name)
    values = writable(modality, samples.values[name]) if reads else np.empty((len(samples), 0))
    present = samples.present.copy()
    lengths = samples.lengths[name].copy() if name in samples.lengths else None
    for rows in _pieces(modality, hit):
        length = None if lengths is None else lengths[rows]
        there = present[rows, column]
        before = without_padding(values[rows], length) if reads else values[rows]
        y = None if samples.y is None else samples.y[rows]
        after = change(Portion(modality, before, samples.index[rows], length, there, noise, reference, y))
        present[rows, column] = after.present
        if reads:
            values[rows] = without_padding(after.values, after.lengths)
        if lengths is not None:
            lengths[rows] = after.lengths
    return samples.replaced({name: values} if reads else {}, present, {} if lengths is None else {name: lengths})


def writable(modality: Modality, source: Values) -> np.ndarray:
    """The values in memory, in a type that can hold corrupted values."""
    if modality.kind == "text":
        return np.array(source, dtype=object)
    least = np.int64 if modality.kind == "tokens" else np.float32
    return np.array(source, dtype=np.result_type(source.dtype, least))


def _pieces(modality: Modality, rows: np.ndarray) -> Iterator[np.ndarray]:
    at_once = _TEXTS_AT_ONCE if modality.kind == "text" else rows_at_once(modality, _PIECE_BYTES)
    for start in range(0, len(rows), at_once):
        yield rows[start : start + at_once]
