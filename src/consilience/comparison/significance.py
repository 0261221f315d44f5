"""Significance: which differences between methods are more than chance.

`paired_bootstrap` gives the interval and the p-value of one difference, by resampling seeds × test samples.
`compare_to_reference` does so for every method, corrects the p-values for their number (`holm`), and `mark_best` says
whether the best method stands out. Ranks over several data sets and their tests are in `comparison.ranks`.

The bootstrap is ours because SciPy's resamples one level: here samples are shared between seeds, few seeds widen the
interval, and both methods are resampled together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from typing import TypedDict

import numpy as np

from consilience.core.errors import InputError, name_rows

# With more distinct values than this, the mean of the draws is normal to within the bootstrap's own error.
DISTINCT = 64
RESAMPLES = 10_000
# A metric that is no mean over samples is recomputed for every resample, which takes a pass over the samples.
RECOMPUTED = 2_000
CALLED = 200  # the same if each resample is a call of the metric's function
_ENTRIES_AT_ONCE = 2**22  # of an array resample × sample


@dataclass(frozen=True)
class Difference:
    """Method − reference, positive is better; low, high: the interval; p: two-sided, of no difference at all."""

    difference: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Recomputed:
    """A metric that is no mean over samples, of one method with one seed, as the bootstrap recomputes it.

    Attributes:
        value: From counts `[resample, sample]` of drawn samples to the metric `[resample]`; larger is better.
        read: What the metric reads of each sample, `[sample, ...]`, to count the samples on which methods differ.
        resamples: How many resamples are recomputed at most.
    """

    value: Callable[[np.ndarray], np.ndarray]
    read: np.ndarray
    resamples: int = RECOMPUTED


# method → seed → how the metric is recomputed there
Recompute = Mapping[str, Mapping[int, Recomputed]]


def paired_bootstrap(
    differences: Sequence[np.ndarray],
    samples: Sequence[np.ndarray] | None = None,
    *,
    moved: np.ndarray | None = None,
    differing: int | None = None,
    resamples: int = RESAMPLES,
    random_state: int = 0,
    confidence: float = 0.95,
) -> Difference:
    """Interval and p-value of a mean difference between two methods that were tested on the same samples.

    A resample draws seeds and test samples with replacement, both methods together. The plain bootstrap takes the
    spread of a few seeds for the truth: at a level of 5 %, with six seeds that vary more than their samples do, it
    finds a difference where there is none in some 13 % of cases. So two things are added:

    - the draw of the seeds is widened by √(S / χ²), χ² drawn with S − 1 degrees of freedom for S seeds, so that where
      seeds are all that varies, the interval is Student's at any confidence (the idea of the expanded percentile
      interval in Hesterberg, What Teachers Should Know About the Bootstrap, 2015);
    - p is at least `smallest_p` of the number of seeds, and of the number of samples on which the methods ever differ.
      One seed has p = 1, and its interval shows the variation of the samples alone.

    p is twice the share of resamples at or beyond zero on the thinner side, the level at which the interval would end
    at zero; one is added to the count, so it is never 0. Where test samples are what varies and each seed has its own,
    the test is conservative: the seeds' spread contains that of their samples, which is then counted twice.

    Args:
        differences: One array `[sample]` per seed, method − reference, positive is better; a loss enters with its sign
            changed. A metric that is no mean over samples enters as one number per seed, `[1]`.
        samples: The identity of each test sample, `[sample]` per seed, so that one that several seeds test on is drawn
            for all of them at once: ten seeds on one test set are not ten test sets. Without it, every seed has
            samples of its own.
        moved: How far the mean difference of a metric that is no mean over samples moves in each resample of the
            samples `[resample]`, from `resample_metric`. Without it only seeds are resampled for such a metric.
        differing: On how many samples the methods differ, where `moved` is given.
        resamples, random_state: How many to draw (`len(moved)` where that is given), and the seed of the draws.
        confidence: Of the interval.

    Example:
        >>> better = [np.array([1, 0, 1, 0, 0, 1, 0, 0])] * 8
        >>> paired_bootstrap(better).difference, paired_bootstrap(better).p
        (0.375, 0.0078125)
        >>> everyone = [np.arange(8)] * 8
        >>> paired_bootstrap(better, everyone).p
        0.25
    """
    if resamples < 1 or not 0 < confidence < 1:
        raise InputError(f"a bootstrap needs resamples ≥ 1 and confidence between 0 and 1: {resamples}, {confidence}")
    values = _read(differences)
    means = np.array([value.mean() for value in values])
    estimate = float(means.mean())
    rng = np.random.default_rng(random_state)
    if moved is None:
        influence, differing = _pool(values, samples)
        drawn = estimate + _draw_seeds(means, resamples, rng) + _draw_samples(influence, resamples, rng)
    else:
        moved = moved[np.isfinite(moved)]  # in a small resample the metric may not exist
        resamples, differing = len(moved), len(moved) if differing is None else differing
        drawn = estimate + _draw_seeds(means, resamples, rng) + moved
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2]) if resamples else (np.nan, np.nan)
    tail = (min((drawn <= 0).sum(), (drawn >= 0).sum()) + 1) / (resamples + 1)
    p = min(1.0, max(2 * float(tail), smallest_p(len(values)), smallest_p(max(1, differing))))
    return Difference(estimate, float(low), float(high), p)


def resample_metric(
    recompute: Recompute, samples: Mapping[int, np.ndarray], *, resamples: int = RECOMPUTED, random_state: int = 0
) -> dict[str, dict[int, np.ndarray]]:
    """How far a metric that is no mean over samples moves when the test samples are resampled.

    All test samples that any seed saw are drawn with replacement, each for all seeds and methods at once, and the
    metric is computed again on every draw.

    Args:
        recompute: Method → seed → how the metric is recomputed.
        samples: Seed → the identity of its test samples `[sample]`.
        resamples, random_state: How many to draw, and the seed of the draws.

    Returns:
        Method → seed → metric of the resample − metric of all samples, `[resample]`.
    """
    everyone, place = np.unique(np.concatenate(list(samples.values())), return_inverse=True)
    ends = np.cumsum([len(each) for each in samples.values()])[:-1]
    places = dict(zip(samples, np.split(place, ends)))
    moved = {method: {seed: np.empty(resamples) for seed in seeds} for method, seeds in recompute.items()}
    for part, counts in _draw_counts(len(everyone), resamples, random_state):
        for seed, here in places.items():
            weights = counts[:, here]
            for method, seeds in recompute.items():
                if seed in seeds:
                    with np.errstate(invalid="ignore", divide="ignore"):  # nan where no sample of a seed was drawn
                        moved[method][seed][part] = seeds[seed].value(weights)
    for method, seeds in recompute.items():
        for seed, recomputed in seeds.items():
            moved[method][seed] -= recomputed.value(np.ones((1, len(recomputed.read))))
    return moved


def _draw_counts(n: int, resamples: int, random_state: int) -> Iterator[tuple[slice, np.ndarray]]:
    """How often each of n samples is drawn in each resample, `[resample, n]`, as many resamples as memory allows."""
    rng, batch = np.random.default_rng(random_state), max(1, _ENTRIES_AT_ONCE // n)
    for start in range(0, resamples, batch):
        rows = min(batch, resamples - start)
        drawn = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
        yield slice(start, start + rows), counts.astype(np.float64)


def smallest_p(seeds: int) -> float:
    """The least p that S seeds can show: 2^(1 − S), where all agree, as in a two-sided test that flips their signs.

    >>> smallest_p(1), smallest_p(6)
    (1.0, 0.03125)
    """
    if seeds < 1:
        raise InputError(f"a comparison needs at least one seed, got {seeds}")
    return 2.0 ** (1 - seeds)


def holm(p: np.ndarray) -> np.ndarray:
    """p-values `[comparison]` adjusted for how many there are, by Holm's step-down procedure.

    The smallest of m is multiplied by m, the next by m − 1, and so on; none falls below a smaller one's, none exceeds
    1. nan, a comparison that could not be made, stays nan and does not count.

    >>> holm(np.array([0.01, 0.04, np.nan, 0.03]))
    array([0.03, 0.06,  nan, 0.06])
    """
    p = np.asarray(p, dtype=np.float64)
    if p.ndim != 1 or (p < 0).any() or (p > 1).any():
        raise InputError(f"p-values must be one number between 0 and 1 a comparison, got {p.tolist()}")
    adjusted = np.full_like(p, np.nan)
    order = np.argsort(p)[: np.isfinite(p).sum()]  # nan is sorted last
    steps = p[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted


def reachable(seeds: int, comparisons: int, alpha: float = 0.05) -> bool:
    """Whether any of so many comparisons could be significant after Holm's correction, if all seeds agreed.

    >>> reachable(5, 1), reachable(6, 1), reachable(6, 2)
    (False, True, False)
    """
    if comparisons < 1 or not 0 < alpha < 1:
        raise InputError(f"needed are at least one comparison and 0 < alpha < 1, got {comparisons} and {alpha}")
    return smallest_p(seeds) * comparisons <= alpha


def too_few_seeds(seeds: int, comparisons: int, alpha: float = 0.05, at_once: int = 1) -> str | None:
    """The sentence where so few seeds cannot show a difference, and which multiple of `at_once` would do; or None.

    >>> too_few_seeds(5, 3)
    '5 seeds cannot reach significance here: with 3 comparisons the smallest possible p is 0.19, above 0.05. 7 seeds
    would do.'
    """
    if reachable(seeds, comparisons, alpha):
        return None
    least = min(1.0, smallest_p(seeds) * comparisons)
    enough = next(more for more in count(seeds + 1) if more % at_once == 0 and reachable(more, comparisons, alpha))
    return (
        f"{seeds} seed{'s' if seeds > 1 else ''} cannot reach significance here: with {comparisons} "
        f"comparison{'s' if comparisons > 1 else ''} the smallest possible p is {least:.2g}, above {alpha:g}. "
        f"{enough} seeds would do."
    )


class Row(TypedDict):
    """One method against the reference, as in `Findings.differences`; all nan where they share no seed."""

    method: str
    reference: str
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    significant: bool


def compare_to_reference(
    scores: Mapping[str, Mapping[int, np.ndarray]],
    reference: str,
    *,
    samples: Mapping[int, np.ndarray] | None = None,
    recompute: Recompute | None = None,
    alpha: float = 0.05,
    resamples: int = RESAMPLES,
    random_state: int = 0,
    confidence: float = 0.95,
) -> list[Row]:
    """Compare every method with the reference, on one set under one corruption at one level.

    Two methods are compared on the seeds they share; where there are none, as with a reference that failed for every
    seed, the row is nan. The p-values are corrected by Holm for the number of methods compared here.

    Args:
        scores: Method → seed → each test sample's score `[sample]`, larger is better, such as whether it was classified
            correctly; for a metric that is no mean over samples its value, `[1]`. A seed that failed is left out.
        reference: The method that the others are compared with.
        samples: Seed → the identity of those samples `[sample]` (see `paired_bootstrap`).
        recompute: How to recompute a metric that is no mean over samples; needs `samples`.
        alpha: The level of significance.
        resamples, random_state, confidence: Of `paired_bootstrap`; `Recomputed.resamples` limits the first.

    Returns:
        A row for each other method; differences are positive where it is better than the reference.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> late = {seed: rng.random(500) < 0.7 for seed in range(8)}
        >>> concat = {seed: right | (rng.random(500) < 0.2) for seed, right in late.items()}
        >>> [row] = compare_to_reference({"late": late, "concat": concat}, "late")
        >>> row["method"], round(row["difference"], 2), row["p_holm"], row["significant"]
        ('concat', 0.06, 0.0078125, True)
    """
    test = partial(paired_bootstrap, resamples=resamples, random_state=random_state, confidence=confidence)
    moved = {}
    if recompute is not None and samples is not None and reference in recompute:
        most = min((each.resamples for seeds in recompute.values() for each in seeds.values()), default=RECOMPUTED)
        moved = resample_metric(recompute, samples, resamples=min(resamples, most), random_state=random_state + 1)
    others = [method for method in scores if method != reference]
    compared = []
    for method in others:
        gains = _gains(scores, method, reference)
        if not gains:
            compared.append(Difference(*[float("nan")] * 4))
        elif moved:
            assert recompute is not None and samples is not None  # noqa: PT018
            shift = np.mean([moved[method][seed] - moved[reference][seed] for seed in gains], axis=0)
            differing = _count_differing(recompute[method], recompute[reference], {s: samples[s] for s in gains})
            compared.append(test([*gains.values()], moved=shift, differing=differing))
        else:
            compared.append(test([*gains.values()], None if samples is None else [samples[seed] for seed in gains]))
    adjusted = holm(np.array([difference.p for difference in compared]))
    return [
        Row(method=method, reference=reference, **asdict(found), p_holm=float(p), significant=bool(p <= alpha))  # type: ignore[typeddict-item]
        for method, found, p in zip(others, compared, adjusted)
    ]


def mark_best(
    scores: Mapping[str, Mapping[int, np.ndarray]], reference: str, rows: Sequence[Row], *, alpha: float = 0.05
) -> str | None:
    """The best method by its mean over seeds, or None where the data do not single it out.

    It must be significantly better than the reference; the reference, where it is best, than the runner-up. `scores`
    and `reference` are those that `compare_to_reference` was given, `rows` what it returned.

    >>> late, concat = {seed: np.array([0.0, 1.0]) for seed in range(8)}, {seed: np.ones(2) for seed in range(8)}
    >>> scores = {"late": late, "concat": concat}
    >>> mark_best(scores, "late", compare_to_reference(scores, "late"))
    'concat'
    """
    means = {method: np.mean([np.mean(score) for score in seeds.values()]) for method, seeds in scores.items() if seeds}
    if reference not in means or len(means) < 2:
        return None
    best, runner_up = sorted(means, key=lambda method: -means[method])[:2]
    rival, sign = (runner_up, -1) if best == reference else (best, 1)
    row = next(row for row in rows if row["method"] == rival)
    # On the seeds they share, the two may lie the other way round than on all that each has.
    sure = row["p_holm"] <= alpha and sign * row["difference"] > 0
    return best if sure else None


def _gains(scores: Mapping[str, Mapping[int, np.ndarray]], method: str, reference: str) -> dict[int, np.ndarray]:
    """The seeds both methods have → how much better the method is on each test sample `[sample]`."""
    gains = {}
    ours, theirs = scores[method], scores.get(reference, {})
    for seed in sorted(ours.keys() & theirs.keys()):
        own, other = (np.asarray(score[seed], dtype=np.float64) for score in (ours, theirs))
        if own.shape != other.shape:
            raise InputError(
                f"{method} and {reference} must be tested on the same samples, but with seed {seed} their scores "
                f"have shapes {list(own.shape)} and {list(other.shape)}"
            )
        gains[seed] = own - other
    return gains


def _read(differences: Sequence[np.ndarray]) -> list[np.ndarray]:
    if not len(differences):
        raise InputError("a bootstrap needs the differences of at least one seed, got none")
    values = [np.asarray(values, dtype=np.float64) for values in differences]
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
    """How far the mean difference moves each time a test sample is drawn `[sample]`, and on how many methods differ."""
    tested = [len(value) for value in values]
    moves = np.concatenate([(value - value.mean()) / (len(value) * len(values)) for value in values])
    differ = np.concatenate(values) != 0
    if samples is None:
        return moves, int(differ.sum())
    sizes = [len(names) for names in samples]
    if sizes != tested:
        raise InputError(f"samples must name every test sample of every seed: {tested} of them, got {sizes}")
    _, place = np.unique(np.concatenate([np.asarray(names) for names in samples]), return_inverse=True)
    return np.bincount(place, weights=moves), int(np.count_nonzero(np.bincount(place, weights=differ)))


def _count_differing(
    ours: Mapping[int, Recomputed], theirs: Mapping[int, Recomputed], samples: Mapping[int, np.ndarray]
) -> int:
    """On how many test samples two methods differ with any seed."""
    differ = {seed: (ours[seed].read != theirs[seed].read).reshape(len(samples[seed]), -1) for seed in samples}
    return len(np.unique(np.concatenate([samples[seed][rows.any(axis=1)] for seed, rows in differ.items()])))


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
