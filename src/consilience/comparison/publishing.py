"""What `best/` holds: the chosen method, refitted, or a trained model of it; and what is kept of the other models."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from consilience.comparison.choosing import Candidate, rank_candidates
from consilience.comparison.chosen_method import Choice, Published
from consilience.comparison.gather_results import Finished
from consilience.comparison.plan import Job, Refit
from consilience.comparison.refit import NO_STEPS, plan_refit
from consilience.comparison.store import Store, StoreError

logger = logging.getLogger("consilience")

# How often a model that is not there is trained again.
_TRIES = 3


def read_finished(store: Store, written: Mapping[str, Any]) -> Finished:
    """Every job of a plan that has a result, failed ones included."""
    results = ((job, store.read(job)) for job in (Job(**described) for described in written["jobs"]))
    return [(job, result) for job, result in results if result is not None]


def keep_best(store: Store, written: Mapping[str, Any], run: Callable[[list[Job]], None]) -> None:
    """Publish the chosen method of each set, and of each method keep the model of its median seed.

    The refit is a job like the others: it is run where its model is not published yet, and takes the place of an
    earlier one when it is whole. A trained model that is not there, because it was not kept by an earlier call with
    another metric or the folder was copied without it, is trained again.
    """
    tried: set[str] = set()
    for _ in range(_TRIES):
        with store.alone():
            store.check_unchanged(written)
            finished = read_finished(store, written)
            ranked = rank_candidates(finished, written)
            winners = {
                store.best(source, written["sets"]): _to_publish(store, written, finished, candidates[0], tried)
                for source, candidates in ranked.items()
            }
            lost = [
                job for folder, job in winners.items() if not (store.has_model(job) or store.published(job, folder))
            ]
            if not lost:
                for folder, job in winners.items():
                    store.publish(job, folder)
                kept = {candidate.median.key for candidates in ranked.values() for candidate in candidates}
                store.drop_models(job for job, _ in finished if job.key not in kept)
                planned = [_plan(written, finished, candidates[0]) for candidates in ranked.values()]
                store.drop_models(filter(None, planned))  # their copies are published
                store.drop_refits(filter(None, planned))
                return
            for job in lost:
                store.discard(job)
                store.drop_models([job])
        tried |= {job.key for job in lost}
        run(lost)
    raise StoreError(
        f"the model of {lost[0].describe()} was trained {_TRIES} times and was not in {store.models} afterwards: "
        "another process may work on this folder with another metric; run the comparison again when it has ended"
    )


def _to_publish(
    store: Store, written: Mapping[str, Any], finished: Finished, candidate: Candidate, tried: Iterable[str]
) -> Job:
    """The job whose model is published: the refit, or the median seed where it is not wanted, not known or failed."""
    job = _plan(written, finished, candidate)
    if job is None:
        return candidate.median
    result = store.read(job)
    if job.key in tried and result is not None and result.failed:
        logger.warning("%s failed: %s", job.describe(), result.about["error"])
        return candidate.median
    return job


def _plan(written: Mapping[str, Any], finished: Finished, candidate: Candidate) -> Refit | None:
    """The refit of a method; None if none is asked for, or the steps are not known."""
    return plan_refit(candidate, finished) if written["asked"].get("refit", False) else None


def name_published(store: Store, written: Mapping[str, Any], finished: Finished, choice: Choice) -> Choice:
    """Add to a choice what the set's folder in `best/` holds, and why that was not refitted if it was to be."""
    target = store.best(choice.set, written["sets"])
    found = store.describe_published(target)
    if found is None:
        return choice
    key, trained_on = found
    candidate = rank_candidates(finished, written)[choice.set][0]
    job = _plan(written, finished, candidate)
    result = None if job is None else store.read(job)
    reason = ""
    if written["asked"].get("refit", False) and job is None:
        reason = NO_STEPS
    elif result is not None and result.failed:
        reason = result.about["error"]
    if not trained_on:  # a model of an earlier version; its job says what it was trained on
        own = next((each for each in written["jobs"] if each["key"] == key), None)
        if own is None:
            return choice
        trained_on = {**own, "rows": written["sets"][choice.set]["split"]["train"]}
    published = Published(
        folder=target.relative_to(store.folder).as_posix(),
        method=trained_on["method"],
        seed=trained_on["seed"],
        rows=trained_on["rows"],
        refitted=bool(trained_on.get("refitted", False)),
        steps=tuple(tuple(run) for run in trained_on.get("steps", ())),
        stopped_by=tuple(trained_on.get("stopped_by", ())),
    )
    if job is not None and job.key == key and result is not None and not result.failed:
        clean = next(each for each in result.about["conditions"] if each["level"] == 0)
        tested = written["sets"][choice.set]["split"]["test"]
        published = replace(published, tested=tested, values=clean["metrics"])
    return replace(choice, published=published, reason=reason)
