"""Conflicting modalities: one modality of a sample shows an object of another class."""

from __future__ import annotations

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import KINDS, Samples
from consilience.corruption.corruptions import Level, Portion, register_corruption
from consilience.corruption.reference import Donors
from consilience.corruption.regions import share_of
from consilience.corruption.seeded_noise import Noise

# Of Xu et al. at level 10: the share of the samples that conflict, the share that is noisy, and the standard deviation
# of the noise in features that are scaled to [0, 1].
_CONFLICTING, _NOISY, _DEVIATION = 0.4, 0.1, 0.5


@register_corruption(
    "conflicting",
    kinds=KINDS,
    level="tenths of the samples hit that show an object of another class in one modality; use probability 1",
    by_sample=True,
)
def conflicting(portion: Portion, level: Level) -> Portion:
    """With probability level/10 one modality of a sample has the values of a reference sample of another class.

    The modality is drawn among all of the reference, and the donor among its samples of other classes that have the
    modality. A sample that lacks the modality drawn stays as it is.
    """
    shared = _shared(portion, "conflicting")
    hit = (shared.within("hit").uniform(portion.index) < share_of(level)) & _drawn(portion, shared)
    y, donors = _targets(portion, "conflicting"), portion.reference.donors(portion.modality.name)
    classes = _targets_of(donors.samples)[donors.rows]
    chance = portion.uniform(part="donor")
    rows = np.zeros(len(portion.index), dtype=np.int64)
    for label in np.unique(y[hit]):
        others = donors.rows[classes != label]
        if not len(others):
            raise InputError(
                f"corruption 'conflicting': no sample of the reference with modality {portion.modality.name!r} is of "
                f"another class than {label!r}. Give a larger set as reference"
            )
        own = hit & (y == label)
        rows[own] = others[(chance[own] * len(others)).astype(np.int64)]
    return _replaced(portion, hit, donors, rows)


@register_corruption(
    "rcml-conflict",
    kinds=KINDS,
    level="tenths of the protocol of Xu et al.: at 10, 40 % of the samples conflict and 10 % are noisy; probability 1",
)
def rcml_conflict(portion: Portion, level: float) -> Portion:
    """The conflicting test sets of Xu et al. 2024, "Reliable Conflictive Multi-View Learning", as in their code.

    A tenth of the samples is noisy: some of their modalities, a number drawn from 0 up to all but one, get Gaussian
    noise whose standard deviation is half of the range that a feature has in the reference. Then 40 % of the samples
    conflict: one modality, drawn at random, has the values of the first sample of the next class, always the same one;
    the class after the last is the first. Texts and tokens have no noise. A level below 10 lowers both shares.

    The published code takes the first sample of a class from the whole set; here it is that of the reference. It hits
    exactly 10 % and 40 % of the samples; here each sample is hit with that probability.
    """
    name, shared = "rcml-conflict", _shared(portion, "rcml-conflict")
    share = share_of(level)
    if portion.modality.kind not in ("text", "tokens"):
        noisy = (shared.within("noisy").uniform(portion.index) < _NOISY * share) & _noisy_view(portion, shared)
        spread = portion.statistic("high") - portion.statistic("low")
        noise = portion.noise.within("noise").normal(portion.index, portion.modality.shape)
        size = (_DEVIATION * spread * noise).astype(portion.values.dtype)
        portion = portion.having(
            np.where(noisy.reshape(-1, *[1] * len(portion.modality.shape)), portion.values + size, portion.values)
        )
    hit = (shared.within("hit").uniform(portion.index) < _CONFLICTING * share) & _drawn(portion, shared)
    y, donors = _targets(portion, name), portion.reference.donors(portion.modality.name)
    classes = _targets_of(donors.samples)
    names = np.unique(classes)
    first = {label: donors.rows[classes[donors.rows] == label][:1] for label in names}
    rows = np.zeros(len(portion.index), dtype=np.int64)
    for label in np.unique(y[hit]):
        found = first[names[(np.searchsorted(names, label) + 1) % len(names)]]
        if not len(found):
            raise InputError(
                f"corruption {name!r}: no sample of the class after {label!r} has modality "
                f"{portion.modality.name!r} in the reference. Give a larger set as reference"
            )
        rows[hit & (y == label)] = found[0]
    return _replaced(portion, hit, donors, rows)


def _shared(portion: Portion, name: str) -> Noise:
    """A stream that all modalities of a sample have in common."""
    return Noise(portion.noise.seed, name)


def _names(portion: Portion) -> tuple[str, ...]:
    samples = portion.reference.donors(portion.modality.name).samples
    return tuple(samples.names)


def _drawn(portion: Portion, shared: Noise) -> np.ndarray:
    """Whether this modality is the one that was drawn for each sample `[rows]`."""
    names = _names(portion)
    chosen = (shared.within("which").uniform(portion.index) * len(names)).astype(np.int64)
    return chosen == names.index(portion.modality.name)


def _noisy_view(portion: Portion, shared: Noise) -> np.ndarray:
    """Whether this modality is among those with noise `[rows]`: 0 up to all but one of them, drawn without order."""
    names = _names(portion)
    count = (shared.within("count").uniform(portion.index) * len(names)).astype(np.int64)
    rank = shared.within("order").uniform(portion.index, (len(names),)).argsort(axis=1).argsort(axis=1)
    return rank[:, names.index(portion.modality.name)] < count


def _targets(portion: Portion, name: str) -> np.ndarray:
    if portion.y is None:
        raise InputError(
            f"corruption {name!r} needs the class of every sample that it changes, and these samples have none: give "
            "Samples with y"
        )
    return np.asarray(portion.y)


def _targets_of(samples: Samples) -> np.ndarray:
    if samples.y is None:
        raise InputError("a corruption that follows the class needs a reference with y: give the training samples")
    return np.asarray(samples.y)


def _replaced(portion: Portion, hit: np.ndarray, donors: Donors, rows: np.ndarray) -> Portion:
    """The portion with the values of donors `rows` where `hit`; lengths are cut to what the samples can hold."""
    values = portion.values.copy()
    given = np.asarray(donors.samples.values[portion.modality.name][rows[hit]])
    if portion.lengths is None:
        values[hit] = given
        return portion.having(values)
    steps = min(portion.modality.shape[0], given.shape[1])
    values[hit] = 0
    values[hit, :steps] = given[:, :steps]
    lengths = portion.lengths.copy()
    lengths[hit] = np.minimum(donors.samples.lengths[portion.modality.name][rows[hit]], steps)
    return portion.having(values, lengths)
