"""The batches of an epoch: which samples each holds, and the values of a set on the device or read from disk."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.seeding import stepped_aside
from consilience.preparation import Preparation
from consilience.training.training_settings import steps_per_epoch

# Sets beyond this share of the device's free memory are streamed.
RESIDENT_SHARE = 0.4
# A GPU's resident set up to this size is shuffled in one go.
SHUFFLED_BYTES = 2**28
# Samples of up to this size are augmented at once on a CPU, where they should stay in cache.
CHANGED_BYTES = 2**20


class BatchLoader:
    """Prepared batches of one set.

    A set that fits in memory is kept on the device, and a batch is an index selection. A memory-mapped set, or one
    that does not fit, is read, prepared and moved batch by batch, one batch ahead, in a thread of its own.
    `batch.index` counts from 0 within this set.

    Args:
        samples: The set.
        preparation: How samples become batches.
        device: Where batches are needed.
        resident: Whether the set is kept on the device. None: if it fits.
        dtype: Of numbers. None: float32.
    """

    def __init__(
        self,
        samples: Samples,
        preparation: Preparation,
        device: torch.device,
        resident: bool | None = None,
        dtype: torch.dtype | None = None,
    ):
        preparation.check(samples)
        self.samples, self.preparation, self.device, self.dtype = samples, preparation, device, dtype
        self.resident = fits(samples, device) if resident is None else resident
        self.weight = torch.ones(len(samples)) if samples.weight is None else torch.from_numpy(samples.weight)
        self._all: Batch | None = None
        self._shuffles_whole = self.resident and shuffles_whole(samples, device)
        if self.resident:
            everything = self._prepare(slice(None))
            everything.index = torch.arange(len(samples))
            self._all = everything.to(device)

    def __len__(self) -> int:
        return len(self.samples)

    def fingerprint(self) -> str:
        """Return a hash of index, targets, weights and missing modalities; of a resident set also of its values."""
        samples = self.samples
        summed = hashlib.sha256(repr([len(samples), samples.names]).encode())
        for array in (samples.index, samples.present, samples.weight, samples.y):
            if array is not None:
                text = array.dtype.kind in "OUS"
                summed.update(repr(array.tolist()).encode() if text else np.ascontiguousarray(array).data)
        if self._all is not None:
            for value in self._all.values.values():
                summed.update(repr(value.double().sum().item()).encode())
        return summed.hexdigest()[:16]

    @property
    def everything(self) -> Batch | None:
        """The whole set on the device, or None if it is not kept there."""
        return self._all

    def batches(self, rows: Sequence[Tensor], change: Callable[[Batch], Batch] | None = None) -> Iterator[Batch]:
        """Yield a batch for each tensor of row numbers (on the CPU).

        Args:
            rows: The rows of each batch.
            change: Applied to the samples on the device, to several batches at once if they are small: what it does
                to a sample must not depend on the others.
        """
        if change is not None and self._all is not None:
            for several in _grouped(rows, self._rows_at_once()):
                samples = change(self._all.select(torch.cat(several).to(self.device)))
                yield from _views(samples, [len(chosen) for chosen in several])
            return
        if change is not None:
            yield from map(change, self.batches(rows))
            return
        if self._all is not None and self._shuffles_whole:
            shuffled = self._all.select(torch.cat(list(rows)).to(self.device))
            yield from _views(shuffled, [len(chosen) for chosen in rows])
            return
        if self._all is not None:
            for chosen in rows:
                yield self._all.select(chosen.to(self.device, non_blocking=True))
            return
        with ThreadPoolExecutor(1, thread_name_prefix="consilience-loader") as reader:
            coming: Future[Batch] | None = None
            for chosen in rows:
                ahead = reader.submit(self._read, chosen)
                if coming is not None:
                    yield _wait_for(coming).to(self.device)
                coming = ahead
            if coming is not None:
                yield _wait_for(coming).to(self.device)

    def in_order(self, size: int) -> Iterator[Batch]:
        """Yield all samples from first to last, in batches of this size."""
        rows = torch.arange(len(self)).split(size)
        return self.batches(rows) if self._all is None else _views(self._all, [len(chosen) for chosen in rows])

    def _rows_at_once(self) -> int:
        """Samples that are changed at once: few calls for many small batches."""
        most = CHANGED_BYTES if self.device.type == "cpu" else 16 * CHANGED_BYTES
        return most * len(self) // max(1, self.samples.nbytes)

    def _prepare(self, rows: Any) -> Batch:
        if self.dtype == torch.float64:
            return self.preparation.batch(self.samples, rows, torch.float64)
        batch = self.preparation.batch(self.samples, rows)
        if self.dtype is not None:
            batch.values = {
                name: value.to(self.dtype) if value.is_floating_point() else value
                for name, value in batch.values.items()
            }
        return batch

    def _read(self, rows: Tensor) -> Batch:
        batch = self._prepare(rows.numpy())
        batch.index = rows
        if self.device.type == "cuda":  # pinned memory is copied while the device computes
            batch.values = {name: value.pin_memory() for name, value in batch.values.items()}
        return batch


def _wait_for(coming: Future[Batch]) -> Batch:
    """The batch that the reader prepares, which may have to wait for a turn of its own."""
    if coming.done():
        return coming.result()
    with stepped_aside():
        return coming.result()


def _grouped(rows: Iterable[Tensor], at_once: int) -> Iterator[list[Tensor]]:
    """Consecutive batches of together at most this many samples, but at least one batch."""
    group: list[Tensor] = []
    for chosen in rows:
        if group and sum(map(len, group)) + len(chosen) > at_once:
            yield group
            group = []
        group.append(chosen)
    if group:
        yield group


def _views(batch: Batch, sizes: Iterable[int]) -> Iterator[Batch]:
    start = 0
    for size in sizes:
        yield batch.part(start, start + size)
        start += size


def fits(samples: Samples, device: torch.device) -> bool:
    """Whether a set is kept on the device."""
    if samples.on_disk:
        return False
    return samples.nbytes < RESIDENT_SHARE * free_memory(device)


def shuffles_whole(samples: Samples, device: torch.device) -> bool:
    """Whether a resident set is copied once per epoch in its order, so that batches are views: few calls for a GPU.

    On a CPU a batch that was just copied is still in cache, while a copy of the whole set asks the system for fresh
    memory, which takes several times as long.
    """
    return device.type != "cpu" and samples.nbytes <= SHUFFLED_BYTES


def free_memory(device: torch.device) -> float:
    """Return the bytes that are free on a device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        described = Path("/proc/meminfo").read_text(encoding="utf-8")
        return 1024 * int(re.search(r"MemAvailable:\s+(\d+) kB", described)[1])  # type: ignore[index]
    except (OSError, TypeError):  # unknown on this system: what is in memory once is assumed to fit twice
        return math.inf


@dataclass(frozen=True)
class BatchPlan:
    """One batch of one process, or of every trial of a stack of models.

    Attributes:
        rows: Its samples, as row numbers `[k]`, or `[trial, k]` if each trial has its own.
        share: Multiplies its mean loss, so that the gradient of a step is that of all samples of the step together.
            A number, or `[trial]`.
        of_epoch: Its share of the epoch's total weight, a number or `[trial]`.
        ends_step: Whether the optimizer takes a step after it.
    """

    rows: Tensor
    share: float | Tensor
    of_epoch: float | Tensor
    ends_step: bool


def plan_epoch(
    order: Tensor, weight: Tensor, batch_size: int, accumulate: int = 1, processes: int = 1, rank: int = 0
) -> list[BatchPlan]:
    """Divide an epoch's samples into steps, each step into batches, each batch among the processes.

    All parts have nearly equal size, so that no last batch of a few samples counts as much as a full one, and the
    samples of a step depend on `batch_size × accumulate` alone. A process's loss is a mean over its own samples; the
    mean over processes of `share` × loss, summed over the batches of a step, is the mean over all its samples.

    Args:
        order: Row numbers in the order of this epoch `[n]`.
        weight: Sample weights by row `[n]`.
        batch_size: Samples per batch, of all processes together.
        accumulate: Batches per step.
        processes: Number of processes.
        rank: Number of this process, from 0.

    Returns:
        The batches of this process.

    Example:
        >>> [plan.rows.tolist() for plan in plan_epoch(torch.arange(5), torch.ones(5), batch_size=2)]
        [[0, 1], [2, 3], [4]]
    """
    running = torch.cat([torch.zeros(1, dtype=torch.float64), weight[order].double().cumsum(0)]).numpy()

    def weigh(start: int, stop: int) -> float:
        return float(running[stop] - running[start])

    total = weigh(0, len(order))
    plans = []
    for step in cut(0, len(order), steps_per_epoch(len(order), batch_size, accumulate)):
        whole = weigh(*step)
        batches = cut(*step, parts=math.ceil((step[1] - step[0]) / batch_size))
        for batch in batches:
            if batch[1] - batch[0] < processes:
                raise InputError(
                    f"training: a batch of {batch[1] - batch[0]} samples cannot be shared among {processes} processes; "
                    f"use a batch_size of at least {2 * processes} and more samples than processes, or fewer processes"
                )
            start, stop = cut(*batch, parts=processes)[rank]
            mine = weigh(start, stop)
            share = processes * mine / whole if whole > 0 else 0.0
            of_epoch = mine / total if total > 0 else 0.0
            plans.append(BatchPlan(order[start:stop], share, of_epoch, ends_step=batch is batches[-1]))
    return plans


def cut(start: int, stop: int, parts: int) -> list[tuple[int, int]]:
    """Cut a range into parts of nearly equal size, the larger ones first.

    >>> cut(0, 7, parts=3)
    [(0, 3), (3, 5), (5, 7)]
    """
    size, larger = divmod(stop - start, parts)
    edges = [start + part * size + min(part, larger) for part in range(parts + 1)]
    return list(itertools.pairwise(edges))
