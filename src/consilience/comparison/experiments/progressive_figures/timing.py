"""What a loop costs: one batch forward and backward, and forward alone, at every depth by turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from consilience.core.batches import Batch
from consilience.core.targets import Task
from consilience.data import DataSet
from consilience.methods import Method, Spec, Step, build
from consilience.preparation import Preparation
from consilience.training.devices import resolve_device


def time_depths(
    data: DataSet, name: str, settings: Sequence[Mapping[str, Any]], *, samples: int, rounds: int
) -> list[dict[str, float]]:
    """Seconds of `training` and `prediction` with one batch, the fewest of all rounds, for each of some settings.

    All take turns in every round, so that what else the machine does weighs on each of them alike; on processors it is
    their time that counts, not the clock's.
    """
    device = resolve_device("auto")
    some = data.train[:samples]
    task = Task.of(data.y, data.task)
    preparation = Preparation.fit(some, task)
    batch = preparation.batch(some).to(device)
    spec = Spec(preparation.modalities, task)
    methods = [build(name, spec, one).to(device) for one in settings]
    found: list[dict[str, list[float]]] = [{"training": [], "prediction": []} for _ in methods]
    for _ in range(rounds + 1):
        for method, times in zip(methods, found):
            times["training"].append(clocked(lambda one=method: descend(one, batch), device))  # type: ignore[misc]
            times["prediction"].append(clocked(lambda one=method: predict(one, batch), device))  # type: ignore[misc]
    # The first round wakes libraries and devices up.
    return [{what: min(seconds[1:]) for what, seconds in times.items()} for times in found]


def descend(method: Method, batch: Batch) -> None:
    """Forward and backward, as in training."""
    method.train()
    losses = method.objective(method(batch), batch, Step())
    torch.stack(list(losses.values())).sum().backward()
    method.zero_grad()


@torch.no_grad()
def predict(method: Method, batch: Batch) -> None:
    """Forward, as in prediction."""
    method.eval()
    method(batch)


def clocked(work: Callable[[], None], device: torch.device) -> float:
    """Seconds that some work takes: a processor's own, or by the clock until a GPU has done it."""
    if device.type != "cuda":
        began = time.process_time()
        work()
        return time.process_time() - began
    torch.cuda.synchronize(device)
    began = time.perf_counter()
    work()
    torch.cuda.synchronize(device)
    return time.perf_counter() - began
