"""From the results of the jobs to the results of the comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.comparison.choosing import choose_methods, stored_value, units_of
from consilience.comparison.chosen_method import Choice
from consilience.comparison.imbalance import imbalance_notes
from consilience.comparison.metric_by_modalities import contributions_to, has_metric
from consilience.comparison.modality_contributions import contribution_rows, interaction_rows
from consilience.comparison.modality_costs import cost_rows
from consilience.comparison.plan import Job
from consilience.comparison.quick_default import seeds_at_once
from consilience.comparison.ranks import mean_ranks, scores_of, standings
from consilience.comparison.results import SCHEMAS, Findings, empty_table
from consilience.comparison.significance import (
    CALLED,
    RECOMPUTED,
    Recomputed,
    Row,
    compare_to_reference,
    mark_best,
    too_few_seeds,
)
from consilience.comparison.split_check import split_notes
from consilience.comparison.store import Result
from consilience.comparison.summary import over_seeds
from consilience.evaluation import Metric, find_metric, reliability_bins

if TYPE_CHECKING:
    import polars

MAIN_METRIC = {"classification": "accuracy", "regression": "mse"}
Finished = list[tuple[Job, Result]]
_MEASURED = ("training_seconds", "prediction_seconds", "parameters", "epochs", "device")


def gather_findings(plan: Mapping[str, Any], finished: Finished) -> Findings:
    """Return tables, statistics and marks of all finished jobs; `plan` is the content of `plan.json`."""
    asked, metric = plan["asked"], _main_metric(plan)
    good = [(job, result) for job, result in finished if not result.failed]
    methods = list(dict.fromkeys(job["method"] for job in plan["jobs"]))
    differences, best = differences_to(plan["reference"], good, plan, metric)
    choices = choose_methods(finished, plan)
    findings = Findings(
        title=f"Fusion methods on {', '.join(plan['sets'])}",
        command=plan["command"],
        task=metric.task,
        metric=metric.name,
        larger_is_better=metric.larger_is_better,
        reference=plan["reference"],
        sets=plan["sets"],
        methods=methods,
        corruptions=list(dict.fromkeys(name for names in plan["corruptions"].values() for name in names)),
        levels=asked["levels"],
        seeds=sorted({job.seed for job, _ in good}) or list(range(asked["seeds"])),
        **_measurements(good, plan, metric),
        costs=_table("costs", _costs(good, metric)),
        reliability=_table("reliability", _reliability(good, plan)),
        differences=differences,
        best=best,
        choices=choices,
        confusion=_table("confusion", _confusion(good, plan, choices)),
        ranks=_table("ranks", ()),
        timings=_table(
            "timings", ({**_key(job), **{name: result.about[name] for name in _MEASURED}} for job, result in good)
        ),
        skipped=_table("skipped", plan["skipped"]),
        failed=_table(
            "failed", ({**_key(job), "error": result.about["error"]} for job, result in finished if result.failed)
        ),
        papers=plan["papers"],
        versions=plan["versions"],
        settings={name: value for name, value in asked.items() if name not in ("sources", "version")},
        created=plan["created"],
    )
    at_once = seeds_at_once(findings.sets)
    if len(methods) > 1 and (note := too_few_seeds(len(findings.seeds), len(methods) - 1, at_once=at_once)) is not None:
        findings.notes.append(note)
    if len(findings.sets) > 1:
        findings.ranks = _table("ranks", _ranks(findings))
        scores = {name: scores_of(findings, name) for name in findings.sets}
        findings.standings = standings(scores, metric.larger_is_better)
    findings.notes += split_notes(plan["sets"], asked["seeds"])
    findings.notes += imbalance_notes(findings.sets, metric.name)
    findings.notes += still_learning(good) + misplaced_trust(good)
    if missing := len(plan["jobs"]) - len(finished):
        findings.notes.append(
            f"{missing} of {len(plan['jobs'])} jobs have no result yet: the comparison was stopped, or its folder was "
            "copied in part. The same call of `compare` runs them."
        )
    return findings


def conditions(result: Result, plan: Mapping[str, Any], part: str = "test") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each measured condition with its corruption's name; the clean condition under every corruption."""
    for condition in result.about["conditions"]:
        if condition["part"] == part:
            clean = condition["level"] == 0
            for name in plan["corruptions"][result.about["set"]] if clean else [condition["corruption"]]:
                yield name, condition


def sample_scores(metric: Metric, result: Result, condition: Mapping[str, Any]) -> np.ndarray:
    """Return each test sample's share in a metric `[n]`, larger is better; `[1]` if it is no mean over samples.

    Where the noise was drawn several times, a sample's share is the mean over the draws.
    """
    sign = 1 if metric.larger_is_better else -1
    if not metric.per_sample:
        return np.array([sign * stored_value(metric, condition)])
    assert metric.terms is not None
    y, output = read_outputs(result, condition)
    scores = sign * np.asarray(metric.terms(y, _read_by(metric, output)), dtype=np.float64)
    return scores.reshape(-1, len(result.arrays["y"])).mean(axis=0)


def recompute_metric(metric: Metric, result: Result, condition: Mapping[str, Any]) -> Recomputed:
    """Return how the bootstrap recomputes a metric that is no mean over samples; the mean over draws of the noise."""
    sign, y = 1 if metric.larger_is_better else -1, result.arrays["y"]
    read = _read_by(metric, read_outputs(result, condition)[1])
    draws = read.reshape(-1, len(y), *read.shape[1:])

    def value(weights: np.ndarray) -> np.ndarray:  # the terms are computed here: all of them would fill the memory
        return sign * np.mean([metric.resampler(y, draw)(weights) for draw in draws], axis=0)

    return Recomputed(value, np.moveaxis(draws, 0, 1), CALLED if metric.called else RECOMPUTED)


def _read_by(metric: Metric, output: np.ndarray) -> np.ndarray:
    """What a metric reads of the kept outputs: numbers, probabilities, or the most probable class."""
    return output if metric.task == "regression" or metric.needs_probabilities else output.argmax(axis=1)


def read_outputs(result: Result, condition: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return targets and outputs of the test samples under a condition, one draw of the noise after the other."""
    output, y = result.arrays[f"output/{condition['array']}"], result.arrays["y"]
    return np.concatenate([y] * (len(output) // len(y))), output


def _measurements(good: Finished, plan: Mapping[str, Any], metric: Metric) -> dict[str, Any]:
    """The tables of what jobs measured; results of earlier versions have no diagnostics or contributions."""
    measured = [(job.source, result.about.get("contributions")) for job, result in good]
    # A set's contributions are to one metric: the main one, if all its jobs measured it.
    elsewhere = {source for source, found in measured if not has_metric(found, metric)}
    names = ("values", "trust", "hit_trust", "diagnostics", "contributions", "interactions")
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for job, result in good:
        contributions = result.about.get("contributions")
        if contributions and job.source not in elsewhere and contributions["metric"] != metric.name:
            contributions = contributions_to(contributions, metric)
        rows["contributions"] += contribution_rows(_key(job), contributions)
        rows["interactions"] += interaction_rows(_key(job), contributions)
        for corruption, condition in conditions(result, plan):
            key = {**_key(job), "corruption": corruption, "level": condition["level"]}
            rows["values"] += [{**key, "metric": name, "value": value} for name, value in condition["metrics"].items()]
            trust = condition.get("trust", {})
            rows["trust"] += [{**key, "modality": name, "trust": share} for name, share in trust.items()]
            rows["hit_trust"] += [{**key, **measured} for measured in condition.get("hit_trust", ())]
            rows["diagnostics"] += [{**key, **measured} for measured in condition.get("diagnostics", ())]
    return {name: _table(name, found) for name, found in rows.items()}


def _costs(good: Finished, metric: Metric) -> Iterator[dict[str, Any]]:
    for job, result in good:
        yield from cost_rows(_key(job), result.about.get("costs"), metric.name, metric.larger_is_better)


def _reliability(good: Finished, plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    pooled: dict[tuple[str, str, str, float], list[tuple[np.ndarray, np.ndarray]]] = {}
    for job, result in good:
        if plan["sets"][job.source]["task"] == "classification":
            for corruption, condition in conditions(result, plan):
                key = (job.source, job.method, corruption, condition["level"])
                pooled.setdefault(key, []).append(read_outputs(result, condition))
    for key, parts in pooled.items():
        bins = reliability_bins(*(np.concatenate(arrays) for arrays in zip(*parts)))
        columns = (bins.edges, bins.edges[1:], bins.share, bins.confidence, bins.accuracy)
        for number, row in enumerate(zip(*(column.tolist() for column in columns))):
            yield dict(zip(SCHEMAS["reliability"], (*key, number, *row)))


def _confusion(good: Finished, plan: Mapping[str, Any], choices: Mapping[str, Choice]) -> Iterator[dict[str, Any]]:
    """How often the chosen method took each class for each other, on clean test samples of all seeds together."""
    counts: dict[str, np.ndarray] = {}
    for job, result in good:
        about = plan["sets"][job.source]
        if about["task"] != "classification" or job.method != choices[job.source].method:
            continue
        clean = next(each for each in result.about["conditions"] if each["part"] == "test" and each["level"] == 0)
        y, output = read_outputs(result, clean)
        size = output.shape[1]
        found = np.bincount(size * y.astype(np.int64) + output.argmax(axis=1), minlength=size**2)
        counts[job.source] = counts.get(job.source, 0) + found.reshape(size, size)
    for name, table in counts.items():
        # No table can hold half a character, which a label of a class may have.
        labels = [
            str(known["class"]).encode("utf-8", "backslashreplace").decode()
            for known in plan["sets"][name].get("classes") or ()
        ]
        if len(labels) != len(table):  # a class that no training sample has is no output
            continue
        shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
        for row, actual in enumerate(labels):
            for column, predicted in enumerate(labels):
                cell = (name, choices[name].method, actual, predicted, shares[row, column], int(table[row, column]))
                yield dict(zip(SCHEMAS["confusion"], cell))


def differences_to(
    reference: str, good: Finished, plan: Mapping[str, Any], metric: Metric
) -> tuple[polars.DataFrame, dict[tuple[str, str, float], str]]:
    """Return every method's difference to a reference and the best methods: `Findings.differences` and `best`."""
    cells: dict[tuple[str, str, float], dict[str, dict[int, np.ndarray]]] = {}
    recompute: dict[tuple[str, str, float], dict[str, dict[int, Recomputed]]] = {}
    tested: dict[str, dict[int, np.ndarray]] = {}
    for job, result in good:
        tested.setdefault(job.source, {})[job.seed] = units_of(result, "test")
        for corruption, condition in conditions(result, plan):
            key = (job.source, corruption, condition["level"])
            scores = sample_scores(metric, result, condition)
            seeds = cells.setdefault(key, {}).setdefault(job.method, {})
            recomputed = recompute.setdefault(key, {}).setdefault(job.method, {})
            if np.isfinite(scores).all():  # the correlation of a constant prediction is nan
                seeds[job.seed] = scores
                if not metric.per_sample:
                    recomputed[job.seed] = recompute_metric(metric, result, condition)
    rows, best = [], {}
    clean: dict[str, list[Row]] = {}  # the clean condition is the same under every corruption
    for key, cell in cells.items():
        again = None if metric.per_sample else recompute[key]
        if key[2] or key[0] not in clean:
            compared = compare_to_reference(cell, reference, samples=tested[key[0]], recompute=again)
        else:
            compared = clean[key[0]]
        if not key[2]:
            clean[key[0]] = compared
        rows += [{"set": key[0], "corruption": key[1], "level": key[2], **row} for row in compared]
        if (leader := mark_best(cell, reference, compared)) is not None:
            best[key] = leader
    return _table("differences", rows), best


def _ranks(findings: Findings) -> Iterator[dict[str, Any]]:
    """Mean ranks over sets of the methods that serve all of them.

    The clean condition is ranked over all sets, even if their corruptions differ.
    """
    means = over_seeds(findings, findings.metric)
    tried = {*means.select("set", "method").iter_rows(), *findings.failed.select("set", "method").iter_rows()}
    methods = [method for method in findings.methods if all((name, method) in tried for name in findings.sets)]
    scores: dict[tuple[str, float], dict[tuple[str, str], float]] = {}
    for row in means.iter_rows(named=True):
        condition = (row["corruption"] if row["level"] else "", row["level"])
        scores.setdefault(condition, {})[row["set"], row["method"]] = row["mean"]
    ranks = {}
    for condition, score in sorted(scores.items()):
        sets = [name for name in findings.sets if any(key[0] == name for key in score)]
        if len(sets) > 1 and methods:
            table = np.array([[score.get((name, method), np.nan) for method in methods] for name in sets])
            ranks[condition] = (mean_ranks(table, findings.larger_is_better), len(sets))
    shared = list(dict.fromkeys(corruption for corruption, level in ranks if level)) or findings.corruptions[:1]
    for (corruption, level), (found, count) in ranks.items():
        for name in [corruption] if level else shared:  # as everywhere, clean stands under every corruption
            for method, rank in zip(methods, found):
                yield {"corruption": name, "level": level, "method": method, "rank": float(rank), "sets": count}


def still_learning(good: Finished) -> list[str]:
    """Return a sentence for each set on the methods whose validation loss still improved in the last epoch."""
    ended: dict[tuple[str, str], list[bool]] = {}
    for job, result in good:
        runs = [losses for losses in _validation_losses(result.about["log"]) if len(losses) > 1]
        improving = [int(np.argmin(losses)) == len(losses) - 1 for losses in runs]
        ended.setdefault((job.source, job.method), []).append(sum(improving) > len(runs) / 2)
    unfinished: dict[str, list[str]] = {}
    for (source, method), seeds in ended.items():
        if sum(seeds) > len(seeds) / 2:
            unfinished.setdefault(source, []).append(f"{method} ({sum(seeds)} of {len(seeds)} seeds)")
    return [
        f"On {source}, still improving in the last epoch: {', '.join(methods)}. Give more epochs before calling any of "
        "them worse."
        for source, methods in unfinished.items()
    ]


def _validation_losses(log: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """The validation losses of each training run of a log: a method may train several experts, each from epoch 0."""
    runs: list[list[float]] = []
    before = None
    for row in log:
        if before is None or row["epoch"] <= before["epoch"] or row["phase"] != before["phase"]:
            runs.append([])
        if "validation_loss" in row:
            runs[-1].append(row["validation_loss"])
        before = row
    return runs


def misplaced_trust(good: Finished) -> list[str]:
    """Return a sentence for each method that trusts a modality more when it is wrong, with the largest correlation.

    Each seed tests for it by itself, so with many seeds some find it by chance: a modality is named if at least half
    of the seeds found it.
    """
    found: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    for job, result in good:
        found.setdefault((job.source, job.method), []).append(result.about.get("misplaced_trust", {}))
    notes = []
    for (source, method), seeds in found.items():
        counts = Counter(name for misplaced in seeds for name in misplaced)
        names = [name for name, count in counts.items() if 2 * count >= len(seeds)]
        if names:
            largest = max(misplaced[name] for misplaced in seeds for name in names if name in misplaced)
            concerned = sum(any(name in misplaced for name in names) for misplaced in seeds)
            notes.append(
                f"{method} on {source} trusts {', '.join(names)} more when wrong: on mildly corrupted validation "
                f"samples weights rise with the modality's own loss, r up to {largest:+.2f}, in "
                f"{concerned} of {len(seeds)} seeds. Encoders with a norm layer keep features from growing with "
                "the noise."
            )
    return notes


def _main_metric(plan: Mapping[str, Any]) -> Metric:
    task = next(iter(plan["sets"].values()))["task"]
    return find_metric(plan["asked"]["metric"] or MAIN_METRIC[task], task)


def _key(job: Job) -> dict[str, Any]:
    return {"set": job.source, "method": job.method, "seed": job.seed}


def _table(name: str, rows: Iterable[Mapping[str, Any]]) -> polars.DataFrame:
    import polars

    return polars.DataFrame(list(rows), schema=empty_table(name).schema, orient="row")
