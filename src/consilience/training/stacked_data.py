"""The data of many models that are trained at once: every trial has its own samples, but may share their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.samples import MappedRows, Samples
from consilience.preparation import Preparation
from consilience.training.batch_plans import BatchPlan, plan_epoch
from consilience.training.devices import epoch_seed


@dataclass(frozen=True)
class Trials:
    """Equally many samples for every trial.

    Args:
        values: Name → `[trial, sample, *shape]`; zeros where a modality is missing.
        y: `[trial, sample]` class indices or `[trial, sample, target]` numbers.
        places: Name → `[trial, sample]` for modalities whose values several samples share: which row of `values`
            belongs to each sample, so that a shared value is in memory once.
        present: Booleans `[trial, sample, modality]`. None: every sample has every modality.
        weight: `[trial, sample]`. None: all samples weigh the same.
        complete: Modalities that no sample lacks. None: it is computed from `present`.
    """

    values: Mapping[str, Tensor]
    y: Tensor
    places: Mapping[str, Tensor] = field(default_factory=dict)
    present: Tensor | None = None
    weight: Tensor | None = None
    complete: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.complete is None:
            whole = [True] * len(self.values) if self.present is None else self.present.flatten(0, 1).all(0).tolist()
            object.__setattr__(self, "complete", frozenset(name for name, all_ in zip(self.values, whole) if all_))

    @classmethod
    def of(
        cls, sets: Sequence[Samples], preparations: Sequence[Preparation], device: torch.device | str = "cpu"
    ) -> Trials:
        """Return a trial for each set, prepared by its own preparation; trials that share both share memory."""
        prepared: dict[tuple[int, int], Trials] = {}
        for samples, preparation in zip(sets, preparations, strict=True):
            key = id(samples), id(preparation)
            if key not in prepared:
                prepared[key] = _single_trial(samples, preparation).to(device)
        if len(prepared) == 1:
            (trial,) = prepared.values()
            return trial.only(torch.zeros(len(sets), dtype=torch.long, device=trial.y.device))
        return _stack([prepared[id(samples), id(preparation)] for samples, preparation in zip(sets, preparations)])

    def __len__(self) -> int:
        return len(self.y)

    @property
    def samples(self) -> int:
        """Samples of each trial."""
        return self.y.shape[1]

    def rows(self, rows: Tensor | slice) -> Trials:
        """Return some samples: the same `[k]` of every trial, or each trial's own `[trial, k]`."""
        places = {name: _pick(place, rows) for name, place in self.places.items()}
        values = {name: _pick(value, places.get(name, rows)) for name, value in self.values.items()}
        present, weight = (None if part is None else _pick(part, rows) for part in (self.present, self.weight))
        return replace(self, values=values, y=_pick(self.y, rows), places={}, present=present, weight=weight)

    def part(self, start: int, stop: int) -> Trials:
        """Return the samples from `start` to before `stop`, in memory of their own."""
        return self.rows(slice(start, stop))._map(Tensor.contiguous)

    def modality(self, name: str, rows: Tensor) -> Tensor:
        """Return one modality of some samples: the same `[k]` of every trial, or each trial's own `[trial, k]`."""
        return _pick(self.values[name], _pick(self.places[name], rows) if name in self.places else rows)

    def only(self, trials: Tensor) -> Trials:
        """Return some of the trials, given as booleans `[trial]` or as numbers."""
        return self._map(lambda tensor: _some(tensor, trials))

    def to(self, device: torch.device | str) -> Trials:
        """Return the same on another device."""
        return self._map(lambda tensor: tensor.to(device))

    def hiding(self, hide: Callable[[Tensor], Tensor]) -> Trials:
        """Return the same with some modalities hidden, as a function of `present` says."""
        shape = (*self.y.shape[:2], len(self.values))
        everything = torch.ones(shape, dtype=torch.bool, device=self.y.device)
        present = everything if self.present is None else self.present
        present = present & ~hide(present)
        values = {
            name: value.masked_fill(~present[..., column].view(*shape[:2], *[1] * (value.ndim - 2)), 0)
            for column, (name, value) in enumerate(self.values.items())
        }
        return replace(self, values=values, present=present, complete=frozenset())

    def _map(self, change: Callable[[Tensor], Tensor]) -> Trials:
        return replace(
            self,
            values={name: change(value) for name, value in self.values.items()},
            y=change(self.y),
            places={name: change(place) for name, place in self.places.items()},
            present=None if self.present is None else change(self.present),
            weight=None if self.weight is None else change(self.weight),
        )


def plan_own_orders(
    train: Trials, batch_size: int, accumulate: int, seeds: Sequence[int], epoch: int
) -> Iterator[BatchPlan]:
    """Yield an epoch's batches with rows `[trial, k]`: for each trial those that `Trainer` gives it with its seed."""
    generators = [torch.Generator().manual_seed(epoch_seed(seed, 0, epoch)) for seed in seeds]
    orders = [torch.randperm(train.samples, generator=generator) for generator in generators]
    weights = torch.ones(1, train.samples).expand(len(seeds), -1) if train.weight is None else train.weight.cpu()
    for plans in zip(*(plan_epoch(order, weight, batch_size, accumulate) for order, weight in zip(orders, weights))):
        share, of_epoch = ([plan.share for plan in plans], [plan.of_epoch for plan in plans])
        yield BatchPlan(
            torch.stack([plan.rows for plan in plans]),
            share[0] if train.weight is None else torch.tensor(share, device=train.y.device),
            of_epoch[0] if train.weight is None else torch.tensor(of_epoch, device=train.y.device),
            plans[0].ends_step,
        )


def plan_shared_order(train: Trials, batch_size: int, generator: torch.Generator) -> Iterator[BatchPlan]:
    """Yield an epoch's batches with rows `[k]`, the same for every trial; every batch is a step."""
    for rows in torch.randperm(train.samples, generator=generator).split(batch_size):
        of_epoch: float | Tensor = len(rows) / train.samples
        if train.weight is not None:
            of_epoch = train.weight[:, rows].sum(dim=1) / train.weight.sum(dim=1)
        yield BatchPlan(rows, 1.0, of_epoch, ends_step=True)


def trial_batch(
    values: Mapping[str, Tensor],
    y: Tensor,
    present: Tensor | None = None,
    weight: Tensor | None = None,
    complete: frozenset[str] | None = None,
) -> Batch:
    """Return the batch of one trial inside `torch.func.vmap`; None: all modalities are present, all weights are 1."""
    samples, device = len(y), y.device
    return Batch(
        values,
        torch.ones(samples, len(values), dtype=torch.bool, device=device) if present is None else present,
        index=torch.arange(samples, device=device),
        weight=torch.ones(samples, device=device) if weight is None else weight,
        y=y,
        complete=frozenset(values) if complete is None else complete,
        stacked=True,
    )


def _pick(values: Tensor, rows: Tensor | slice) -> Tensor:
    """`[trial, row, …]` → `[trial, k, …]`."""
    if isinstance(rows, slice) or rows.ndim == 1:
        return values[:, rows]
    return values[torch.arange(len(values), device=values.device)[:, None], rows]


def _some(values: Tensor, trials: Tensor) -> Tensor:
    """Some trials; what all trials share stays shared."""
    if len(values) == 1 or values.stride(0) == 0:
        count = int(trials.sum()) if trials.dtype == torch.bool else len(trials)
        return values[:1].expand(count, *values.shape[1:])
    return values[trials]


def _single_trial(samples: Samples, preparation: Preparation) -> Trials:
    """A set as the only trial. A row that several samples share is prepared once."""
    shared = [
        name
        for name in preparation.transforms
        if name in samples and isinstance(samples[name], MappedRows) and samples.present_in(name).all()
    ]
    others = {name: transform for name, transform in preparation.transforms.items() if name not in shared}
    given = samples.only([name for name in samples.names if name not in shared])
    batch = Preparation(others, preparation.raw, preparation.task).batch(given)
    values: dict[str, Tensor] = {}
    places: dict[str, Tensor] = {}
    present = torch.ones(len(samples), len(preparation.transforms), dtype=torch.bool)
    for column, (name, transform) in enumerate(preparation.transforms.items()):
        if name in batch.values:
            values[name], present[:, column] = batch[name][None], batch.present_in(name)
            continue
        rows: Any = samples[name].rows
        _, rows, place = np.unique(rows, return_index=True, return_inverse=True)
        places[name] = torch.from_numpy(place)[None]
        values[name] = transform(samples.read(name, rows), None)[0][None]
    assert batch.y is not None
    missing = None if present.all() else present[None]
    return Trials(values, batch.y[None], places, missing, None if samples.weight is None else batch.weight[None])


def _stack(trials: Sequence[Trials]) -> Trials:
    """Trials of one model each as one; of a modality with shared rows, some may have fewer rows than others."""
    if len({frozenset(trial.places) for trial in trials}) > 1:
        trials = [trial.rows(slice(None)) for trial in trials]
    first = trials[0]
    values = {}
    for name in first.values:
        parts = [trial.values[name][0] for trial in trials]
        shared = name in first.places
        values[name] = nn.utils.rnn.pad_sequence(parts, batch_first=True) if shared else torch.stack(parts)
    places = {name: torch.cat([trial.places[name] for trial in trials]) for name in first.places}
    everything = torch.ones(1, first.samples, len(values), dtype=torch.bool, device=first.y.device)
    present = _join([trial.present for trial in trials], everything)
    weight = _join([trial.weight for trial in trials], torch.ones(1, first.samples, device=first.y.device))
    return Trials(values, torch.cat([trial.y for trial in trials]), places, present, weight)


def _join(parts: Sequence[Tensor | None], usual: Tensor) -> Tensor | None:
    """The parts as one tensor, None if all of them are None."""
    if all(part is None for part in parts):
        return None
    return torch.cat([usual if part is None else part for part in parts])
