"""The data of a training in lockstep: in memory once for all models, each fold's held-out samples, and batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.training.stacked_data import Trials


def repeat(batch: Batch, names: Sequence[str], trials: int) -> Trials:
    """A batch as the data of every trial, in memory once."""

    def repeated(values: Tensor) -> Tensor:
        return values[None].expand(trials, *values.shape)

    assert batch.y is not None
    columns = [batch.names.index(name) for name in names]
    present = batch.present[:, columns]
    weight = None if bool((batch.weight == 1).all()) else repeated(batch.weight)
    return Trials(
        {name: repeated(batch[name]) for name in names},
        repeated(batch.y),
        present=None if bool(present.all()) else repeated(present),
        weight=weight,
    )


def held_out_trials(data: Trials, held: Sequence[np.ndarray]) -> Trials:
    """Each fold's held-out samples as a trial, whose values stay where they are; short folds are filled up."""
    widest = max(map(len, held))
    rows = torch.from_numpy(np.stack([np.pad(own, (0, widest - len(own))) for own in held])).to(data.y.device)
    some = data.only(torch.arange(len(held)))
    picked = replace(some, values={}).rows(rows)
    return replace(picked, values=some.values, places=dict.fromkeys(some.values, rows), complete=some.complete)


def endless_batches(rows: np.ndarray, size: int, seed: int, trial: int) -> Iterator[np.ndarray]:
    """Batches of rows without end; every row comes once before any comes again."""
    random = np.random.default_rng([seed, trial])
    waiting = rows[:0]
    while True:
        while len(waiting) < size:
            waiting = np.concatenate([waiting, random.permutation(rows)])
        yield waiting[:size]
        waiting = waiting[size:]
