"""What a step of latent fusion costs against the number of modalities, and what the chain estimator's noise costs.

1. Cost: CPU-seconds per 100 steps of the training loop, one thread, batch 128, modalities of 784 numbers, encoders
   784 → 512, decoders 20 → 512 → 784, Gaussian likelihoods, normalised to a machine that multiplies matrices at
   92 GFLOP/s by a product timed before and after each run. Beside it, for two modalities, the same tight chain written
   out by hand in torch alone: what the library's generality costs, on a machine as busy as it is.
2. Noise: the variance of the gradient of one batch due to the estimator alone (same data, same noise of z in every
   draw), relative to the squared norm of the full objective's gradient, beside the cost of both. The full objective
   has none.

    python benchmarks/bench_vae.py             # both
    python benchmarks/bench_vae.py --only cost --modalities 2 3 5
    python benchmarks/bench_vae.py --keep docs/latent.json && python docs/latent_tables.py    # the tables of the page
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.methods import Spec
from consilience.methods.latent.latent_model import LatentModel
from consilience.methods.latent.objectives.m2vae import M2Vae
from consilience.methods.latent.objectives.objective import evaluate
from consilience.preparation import Preparation
from consilience.training import Trainer
from consilience.training.devices import kept_memory

WIDTH, HIDDEN, LATENT, BATCH = 784, 512, 20, 128
REFERENCE = 92e9
# CPU-seconds per 100 steps at 92 GFLOP/s to stay under, by configuration and number of modalities.
TARGETS = {"tight, chain": {2: 2.0, 3: 3.2, 5: 5.5}, "paper, all": {2: 3.0, 3: 6.5, 5: 38.0}}
WAYS: dict[str, dict[str, str]] = {
    "tight, chain": {"bound": "tight", "subsets": "chain"},
    "paper, chain": {"bound": "paper", "subsets": "chain"},
    "tight, all": {"bound": "tight", "subsets": "all"},
    "paper, all": {"bound": "paper", "subsets": "all"},
}


def flops(rounds: int = 12, size: int = 1024) -> float:
    """Multiplications and additions a CPU-second of a square matrix product."""
    a, b = torch.rand(size, size), torch.rand(size, size)
    (a @ b).sum()
    seconds = []
    for _ in range(rounds):
        began = time.process_time()
        a @ b
        seconds.append(time.process_time() - began)
    return 2 * size**3 / statistics.median(seconds)


def samples_of(modalities: int, n: int = 10 * BATCH) -> Samples:
    random = np.random.default_rng(0)
    shared = random.normal(size=(n, 10))
    return Samples.of(
        {f"m{m}": shared @ random.normal(size=(10, WIDTH)) + random.normal(size=(n, WIDTH)) for m in range(modalities)}
    )


def model_of(preparation: Preparation, settings: dict[str, str], subset_encoder: str | None = None) -> LatentModel:
    torch.manual_seed(0)
    mlp = {"name": "mlp", "hidden": [HIDDEN], "dropout": 0.0, "normalise": False}
    names = preparation.modalities
    return LatentModel(
        Spec(names, Task.none(), dict.fromkeys(names, mlp)),
        settings=settings,
        latent=LATENT,
        subset_encoder=subset_encoder,
        decoders={name: {"name": "mlp", "hidden": [HIDDEN]} for name in names},
    )


def trained(
    preparation: Preparation, train: Samples, settings: dict[str, str], epochs: int, subset_encoder: str | None = None
) -> float:
    """CPU-seconds of training a fresh model."""
    model = model_of(preparation, settings, subset_encoder)
    trainer = Trainer(preparation, epochs=epochs, batch_size=BATCH, patience=None, device="cpu")
    began = time.process_time()
    trainer.run(model, train)
    return time.process_time() - began


def cost(
    modalities: int, settings: dict[str, str], subset_encoder: str | None = None, epochs: int = 5, repeats: int = 5
) -> float:
    """CPU-seconds per 100 steps, normalised; a long run less a run of one epoch, so that setting up is left out.

    The median of some repeats, each with a product timed before and after it: one run alone is off by a tenth where
    others share the machine.
    """
    train = samples_of(modalities)
    preparation = Preparation.fit(train, Task.none())

    def run(length: int) -> float:
        return trained(preparation, train, settings, length, subset_encoder)

    run(1)  # what the first call of all imports
    found = []
    for _ in range(repeats):
        before = flops()
        once = run(1)
        seconds = (run(1 + epochs) - once) / epochs * 10  # an epoch is 10 steps
        found.append(seconds * (before + flops()) / 2 / REFERENCE)
    return statistics.median(found)


class ByHand(nn.Module):
    """The tight chain of two modalities with the same layers as `model_of`'s, for these alone."""

    def __init__(self) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU()) for _ in range(2))
        self.narrow = nn.ModuleList(nn.Linear(HIDDEN, 2 * LATENT) for _ in range(2))
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(read * 2 * LATENT, 64), nn.ReLU(), nn.Linear(64, 2 * LATENT)) for read in (1, 1, 2)
        )
        self.decoders = nn.ModuleList(
            nn.Sequential(nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH)) for _ in range(2)
        )
        self.log_scale = nn.Parameter(torch.zeros(2))

    def forward(self, *x: Tensor) -> Tensor:
        """The mean loss: each sample begins with one of the two, and both are decoded once."""
        h = [narrow(encoder(one)) for narrow, encoder, one in zip(self.narrow, self.encoders, x)]
        alone, both = [head(one) for head, one in zip(self.heads, h)], self.heads[2](torch.cat(h, dim=1))
        first = torch.rand(len(h[0]), 1) < 0.5  # whether the chain begins with the first modality
        smaller = torch.where(first, *alone).chunk(2, dim=1)
        (mean_1, log_1), (mean_2, log_2) = ((one[0], one[1].clamp(-12, 6)) for one in (smaller, both.chunk(2, dim=1)))
        z_1 = mean_1 + (0.5 * log_1).exp() * torch.randn_like(mean_1)
        z_2 = mean_2 + (0.5 * log_2).exp() * torch.randn_like(mean_2)
        loss = 0.5 * (mean_1.square() + log_1.exp() - 1 - log_1).sum(1)
        apart = log_2 - log_1
        loss = loss + 0.5 * ((mean_2 - mean_1).square() * (-log_1).exp() + apart.exp() - 1 - apart).sum(1)
        for place, z in enumerate((torch.where(first, z_1, z_2), torch.where(first, z_2, z_1))):
            squares = functional.mse_loss(self.decoders[place](z), x[place], reduction="none").sum(1)
            scale = self.log_scale[place]
            loss = loss + 0.5 * squares * (-2 * scale).exp() + WIDTH * scale
        return loss.mean()


def by_hand(epochs: int = 5, repeats: int = 5) -> tuple[float, float]:
    """CPU-seconds per 100 steps, normalised, of the loop written by hand, and how many times as much ours takes."""
    train = samples_of(2)
    preparation = Preparation.fit(train, Task.none())
    values = list(preparation.batch(train).values.values())

    def ours(length: int) -> float:
        return trained(preparation, train, WAYS["tight, chain"], length)

    def theirs(length: int) -> float:
        model = ByHand()
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        began = time.process_time()
        with kept_memory():
            for rows in torch.cat([torch.randperm(len(train)) for _ in range(length)]).split(BATCH):
                model(*(one[rows] for one in values)).backward()
                optimizer.step()
                optimizer.zero_grad()
        return time.process_time() - began

    ours(1), theirs(1)
    found, ratios = [], []
    for _ in range(repeats):
        before = flops()
        hand = (theirs(1 + epochs) - theirs(1)) / epochs * 10
        found.append(hand * (before + flops()) / 2 / REFERENCE)
        ratios.append((ours(1 + epochs) - ours(1)) / epochs * 10 / hand)
    return statistics.median(found), statistics.median(ratios)


def gradient(model: LatentModel, batch: Batch, objective: M2Vae, noise: Tensor) -> Tensor:
    """The gradient of the mean loss by all weights, flat."""
    model.zero_grad()
    plan = objective.plan(model, batch)
    sum(evaluate(model, batch, plan, noise).values()).mean().backward()
    return torch.cat(
        [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in model.parameters()]
    )


def noise_of(modalities: int, bound: str, chains: str, warm: int = 1, draws: int = 40) -> float:
    """Variance of the chain estimator's gradient, relative to the squared norm of the full gradient."""
    train = samples_of(modalities)
    preparation = Preparation.fit(train, Task.none())
    full = {"bound": bound, "subsets": "all"}
    model = model_of(preparation, full)
    Trainer(preparation, epochs=warm, batch_size=BATCH, patience=None, device="cpu").run(model, train)
    batch = preparation.batch(train, slice(0, BATCH))
    noise = torch.randn(1, BATCH, LATENT)
    exact = gradient(model, batch, M2Vae(**full), noise)
    chain = M2Vae(bound=bound, subsets="chain", chains=chains)
    apart = [(gradient(model, batch, chain, noise) - exact).square().sum().item() for _ in range(draws)]
    return statistics.fmean(apart) / exact.square().sum().item()


def show_costs(numbers: list[int]) -> dict[tuple[str, int], float]:
    print(f"{flops() / 1e9:.0f} GFLOP/s here; CPU-seconds per 100 steps, normalised to {REFERENCE / 1e9:.0f}")
    print(f"{'':28}" + "".join(f"{'N = ' + str(n):>16}" for n in numbers))
    found = {}
    for way, settings in WAYS.items():
        cells = []
        for n in numbers:
            if settings["subsets"] == "all" and n > 5:
                cells.append("–")
                continue
            found[way, n] = cost(n, settings)
            target = TARGETS.get(way, {}).get(n)
            cells.append(f"{found[way, n]:.2f}" + (f" (≤ {target:g})" if target else ""))
        print(f"{'m2vae, ' + way:28}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
    many = cost(10, WAYS["tight, chain"], "set")
    print(f"{'m2vae, tight, chain, set':28} N = 10: {many:.2f}")
    if 2 in numbers:
        hand, ratio = by_hand()
        print(f"{'tight, chain, by hand':28} N = 2: {hand:.2f}, ours takes {ratio:.2f} × that")
    return found | {("tight, chain, set encoder", 10): many}


def show_noise(numbers: list[int], costs: dict[tuple[str, int], float]) -> dict[tuple[str, int], float]:
    found = {}
    print("\nvariance of the chain's gradient / squared norm of the full gradient")
    for n in numbers:
        for bound in ("tight", "paper"):
            for chains in ("sample", "batch"):
                relative = found[f"{bound}, {chains}", n] = noise_of(n, bound, chains)
                here = costs.get((f"{bound}, chain", n)), costs.get((f"{bound}, all", n))
                price = "" if None in here else f"   cost {here[0]:.2f} against {here[1]:.2f}"
                print(f"N = {n}, {bound}, a permutation a {chains}: {relative:.4f}{price}", flush=True)
    return found


def keep(file: Path, part: str, found: dict[tuple[str, int], float]) -> None:
    """Put what was measured into a file, beside what else it has: part → way → number of modalities → figure."""
    content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    table: dict[str, dict[str, float]] = {}
    for (way, n), value in found.items():
        table.setdefault(way, {})[str(n)] = round(value, 4)
    content[part] = table
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("cost", "noise"))
    parser.add_argument("--modalities", type=int, nargs="+", default=[2, 3, 5])
    parser.add_argument("--keep", type=Path, metavar="FILE", help="a JSON file to put the figures into")
    given = parser.parse_args()
    torch.set_num_threads(1)
    measured = {} if given.only == "noise" else show_costs(given.modalities)
    noise = {} if given.only == "cost" else show_noise([n for n in given.modalities if n <= 5], measured)
    for part, figures in (("cost", measured), ("noise", noise)):
        if given.keep and figures:
            keep(given.keep, part, figures)
