"""The batches of a set: its values are on the device, or read from disk or from shards while the device computes."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.chunked_rows import chunks_of
from consilience.core.samples import Samples
from consilience.core.seeding import stepped_aside
from consilience.preparation import Preparation
from consilience.training.epoch_order import base_rows

# Sets beyond this share of the device's free memory are streamed.
RESIDENT_SHARE = 0.4
# A GPU's resident set up to this size is shuffled in one go.
SHUFFLED_BYTES = 2**28
# Samples of up to this size are augmented at once on a CPU, where they should stay in cache.
CHANGED_BYTES = 2**20


class BatchLoader:
    """Prepared batches of one set.

    A set that fits in memory is kept on the device, and a batch is an index selection. A memory-mapped set, or one
    that does not fit, is read, prepared and moved batch by batch, one batch ahead, in a thread of its own. Further
    threads read the chunks of shards ahead of it.
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
        with self._reading_ahead(rows) as read, ThreadPoolExecutor(1, "consilience-loader") as reader:
            coming: Future[Batch] | None = None
            for position, chosen in enumerate(rows):
                ahead = reader.submit(read, position, chosen)
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

    @contextmanager
    def _reading_ahead(self, rows: Sequence[Tensor]) -> Iterator[Callable[[int, Tensor], Batch]]:
        """Yield what reads a batch, given its position among all and its rows; chunks of shards are read ahead."""
        chunks = chunks_of(self.samples.values)
        if chunks is None:
            yield lambda _, chosen: self._read(chosen)
            return
        base = base_rows(self.samples)
        with chunks.reading_ahead([base[chosen.numpy()] for chosen in rows], self.samples.names) as ahead:

            def read(position: int, chosen: Tensor) -> Batch:
                ahead.advance(position)
                return self._read(chosen)

            yield read

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
