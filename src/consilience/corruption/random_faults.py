"""Samples spoilt by faults drawn at random, from which one can learn what a spoilt modality looks like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from consilience.core.errors import unknown_name
from consilience.core.samples import Modality, Samples
from consilience.corruption.corruptions import find_corruption
from consilience.corruption.corruptor import Corruptor, writable

# The generic faults and the levels between which they are drawn, log-uniformly.
FAULTS: Mapping[str, tuple[float, float]] = {
    "gaussian": (0.1, 10.0),
    "scaled": (0.2, 10.0),
    "salt-and-pepper": (1.0, 60.0),
    "blank": (1.0, 10.0),
    "drop": (1.0, 9.0),
    "structured-drop": (1.0, 9.0),
    "stuck": (1.0, 10.0),
    "swapped": (10.0, 10.0),
}
# Half of the samples have one fault and level in all modalities, the others a separate fault in each.
_ONE_FAULT = 0.5
# In a quarter of the samples every modality is hit; in the others, each with a probability between .2 and 1.
_ALL_HIT = 0.25
_LEAST_PROBABILITY = 0.2
# Samples of one fault and level are changed by one call.
_LEVELS = 6


def draw_extent(n: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw for each sample the probability that a modality is hit, and whether all modalities have the same fault."""
    probability = np.where(random.random(n) < _ALL_HIT, 1.0, random.uniform(_LEAST_PROBABILITY, 1.0, n))
    return probability, random.random(n) < _ONE_FAULT


def check_faults(families: Sequence[str]) -> tuple[str, ...]:
    """Return the names of faults, or raise an error for one that is unknown.

    >>> check_faults(["gausian"])
    Traceback (most recent call last):
    consilience.core.errors.UnknownNameError: unknown fault 'gausian': did you mean 'gaussian'? Known: ...
    """
    for family in families:
        if family not in FAULTS:
            raise unknown_name("fault", family, FAULTS)
    return tuple(dict.fromkeys(families))


def faults_for(modality: Modality, families: Sequence[str]) -> list[str]:
    """The families that apply to the kind of a modality.

    >>> faults_for(Modality("note", "text", ()), ["gaussian", "blank", "swapped"])
    ['blank', 'swapped']
    """
    return [family for family in families if modality.kind in find_corruption(family).kinds]


def spoil(samples: Samples, corruptor: Corruptor, families: Sequence[str], seed: int = 0) -> Samples:
    """Spoil modalities of the samples by faults of these families, drawn at random for each sample.

    Args:
        samples: Sound samples.
        corruptor: Of the training samples.
        families: Names out of `FAULTS`. A modality to whose kind none applies stays as it is.
        seed: Of all draws.

    Returns:
        The samples in the same order, with other values.
    """
    random = np.random.default_rng(seed)
    n = len(samples)
    probability, common = draw_extent(n, random)
    shared_fault, shared_level = random.random(n), random.integers(_LEVELS, size=n)
    for name, modality in samples.modalities.items():
        hit = random.random(n) < probability
        fault = np.where(common, shared_fault, random.random(n))
        level = np.where(common, shared_level, random.integers(_LEVELS, size=n))
        names = faults_for(modality, families)
        if names:
            samples = _spoil_modality(samples, name, corruptor, names, np.where(hit, fault, np.nan), level, seed)
    return samples


def _spoil_modality(
    samples: Samples,
    name: str,
    corruptor: Corruptor,
    names: Sequence[str],
    fault: np.ndarray,
    level: np.ndarray,
    seed: int,
) -> Samples:
    """Spoil one modality: fault `[n]` in [0, 1) chooses among the names, NaN leaves a sample as it is."""
    values, present = writable(samples.modalities[name], samples.values[name]), samples.present.copy()
    lengths = {name: samples.lengths[name].copy()} if name in samples.lengths else {}
    column = samples.names.index(name)
    for number, own in enumerate(names):
        low, high = FAULTS[own]
        for step in range(_LEVELS):
            rows = np.flatnonzero((fault * len(names) // 1 == number) & (level == step) & present[:, column])
            if not len(rows):
                continue
            at = low * (high / low) ** (step / (_LEVELS - 1))
            changed = corruptor.apply(
                samples.select(rows), {name: own}, at, probability=1.0, modalities=[name], random_state=seed
            )
            values[rows], present[rows, column] = changed.values[name], changed.present_in(name)
            if lengths:
                lengths[name][rows] = changed.lengths[name]
    return samples.replaced({name: values}, present, lengths)
