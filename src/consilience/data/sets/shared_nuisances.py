"""Dependence between modalities given the class: they share nuisances such as a style or a noise.

Modalities that are paired at random within a class are independent given the class. The product of their posteriors,
divided by the prior, is then the best answer, and no encoder can gain from what another modality says. Real pairs share
more than their class: the writer is the speaker, one microphone is near one camera. The functions here add such a
shared nuisance by a dial from 0 to 1, and change what is paired with what, but not the distribution of one modality.
"""

from __future__ import annotations

import numpy as np


def correlated(own: np.ndarray, shared: np.ndarray, dependence: float) -> np.ndarray:
    """Mix two independent noises of the same variance into one of that variance.

    Args:
        own: Any shape.
        shared: The same shape; another modality's noise.
        dependence: The correlation of the result with `shared`, from 0 (the result is `own`) to 1 (it is `shared`).

    Example:
        >>> own, shared = np.random.default_rng(0).normal(size=(2, 20000))
        >>> mixed = correlated(own, shared, 0.6)
        >>> round(float(np.corrcoef(mixed, shared)[0, 1]), 1), round(float(mixed.std()), 1)
        (0.6, 1.0)
    """
    if dependence == 0:
        return own
    return np.sqrt(1 - dependence**2) * own + dependence * shared


def share_style(
    rows: np.ndarray,
    classes: np.ndarray,
    style: np.ndarray,
    other_style: np.ndarray,
    dependence: float,
    seed: int = 0,
) -> np.ndarray:
    """Deal the partners of samples out again within each class, so that the styles of a pair are similar.

    Within a class, samples are ordered by dependence · g + √(1 − dependence²) · ε, where g is the normal score of their
    style and ε standard normal noise, and get the partners of this class in the order of the partners' style: the two
    styles have a Gaussian copula. No sample gets a partner of another class, and every partner is used as often as
    before.

    Args:
        rows: Each sample's partner, `[n]` rows of the other modality.
        classes: `[n]`.
        style: A number for each sample, `[n]`.
        other_style: A number for each row of the other modality, `[rows of it]`.
        dependence: From 0 (`rows` are returned as they are) to 1 (the orders of the styles agree).
        seed: Of ε.

    Returns:
        Each sample's new partner, `[n]`.

    Example:
        >>> rows, styles = np.array([0, 1, 2, 3]), np.array([5.0, 7.0, 4.0, 6.0])
        >>> share_style(rows, np.array([0, 0, 1, 1]), styles, np.array([1.0, 0.0, 0.5, 0.9]), 1.0)
        array([1, 0, 2, 3])
    """
    if dependence == 0:
        return rows
    noise = _normal_noise(len(rows), seed)
    dealt = np.empty_like(rows)
    for one in np.unique(classes):
        members = np.flatnonzero(classes == one)
        score = correlated(noise[members], _normal_scores(style[members]), dependence)
        partners = rows[members]
        in_order = partners[np.argsort(other_style[partners], kind="stable")]
        dealt[members[np.argsort(score, kind="stable")]] = in_order
    return dealt


def _normal_scores(values: np.ndarray) -> np.ndarray:
    """Φ⁻¹ of the ranks, in (0, 1)."""
    from scipy.special import ndtri

    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ndtri((ranks + 0.5) / len(values))


def _normal_noise(n: int, seed: int) -> np.ndarray:
    """Standard normal numbers from the raw stream of PCG64, which numpy promises never to change."""
    from scipy.special import ndtri

    raw = np.random.PCG64([seed, 4]).random_raw(n) >> np.uint64(12)
    return ndtri((raw.astype(np.float64) + 0.5) / 2.0**52)
