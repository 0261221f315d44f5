"""AV-MNIST on one device: a model trained alone, and several seeds of it side by side as one batched model.

Random pairs in the set's shapes, a spectrogram shared by many images as in the set without noise: no files are needed.
Both are whole trainings, from raw samples to a model, preparation and validation included; on a GPU the steps of the
one alone are recorded (`cuda_graphs`). The ratio says what side by side saves over one seed after another: above 1 it
is faster. Small networks on processors gain nothing by it.

    python benchmarks/bench_avmnist.py                          # small, on processors
    python benchmarks/bench_avmnist.py --full                   # 60 000 pairs, 30 epochs, 10 seeds, on a GPU
    python benchmarks/bench_avmnist.py --full --precision bf16 --methods concat pro:concat lowrank mfm refnet mfas

Targets on an H200-class card at full size: one model in under two minutes, ten seeds of it in under five.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from consilience.core.samples import MappedRows, Samples
from consilience.reproduction.protocol import read_protocol
from consilience.training import Model, Trainer
from consilience.training.stacked_seeds import fit_together, reason_alone

ONE, TOGETHER = 120, 300  # seconds at full size
PROTOCOL = read_protocol(Path(__file__).parents[1] / "papers" / "progressive-table9.yaml")


def pairs(n: int, side: int, recordings: int, seed: int) -> Samples:
    """Images `[1, 28, 28]` and spectrograms `[1, side, side]` of bytes, as legible as noise is."""
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, size=(n, 1, 28, 28), dtype=np.uint8)
    spectrograms = random.integers(0, 256, size=(recordings, 1, side, side), dtype=np.uint8)
    rows = random.integers(0, recordings, size=n)
    return Samples.of({"image": images, "audio": MappedRows(spectrograms, rows)}, y=np.arange(n) % 10)


def timed(work, device: str) -> float:
    began = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def race(method: str, train: Samples, validation: Samples, seeds: int, trainer: Trainer) -> tuple[float, float]:
    """Seconds of one training, and of as many as there are seeds side by side."""
    parts = [(train, validation)] * seeds
    settings = PROTOCOL.parts["av-mnist"].full["settings"].get(method, {})
    reason = reason_alone(method, parts, trainer)
    alone = timed(lambda: Model.fit(method, train, validation, settings=settings, trainer=trainer), trainer.device)
    print(f"{method}: one model {alone:.1f} s", flush=True)
    if reason is not None:
        print(f"  not side by side, since {reason}")
        return alone, float("nan")
    together = timed(
        lambda: fit_together(method, parts, range(seeds), settings=settings, trainer=trainer), trainer.device
    )
    faster = seeds * alone / together
    print(f"  {seeds} seeds side by side {together:.1f} s, {faster:.2f} × as fast as one after another", flush=True)
    return alone, together


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the set's size, ten seeds, a GPU; else small, processors")
    parser.add_argument("--methods", nargs="+", default=["concat", "pro:concat"])
    parser.add_argument("--pairs", type=int, help="to learn from and to validate on, 85 : 15")
    parser.add_argument("--side", type=int, help="of the spectrograms")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--device")
    parser.add_argument("--precision", default="32", choices=("32", "bf16"))
    given = parser.parse_args()
    full = {"pairs": 60_000, "side": 112, "epochs": 30, "seeds": 10, "batch_size": 256, "device": "cuda"}
    small = {"pairs": 600, "side": 28, "epochs": 2, "seeds": 3, "batch_size": 64, "device": "cpu"}
    chosen = {name: getattr(given, name) or value for name, value in (full if given.full else small).items()}
    n, recordings = chosen["pairs"], max(20, chosen["pairs"] // 22)
    train = pairs(round(0.85 * n), chosen["side"], recordings, 0)
    validation = pairs(n - len(train), chosen["side"], recordings, 1)
    trainer = Trainer(
        epochs=chosen["epochs"],
        batch_size=chosen["batch_size"],
        lr=0.1,
        optimizer="sgd",
        weight_decay=1e-4,
        clip=1.0,
        patience=None,
        resident=True,
        cuda_graphs=True,
        device=chosen["device"],
        precision=given.precision,
    )
    if chosen["device"] == "cpu":
        torch.set_num_threads(1)
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in chosen.items()), given.precision, sep=", ")
    fit_once = Trainer(epochs=1, batch_size=32, device=chosen["device"], resident=True)
    Model.fit("concat", train[:64], validation[:32], trainer=fit_once)  # libraries and the device wake up
    for method in given.methods:
        alone, together = race(method, train, validation, chosen["seeds"], trainer)
        if given.full:
            several = min(chosen["seeds"] * alone, together) if together == together else chosen["seeds"] * alone
            print(f"  targets: {alone:.0f} s (≤ {ONE}), {several:.0f} s (≤ {TOGETHER}) the faster way")


if __name__ == "__main__":
    main()
