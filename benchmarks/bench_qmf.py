"""What quality-aware fusion costs beside late fusion with the same encoders, and what the look after training costs.

1. `digits` and AV-MNIST shapes: an epoch of `qmf`, both variants, against an epoch of `late`.
2. `misplaced_trust`, the look at the trained method, against the training itself.

Medians of ratios of alternating measurements in this one process, in CPU time on one thread, so that a busy machine
disturbs them little.

    python benchmarks/bench_qmf.py
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import torch

from consilience import load_data, methods
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.preparation import Preparation
from consilience.training import Model, Trainer
from consilience.training.model import misplaced_trust

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "late": ("late", {}),
    "qmf": ("qmf", {}),
    "qmf, paper": ("qmf", {"variant": "paper"}),
    "qmf, no ranking": ("qmf", {"ranking": "none"}),
}


def race(title: str, train: Samples, size: int, epochs: int, rounds: int) -> None:
    """CPU time of the epochs of each variant over that of `late`, taken in turns."""
    task = Task.of(train.y, "classification")
    preparation = Preparation.fit(train, task)
    spec = methods.Spec(preparation.modalities, task)
    built = {label: methods.build(name, spec, settings) for label, (name, settings) in VARIANTS.items()}
    seconds: dict[str, list[float]] = {label: [] for label in built}
    for turn in range(rounds + 1):
        for label, method in built.items():
            trainer = Trainer(preparation, epochs=epochs, batch_size=size, patience=None, device="cpu")
            began = time.process_time()
            trainer.run(method, train)
            if turn:  # the first round warms up
                seconds[label].append(time.process_time() - began)
    print(f"{title}: late takes {1e3 * statistics.median(seconds['late']) / epochs:.1f} ms an epoch")
    for label in list(built)[1:]:
        ratio = statistics.median(ours / theirs for ours, theirs in zip(seconds[label], seconds["late"]))
        print(f"  {label}: {ratio:.3f} × late (target ≤ 1.15)")


def look(rounds: int = 5) -> None:
    """The look at a trained method, beside ten epochs of training it."""
    data = load_data("digits")
    shares = []
    for seed in range(rounds):
        began = time.process_time()
        model = Model.fit(
            "qmf", data.train, data.validation, trainer=Trainer(epochs=10, batch_size=64, device="cpu", seed=seed)
        )
        trained = time.process_time()
        misplaced_trust(model, data.validation, device="cpu")
        shares.append((time.process_time() - trained) / (trained - began))
    print(f"the look after training: {statistics.median(shares):.1%} of ten epochs")


def av_mnist(n: int = 240) -> Samples:
    random = np.random.default_rng(0)
    values = {"image": random.normal(size=(n, 1, 28, 28)), "audio": random.normal(size=(n, 1, 112, 112))}
    return Samples.of(values, y=np.arange(n) % 10)


if __name__ == "__main__":
    torch.set_num_threads(1)
    race("digits", load_data("digits").train, size=64, epochs=6, rounds=9)
    race("AV-MNIST shapes", av_mnist(), size=40, epochs=1, rounds=5)
    look()
