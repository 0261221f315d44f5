"""The paired bootstrap over seeds × test samples: how far a difference between two methods is to be believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from consilience.core.errors import InputError, name_rows

# With more distinct values than this, the mean of the draws is normal to within the bootstrap's own error.
DISTINCT = 64


@dataclass(frozen=True)
class Difference:
    """Method − reference, positive is better; low, high: the interval; p: two-sided, of no difference at all."""

    difference: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    differences: Sequence[np.ndarray],
    samples: Sequence[np.ndarray] | None = None,
    *,
    resamples: int = 10_000,
    random_state: int = 0,
    confidence: float = 0.95,
) -> Difference:
    """Interval and p-value of a mean difference between two methods that were tested on the same samples.

    differences: one array `[sample]` a seed, method − reference, positive is better; a loss enters with its sign
    changed. A metric that is no mean over samples (macro F1, ECE, correlation) enters as one number a seed, `[1]`, and
    then only seeds are resampled. samples: who each test sample is, `[sample]` a seed, so that one that several seeds
    test on is drawn for all of them at once; ten seeds on one test set are not ten test sets. Without it, every seed
    has samples of its own.

    A resample draws seeds and test samples with replacement, both methods together. The plain bootstrap takes the
    spread of a few seeds for the truth: at a level of 5 %, with six seeds that vary more than their samples do, it
    finds a difference where there is none in some 13 % of cases. So two things are added:

    - the draw of the seeds is widened by √(S / χ²), χ² drawn with S − 1 degrees of freedom for S seeds, so that where
      seeds are all that varies, the interval is Student's at any confidence (the idea of the expanded percentile
      interval in Hesterberg, What Teachers Should Know About the Bootstrap, 2015);
    - p is at least `smallest_p` of the number of seeds, and of the number of samples on which the methods ever differ.
      One seed has p = 1, and its interval tells of the samples alone.

    p is twice the share of resamples at or beyond zero on the thinner side, the level at which the interval would end
    at zero; one is added to the count, so it is never 0. Where test samples are what varies and each seed has its own,
    the answer is cautious: the seeds' spread contains that of their samples, which is then counted twice.

    >>> better = [np.array([1, 0, 1, 0, 0, 1, 0, 0])] * 8
    >>> paired_bootstrap(better).difference, paired_bootstrap(better).p
    (0.375, 0.0078125)
    >>> everyone = [np.arange(8)] * 8
    >>> paired_bootstrap(better, everyone).p
    0.25
    """
    if resamples < 1 or not 0 < confidence < 1:
        raise InputError(
            f"a bootstrap needs resamples ≥ 1 and a confidence between 0 and 1, got {resamples} and {confidence}"
        )
    values = _read(differences)
    means = np.array([value.mean() for value in values])
    estimate = float(means.mean())
    rng = np.random.default_rng(random_state)
    influence, differing = _pool(values, samples)
    drawn = estimate + _draw_seeds(means, resamples, rng) + _draw_samples(influence, resamples, rng)
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    tail = (min((drawn <= 0).sum(), (drawn >= 0).sum()) + 1) / (resamples + 1)
    p = min(1.0, max(2 * float(tail), smallest_p(len(values)), smallest_p(max(1, differing))))
    return Difference(estimate, float(low), float(high), p)


def smallest_p(seeds: int) -> float:
    """The least p that S seeds can show: 2^(1 − S), where all agree, as in a two-sided test that flips their signs.

    >>> smallest_p(1), smallest_p(6)
    (1.0, 0.03125)
    """
    if seeds < 1:
        raise InputError(f"a comparison needs at least one seed, got {seeds}")
    return 2.0 ** (1 - seeds)


def _read(differences: Sequence[np.ndarray]) -> list[np.ndarray]:
    if not len(differences):
        raise InputError("a bootstrap needs the differences of at least one seed, got none")
    values = [np.asarray(one, dtype=np.float64) for one in differences]
    for seed, value in enumerate(values):
        if value.ndim != 1 or not len(value):
            raise InputError(
                f"the differences of seed {seed} must be one number a test sample, got shape {list(value.shape)}"
            )
        if not np.isfinite(value).all():
            rows = np.flatnonzero(~np.isfinite(value))
            raise InputError(f"the differences of seed {seed} must be finite ({name_rows(rows)})")
    return values


def _pool(values: Sequence[np.ndarray], samples: Sequence[np.ndarray] | None) -> tuple[np.ndarray, int]:
    """All test samples that any seed saw, each once.

    Returns how far the mean difference moves for each time a sample is drawn, `[sample]`, and on how many samples the
    methods differ.
    """
    tested = [len(value) for value in values]
    moves = np.concatenate([(value - value.mean()) / (len(value) * len(values)) for value in values])
    differ = np.concatenate(values) != 0
    if samples is None:
        return moves, int(differ.sum())
    sizes = [len(one) for one in samples]
    if sizes != tested:
        raise InputError(f"samples must name every test sample of every seed: {tested} of them, got {sizes}")
    _, who = np.unique(np.concatenate([np.asarray(one) for one in samples]), return_inverse=True)
    return np.bincount(who, weights=moves), int(np.count_nonzero(np.bincount(who, weights=differ)))


def _draw_seeds(means: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """How far the mean difference moves as seeds are drawn, widened for how few they are: `[resample]`."""
    seeds = len(means)
    if seeds == 1:
        return np.zeros(resamples)
    means = np.sort(means)  # the order in which seeds come must not change the draw
    drawn = means[rng.integers(seeds, size=(resamples, seeds))].mean(axis=1) - means.mean()
    return drawn * np.sqrt(seeds / rng.chisquare(seeds - 1, resamples))


def _draw_samples(influence: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """How far the mean difference moves as test samples are drawn: `[resample]`.

    Accuracies differ by −1, 0 or 1, so few values are distinct and drawing how often each comes is exact at any size.
    """
    scale = np.abs(influence).max()
    if scale == 0:
        return np.zeros(resamples)
    # Rounded, as the same sum taken in another order is the same value.
    distinct, counts = np.unique(np.round(influence / scale, 12), return_counts=True)
    if len(distinct) > DISTINCT:
        return rng.normal(0, np.sqrt(np.sum(influence**2)), resamples)
    return scale * (rng.multinomial(len(influence), counts / len(influence), resamples) @ distinct)
