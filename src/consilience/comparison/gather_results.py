"""From the results of the jobs to what the comparison found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.comparison.plan import Job
from consilience.comparison.ranks import mean_ranks
from consilience.comparison.results import Findings, empty_table
from consilience.comparison.standings import scores_of, standings
from consilience.comparison.statistics import compare_to_reference, mark_best, too_few_seeds
from consilience.comparison.store import Result
from consilience.evaluation import Metric, find_metric, reliability_bins

if TYPE_CHECKING:
    import polars

MAIN_METRIC = {"classification": "accuracy", "regression": "mse"}
Finished = list[tuple[Job, Result]]
_MEASURED = ("training_seconds", "prediction_seconds", "parameters", "epochs", "device")


def gather_findings(plan: Mapping[str, Any], finished: Finished, *, alpha: float = 0.05) -> Findings:
    """Tables, statistics and marks of all finished jobs; plan: as `plan.json` holds it."""
    asked = plan["asked"]
    task = next(iter(plan["sets"].values()))["task"]
    metric = find_metric(asked["metric"] or MAIN_METRIC[task], task)
    good = [(job, result) for job, result in finished if not result.failed]
    methods = list(dict.fromkeys(job["method"] for job in plan["jobs"]))
    findings = Findings(
        title=f"Fusion methods on {', '.join(plan['sets'])}",
        command=plan["command"],
        task=task,
        metric=metric.name,
        larger_is_better=metric.larger_is_better,
        reference=plan["reference"],
        sets=plan["sets"],
        methods=methods,
        corruptions=list(dict.fromkeys(name for names in plan["corruptions"].values() for name in names)),
        levels=asked["levels"],
        seeds=sorted({job.seed for job, _ in good}) or list(range(asked["seeds"])),
        values=_table("values", _values(good, plan)),
        trust=_table("trust", _trust(good, plan)),
        diagnostics=_table("diagnostics", _diagnostics(good, plan)),
        reliability=_table("reliability", _reliability(good, plan)),
        differences=_table("differences", ()),
        ranks=_table("ranks", ()),
        timings=_table("timings", _timings(good)),
        skipped=_table("skipped", plan["skipped"]),
        failed=_table("failed", _failed(finished)),
        papers=plan["papers"],
        versions=plan["versions"],
        settings={name: value for name, value in asked.items() if name not in ("sources", "version")},
        created=plan["created"],
    )
    _compare(findings, good, plan, alpha)
    _rank(findings)
    findings.standings = standings({name: scores_of(findings, name) for name in findings.sets}, metric.larger_is_better)
    findings.notes += still_learning(good) + misplaced_trust(good)
    return findings


def conditions(result: Result, plan: Mapping[str, Any], part: str = "test") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each measured condition under its corruption's name; the clean one stands under every corruption."""
    for one in result.about["conditions"]:
        if one["part"] == part:
            names = plan["corruptions"][result.about["set"]] if one["level"] == 0 else [one["corruption"]]
            for name in names:
                yield name, one


def sample_scores(metric: Metric, result: Result, condition: Mapping[str, Any]) -> np.ndarray:
    """Each test sample's share in a metric `[n]`, larger is better; `[1]` where it is no mean over samples.

    Of a sample that was met several times, with other noise each time, the mean.
    """
    if metric.name not in ("mse", "mae", "accuracy", "nll", "brier"):
        return np.array([condition["metrics"][metric.name] * (1 if metric.larger_is_better else -1)])
    y, output = met(result, condition)
    if metric.name in ("mse", "mae"):
        error = np.abs(output.reshape(len(y), -1) - y.reshape(len(y), -1))
        scores = -(error if metric.name == "mae" else error**2).mean(axis=1)
    elif metric.name == "accuracy":
        scores = (output.argmax(axis=1) == y).astype(np.float64)
    else:
        chances = output.astype(np.float64)
        if metric.name == "nll":
            scores = np.log(np.maximum(chances[np.arange(len(y)), y], np.finfo(np.float64).eps))
        else:
            scores = -np.square(chances - np.eye(chances.shape[1])[y]).sum(axis=1)
    return scores.reshape(-1, len(result.arrays["y"])).mean(axis=0)


def met(result: Result, condition: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Targets and outputs of the test samples under a condition, one repeat after the other: `[repeats · n]`."""
    output, y = result.arrays[f"output/{condition['array']}"], result.arrays["y"]
    return np.concatenate([y] * (len(output) // len(y))), output


def merits(finished: Finished, plan: Mapping[str, Any]) -> dict[str, list[Job]]:
    """Set → each method's best job, the best method first; judged on validation, clean and corrupted, never on test."""
    asked = plan["asked"]
    task = next(iter(plan["sets"].values()))["task"]
    metric = find_metric(asked["metric"] or MAIN_METRIC[task], task)
    sign = 1 if metric.larger_is_better else -1
    seeds: dict[str, dict[str, list[tuple[float, Job]]]] = {}
    for job, result in finished:
        if not result.failed:
            scores = [one["metrics"][metric.name] for one in result.about["conditions"] if one["part"] == "validation"]
            merit = sign * float(np.nan_to_num(np.mean(scores), nan=-np.inf))
            seeds.setdefault(job.source, {}).setdefault(job.method, []).append((merit, job))
    ordered = {
        source: sorted(methods.values(), key=lambda one: -float(np.mean([merit for merit, _ in one])))
        for source, methods in seeds.items()
    }
    return {source: [max(one, key=lambda pair: pair[0])[1] for one in methods] for source, methods in ordered.items()}


def _values(good: Finished, plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for job, result in good:
        for corruption, one in conditions(result, plan):
            for metric, value in one["metrics"].items():
                yield {**_who(job), "corruption": corruption, "level": one["level"], "metric": metric, "value": value}


def _trust(good: Finished, plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for job, result in good:
        for corruption, one in conditions(result, plan):
            for modality, trust in one.get("trust", {}).items():
                where = {"corruption": corruption, "level": one["level"]}
                yield {**_who(job), **where, "modality": modality, "trust": trust}


def _diagnostics(good: Finished, plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for job, result in good:
        for corruption, one in conditions(result, plan):
            for measured in one.get("diagnostics", ()):  # results of an earlier version have none
                yield {**_who(job), "corruption": corruption, "level": one["level"], **measured}


def _reliability(good: Finished, plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    pooled: dict[tuple[str, str, str, float], list[tuple[np.ndarray, np.ndarray]]] = {}
    for job, result in good:
        if plan["sets"][job.source]["task"] == "classification":
            for corruption, one in conditions(result, plan):
                pooled.setdefault((job.source, job.method, corruption, one["level"]), []).append(met(result, one))
    for (source, method, corruption, level), parts in pooled.items():
        labels, outputs = (np.concatenate(one) for one in zip(*parts))
        bins = reliability_bins(labels, outputs)
        for number, (share, confidence, accuracy) in enumerate(zip(bins.share, bins.confidence, bins.accuracy)):
            yield {
                "set": source,
                "method": method,
                "corruption": corruption,
                "level": level,
                "bin": number,
                "low": float(bins.edges[number]),
                "high": float(bins.edges[number + 1]),
                "share": float(share),
                "confidence": float(confidence),
                "accuracy": float(accuracy),
            }


def _failed(finished: Finished) -> Iterator[dict[str, Any]]:
    for job, result in finished:
        if result.failed:
            yield {**_who(job), "error": result.about["error"]}


def _timings(good: Finished) -> Iterator[dict[str, Any]]:
    for job, result in good:
        yield {
            **_who(job),
            **{name: result.about[name] for name in _MEASURED},
        }


def differences_to(
    reference: str, good: Finished, plan: Mapping[str, Any], metric: Metric, *, alpha: float = 0.05
) -> polars.DataFrame:
    """Every method's difference to a reference, as `Findings.differences` has them."""
    return _table("differences", [row for row, _ in _differences(reference, good, plan, metric, alpha)])


def _differences(
    reference: str, good: Finished, plan: Mapping[str, Any], metric: Metric, alpha: float
) -> Iterator[tuple[dict[str, Any], str | None]]:
    """A row for each set, condition and method, and the method marked as best there."""
    cells: dict[tuple[str, str, float], dict[str, dict[int, np.ndarray]]] = {}
    tested: dict[str, dict[int, np.ndarray]] = {}
    for job, result in good:
        tested.setdefault(job.source, {})[job.seed] = result.arrays["index"]
        for corruption, one in conditions(result, plan):
            seeds = cells.setdefault((job.source, corruption, one["level"]), {}).setdefault(job.method, {})
            scores = sample_scores(metric, result, one)
            if np.isfinite(scores).all():  # the correlation of a constant prediction is nan
                seeds[job.seed] = scores
    for (source, corruption, level), cell in cells.items():
        by_sample = all(len(scores) > 1 for seeds in cell.values() for scores in seeds.values())
        compared = compare_to_reference(cell, reference, samples=tested[source] if by_sample else None, alpha=alpha)
        best = mark_best(cell, reference, compared, alpha=alpha)
        for row in compared:
            yield {"set": source, "corruption": corruption, "level": level, **row}, best


def _compare(findings: Findings, good: Finished, plan: Mapping[str, Any], alpha: float) -> None:
    """Differences to the reference, the marks, and the sentence where the seeds are too few."""
    rows = []
    for row, best in _differences(findings.reference, good, plan, find_metric(findings.metric), alpha):
        rows.append(row)
        if best is not None:
            findings.best[row["set"], row["corruption"], row["level"]] = best
    findings.differences = _table("differences", rows)
    if len(findings.methods) > 1:
        sentence = too_few_seeds(len(findings.seeds), len(findings.methods) - 1, alpha)
        findings.notes += [] if sentence is None else [sentence]


def _rank(findings: Findings) -> None:
    """Mean ranks over sets, where there are several, of the methods that serve all of them.

    Clean is clean, whatever goes wrong afterwards in a set.
    """
    values = findings.values.filter(findings.values["metric"] == findings.metric)
    if len(findings.sets) < 2 or not len(values):
        return
    tried = {*values.select("set", "method").iter_rows(), *findings.failed.select("set", "method").iter_rows()}
    methods = [one for one in findings.methods if all((name, one) in tried for name in findings.sets)]
    means = values.drop("metric", "seed").group_by("set", "method", "corruption", "level").mean()
    scores: dict[tuple[str, float], dict[tuple[str, str], float]] = {}
    for row in means.iter_rows(named=True):
        condition = (row["corruption"] if row["level"] else "", row["level"])
        scores.setdefault(condition, {})[row["set"], row["method"]] = row["value"]
    ranks = {}
    for condition, score in sorted(scores.items()):
        sets = [name for name in findings.sets if any(key[0] == name for key in score)]
        if len(sets) > 1 and methods:
            table = np.array([[score.get((name, one), np.nan) for one in methods] for name in sets])
            ranks[condition] = (mean_ranks(table, findings.larger_is_better), len(sets))
    shared = list(dict.fromkeys(corruption for corruption, level in ranks if level)) or findings.corruptions[:1]
    findings.ranks = _table(
        "ranks",
        [
            {"corruption": name, "level": level, "method": method, "rank": float(rank), "sets": sets}
            for (corruption, level), (found, sets) in ranks.items()
            for name in ([corruption] if level else shared)  # as everywhere, clean stands under every corruption
            for method, rank in zip(methods, found)
        ],
    )


def still_learning(good: Finished) -> list[str]:
    """A sentence for each set on the methods that mostly ended while validation still improved: undertrained, maybe."""
    ended: dict[tuple[str, str], list[bool]] = {}
    for job, result in good:
        losses = [row["validation_loss"] for row in result.about["log"] if "validation_loss" in row]
        improving = len(losses) > 1 and int(np.argmin(losses)) == len(losses) - 1
        ended.setdefault((job.source, job.method), []).append(improving)
    unfinished: dict[str, list[str]] = {}
    for (source, method), seeds in ended.items():
        if sum(seeds) > len(seeds) / 2:
            unfinished.setdefault(source, []).append(f"{method} ({sum(seeds)} of {len(seeds)} seeds)")
    return [
        f"On {source}, still improving in the last epoch: {', '.join(methods)}. Give more epochs before calling any of "
        "them worse."
        for source, methods in unfinished.items()
    ]


def misplaced_trust(good: Finished) -> list[str]:
    """A sentence for each method that came to trust a modality more when it is wrong, with the largest correlation.

    In each seed by itself chance does not explain it, but of many seeds one would be found by chance all the same: a
    modality is named where it was found in at least half of them.
    """
    found: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    for job, result in good:
        found.setdefault((job.source, job.method), []).append(result.about.get("misplaced_trust", {}))
    notes = []
    for (source, method), seeds in found.items():
        counts = Counter(name for one in seeds for name in one)
        names = [name for name, count in counts.items() if 2 * count >= len(seeds)]
        if names:
            largest = max(one[name] for one in seeds for name in names if name in one)
            concerned = sum(any(name in one for name in names) for one in seeds)
            notes.append(
                f"{method} on {source} trusts {', '.join(names)} more when wrong: on mildly corrupted validation "
                f"samples weights rise with the modality's own loss, r up to {largest:+.2f}, in "
                f"{concerned} of {len(seeds)} seeds. Encoders with a norm layer keep features from growing with "
                "the noise."
            )
    return notes


def _who(job: Job) -> dict[str, Any]:
    return {"set": job.source, "method": job.method, "seed": job.seed}


def _table(name: str, rows: Iterable[Mapping[str, Any]]) -> polars.DataFrame:
    import polars

    return polars.DataFrame(list(rows), schema=empty_table(name).schema, orient="row")
