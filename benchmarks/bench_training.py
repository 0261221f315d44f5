"""What the training loop costs beyond the arithmetic, and how it compares with a plain DataLoader loop.

1. `concat` on AV-MNIST shapes: a step of the loop against bare forward + backward + optimizer on a resident batch.
2. `digits`: an epoch of the loop against an epoch of the usual PyTorch loop over a DataLoader, same model.

Both are medians of ratios of alternating measurements in this one process, in CPU time on one thread, so that a busy
machine disturbs them little.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from consilience import load_data, methods
from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.preparation import Preparation
from consilience.training import Trainer, TrainingSettings
from consilience.training.optimizers import build_optimizer
from consilience.training.training_settings import resolve


def build(train: Samples) -> tuple[methods.Method, Preparation]:
    task = Task.of(train.y, "classification")
    preparation = Preparation.fit(train, task)
    torch.manual_seed(0)
    return methods.build("concat", methods.Spec(preparation.modalities, task)), preparation


def step(method: methods.Method, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    losses = method.objective(method(batch), batch, methods.Step())
    sum(losses.values()).backward()
    optimizer.step()
    optimizer.zero_grad()


def loop_seconds(method: methods.Method, preparation: Preparation, train: Samples, size: int, epochs: int) -> float:
    """CPU-seconds per epoch: a long run less a run of one epoch, so that setting up is left out."""

    def run(length: int) -> float:
        began = time.process_time()
        Trainer(preparation, epochs=length, batch_size=size, patience=None, device="cpu").run(method, train)
        return time.process_time() - began

    return (run(1 + epochs) - run(1)) / epochs


def av_mnist(rounds: int = 7) -> float:
    random = np.random.default_rng(0)
    n, size = 240, 40
    train = Samples.of(
        {"image": random.normal(size=(n, 1, 28, 28)), "audio": random.normal(size=(n, 1, 112, 112))},
        y=np.arange(n) % 10,
    )
    method, preparation = build(train)
    batch = preparation.batch(train, slice(0, size))
    optimizer = build_optimizer(resolve(TrainingSettings(), len(train)), method.parameters())
    method.train()
    bare, looped = [], []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(n // size):
            step(method, optimizer, batch)
        bare.append((time.process_time() - began) / (n // size))
        looped.append(loop_seconds(method, preparation, train, size, 1) / (n // size))
    print(f"bare step {1e3 * statistics.median(bare):.1f} ms, loop {1e3 * statistics.median(looped):.1f} ms")
    return statistics.median(loop / plain for loop, plain in zip(looped, bare))


def dataloader_epoch(method: methods.Method, loader: DataLoader, names: tuple[str, ...]) -> None:
    """The loop one writes by hand: a TensorDataset, a shuffling DataLoader, Adam."""
    optimizer = torch.optim.Adam(method.parameters(), 1e-3)
    method.train()
    for *values, y in loader:
        present = torch.ones(len(y), len(names), dtype=torch.bool)
        batch = Batch(
            dict(zip(names, values)), present, index=y, weight=torch.ones(len(y)), y=y, complete=frozenset(names)
        )
        step(method, optimizer, batch)


def digits(rounds: int = 9) -> float:
    train = load_data("digits").train
    method, preparation = build(train)
    whole = preparation.batch(train)
    loader = DataLoader(TensorDataset(*whole.values.values(), whole.y), batch_size=64, shuffle=True)
    plain, looped = [], []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(3):
            dataloader_epoch(method, loader, whole.names)
        plain.append((time.process_time() - began) / 3)
        looped.append(loop_seconds(method, preparation, train, 64, 6))
    print(f"DataLoader epoch {1e3 * statistics.median(plain):.1f} ms, ours {1e3 * statistics.median(looped):.1f} ms")
    return statistics.median(usual / ours for usual, ours in zip(plain, looped))


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"AV-MNIST shapes: the loop takes {av_mnist():.3f} × a bare step (target ≤ 1.1)")
    print(f"digits: an epoch is {digits():.2f} × faster than a plain DataLoader loop (target ≥ 1.5)")
