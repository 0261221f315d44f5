"""Running the figures' trainings in a run folder: one by one on processors, a loop's seeds side by side on a GPU."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from consilience.comparison.experiments.experiment import Reproduction
from consilience.comparison.experiments.progressive_figures.account import give_account
from consilience.comparison.experiments.progressive_figures.cells import Cell, Protocol, measure_cell, measure_cells
from consilience.comparison.experiments.study import run_study
from consilience.comparison.store import Store

logger = logging.getLogger("consilience")


def reproduce(
    protocol: Protocol,
    out: str | Path,
    *,
    title: str,
    paper: str = "",
    notes: Sequence[str] = (),
    command: str = "",
    **how: Any,
) -> Reproduction:
    """Do what is not done yet of a protocol in a run folder, and write the page; how: as `run_study` takes it."""
    on_gpu = how.get("cluster") is None and torch.cuda.is_available()
    return run_study(
        protocol,
        out,
        measuring=measure_cell,
        account=lambda results: give_account(protocol, results, title=title, paper=paper, notes=notes, command=command),
        first=partial(measure_on_gpu, protocol.cells(), protocol) if on_gpu else None,
        command=command,
        **how,
    )


def measure_on_gpu(cells: Sequence[Cell], protocol: Protocol, store: Store) -> None:
    """All open seeds of a loop side by side; each is kept under its own name, as if it had been measured alone."""
    for loop in dict.fromkeys(cell.loop for cell in cells if cell.loop is not None):
        todo = [cell for cell in cells if cell.loop == loop and not store.has(cell)]
        if not todo:
            continue
        for cell, result in zip(todo, measure_cells(todo, protocol)):
            store.write(cell, result)
        logger.info("%s with %d passes: %d seeds measured", loop.name, loop.steps, len(todo))
