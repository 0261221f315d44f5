"""Running the experiment in a run folder: every variant and seed a job, then the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from consilience.comparison.engine import run_jobs
from consilience.comparison.experiments.experiment import Reproduction
from consilience.comparison.experiments.m2vae_digits.account import give_account
from consilience.comparison.experiments.m2vae_digits.cells import Protocol, measure_cell
from consilience.comparison.store import Store, writing
from consilience.report.account import write_account


def reproduce(
    protocol: Protocol,
    out: str | Path,
    *,
    title: str,
    paper: str = "",
    notes: Sequence[str] = (),
    jobs: int = 1,
    cluster: str | None = None,
    verbose: int = 1,
    command: str = "",
) -> Reproduction:
    """Do what is not done yet of a protocol in a run folder, and write the page."""
    store, asked, cells = Store(out), protocol.asked(), protocol.cells()
    store.check(asked)
    if store.read_plan() is None:
        store.write_plan({"asked": asked, "jobs": [cell.to_json() for cell in cells], "command": command})
    run_jobs(cells, protocol, store, workers=jobs, cluster=cluster, verbose=verbose, measuring=measure_cell)
    results = store.read_all(cells, protocol.experiment)
    account = give_account(protocol, results, title=title, paper=paper, notes=notes, command=command)
    with writing(store.folder):
        page = write_account(account, store.folder)
    return Reproduction(store.folder, account, page)
