"""Running experiment B.1 in a run folder: cell by cell on processors, all cells of a size at once on a GPU."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import torch

from consilience.comparison.engine import run_jobs
from consilience.comparison.experiments.experiment import Reproduction
from consilience.comparison.experiments.progressive_synthetic.account import give_account
from consilience.comparison.experiments.progressive_synthetic.cells import Cell, Protocol, measure_cell, measure_cells
from consilience.comparison.experiments.progressive_synthetic.findings import Findings
from consilience.comparison.store import Store, writing
from consilience.report.account import write_account

logger = logging.getLogger("consilience")


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
    if cluster is None and torch.cuda.is_available():
        measure_on_gpu(cells, protocol, store, verbose)
    run_jobs(cells, protocol, store, workers=jobs, cluster=cluster, verbose=verbose, measuring=measure_cell)
    findings = Findings.gather(protocol, store.read_all(cells, cells[0].source))
    account = give_account(findings, title=title, paper=paper, notes=notes, command=command)
    with writing(store.folder):
        page = write_account(account, store.folder)
    return Reproduction(store.folder, account, page)


def measure_on_gpu(cells: Sequence[Cell], protocol: Protocol, store: Store, verbose: int) -> None:
    """All open cells of a size side by side; each is kept under its own name, as if it had been measured alone."""
    for n in protocol.sizes:
        todo = [cell for cell in cells if cell.n == n and not store.has(cell)]
        if not todo:
            continue
        for cell, result in zip(todo, measure_cells(todo, protocol, "cuda")):
            store.write(cell, result)
        if verbose:
            logger.info("n = %d: %d cells measured", n, len(todo))
