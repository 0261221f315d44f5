"""The refit: the chosen method is trained once more, on everything but the test samples, and published."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from consilience.comparison.choosing import Candidate
from consilience.comparison.job import (
    conditions_of,
    describe_training,
    fit_model,
    import_training,
    judge,
    load,
    save_model,
    score,
)
from consilience.comparison.plan import REFIT_SEED, REFITTED, Job, Plan, Refit, digest
from consilience.comparison.store import Result, Store
from consilience.corruption import Corruptor
from consilience.data import DataSet

NO_STEPS = "its results were made by a version that did not keep the number of steps"


def plan_refit(candidate: Candidate, finished: Sequence[tuple[Job, Result]]) -> Refit | None:
    """Return the job that refits a method, or None if its results do not tell for how many steps.

    The steps are the median over seeds. With tuning, seeds have learning rates of their own, and steps belong to a
    learning rate: both are those of the seed with the median validation score.
    """
    results = {job.seed: result for job, result in finished if job in candidate.jobs}
    median = results[candidate.median.seed]
    chosen = chosen_by_tuning(median.about.get("tuning"))
    steps = median_steps([median] if chosen else [*results.values()])
    if steps is None:
        return None
    job = min(candidate.jobs, key=lambda job: job.seed)
    key = REFITTED + digest({"refit": job.key, "steps": steps, "chosen": chosen})
    return Refit(job.source, job.method, REFIT_SEED, job.data, key, steps=steps, chosen=chosen)


def median_steps(results: Sequence[Result]) -> list[list[int]] | None:
    """Return the median over seeds of the steps of every run and phase, or None if no result has them.

    Seeds whose training had another number of runs or phases than most are left out.
    """
    known = [result.about["steps"] for result in results if result.about.get("steps")]
    if not known:
        return None
    shapes = [tuple(map(len, steps)) for steps in known]
    usual = Counter(shapes).most_common(1)[0][0]
    alike = [steps for steps, shape in zip(known, shapes) if shape == usual]
    return [
        [max(1, round(float(np.median([steps[run][phase] for steps in alike])))) for phase in range(phases)]
        for run, phases in enumerate(usual)
    ]


def chosen_by_tuning(tuning: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings that tuning chose, without their loss."""
    chosen = (tuning or {}).get("chosen", {})
    return {name: value for name, value in chosen.items() if name != "validation_loss"}


def refit(job: Refit, plan: Plan, store: Store) -> Result:
    """Train on the train and validation parts, save, and measure on the test part of the same split."""
    from consilience.training.step_counts import ends_of_runs, found_steps

    data = learn_from_all(load(plan, job).resplit(job.seed))
    import_training(job.method, plan.training_of(job.method, data.modalities))
    began = time.perf_counter()
    samples = data.samples.select(np.isin(data.split, ("train", "validation")))
    model = fit_model(job, plan, data, samples, None, {**job.chosen, "refit_steps": job.steps})
    result = Result({"set": job.source, "method": job.method, "seed": job.seed, "conditions": []})
    result.about["training_seconds"] = time.perf_counter() - began
    corruptor, weighs = Corruptor(data.train), False
    for name, corruption, level in conditions_of(plan, data):
        output, trust, _ = judge(model, corruptor, data.test, corruption, level, job.seed, plan)
        weighs = weighs or trust is not None
        measured = score(data, model, data.test, output)
        result.about["conditions"].append({"part": "test", "corruption": name, "level": level, "metrics": measured})
    trained_on = describe_training(
        job,
        ("train", "validation"),
        samples,
        found_steps(model.logs),
        refitted=True,
        stopped_by=ends_of_runs(model.logs),
    )
    save_model(job, plan, store, data, model, trained_on, gives_weights=weighs, chosen=job.chosen)
    return result


def learn_from_all(data: DataSet) -> DataSet:
    """Return the set with fill values and categories of a table learned from all rows but those of the test part."""
    if data.remake is None:
        return data
    return replace(data, **data.remake(np.where(data.split == "validation", "train", data.split))._asdict())
