"""Train the seeds of a method side by side; the engine then runs the jobs that are left, one by one."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from typing import TYPE_CHECKING, Any

from consilience.comparison.job import examine, import_training, load
from consilience.comparison.plan import Job, Plan, registered_name
from consilience.comparison.store import Store
from consilience.core.errors import TrainingError, TrustWarning, UnsupportedError
from consilience.core.progress_lines import say_progress
from consilience.core.samples import Samples
from consilience.data import DataSet

if TYPE_CHECKING:
    from consilience.training import Model

logger = logging.getLogger("consilience")


def train_together(jobs: Sequence[Job], plan: Plan, store: Store, verbose: int = 1) -> None:
    """Run the open jobs of each method on each set at once, where the method, its settings and the set allow it.

    Each result is kept as if its job had run alone. Jobs that cannot be trained side by side, or fail there, are left
    to the engine.
    """
    if plan.tune:
        logger.warning("compare: with tune, seeds are not trained side by side: each has a search of its own")
        return
    said: set[str] = set()
    for group in open_groups(jobs, store):
        with ExitStack() as stack:
            mine = [job for job in group if stack.enter_context(store.claim(job)) and not store.has(job)]
            if len(mine) < 2:
                continue
            data = split_for(mine, plan)
            import_training(mine[0].method, plan.training_of(mine[0].method, data[0].modalities))
            began = time.perf_counter()
            models = fit(mine, plan, data)
            if isinstance(models, str):
                if models not in said:  # of several sets once
                    logger.warning("compare: %s; its seeds are trained one by one", models)
                said.add(models)
                continue
            seconds = (time.perf_counter() - began) / len(mine)
            for job, split, model in zip(mine, data, models):
                result = examine(job, plan, store, split, model, seconds, {})
                result.about["side_by_side"] = len(mine)
                store.write(job, result)
            if verbose:
                words = f"{mine[0].method} on {mine[0].source}, {len(mine)} seeds side by side"
                say_progress(f"{words}: {time.perf_counter() - began:.0f} s")


def open_groups(jobs: Sequence[Job], store: Store) -> Iterator[list[Job]]:
    """Yield the jobs that are not done, by set and method."""

    def of(job: Job) -> tuple[str, str]:
        return job.source, job.method

    for _, group in groupby(sorted((job for job in jobs if not store.has(job)), key=of), key=of):
        yield list(group)


def split_for(jobs: Sequence[Job], plan: Plan) -> list[DataSet]:
    """Return each job's set split by its seed; the same object for seeds whose splits are the same."""
    whole = load(plan, jobs[0])
    kept: dict[bytes, DataSet] = {}
    splits = [whole.resplit(job.seed) for job in jobs]
    return [kept.setdefault(data.split.tobytes(), data) for data in splits]


def fit(jobs: Sequence[Job], plan: Plan, data: Sequence[DataSet]) -> list[Model] | str:
    """Return the jobs' models, or why they must be trained one by one."""
    from consilience.training import Trainer
    from consilience.training.stacked_seeds import fit_together

    name = registered_name(jobs[0].method)
    settings: dict[str, Any] = {**plan.training_of(jobs[0].method, data[0].modalities), "on_interrupt": "raise"}
    trainer = Trainer(**settings)
    parts = weighted_parts(data, plan)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrustWarning)  # the report has it, once for all seeds
            return fit_together(
                name,
                parts,
                [job.seed for job in jobs],
                settings=plan.settings_of(jobs[0].method),
                encoders=plan.encoders_of(data[0].modalities),
                task=data[0].task,
                trainer=trainer,
            )
    except (UnsupportedError, TrainingError) as error:
        return str(error)


def weighted_parts(data: Sequence[DataSet], plan: Plan) -> list[tuple[Samples, Samples]]:
    """Return the training samples of each split, with the weights of their classes, and its validation samples.

    Splits that are the same object share their samples.
    """
    from consilience.core.targets import Task
    from consilience.training.class_weights import weigh_classes

    weighted: dict[int, Samples] = {}
    for split in data:
        if id(split) not in weighted:
            weighted[id(split)] = train = split.train
            if (weights := plan.class_weight_of(split.y)) is not None:
                weight = weigh_classes(train, Task.of(split.y, split.task), weights)
                weighted[id(split)] = Samples.of(train, weight=weight)
    return [(weighted[id(split)], split.validation) for split in data]
