"""In which order an epoch takes samples: at random; of a set in chunks within a buffer, chunks at random too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.core.chunked_rows import ChunkedRows, Chunks, chunks_of
from consilience.core.errors import InputError
from consilience.core.samples import MappedRows, Samples
from consilience.training.batch_plans import BatchPlan, plan_epoch, plan_parts


def plan_samples(
    samples: Samples,
    weight: Tensor,
    generator: torch.Generator,
    batch_size: int,
    accumulate: int = 1,
    processes: int = 1,
    rank: int = 0,
) -> list[BatchPlan]:
    """Return the batches of an epoch for one process, in an order that the generator draws.

    Of a set whose chunks do not all stay in memory each process takes chunks of its own, so that it reads only these.
    Their order is random, and so is the order of the samples of successive chunks that fit into half of the buffer;
    the other half is for those that are read ahead.

    Args:
        samples: The set.
        weight: Of each sample `[n]`.
        generator: Draws the order; in the same state in every process.
        batch_size: Samples per batch, of all processes together.
        accumulate: Batches per step.
        processes: Number of processes.
        rank: Number of this process, from 0.
    """
    chunks = chunks_of(samples.values)
    if chunks is None or chunks.fit:
        order = torch.randperm(len(samples), generator=generator)
        return plan_epoch(order, weight, batch_size, accumulate, processes, rank)
    orders = chunked_orders(chunks, base_rows(samples), generator, processes)
    return plan_parts(orders, weight, batch_size, accumulate, rank)


def base_rows(samples: Samples) -> np.ndarray:
    """Return which row of its chunks each sample is `[n]`."""
    mapped = (value for value in samples.values.values() if isinstance(value, MappedRows))
    chunked: Any = next(value for value in mapped if isinstance(value.base, ChunkedRows))  # others are rows of files
    return chunked.rows


def chunked_orders(chunks: Chunks, rows: np.ndarray, generator: torch.Generator, processes: int = 1) -> list[Tensor]:
    """Return for each process the numbers of its samples in random order, so that successive ones are of few chunks.

    Args:
        chunks: What the samples are of.
        rows: The row of each sample `[n]`.
        generator: Draws the order.
        processes: Number of processes; each has its own chunks, and about as many samples as the others.
    """
    chunk = chunks.chunk_of(rows)
    used = np.unique(chunk)
    if len(used) < processes:
        raise InputError(
            f"training: {len(used)} chunks of shards cannot be shared among {processes} processes: give more or "
            "smaller shards, a smaller buffer, or one that holds them all"
        )
    members = dict(zip(used.tolist(), np.split(np.argsort(chunk, kind="stable"), _ends(chunk))))
    drawn = used[torch.randperm(len(used), generator=generator).numpy()].tolist()
    orders = []
    for own in _dealt(drawn, members, processes):
        pieces = [
            torch.from_numpy(together[torch.randperm(len(together), generator=generator).numpy()])
            for together in _windows(chunks, own, members)
        ]
        orders.append(torch.cat(pieces))
    return orders


def _ends(chunk: np.ndarray) -> np.ndarray:
    """Where each chunk ends among the samples sorted by chunk, without the last."""
    return np.cumsum(np.unique(chunk, return_counts=True)[1])[:-1]


def _dealt(drawn: Sequence[int], members: dict[int, np.ndarray], processes: int) -> list[list[int]]:
    """The chunks of each process: the next chunk goes to the one with the fewest samples so far."""
    dealt: list[list[int]] = [[] for _ in range(processes)]
    sizes = [0] * processes
    for number in drawn:
        least = sizes.index(min(sizes))
        dealt[least].append(number)
        sizes[least] += len(members[number])
    return dealt


def _windows(chunks: Chunks, own: Sequence[int], members: dict[int, np.ndarray]) -> list[np.ndarray]:
    """The samples of successive chunks that are in memory together, for each such group."""
    windows: list[list[np.ndarray]] = []
    held = chunks.buffer
    for number in own:
        held += chunks.size(number)
        if not windows or held > chunks.buffer // 2:
            windows.append([])
            held = chunks.size(number)
        windows[-1].append(members[number])
    return [np.concatenate(window) for window in windows]
