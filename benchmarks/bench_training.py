"""What the training loop costs beyond the arithmetic, and how it compares with a plain DataLoader loop.

1. `concat` on AV-MNIST shapes: a step of the loop against bare forward + backward + optimizer on a resident batch.
2. `digits`: an epoch of the loop against an epoch of the usual PyTorch loop over a DataLoader, same model.
3. `resident`: the same against the fastest plain loop, whose data are tensors in memory and whose Adam is fused.
4. `estimator`: all of `FusionClassifier.fit` against such a loop that validates after each epoch and keeps the best
   weights, as long.

All are medians of ratios of alternating measurements in this one process, in CPU time on one thread, so that a busy
machine disturbs them little.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from consilience import FusionClassifier, load_data, methods
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


def resident_epoch(method: methods.Method, whole: Batch, optimizer: torch.optim.Optimizer, size: int) -> None:
    """The loop one writes by hand for data in memory: shuffle, take rows, step."""
    method.train()
    for rows in torch.randperm(len(whole)).split(size):
        step(method, optimizer, whole.select(rows))


def resident(rounds: int = 9, size: int = 64) -> float:
    train = load_data("digits").train
    method, preparation = build(train)
    whole = preparation.batch(train)
    optimizer = torch.optim.Adam(method.parameters(), 1e-3, fused=True)
    plain, looped = [], []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(6):
            resident_epoch(method, whole, optimizer, size)
        plain.append((time.process_time() - began) / 6)
        looped.append(loop_seconds(method, preparation, train, size, 6))
    print(f"resident epoch {1e3 * statistics.median(plain):.1f} ms, ours {1e3 * statistics.median(looped):.1f} ms")
    return statistics.median(ours / usual for usual, ours in zip(plain, looped))


@torch.no_grad()
def validated(method: methods.Method, held_out: Batch) -> float:
    method.eval()
    return float(torch.nn.functional.cross_entropy(method(held_out).output, held_out.y))


def estimator(rounds: int = 5, size: int = 64, epochs: int = 30) -> float:
    train = load_data("digits").train
    kept = np.arange(len(train)) % 10 > 0
    learned, held_out = train.select(kept), train.select(~kept)
    given = {"epochs": epochs, "batch_size": size, "patience": None, "encoders": None, "device": "cpu"}
    plain, fitted = [], []
    for _ in range(rounds):
        began = time.process_time()
        method, preparation = build(learned)
        whole, judged = preparation.batch(learned), preparation.batch(held_out)
        optimizer = torch.optim.Adam(method.parameters(), 1e-3, fused=True)
        best = float("inf")
        for _ in range(epochs):
            resident_epoch(method, whole, optimizer, size)
            if (loss := validated(method, judged)) < best:
                best, weights = loss, {name: value.clone() for name, value in method.state_dict().items()}
        method.load_state_dict(weights)
        plain.append(time.process_time() - began)
        began = time.process_time()
        FusionClassifier("concat", validation=held_out, **given).fit(learned)
        fitted.append(time.process_time() - began)
    print(f"plain training {statistics.median(plain):.2f} s, FusionClassifier.fit {statistics.median(fitted):.2f} s")
    return statistics.median(ours / usual for usual, ours in zip(plain, fitted))


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"AV-MNIST shapes: the loop takes {av_mnist():.3f} × a bare step (target ≤ 1.1)")
    print(f"digits: an epoch is {digits():.2f} × faster than a plain DataLoader loop (target ≥ 1.5)")
    print(f"digits: an epoch takes {resident():.3f} × one of a plain resident loop with fused Adam (target ≤ 1.05)")
    print(f"digits: all of FusionClassifier.fit takes {estimator():.3f} × plain training with validation")
