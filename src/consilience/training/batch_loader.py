"""Batches of a set in any order: selected from tensors on the device, or read from disk when they are needed."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.preparation import Preparation

# Sets beyond this share of the device's free memory are streamed.
RESIDENT_SHARE = 0.4
# A GPU's resident set up to this size is shuffled in one go.
SHUFFLED_BYTES = 2**28


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

    def batches(self, rows: Sequence[Tensor]) -> Iterator[Batch]:
        """Yield a batch for each tensor of row numbers (on the CPU)."""
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
                    yield coming.result().to(self.device)
                coming = ahead
            if coming is not None:
                yield coming.result().to(self.device)

    def in_order(self, size: int) -> Iterator[Batch]:
        """Yield all samples from first to last, in batches of this size."""
        rows = torch.arange(len(self)).split(size)
        return self.batches(rows) if self._all is None else _views(self._all, [len(chosen) for chosen in rows])

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
