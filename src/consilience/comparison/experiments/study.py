"""A study of its own: jobs that are no training of a method on a set, done by the comparison's engine, then a page."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

from consilience.comparison.engine import run_jobs
from consilience.comparison.job import Measure
from consilience.comparison.plan import Job
from consilience.comparison.reproduction import Reproduction, run_folder
from consilience.comparison.resolution import versions_used
from consilience.comparison.store import Result, Store, writing
from consilience.report.document import Account, Section, write_account
from consilience.report.wording import say_versions

logger = logging.getLogger("consilience")


class StudyProtocol(Protocol):
    """What decides a study's numbers: its name, its jobs, and all settings in JSON values."""

    @property
    def experiment(self) -> str:
        """The name it is asked for by."""

    def cells(self) -> Sequence[Job]:
        """Every job, each keyed by all that decides its numbers."""

    def asked(self) -> dict[str, Any]:
        """What a run folder must have been made with; `experiment` is among the keys."""


class Workings(NamedTuple):
    """What a study does by a protocol.

    measure: does one job · tell: gives the account of all results, by their jobs' keys · measure_on_gpu: does what it
    can of all jobs at once, before the engine does the others one by one; None where they are no faster together.
    """

    measure: Measure
    tell: Callable[[Study, Any, Mapping[str, Result]], Account]
    measure_on_gpu: Callable[[Sequence[Any], Any, Store], None] | None = None


@dataclass(frozen=True, kw_only=True)
class Study(ABC):
    """What is asked, by which protocol, and how it is measured and told; how it is run is the same for all."""

    name: str
    title: str
    paper: str
    notes: tuple[str, ...]

    @abstractmethod
    def protocol(self, quick: bool) -> StudyProtocol:
        """What decides the numbers at one of the two sizes."""

    @abstractmethod
    def workings(self) -> Workings:
        """Imported here and not with the study, which is registered whether it is run or not."""

    def run(self, *, quick: bool = False, out: str | Path | None = None, **how: Any) -> Reproduction:
        """Do what is not done yet at one of the two sizes, and write the page; how: as `follow` takes it."""
        return self.follow(self.protocol(quick), run_folder(self.name, quick, out), **how)

    def follow(
        self,
        protocol: StudyProtocol,
        out: str | Path,
        *,
        jobs: int = 1,
        cluster: str | None = None,
        verbose: int = 1,
        command: str = "",
    ) -> Reproduction:
        """The same by any protocol."""
        measure, tell, measure_on_gpu = self.workings()
        store, asked, cells = Store(out), protocol.asked(), protocol.cells()
        store.check(asked)
        if store.read_plan() is None:
            listed = [cell.to_json() for cell in cells]
            store.write_plan({"asked": asked, "jobs": listed, "command": command, "versions": versions_used()})
        if measure_on_gpu is not None and cluster is None and torch.cuda.is_available():
            measure_on_gpu(cells, protocol, store)
        run_jobs(cells, protocol, store, workers=jobs, cluster=cluster, verbose=verbose, measuring=measure)
        told = replace(tell(self, protocol, store.read_all(cells, protocol.experiment)), command=command)
        told = _with_versions(told, (store.read_plan() or {}).get("versions"))
        with writing(store.folder):
            page = write_account(told, store.folder)
        return Reproduction(store.folder, told, page)


def _with_versions(account: Account, versions: Mapping[str, str] | None) -> Account:
    """The versions a run began with, below how it was made; run folders from before they were kept have none."""
    if not versions:
        return account
    made = next((one for one in account.sections if one.name == "made"), Section("made", "How it was made"))
    others = tuple(one for one in account.sections if one is not made)
    return replace(account, sections=(*others, replace(made, words=(*made.words, say_versions(versions)))))


_Cell = TypeVar("_Cell", bound=Job)


def measure_at_once(
    cells: Sequence[_Cell], measuring: Callable[[Sequence[_Cell]], Sequence[Result]], store: Store
) -> None:
    """What is open of some cells, side by side; each is kept under its own name, as if it had been measured alone."""
    todo = [cell for cell in cells if not store.has(cell)]
    if not todo:
        return
    for cell, result in zip(todo, measuring(todo), strict=True):
        store.write(cell, result)
    logger.info("%d measured side by side, the first of them: %s", len(todo), todo[0].describe())
