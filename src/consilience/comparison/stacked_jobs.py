"""Seeds of one method trained side by side, before the engine does the jobs that are left one by one."""

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
from consilience.data import DataSet

if TYPE_CHECKING:
    from consilience.training import Model

logger = logging.getLogger("consilience")


def train_together(jobs: Sequence[Job], plan: Plan, store: Store, verbose: int = 1) -> None:
    """Do the open jobs of each method on each set at once, where the method, its settings and the set allow it.

    Each result is kept under its own name, as if it had been measured alone. What cannot be trained side by side, or
    breaks while it is, is left to the engine, which says why where it fails there too.
    """
    if plan.tune:
        return
    for group in open_groups(jobs, store):
        with ExitStack() as stack:
            mine = [job for job in group if stack.enter_context(store.claim(job)) and not store.has(job)]
            if len(mine) < 2:
                continue
            import_training(mine[0].method)
            began = time.perf_counter()
            data = split_for(mine, plan)
            models = fit(mine, plan, data)
            if models is None:
                continue
            seconds = (time.perf_counter() - began) / len(mine)
            for job, one, model in zip(mine, data, models):
                result = examine(job, plan, store, one, model, seconds, {})
                result.about["side_by_side"] = len(mine)
                store.write(job, result)
            if verbose:
                said = f"{mine[0].method} on {mine[0].source}, {len(mine)} seeds side by side"
                logger.info("%s: %.0f s", said, time.perf_counter() - began)


def open_groups(jobs: Sequence[Job], store: Store) -> Iterator[list[Job]]:
    """The jobs that are not done, by set and method."""

    def of(job: Job) -> tuple[str, str]:
        return job.source, job.method

    for _, group in groupby(sorted((job for job in jobs if not store.has(job)), key=of), key=of):
        yield list(group)


def split_for(jobs: Sequence[Job], plan: Plan) -> list[DataSet]:
    """Each job's set split by its seed; one object for seeds whose splits are the same."""
    whole = load(plan, jobs[0])
    kept: dict[bytes, DataSet] = {}
    splits = [whole.resplit(job.seed) for job in jobs]
    return [kept.setdefault(one.split.tobytes(), one) for one in splits]


def fit(jobs: Sequence[Job], plan: Plan, data: Sequence[DataSet]) -> list[Model] | None:
    """The jobs' models, or None where they are to be trained one by one."""
    from consilience.training import Trainer
    from consilience.training.stacked_seeds import fit_together

    name = registered_name(jobs[0].method)
    settings: dict[str, Any] = {**plan.training, "on_interrupt": "raise"}
    trainer = Trainer(**settings)
    parts = [(one.train, one.validation) for one in data]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrustWarning)  # the report says it, once for all seeds
            return fit_together(
                name,
                parts,
                [job.seed for job in jobs],
                settings=plan.settings.get(jobs[0].method),
                encoders={one: choice for one, choice in plan.encoders.items() if one in data[0].modalities},
                task=data[0].task,
                trainer=trainer,
            )
    except UnsupportedError:
        return None
    except TrainingError as error:
        logger.warning("%s; its seeds are trained one by one", error)
        return None
