"""Steps of the optimizer: how many early stopping found, and how a later training takes as many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from consilience.core.errors import TrainingError
from consilience.training.optimizers import Phase
from consilience.training.training_log import Log
from consilience.training.training_settings import TrainingSettings, resolve, steps_per_epoch


def found_steps(logs: Iterable[Log]) -> list[list[int]]:
    """Return for each run how many steps each of its phases took until its best epoch.

    The best epoch has the lowest validation loss; without validation samples it is the last.

    Args:
        logs: Of the runs in order.

    Example:
        >>> rows = [{"phase": "fit", "steps": n, "validation_loss": loss} for n, loss in ((5, 3), (10, 2), (15, 4))]
        >>> found_steps([Log(rows), Log([{"phase": "fit", "steps": 7}])])
        [[10], [7]]
    """
    runs = [[list(rows) for _, rows in groupby(log.rows, key=lambda row: row["phase"])] for log in logs]
    return [[_best_row(rows)["steps"] for rows in phases] for phases in runs]


def ends_of_runs(logs: Iterable[Log]) -> list[str]:
    """Return for each run of a refit what ended it.

    "steps": the number of steps that early stopping had found. "held-out": held-out samples of its own, as of experts
    that are cross-fitted in lockstep. "fit": nothing, since it was fitted in one go, as trees are.

    Args:
        logs: Of the runs of a training without validation samples, in order.

    Example:
        >>> lockstep = Log([{"phase": "fit", "steps": 40, "validation_loss": 0.3}])
        >>> ends_of_runs([lockstep, Log([{"phase": "fit", "steps": 80}]), Log([{"phase": "fit", "steps": 1}])])
        ['held-out', 'steps', 'fit']
    """
    ends = []
    for log in logs:
        if any("validation_loss" in row for row in log.rows):
            ends.append("held-out")
        else:
            ends.append("fit" if log.rows and log.rows[-1]["steps"] == 1 else "steps")
    return ends


def _best_row(rows: list[dict[str, Any]]) -> dict[str, Any]:
    validated = [row for row in rows if "validation_loss" in row]
    return min(validated, key=lambda row: row["validation_loss"]) if validated else rows[-1]


def phases_of_steps(
    steps: Sequence[Sequence[int]], run: int, phases: Sequence[Phase], settings: TrainingSettings, samples: int
) -> list[Phase]:
    """Return the phases of a run with as many epochs as are nearest to its steps, at least one.

    Args:
        steps: Of every run and phase.
        run: The run's number, from 0.
        phases: Its phases.
        settings: How it is trained.
        samples: Number of its training samples.

    Raises:
        TrainingError: If the run or a phase has no number of steps.

    Example:
        >>> [phase.epochs for phase in phases_of_steps([[50]], 0, [Phase()], TrainingSettings(batch_size=10), 121)]
        [4]
    """
    if run >= len(steps) or len(steps[run]) != len(phases):
        raise TrainingError(
            f"training for a given number of steps: run {run + 1} has {len(phases)} phases, and steps are given for "
            f"{[len(each) for each in steps]} phases of {len(steps)} runs. A method that trains in another order "
            "without validation samples needs a refit of its own"
        )
    each = steps_per_epoch(samples, resolve(settings, samples).batch_size, settings.accumulate)
    return [replace(phase, epochs=max(1, round(taken / each))) for phase, taken in zip(phases, steps[run])]
