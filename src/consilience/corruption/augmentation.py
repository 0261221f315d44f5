"""Training with corruptions: which corruption, at which levels, how often and on which modality.

    "gaussian:0..0.5"                       every sample, a level drawn between 0 and 0.5
    "gaussian:0..0.5@0.3"                   with probability 0.3
    ["gaussian:0..0.5", "swapped:10@0.1"]   one after the other
    {"audio": "gaussian:0..1"}              this modality only
    ["gaussian:0..1", "audio=missing:10@0.2", "image=none"]
    "gaussian:0..20,scale=raw"              with an option of the corruption
    "missing:10@0.2,last=true"              may also take the last modality of a sample

Every draw is a function of the seed of the epoch, the modality and the position of the sample in the training set.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import numpy as np

from consilience.core.errors import InputError, UnsupportedError, unknown_name
from consilience.core.samples import Modality, Samples
from consilience.corruption.corruptions import Corruption, Portion, corruption_names, find_corruption
from consilience.corruption.corruptor import corrupt_rows
from consilience.corruption.reference import Reference
from consilience.corruption.seeded_noise import Noise

# What `augment` may be.
Augment = str | Sequence[str] | Mapping[str, Any]
# "image=none" exempts a modality from what is given without a modality.
NONE = "none"
# The streams that decide whether a sample is hit, and at which level.
WHETHER, HOW_FAR = "is augmented", "level of augmentation"
_FORM = "[MODALITY=]CORRUPTION:LEVEL[..LEVEL][@PROBABILITY][,OPTION=VALUE…], such as 'gaussian:0..0.5@0.3'"


@dataclass(frozen=True)
class Augmentation:
    """A corruption of training samples.

    Attributes:
        corruption: The corruption.
        low, high: Levels are uniform between these.
        probability: With which a sample is hit.
        options: Of the corruption.
        last: Whether it may make the last modality of a sample missing.
    """

    corruption: Corruption
    low: float
    high: float
    probability: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    last: bool = False

    def levels(self, hit: Any, place: Any) -> Any:
        """The level of each sample from two uniform numbers, arrays or tensors; 0 where it is not hit."""
        return (self.low + (self.high - self.low) * place) * (hit < self.probability)


def stream(seed: int, modality: str, place: int, augmentation: Augmentation) -> Noise:
    """The random numbers of one augmentation of a modality; `WHETHER` and `HOW_FAR` are streams below it."""
    return Noise(seed, "augment", modality, str(place), augmentation.corruption.name)


def read_augment(given: Augment | None) -> dict[str | None, tuple[Augmentation, ...]]:
    """Read an augmentation as it is given to a trainer.

    Args:
        given: A string, a list of strings, or a mapping modality → string, list or None.

    Returns:
        Modality → augmentations in their order; under None what was given without a modality.

    Raises:
        InputError: If a text does not have the form, or a number is not allowed.
        UnknownNameError: If there is no such corruption or option.

    Example:
        >>> (gaussian,) = read_augment("gaussian:0..0.5@0.3")[None]
        >>> gaussian.low, gaussian.high, gaussian.probability
        (0.0, 0.5, 0.3)
    """
    found: dict[str | None, tuple[Augmentation, ...]] = {}
    if isinstance(given, Mapping):
        for name, own in given.items():
            texts = [] if own is None else own if isinstance(own, list | tuple) else [own]
            found[str(name)] = tuple(_read(text) for text in texts if text != NONE)
        return found
    for text in [given] if isinstance(given, str) else given or []:
        name, equals, rest = text.partition("=")
        if not equals or ":" in name:
            found[None] = (*found.get(None, ()), _read(text))
        else:
            found[name] = (*found.get(name, ()), *([] if rest == NONE else [_read(rest)]))
    return found


def choose_augmentations(
    given: Augment | None, modalities: Mapping[str, Modality]
) -> dict[str, tuple[Augmentation, ...]]:
    """Return the augmentations of each modality that has some.

    What is given without a modality applies to every modality of a fitting kind that is not named.

    Raises:
        UnknownNameError: If there is no such modality.
        UnsupportedError: If a corruption does not apply to the modality that is named, or to none of them.
    """
    read = read_augment(given)
    chosen: dict[str, tuple[Augmentation, ...]] = {}
    for name, own in read.items():
        if name is None:
            continue
        if name not in modalities:
            raise unknown_name("modality", name, modalities, "An augmentation was given for it")
        for augmentation in own:
            if modalities[name].kind not in augmentation.corruption.kinds:
                raise _unfit(augmentation, modalities[name])
        chosen[name] = own
    others = [modality for name, modality in modalities.items() if name not in read]
    for augmentation in read.get(None, ()):
        fitting = [modality.name for modality in others if modality.kind in augmentation.corruption.kinds]
        if others and not fitting:
            raise _unfit(augmentation, others[0])
        for name in fitting:
            chosen[name] = (*chosen.get(name, ()), augmentation)
    return {name: chosen[name] for name in modalities if chosen.get(name)}


def within_modalities(given: Augment | None, names: Collection[str]) -> Augment | None:
    """The same without what is given for modalities that are not among `names`: sets differ in their modalities."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return {name: own for name, own in given.items() if name in names} or None
    texts = [given] if isinstance(given, str) else given
    kept = [text for text in texts if ":" in text.partition("=")[0] or text.partition("=")[0] in names]
    return given if len(kept) == len(texts) else kept or None


def augment_samples(
    samples: Samples, name: str, augmentations: Sequence[Augmentation], seed: int, reference: Reference
) -> tuple[Samples, np.ndarray, np.ndarray]:
    """Apply the augmentations of one modality.

    Args:
        samples: Some training samples; their index is their position in the training set.
        name: The modality.
        augmentations: In their order.
        seed: Of the epoch.
        reference: Statistics and donors.

    Returns:
        The samples with other values, all of them as present as before; which of them go missing `[n]`; and which
        do so even if it is their last modality `[n]`.
    """
    before, column = samples.present, samples.names.index(name)
    lost = {False: np.zeros(len(samples), dtype=bool), True: np.zeros(len(samples), dtype=bool)}
    for place, augmentation in enumerate(augmentations):
        noise = stream(seed, name, place, augmentation)
        rows = before[:, column] & (levels_of(augmentation, noise, samples.index) > 0)
        after = corrupt_rows(
            samples,
            name,
            np.flatnonzero(rows),
            partial(_change, augmentation),
            noise,
            reference,
            reads=not augmentation.corruption.hides,
        )
        lost[augmentation.last] |= before[:, column] & ~after.present[:, column]
        samples = after.replaced({}, before)
    return samples, lost[False], lost[True]


def levels_of(augmentation: Augmentation, noise: Noise, index: np.ndarray) -> np.ndarray:
    """The level of each sample `[n]`; 0 where it is not hit."""
    return augmentation.levels(noise.within(WHETHER).uniform(index), noise.within(HOW_FAR).uniform(index))


def _change(augmentation: Augmentation, portion: Portion) -> Portion:
    levels = levels_of(augmentation, portion.noise, portion.index)
    return augmentation.corruption.apply(portion, levels, augmentation.options)


def _read(text: Any) -> Augmentation:
    """An augmentation without its modality."""
    if not isinstance(text, str):
        raise InputError(f"augment: expected a string {_FORM}, got {text!r}")
    described, *options = text.split(",")
    described, at, probability = described.partition("@")
    name, colon, levels = described.partition(":")
    if not colon or not name or not levels:
        _refuse(text, f"expected {_FORM}")
    corruption = find_corruption(name)
    low, dots, high = levels.partition("..")
    ends = (_number(text, low), _number(text, high if dots else low))
    if not 0 <= ends[0] <= ends[1] or ends[1] == 0:
        _refuse(text, "levels must be ≥ 0, the first not above the second, the second > 0")
    chance = _number(text, probability) if at else 1.0
    if not 0 < chance <= 1:
        _refuse(text, "the probability must be > 0 and ≤ 1")
    own = dict(_option(text, option) for option in options)
    known = (*corruption.options, "last")
    for option in own:
        if option not in known:
            raise unknown_name("option", option, known, f"It was given in the augmentation {text!r}")
    last = own.pop("last", False)
    if not isinstance(last, bool):
        _refuse(text, "last must be true or false")
    return Augmentation(corruption, *ends, chance, own, last)


def _number(text: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        _refuse(text, f"{number!r} is not a number; expected {_FORM}")
    if not math.isfinite(value):
        _refuse(text, f"{number} is not finite")
    return value


def _option(text: str, option: str) -> tuple[str, Any]:
    name, equals, value = option.partition("=")
    if not equals:
        _refuse(text, f"{option!r} is not OPTION=VALUE; expected {_FORM}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _refuse(text: str, reason: str) -> NoReturn:
    raise InputError(f"augment {text!r}: {reason}")


def _unfit(augmentation: Augmentation, modality: Modality) -> UnsupportedError:
    corruption = augmentation.corruption
    return UnsupportedError(
        f"augment: the corruption {corruption.name!r} does not apply to {modality.describe()}, only to "
        f"{', '.join(corruption.kinds)}. For {modality.name!r} choose one of "
        f"{', '.join(corruption_names(modality.kind))}, or give a mapping modality → augmentation without it"
    )
