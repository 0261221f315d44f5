"""Which method is chosen, by its scores on validation samples, and how sure that is.

A method is chosen, not a seed: its score is the mean over all seeds and over the clean and corrupted conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.comparison.chosen_method import Choice
from consilience.comparison.plan import Job
from consilience.comparison.significance import compare_to_reference
from consilience.comparison.store import Result
from consilience.core.errors import InputError
from consilience.evaluation import Metric, find_metric

# Proper scores: they are best where the probabilities are right, and unlike an accuracy they tell a sure error from a
# close one. Over single splits, choosing by log-loss lost half as much to hindsight as choosing by accuracy.
CHOOSE_BY = {"classification": "nll", "regression": "mse"}
RESAMPLES = 2_000
# With more validation samples than this, samples are drawn in so many random groups.
_MOST_GROUPS = 4_096
Scores = Mapping[str, Mapping[int, np.ndarray]]  # method → seed → score of each validation sample, or one score [1]


@dataclass(frozen=True)
class Candidate:
    """A method on a set: its score over seeds, larger is better, and its finished jobs from the best to the worst."""

    method: str
    score: float
    jobs: tuple[Job, ...]

    @property
    def median(self) -> Job:
        """The job whose validation score is the median one; of an even number the worse of the two in the middle.

        Not the best one: every seed has a split of its own, so that the highest validation score belongs to the
        easiest validation samples, and often to a worse model than that of the method's other seeds.
        """
        return self.jobs[len(self.jobs) // 2]


def choosing_metric(plan: Mapping[str, Any]) -> Metric:
    """Return the metric that methods are chosen by; plans of earlier versions name none."""
    task = next(iter(plan["sets"].values()))["task"]
    return find_metric(plan["asked"].get("choose_by") or CHOOSE_BY[task], task)


def stored_value(metric: Metric, condition: Mapping[str, Any]) -> float:
    """Return the value of a metric that was computed when the job ran."""
    if metric.name not in condition["metrics"]:
        raise InputError(
            f"compare: metric {metric.name!r} was not known to the process that ran these jobs. Register it in a "
            "package by the entry point group 'consilience.metrics', or before the first run with jobs=1, and use "
            "a new folder"
        )
    return condition["metrics"][metric.name]


def rank_candidates(finished: Sequence[tuple[Job, Result]], plan: Mapping[str, Any]) -> dict[str, list[Candidate]]:
    """Return set → the methods from the best to the worst.

    Methods that failed for a seed, or have no finite score, come after all others. The others are compared on the
    seeds that all of them have: in a comparison that was stopped, some have a seed more.
    """
    metric = choosing_metric(plan)
    merits: dict[str, dict[str, dict[int, tuple[float, Job]]]] = {}
    broken: set[tuple[str, str]] = set()
    for job, result in finished:
        if result.failed:
            broken.add((job.source, job.method))
            continue
        merit = _merit(metric, result)
        if not np.isfinite(merit):
            broken.add((job.source, job.method))
        merits.setdefault(job.source, {}).setdefault(job.method, {})[job.seed] = (merit, job)
    ranked = {}
    for source, methods in merits.items():
        sound = [seeds.keys() for method, seeds in methods.items() if (source, method) not in broken]
        shared = set.intersection(*map(set, sound)) if sound else set()
        candidates = []
        for method, seeds in methods.items():
            counted = [merit for seed, (merit, _) in seeds.items() if seed in shared]
            own = [merit for merit, _ in seeds.values()]
            ordered = sorted(seeds.values(), key=lambda pair: (-pair[0], pair[1].seed))
            candidates.append(Candidate(method, float(np.mean(counted or own)), tuple(job for _, job in ordered)))
        ranked[source] = sorted(candidates, key=lambda each: ((source, each.method) in broken, -each.score))
    return ranked


def choose_methods(finished: Sequence[tuple[Job, Result]], plan: Mapping[str, Any]) -> dict[str, Choice]:
    """Return set → the chosen method, with how often resampling picks it and what it is not told apart from."""
    metric = choosing_metric(plan)
    sign = 1 if metric.larger_is_better else -1
    choices = {}
    for source, candidates in rank_candidates(finished, plan).items():
        here = [(job, result) for job, result in finished if job.source == source]
        best, competing = candidates[0], _competing(candidates, here)
        scores, samples = validation_scores(metric, competing, here)
        shares, rivals = {best.method: 1.0}, []
        if len(scores) > 1:
            shares = shares_of_first(scores, samples)
            rows = compare_to_reference(scores, best.method, samples=samples)
            rivals = [row["method"] for row in rows if not row["significant"]]
        order = [each.method for each in candidates]
        choices[source] = Choice(
            set=source,
            method=best.method,
            metric=metric.name,
            scores={each.method: sign * each.score for each in candidates},
            shares={method: shares[method] for method in order if method in shares},
            rivals=tuple(sorted(rivals, key=order.index)),
            seeds=len(scores[best.method]) if scores else len(best.jobs),
            by_rows=samples is not None,
        )
    return choices


def _competing(candidates: list[Candidate], finished: Sequence[tuple[Job, Result]]) -> list[Candidate]:
    """The methods that resampling compares: all that did not fail for a seed, if the chosen one is among them."""
    failed = {job.method for job, result in finished if result.failed}
    sound = [each for each in candidates if each.method not in failed and np.isfinite(each.score)]
    return sound if candidates[0] in sound else candidates[:1]


def validation_scores(
    metric: Metric, candidates: Sequence[Candidate], finished: Sequence[tuple[Job, Result]]
) -> tuple[dict[str, dict[int, np.ndarray]], dict[int, np.ndarray] | None]:
    """Return the scores on a set's validation samples, of the seeds that all candidates have.

    Args:
        metric: Its terms are the scores of the samples.
        candidates: The methods.
        finished: The results of the set.

    Returns:
        Method → seed → the mean over conditions of each sample's score `[n]`, larger is better; and seed → the identity
        of these samples. Where the metric is no mean over samples, or results of an earlier version keep no scores of
        samples, it is one score per seed `[1]`, and None.
    """
    names = {each.method for each in candidates}
    results = {(job.method, job.seed): result for job, result in finished if job.method in names}
    seeds = sorted(set.intersection(*({seed for method, seed in results if method == name} for name in names)))
    pooled = {
        name: {seed: _pooled_terms(metric, results[name, seed]) for seed in seeds}
        for name in (c.method for c in candidates)
    }
    if all(scores is not None for by_seed in pooled.values() for scores in by_seed.values()):
        first = candidates[0].method
        return pooled, {seed: units_of(results[first, seed], "validation") for seed in seeds}  # type: ignore[return-value]
    return {name: {seed: np.array([_merit(metric, results[name, seed])]) for seed in seeds} for name in pooled}, None


def shares_of_first(
    scores: Scores,
    samples: Mapping[int, np.ndarray] | None = None,
    *,
    resamples: int = RESAMPLES,
    random_state: int = 0,
) -> dict[str, float]:
    """Return how often each method has the best mean score when seeds and samples are drawn with replacement.

    A draw takes as many seeds as there are, and as many of all validation samples as there are; a sample that several
    seeds validate on is drawn for all of them at once. Methods with the same score share a draw.

    Args:
        scores: Method → seed → score of each sample `[n]`, larger is better, for the same seeds of all methods; or one
            score `[1]`, where only seeds are drawn.
        samples: Seed → the identity of its samples `[n]`.
        resamples: How many draws.
        random_state: Seed of the draws.

    Example:
        >>> better = {seed: np.array([1.0, 0.9, 1.1]) for seed in range(3)}
        >>> worse = {seed: np.zeros(3) for seed in range(3)}
        >>> shares_of_first({"a": better, "b": worse}, {seed: np.arange(3) for seed in range(3)})
        {'a': 1.0, 'b': 0.0}
    """
    rng = np.random.default_rng(random_state)
    seeds = sorted(next(iter(scores.values())))
    drawn_seeds = rng.multinomial(len(seeds), np.full(len(seeds), 1 / len(seeds)), resamples)
    if samples is None:
        means = np.array([[by_seed[seed].mean() for seed in seeds] for by_seed in scores.values()])
        totals = drawn_seeds @ means.T
    else:
        totals = np.zeros((resamples, len(scores)))
        groups = _group_samples([samples[seed] for seed in seeds], rng)
        count = max(int(group.max()) for group in groups) + 1
        drawn = rng.multinomial(count, np.full(count, 1 / count), resamples).astype(np.float64)
        for place, (seed, group) in enumerate(zip(seeds, groups)):
            sums = [np.bincount(group, weights=by_seed[seed], minlength=count) for by_seed in scores.values()]
            there = drawn @ np.bincount(group, minlength=count)  # a seed none of whose samples was drawn adds nothing
            totals += drawn_seeds[:, [place]] * (drawn @ np.stack(sums, axis=1)) / np.maximum(there, 1)[:, None]
    # Rounded, as sums in another order are the same score.
    first = totals >= totals.max(axis=1, keepdims=True) - 1e-12 * np.abs(totals).max()
    share = (first / first.sum(axis=1, keepdims=True)).mean(axis=0)
    return dict(zip(scores, share.tolist()))


def _group_samples(samples: Sequence[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """The number of each sample among all, the same for every seed; of very many samples that of its group."""
    everyone, place = np.unique(np.concatenate(list(samples)), return_inverse=True)
    if len(everyone) > _MOST_GROUPS:
        place = rng.permutation(len(everyone))[place] % _MOST_GROUPS
    return np.split(place, np.cumsum([len(each) for each in samples])[:-1])


def units_of(result: Result, part: str) -> np.ndarray:
    """What is drawn at once when samples of a part are resampled `[n]`: the sample, its group, or its block in time."""
    names = ("unit", "index") if part == "test" else ("validation_unit", "validation_index")
    return next(result.arrays[name] for name in names if name in result.arrays)


def _merit(metric: Metric, result: Result) -> float:
    """The mean over the clean and corrupted conditions of the validation score, larger is better."""
    measured = [stored_value(metric, each) for each in result.about["conditions"] if each["part"] == "validation"]
    return float(np.mean(measured)) * (1 if metric.larger_is_better else -1)


def _pooled_terms(metric: Metric, result: Result) -> np.ndarray | None:
    """The mean over conditions of each validation sample's score `[n]`, larger is better; None where none is kept."""
    names = [
        f"validation/{each['array']}/{metric.name}"
        for each in result.about["conditions"]
        if each["part"] == "validation"
    ]
    if not all(name in result.arrays for name in names):
        return None
    pooled = np.mean([result.arrays[name].astype(np.float64) for name in names], axis=0)
    return pooled if metric.larger_is_better else -pooled
