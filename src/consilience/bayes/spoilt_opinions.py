"""Opinions spoilt by faults drawn at random, from which one can learn what the opinion of a broken expert looks like.

Where only opinions are known, the inputs cannot be spoilt. What broken inputs do to opinions is imitated:

- swapped: the opinion on another sample.
- stuck: the opinion on one sample, the same wherever the expert is stuck.
- noisy: z + s·ε, where ε has the covariance of the expert's logits.
- blurred: noisy, and drawn towards the expert's mean logits: c + (z + s·ε − c)/t.
- overconfident: t·(z + s·ε), which is certain and often wrong.
"""

from __future__ import annotations

import numpy as np

from consilience.corruption.random_faults import draw_extent

# The faults and the levels (t, or s) between which they are drawn, log-uniformly.
OPINION_FAULTS: dict[str, tuple[float, float]] = {
    "swapped": (1.0, 1.0),
    "stuck": (1.0, 1.0),
    "blurred": (1.0, 20.0),
    "noisy": (0.1, 10.0),
    "overconfident": (1.0, 10.0),
}
# s of the noise in opinions that are blurred or overconfident. An opinion that is only scaled would still be right, and
# the gate would learn to undo the scaling, which is wrong for real experts: on noisy inputs they lose what they knew.
_LEAST_NOISE, _MOST_NOISE = 3.0, 10.0
# Logits whose logsumexp is this near 0 in all samples are log-probabilities, and remain so.
_NORMALISED = 1e-6


def spoil_opinions(logits: np.ndarray, present: np.ndarray, seed: int = 0) -> np.ndarray:
    """Spoil opinions by faults that are drawn at random for each sample and expert.

    Args:
        logits: Finite logits of sound samples `[n, modality, class]`.
        present: `[n, modality]`. Missing opinions stay as they are.
        seed: Of all draws.

    Returns:
        Logits in the same order and shape. Those of an expert that gives log-probabilities remain log-probabilities.

    >>> sound = np.log([[[0.9, 0.1]], [[0.2, 0.8]], [[0.4, 0.6]]])
    >>> spoilt = spoil_opinions(sound, np.ones((3, 1), dtype=bool))
    >>> spoilt.shape, bool(np.allclose(np.exp(spoilt).sum(axis=2), 1))
    ((3, 1, 2), True)
    """
    random = np.random.default_rng(seed)
    n, modalities, _ = logits.shape
    probability, common = draw_extent(n, random)
    shared_fault, shared_level = random.integers(len(OPINION_FAULTS), size=n), random.random(n)
    spoilt = np.array(logits, dtype=np.float64)
    for m in range(modalities):
        hit = random.random(n) < probability
        fault = np.where(common, shared_fault, random.integers(len(OPINION_FAULTS), size=n))
        level = np.where(common, shared_level, random.random(n))
        known = np.flatnonzero(present[:, m])
        if len(known):
            rows = np.flatnonzero(present[:, m] & hit)
            spoilt[rows, m] = _spoil_expert(spoilt[:, m], rows, known, fault[rows], level[rows], random)
    return spoilt


def _spoil_expert(
    logits: np.ndarray,
    rows: np.ndarray,
    known: np.ndarray,
    fault: np.ndarray,
    level: np.ndarray,
    random: np.random.Generator,
) -> np.ndarray:
    """The spoilt opinions of one expert on some rows.

    Args:
        logits: Of all samples `[n, class]`.
        rows: Those to spoil, `[row]`.
        known: The rows with an opinion of the expert.
        fault: The index of the fault `[row]`.
        level: Between 0 and 1 `[row]`.
        random: Of all draws.
    """
    given, own = logits[known], logits[rows]
    centre = given.mean(axis=0)
    noise = _noise(given, len(rows), random)
    swapped, stuck = given[random.integers(len(known), size=len(rows))], given[random.integers(len(known))]
    low, high = np.array(list(OPINION_FAULTS.values())).T
    at = (low[fault] * (high[fault] / low[fault]) ** level)[:, None]
    strength = _LEAST_NOISE * (_MOST_NOISE / _LEAST_NOISE) ** random.random((len(rows), 1))
    results = {
        "swapped": swapped,
        "stuck": np.broadcast_to(stuck, own.shape),
        "blurred": centre + (own + strength * noise - centre) / at,
        "noisy": own + at * noise,
        "overconfident": at * (own + strength * noise),
    }
    spoilt = np.stack([results[name] for name in OPINION_FAULTS])[fault, np.arange(len(rows))]
    energy = np.logaddexp.reduce(given, axis=1)
    if np.abs(energy).max() < _NORMALISED:
        spoilt -= np.logaddexp.reduce(spoilt, axis=1, keepdims=True)
    return spoilt


def _noise(given: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """Gaussian noise `[count, class]` with the covariance of logits `[n, class]`."""
    _, scale, directions = np.linalg.svd(given - given.mean(axis=0), full_matrices=False)
    return random.normal(size=(count, len(scale))) * (scale / len(given) ** 0.5) @ directions
