"""A study of its own: jobs that are no training of a method on a set, done by the comparison's engine, then a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from consilience.comparison.engine import run_jobs
from consilience.comparison.experiments.experiment import Reproduction
from consilience.comparison.plan import Job
from consilience.comparison.store import Result, Store, writing
from consilience.comparison.work import Measure
from consilience.report.account import Account, write_account


class StudyProtocol(Protocol):
    """What decides a study's numbers: its name, its jobs, and all settings in JSON values."""

    @property
    def experiment(self) -> str:
        """The name it is asked for by."""

    def cells(self) -> Sequence[Job]:
        """Every job, each keyed by all that decides its numbers."""

    def asked(self) -> dict[str, Any]:
        """What a run folder must have been made with; `experiment` is among the keys."""


def run_study(
    protocol: StudyProtocol,
    out: str | Path,
    *,
    measuring: Measure,
    account: Callable[[Mapping[str, Result]], Account],
    first: Callable[[Store], None] | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    verbose: int = 1,
    command: str = "",
) -> Reproduction:
    """Do what is not done yet of a protocol in a run folder, and write the page.

    measuring: does one job · account: tells what all results, by their jobs' keys, say · first: may do many jobs at
    once before the engine does the others one by one.
    """
    store, asked, cells = Store(out), protocol.asked(), protocol.cells()
    store.check(asked)
    if store.read_plan() is None:
        store.write_plan({"asked": asked, "jobs": [cell.to_json() for cell in cells], "command": command})
    if first is not None:
        first(store)
    run_jobs(cells, protocol, store, workers=jobs, cluster=cluster, verbose=verbose, measuring=measuring)
    told = account(store.read_all(cells, protocol.experiment))
    with writing(store.folder):
        page = write_account(told, store.folder)
    return Reproduction(store.folder, told, page)
