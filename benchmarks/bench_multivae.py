"""Latent models against MultiVae: training, generation and joint likelihoods, both really run, ratios of one run.

Both have the same nets (encoders 784 → 512, latent 20, decoders 20 → 512 → 784, Gaussian likelihoods), the same
allocator, one thread and, in training, the same fused Adam on the same batches of 128. Theirs is trained in a bare loop
over tensors that are ready, ours by its trainer, with the selection of batches; theirs generates from tensors, ours
from NumPy arrays in the user's units and back. Of a joint likelihood both get 1000 draws a sample; ours refines its
proposal first, with 830 draws more. Processor time; above 1 ours is faster.

    pip install multivae            # needs pythae and torchvision
    python benchmarks/bench_multivae.py
    python benchmarks/bench_multivae.py --tasks "generation of one row"      # what is kept of other tasks stays
    python benchmarks/bench_multivae.py --keep docs/latent.json && python docs/latent_tables.py
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import consilience as cs
from consilience.core.samples import Samples
from consilience.training.devices import kept_memory

WIDTH, HIDDEN, LATENT, BATCH, BATCHES = 784, 512, 20, 128, 10
DRAWS, POINTS = 1000, 10
OURS = {"mvae": {}, "mvtcae": {}, "mopoe": {}, "jmvae": {"subset_encoder": "own"}}
THEIRS = {"mvae": "MVAE", "mvtcae": "MVTCAE", "mopoe": "MoPoE", "jmvae": "JMVAE"}
TASKS = ("training", "generation of one row", "generation of 256 rows", "joint likelihood")


def arrays_of(modalities: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shared = random.normal(size=(BATCH * BATCHES, 10))
    return {
        f"m{m}": (shared @ random.normal(size=(10, WIDTH)) / 3 + random.normal(size=(len(shared), WIDTH))).astype("f4")
        for m in range(modalities)
    }


def their_model(objective: str, names: list[str]) -> Any:
    """A model of MultiVae with our nets."""
    import multivae.models as theirs
    from pythae.models.base.base_utils import ModelOutput
    from pythae.models.nn.base_architectures import BaseDecoder, BaseEncoder

    class Encoder(BaseEncoder):
        def __init__(self) -> None:
            super().__init__()
            self.latent_dim = LATENT
            self.layers = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU())
            self.mean, self.log_variance = nn.Linear(HIDDEN, LATENT), nn.Linear(HIDDEN, LATENT)

        def forward(self, x: Tensor) -> Any:
            hidden = self.layers(x)
            return ModelOutput(embedding=self.mean(hidden), log_covariance=self.log_variance(hidden))

    class Decoder(BaseDecoder):
        def __init__(self) -> None:
            super().__init__()
            self.latent_dim = LATENT
            self.layers = nn.Sequential(nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))

        def forward(self, z: Tensor) -> Any:
            return ModelOutput(reconstruction=self.layers(z))

    config = getattr(theirs, THEIRS[objective] + "Config")(
        n_modalities=len(names),
        latent_dim=LATENT,
        input_dims=dict.fromkeys(names, (WIDTH,)),
        decoders_dist=dict.fromkeys(names, "normal"),
    )
    encoders, decoders = ({name: part() for name in names} for part in (Encoder, Decoder))
    return getattr(theirs, THEIRS[objective])(config, encoders=encoders, decoders=decoders)


def their_training(objective: str, tensors: dict[str, Tensor], epochs: int) -> float:
    from multivae.data.datasets.base import MultimodalBaseDataset

    model = their_model(objective, list(tensors)).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    began = time.process_time()
    with kept_memory():
        for _ in range(epochs):
            for start in range(0, BATCH * BATCHES, BATCH):
                data = {name: values[start : start + BATCH] for name, values in tensors.items()}
                model(MultimodalBaseDataset(data), epoch=1).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
    return time.process_time() - began


def our_model(objective: str, arrays: dict[str, np.ndarray], epochs: int) -> tuple[cs.MultimodalVAE, float]:
    mlp = {"name": "mlp", "hidden": [HIDDEN], "dropout": 0.0, "normalise": False}
    model = cs.MultimodalVAE(
        objective,
        latent=LATENT,
        encoders=dict.fromkeys(arrays, mlp),
        decoders={name: {"name": "mlp", "hidden": [HIDDEN]} for name in arrays},
        validation=None,
        epochs=epochs,
        batch_size=BATCH,
        lr=1e-3,
        patience=None,
        device="cpu",
        **OURS[objective],
    )
    began = time.process_time()
    model.fit(arrays)
    return model, time.process_time() - began


def seconds(work: Callable[[], object], calls: int) -> float:
    """Processor time of a call."""
    work()
    began = time.process_time()
    for _ in range(calls):
        work()
    return (time.process_time() - began) / calls


def measure(
    objective: str, modalities: int, repeats: int, tasks: Sequence[str] = TASKS, epochs: int = 3
) -> dict[str, tuple[float, float]]:
    """Task → median seconds of theirs and of ours, taken in turn: of 100 steps, of a call, of a sample."""
    from multivae.data.datasets.base import MultimodalBaseDataset

    arrays = arrays_of(modalities)
    tensors = {name: torch.from_numpy((v - v.mean(0)) / v.std(0)) for name, v in arrays.items()}
    samples = Samples.of(arrays)
    names = list(arrays)
    given, wanted = names[: max(1, modalities // 2)], names[max(1, modalities // 2) :]
    ours, _ = our_model(objective, arrays, 1)
    theirs = their_model(objective, names).eval()

    def train_ours() -> float:
        return (our_model(objective, arrays, 1 + epochs)[1] - our_model(objective, arrays, 1)[1]) / epochs

    def train_theirs() -> float:
        return (their_training(objective, tensors, 1 + epochs) - their_training(objective, tensors, 1)) / epochs

    def generations(rows: int, calls: int) -> tuple[float, float]:
        asked = {name: arrays[name][:rows] for name in given}
        tensor = {name: values[:rows] for name, values in tensors.items()}  # MoPoE asks for all of them

        @torch.no_grad()
        def predict() -> None:
            theirs.predict(MultimodalBaseDataset(tensor), cond_mod=given, gen_mod=wanted, N=1)

        with kept_memory():
            return seconds(predict, calls), seconds(lambda: ours.generate(wanted, given=asked), calls)

    def likelihoods() -> tuple[float, float]:
        data = MultimodalBaseDataset({name: values[:POINTS] for name, values in tensors.items()})
        with torch.no_grad(), kept_memory():
            began = time.process_time()
            theirs.compute_joint_nll(data, K=DRAWS, batch_size_K=100)
            theirs_took = time.process_time() - began
        began = time.process_time()
        ours.trained_.log_likelihood(samples[:POINTS], draws=DRAWS, device="cpu")
        return theirs_took / POINTS, (time.process_time() - began) / POINTS

    found: dict[str, list[tuple[float, float]]] = {task: [] for task in TASKS}
    for _ in range(repeats):
        scale = 100 / BATCHES
        if "training" in tasks:
            found["training"].append((train_theirs() * scale, train_ours() * scale))
        for task, rows, calls in (("generation of one row", 1, 100), ("generation of 256 rows", 256, 20)):
            if task in tasks:
                found[task].append(generations(rows, calls))
        # Theirs has no importance sampling for all subsets of mvae.
        if "joint likelihood" in tasks and objective != "mvae":
            found["joint likelihood"].append(likelihoods())
    return {
        task: (statistics.median(each[0] for each in pairs), statistics.median(each[1] for each in pairs))
        for task, pairs in found.items()
        if pairs
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objectives", nargs="+", choices=list(OURS), default=list(OURS))
    parser.add_argument("--modalities", type=int, nargs="+", default=[2, 3, 5])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="a JSON file to put the figures into")
    asked = parser.parse_args()
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    try:
        import multivae.models  # noqa: F401
    except (ImportError, RuntimeError) as error:  # a torchvision built for another torch raises a RuntimeError
        sys.exit(f"MultiVae cannot be imported, nothing was measured: {error}")
    kept: dict[str, dict[str, dict[str, list[float]]]] = {}
    for objective in asked.objectives:
        for count in asked.modalities:
            for task, (theirs, ours) in measure(objective, count, asked.repeats, asked.tasks).items():
                kept.setdefault(task, {}).setdefault(objective, {})[str(count)] = [round(theirs, 6), round(ours, 6)]
                print(
                    f"{objective}, N = {count}, {task}: {1e3 * theirs:.2f} ms theirs, {1e3 * ours:.2f} ms ours, "
                    f"{theirs / ours:.2f} × as fast",
                    flush=True,
                )
    if asked.keep:
        content = json.loads(asked.keep.read_text(encoding="utf-8")) if asked.keep.exists() else {}
        known = content.setdefault("multivae", {})
        for task, found in kept.items():
            for objective, counts in found.items():
                known.setdefault(task, {}).setdefault(objective, {}).update(counts)
        asked.keep.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
