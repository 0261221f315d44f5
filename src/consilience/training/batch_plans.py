"""Which samples each batch of an epoch holds, for one process or several, how much it counts, and means by that."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from consilience.core.errors import InputError
from consilience.training.training_settings import steps_per_epoch


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


def plan_parts(
    orders: Sequence[Tensor], weight: Tensor, batch_size: int, accumulate: int = 1, rank: int = 0
) -> list[BatchPlan]:
    """Divide an epoch among processes that each have samples of their own, into as many batches for each.

    With one process it is `plan_epoch`. With several, `share` × loss has the mean over processes that it has there.

    Args:
        orders: Of each process its row numbers in the order of this epoch.
        weight: Sample weights by row `[n]`.
        batch_size: Samples per batch, of all processes together.
        accumulate: Batches per step.
        rank: Number of this process, from 0.

    Example:
        >>> orders = [torch.tensor([0, 1, 2]), torch.tensor([3, 4])]
        >>> [plan.rows.tolist() for plan in plan_parts(orders, torch.ones(5), batch_size=4, rank=0)]
        [[0, 1], [2]]
    """
    if len(orders) == 1:
        return plan_epoch(orders[0], weight, batch_size, accumulate)
    n = sum(map(len, orders))
    steps = steps_per_epoch(n, batch_size, accumulate)
    batches = math.ceil(math.ceil(n / steps) / batch_size)  # of each step
    fewest = min(map(len, orders))
    if fewest < steps * batches:
        raise InputError(
            f"training: a process has {fewest} samples for {steps * batches} batches; use a larger batch_size, more "
            "chunks of equal size, or fewer processes"
        )
    total = float(weight[torch.cat(list(orders))].double().sum())
    plans = []
    step_parts = [cut(0, len(order), steps) for order in orders]
    for step in range(steps):
        parts = [cut(*step_parts[process][step], parts=batches) for process in range(len(orders))]
        whole = sum(_weigh(order, weight, *step_parts[process][step]) for process, order in enumerate(orders))
        for batch in range(batches):
            start, stop = parts[rank][batch]
            mine = _weigh(orders[rank], weight, start, stop)
            share = len(orders) * mine / whole if whole > 0 else 0.0
            of_epoch = mine / total if total > 0 else 0.0
            plans.append(BatchPlan(orders[rank][start:stop], share, of_epoch, ends_step=batch == batches - 1))
    return plans


def _weigh(order: Tensor, weight: Tensor, start: int, stop: int) -> float:
    return float(weight[order[start:stop]].double().sum())


def cut(start: int, stop: int, parts: int) -> list[tuple[int, int]]:
    """Cut a range into parts of nearly equal size, the larger ones first.

    >>> cut(0, 7, parts=3)
    [(0, 3), (3, 5), (5, 7)]
    """
    size, larger = divmod(stop - start, parts)
    edges = [start + part * size + min(part, larger) for part in range(parts + 1)]
    return list(itertools.pairwise(edges))


def epoch_means(
    terms: Mapping[str, Mapping[int, Tensor]], plans: Sequence[BatchPlan], fabric: Any
) -> tuple[dict[str, float], tuple[str, float, int] | None]:
    """Return the mean of each loss term over an epoch, and the first term that is not finite with value and batch.

    Args:
        terms: Term → position of a batch → value.
        plans: Of the batches.
        fabric: Joins the means of several processes.
    """
    means: dict[str, float] = {}
    broken: list[tuple[str, float, int]] = []
    for name, by_position in terms.items():
        values = torch.stack(list(by_position.values())).float()
        mean = (values * values.new_tensor([plans[position].of_epoch for position in by_position])).sum()
        if fabric.world_size > 1:
            mean = fabric.all_reduce(mean, reduce_op="sum")
        means[name] = float(mean)
        if not math.isfinite(means[name]):
            pairs = zip(by_position, values.tolist())
            bad = next(((position, value) for position, value in pairs if not math.isfinite(value)), None)
            position, value = bad or (len(plans) - 1, means[name])
            broken.append((name, value, position))
    # Once the weights are broken every term follows: the first one counts.
    return means, min(broken, key=lambda item: item[2], default=None)
