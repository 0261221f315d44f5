"""What each modality contributes: Shapley values and pair interactions over presence masks.

The value v(S) of a set S of modalities is what a model gives when only S is present: a probability, a number, or a
sample's share in a metric. Modality m contributes

    φ_m = Σ_{S ∌ m} |S|! (N − |S| − 1)! / N! · [v(S ∪ m) − v(S)]

(Shapley 1953, A Value for n-Person Games), and the contributions of a sample sum to v(all present) − v(none). Two
modalities interact by

    I_ij = Σ_{S ∌ i, j} |S|! (N − |S| − 2)! / (N − 1)! · [v(S ∪ ij) − v(S ∪ i) − v(S ∪ j) + v(S)]

(Grabisch and Roubens 1999, An axiomatic approach to the concept of interaction among players in cooperative games).
A modality that a sample lacks changes nothing, so it contributes 0 and does not change what the others contribute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import Any, Literal

import numpy as np

from consilience.core.errors import InputError
from consilience.core.modality_sets import all_sets
from consilience.evaluation.mean_interval import half_width

# Rows `[k]` of the samples and what is present of each, booleans `[k, modality]` → values `[k]`.
Evaluate = Callable[[np.ndarray, np.ndarray], np.ndarray]
Relation = Literal["redundant", "complementary", "conflicting", "independent"]
# With more modalities the masks are sampled: 2^10 = 1024 masks of each sample are still quick to predict.
MOST_EXACT = 10
# The smallest effect that names a relation of two modalities, as a share of Σ|φ|; smaller than what rounding makes it
# is none.
SMALLEST_EFFECT, ROUNDING = 0.05, 1e-9
_PAIRS_AT_ONCE = 8192


@dataclass(frozen=True)
class Contributions:
    """Contributions of each modality to the value of each sample.

    Attributes:
        values: Shapley values `[n, modality]`; 0 where a modality is missing.
        errors: Half the width of their 95 % intervals `[n, modality]`; 0 where they are exact.
        interactions: Interaction of each pair `[n, modality, modality]`, symmetric, 0 on the diagonal; None where the
            values were sampled.
        none: Value without any modality `[n]`.
        all: Value with all modalities that are present `[n]`.
    """

    values: np.ndarray
    errors: np.ndarray
    interactions: np.ndarray | None
    none: np.ndarray
    all: np.ndarray

    @property
    def exact(self) -> bool:
        """Whether all masks were evaluated."""
        return self.interactions is not None


@dataclass(frozen=True)
class MeanContributions:
    """Contributions in the mean over samples. By linearity they are the Shapley values of the mean value.

    Attributes:
        modalities: Their names.
        values: `[modality]`; they sum to `all` − `none`.
        errors: Half the width of their 95 % intervals over samples `[modality]`.
        interactions: `[modality, modality]`, or None.
        interaction_errors: Half the width of their 95 % intervals over samples, or None.
        none: The mean value without any modality.
        all: The mean value with all modalities that are present.
        samples: Number of samples.
    """

    modalities: tuple[str, ...]
    values: np.ndarray
    errors: np.ndarray
    interactions: np.ndarray | None
    interaction_errors: np.ndarray | None
    none: float
    all: float
    samples: int

    @property
    def relations(self) -> np.ndarray | None:
        """The relation of each pair, by `relate_pairs`; effects within the interval of a mean do not count."""
        if self.interactions is None or self.interaction_errors is None:
            return None
        return relate_pairs(self.values, self.interactions, self.errors, self.interaction_errors)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; the interval of a single sample is None."""

        def plain(values: np.ndarray | None) -> Any:
            return None if values is None else np.where(np.isfinite(values), values.astype(object), None).tolist()  # type: ignore[call-overload]

        return {
            "modalities": list(self.modalities),
            "values": plain(self.values),
            "errors": plain(self.errors),
            "interactions": plain(self.interactions),
            "interaction_errors": plain(self.interaction_errors),
            "relations": None if self.relations is None else self.relations.tolist(),
            "none": self.none,
            "all": self.all,
            "samples": self.samples,
        }


def all_masks(modalities: int) -> np.ndarray:
    """Return all subsets, booleans `[2^modalities, modalities]`, in the order of `set_numbers`.

    >>> all_masks(2).astype(int).tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    return all_sets(modalities).numpy()


def shapley_values(values: np.ndarray) -> np.ndarray:
    """Return the exact Shapley values of a game.

    Args:
        values: The value of every subset `[2^modalities, ...]`, in the order of `all_masks`.

    Returns:
        `[modalities, ...]`.

    Example:
        >>> shapley_values(np.array([0.0, 1.0, 2.0, 4.0])).tolist()
        [1.5, 2.5]
    """
    masks, table = _checked(values)
    players, size = masks.shape[1], masks.sum(axis=1)
    # A set S with m counts |S|−1 others, one without m counts |S|.
    weights = np.array([1 / (players * comb(players - 1, others)) for others in range(players)] + [0.0])
    coefficients = np.where(masks.T, weights[size - 1], -weights[np.minimum(size, players)])
    return np.tensordot(coefficients, table, axes=1)


def shapley_interactions(values: np.ndarray) -> np.ndarray:
    """Return the Shapley interaction index of every pair.

    Args:
        values: As for `shapley_values`.

    Returns:
        `[modalities, modalities, ...]`, symmetric with a diagonal of 0.

    Example:
        >>> shapley_interactions(np.array([0.0, 1.0, 2.0, 4.0]))[0, 1].item()
        1.0
    """
    masks, table = _checked(values)
    players = masks.shape[1]
    signs = np.where(masks, 1.0, -1.0)
    weights = np.array([1 / ((players - 1) * comb(players - 2, others)) for others in range(players - 1)])
    coefficients = np.zeros((players, players, len(masks)))
    for i in range(players):
        for j in range(i):
            others = masks.sum(axis=1) - masks[:, i] - masks[:, j]
            coefficients[i, j] = coefficients[j, i] = signs[:, i] * signs[:, j] * weights[others]
    return np.tensordot(coefficients, table, axes=1)


def explain_values(
    evaluate: Evaluate,
    present: np.ndarray,
    *,
    permutations: int = 128,
    random_state: int = 0,
    at_once: int = _PAIRS_AT_ONCE,
    most_exact: int = MOST_EXACT,
) -> Contributions:
    """Return what each modality contributes to the value of each sample.

    Up to 10 modalities all masks are evaluated. With more, contributions are means over random orders in which
    modalities become present. Orders come in pairs, one the reverse of the other, which reduces the variance.

    Args:
        evaluate: Values `[k]` of rows `[k]` with masks `[k, modality]`.
        present: What each sample has, booleans `[n, modality]`.
        permutations: Number of random orders, at least 4.
        random_state: Seed of the orders.
        at_once: How many pairs of sample and mask to evaluate in one call.
        most_exact: Number of modalities up to which all masks are evaluated.

    Returns:
        The contributions; those of a sample sum to `all` − `none`.

    Example:
        >>> weights = np.array([1.0, 2.0, 3.0])
        >>> found = explain_values(lambda rows, masks: masks @ weights, np.array([[True, True, False]]))
        >>> found.values.round(6).tolist(), found.all.item()
        ([[1.0, 2.0, 0.0]], 3.0)
    """
    present = np.asarray(present, dtype=bool)
    modalities = present.shape[1]
    # Modalities that no sample has need no masks of their own.
    players = np.flatnonzero(present.any(axis=0))
    exact = len(players) <= most_exact
    if exact:
        masks = _widen(all_masks(len(players)), players, modalities)
        table = values_of_masks(evaluate, present, masks, at_once)
        values, errors = np.zeros((modalities, len(present))), np.zeros((modalities, len(present)))
        interactions = np.zeros((modalities, modalities, len(present)))
        values[players] = shapley_values(table)
        if len(players) > 1:
            interactions[np.ix_(players, players)] = shapley_interactions(table)
        values *= present.T  # exactly 0, without rounding
        interactions *= present.T[:, None] & present.T[None]
        return Contributions(values.T, errors.T, np.moveaxis(interactions, 2, 0), table[0], table[-1])
    if permutations < 4:
        raise InputError(f"contributions: permutations must be at least 4, got {permutations}")
    orders = _antithetic_orders(len(players), permutations, random_state)
    return _sampled(evaluate, present, players, orders, at_once)


def values_of_masks(
    evaluate: Evaluate, present: np.ndarray, masks: np.ndarray, at_once: int = _PAIRS_AT_ONCE
) -> np.ndarray:
    """Return the value of each sample under each mask `[mask, n]`.

    Masks that differ only in modalities that a sample lacks are evaluated once.

    Args:
        evaluate: As in `explain_values`.
        present: Booleans `[n, modality]`.
        masks: Booleans `[mask, modality]`.
        at_once: How many pairs to evaluate in one call.
    """
    patterns, pattern_of = np.unique(present, axis=0, return_inverse=True)
    table = np.empty((len(masks), len(present)))
    rows, seen, places = [], [], []
    for number, pattern in enumerate(patterns):
        members = np.flatnonzero(pattern_of.reshape(-1) == number)
        different, place_of = np.unique(masks & pattern, axis=0, return_inverse=True)
        rows.append(np.tile(members, len(different)))
        seen.append(np.repeat(different, len(members), axis=0))
        places.append((members, place_of.reshape(-1)))
    all_rows, all_seen = np.concatenate(rows), np.concatenate(seen)
    pieces = [
        np.asarray(evaluate(all_rows[start : start + at_once], all_seen[start : start + at_once]), dtype=np.float64)
        for start in range(0, len(all_rows), at_once)
    ]
    found = np.concatenate(pieces)
    if not np.isfinite(found).all():
        raise InputError("contributions: the value of some samples is not finite, so it cannot be shared out")
    start = 0
    for members, place_of in places:
        count = (place_of.max() + 1) * len(members)
        table[:, members] = found[start : start + count].reshape(-1, len(members))[place_of]
        start += count
    return table


def mean_contributions(
    found: Contributions, modalities: tuple[str, ...], units: np.ndarray | None = None
) -> MeanContributions:
    """Return the means over samples with their 95 % intervals.

    Args:
        found: The contributions of the samples.
        modalities: Their names.
        units: The group of each sample, or its block in time `[n]`, which the intervals draw at once.

    Example:
        >>> found = explain_values(lambda rows, masks: masks[:, 0] * rows, np.ones((3, 2), dtype=bool))
        >>> mean = mean_contributions(found, ("image", "audio"))
        >>> mean.values.tolist(), mean.all
        ([1.0, 0.0], 1.0)
    """
    interactions = found.interactions
    return MeanContributions(
        modalities,
        found.values.mean(axis=0),
        np.hypot(half_width(found.values, units), np.sqrt((found.errors**2).sum(axis=0)) / len(found.values)),
        None if interactions is None else interactions.mean(axis=0),
        None if interactions is None else half_width(interactions, units),
        float(found.none.mean()),
        float(found.all.mean()),
        len(found.values),
    )


def relate_pairs(
    values: np.ndarray,
    interactions: np.ndarray,
    errors: np.ndarray | float = 0.0,
    interaction_errors: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Name the relation of each pair of modalities.

    With the smallest effect τ, 5 % of the sum of all |φ|:

    - "conflicting": one modality lowers the value and the other raises it, φ_i < −τ and φ_j > τ;
    - "redundant": together they add less than apart, s·I_ij < −τ, where s is the sign of φ_i + φ_j;
    - "complementary": together they add more than apart, s·I_ij > τ;
    - "independent" otherwise.

    Args:
        values: Contributions `[..., modality]`.
        interactions: `[..., modality, modality]`.
        errors: Half-widths of the intervals of `values`; an effect must exceed its own as well.
        interaction_errors: The same of `interactions`.

    Returns:
        Relations `[..., modality, modality]` as text; "" on the diagonal.

    Example:
        >>> relate_pairs(np.array([0.5, -0.2]), np.zeros((2, 2)))[0, 1].item()
        'conflicting'
    """
    smallest = np.maximum(SMALLEST_EFFECT * np.abs(values).sum(axis=-1, keepdims=True), ROUNDING)
    raises = values > np.maximum(smallest, errors)
    lowers = values < -np.maximum(smallest, errors)
    least = np.maximum(smallest[..., None], interaction_errors)
    opposed = raises[..., :, None] & lowers[..., None, :]
    synergy = interactions * np.where(values[..., :, None] + values[..., None, :] < 0, -1.0, 1.0)
    return np.select(
        [
            np.broadcast_to(np.eye(values.shape[-1], dtype=bool), interactions.shape),
            opposed | np.swapaxes(opposed, -1, -2),
            synergy < -least,
            synergy > least,
        ],
        ["", "conflicting", "redundant", "complementary"],
        "independent",
    )


def _sampled(
    evaluate: Evaluate, present: np.ndarray, players: np.ndarray, orders: np.ndarray, at_once: int
) -> Contributions:
    """Contributions by random orders `[order, player]`, in which each even one is followed by its reverse."""
    from scipy.stats import t

    count, modalities = len(orders), present.shape[1]
    places = orders.argsort(axis=1)
    # In step k of an order, its first k players are present.
    steps = places[:, None, :] < np.arange(len(players) + 1)[None, :, None]
    masks, mask_of = np.unique(steps.reshape(-1, len(players)), axis=0, return_inverse=True)
    table = values_of_masks(evaluate, present, _widen(masks, players, modalities), at_once)
    mask_of = mask_of.reshape(count, len(players) + 1)
    marginals = np.zeros((count // 2, len(players), len(present)))  # means over an order and its reverse
    for order in range(count):
        gains = np.diff(table[mask_of[order]], axis=0)
        marginals[order // 2] += gains[places[order]] / 2
    values, errors = np.zeros((modalities, len(present))), np.zeros((modalities, len(present)))
    values[players] = marginals.mean(axis=0)
    spread = marginals.std(axis=0, ddof=1) / np.sqrt(len(marginals))
    errors[players] = t.ppf(0.975, len(marginals) - 1) * spread
    return Contributions(values.T, errors.T, None, table[mask_of[0, 0]], table[mask_of[0, -1]])


def _antithetic_orders(players: int, count: int, seed: int) -> np.ndarray:
    """Random orders `[order, player]`, each followed by its reverse."""
    random = np.random.default_rng(seed)
    drawn = random.permuted(np.tile(np.arange(players), (count // 2, 1)), axis=1)
    return np.stack([drawn, drawn[:, ::-1]], axis=1).reshape(-1, players)


def _widen(masks: np.ndarray, players: np.ndarray, modalities: int) -> np.ndarray:
    """Masks of the players as masks of all modalities."""
    wide = np.zeros((len(masks), modalities), dtype=bool)
    wide[:, players] = masks
    return wide


def _checked(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All masks, and the values as float64."""
    table = np.asarray(values, dtype=np.float64)
    players = max(len(table), 1).bit_length() - 1
    if table.ndim == 0 or len(table) != 2**players:
        raise InputError(
            f"contributions: values must have one entry for each of the 2^modalities subsets, got shape "
            f"{list(table.shape)}"
        )
    return all_masks(players), table
