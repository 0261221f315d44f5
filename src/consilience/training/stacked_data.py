"""The data of many trainings at once: every trial its own samples, however many of their values are shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.samples import MappedRows, Samples
from consilience.preparation import Preparation
from consilience.training.batch_plan import cut, steps_per_epoch
from consilience.training.seeding import epoch_seed


@dataclass(frozen=True)
class Trials:
    """As many samples for every trial: values name → `[trial, sample, *shape]`, y `[trial, sample]` or with targets.

    Where several samples of a trial have the same value of a modality, it need be there once only: places name →
    `[trial, sample]` then says which of the rows of values is a sample's. Every modality is there for every sample.
    """

    values: Mapping[str, Tensor]
    y: Tensor
    places: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(
        cls, sets: Sequence[Samples], preparations: Sequence[Preparation], device: torch.device | str = "cpu"
    ) -> Trials:
        """One trial for each set, prepared by its own preparation; trials that share both share the memory."""
        prepared: dict[tuple[int, int], Trials] = {}
        for samples, preparation in zip(sets, preparations, strict=True):
            key = id(samples), id(preparation)
            if key not in prepared:
                prepared[key] = _one_trial(samples, preparation).to(device)
        if len(prepared) == 1:
            (alone,) = prepared.values()
            return alone.only(torch.zeros(len(sets), dtype=torch.long, device=alone.y.device))
        return _stack([prepared[id(one), id(two)] for one, two in zip(sets, preparations)])

    def __len__(self) -> int:
        return len(self.y)

    @property
    def samples(self) -> int:
        """How many each trial has."""
        return self.y.shape[1]

    def rows(self, rows: Tensor | slice) -> Trials:
        """Some samples: the same `[k]` of every trial, or each trial's own `[trial, k]`."""
        places = {name: _pick(place, rows) for name, place in self.places.items()}
        values = {name: _pick(value, places.get(name, rows)) for name, value in self.values.items()}
        return Trials(values, _pick(self.y, rows))

    def only(self, trials: Tensor) -> Trials:
        """Some of the trials, booleans `[trial]` or their numbers."""
        return Trials(
            {name: _some(value, trials) for name, value in self.values.items()},
            _some(self.y, trials),
            {name: _some(place, trials) for name, place in self.places.items()},
        )

    def to(self, device: torch.device | str) -> Trials:
        """The same on another device."""
        return Trials(
            {name: value.to(device) for name, value in self.values.items()},
            self.y.to(device),
            {name: place.to(device) for name, place in self.places.items()},
        )


def _pick(values: Tensor, rows: Tensor | slice) -> Tensor:
    """`[trial, row, …]` → `[trial, k, …]`."""
    if isinstance(rows, slice) or rows.ndim == 1:
        return values[:, rows]
    return values[torch.arange(len(values), device=values.device)[:, None], rows]


def _some(values: Tensor, trials: Tensor) -> Tensor:
    """Some trials; what all trials share goes on being shared."""
    if len(values) == 1 or values.stride(0) == 0:
        count = int(trials.sum()) if trials.dtype == torch.bool else len(trials)
        return values[:1].expand(count, *values.shape[1:])
    return values[trials]


def _one_trial(samples: Samples, preparation: Preparation) -> Trials:
    """A set as the only trial. A row that several samples share is prepared once."""
    values, places = {}, {}
    for name, transform in preparation.transforms.items():
        rows: Any = slice(None)
        if isinstance(given := samples[name], MappedRows):
            _, rows, place = np.unique(given.rows, return_index=True, return_inverse=True)
            places[name] = torch.from_numpy(place)[None]
        values[name] = transform(samples.read(name, rows), None)[0][None]
    assert samples.y is not None
    y = torch.from_numpy(preparation.task.encode(samples.y))[None]
    return Trials(values, y.float() if y.is_floating_point() else y, places)


def _stack(trials: Sequence[Trials]) -> Trials:
    """Trials of one each as one; of a modality with rows that are shared, some may have fewer rows than others."""
    first = trials[0]
    values = {}
    for name in first.values:
        parts = [one.values[name][0] for one in trials]
        values[name] = (
            nn.utils.rnn.pad_sequence(parts, batch_first=True) if name in first.places else torch.stack(parts)
        )
    places = {name: torch.cat([one.places[name] for one in trials]) for name in first.places}
    return Trials(values, torch.cat([one.y for one in trials]), places)


def whole_batch(values: Mapping[str, Tensor], y: Tensor) -> Batch:
    """A batch in which every modality is there for every sample."""
    samples, device = len(y), y.device
    return Batch(
        values,
        torch.ones(samples, len(values), dtype=torch.bool, device=device),
        index=torch.arange(samples, device=device),
        weight=torch.ones(samples, device=device),
        y=y,
        complete=frozenset(values),
    )


def shared_order(samples: int, batch_size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """An epoch's batches of rows `[k]`, the same for every trial."""
    return torch.randperm(samples, generator=generator).split(batch_size)


def own_orders(samples: int, batch_size: int, seeds: Sequence[int], epoch: int) -> tuple[Tensor, ...]:
    """An epoch's batches of rows `[trial, k]`: for each trial those that `Trainer` would give it with its seed."""
    generators = [torch.Generator().manual_seed(epoch_seed(seed, 0, epoch)) for seed in seeds]
    orders = torch.stack([torch.randperm(samples, generator=one) for one in generators])
    sizes = [stop - start for start, stop in cut(0, samples, steps_per_epoch(samples, batch_size))]
    return orders.split(sizes, dim=1)
