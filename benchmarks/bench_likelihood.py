"""Joint likelihoods of 1000 points with 1000 draws each: all points together against a loop over points, in one run.

Both do the same arithmetic, so what a loop loses is what small calls cost beside it: much where decoders are small,
nothing where the matrix products of one point's draws fill a core. Both refine their proposals first.

python benchmarks/bench_likelihood.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from consilience.generative.importance import log_evidence
from consilience.generative.trained import TrainedLatent
from consilience.samples import Samples
from consilience.training import Trainer

POINTS, DRAWS, MODALITIES = 1000, 1000, "abcd"
# Numbers in a modality, widths of its decoder, and for how many points the loops are timed.
SIZES = {
    "16 numbers, linear decoders": (16, [], 40),
    "16 numbers, decoders of 32": (16, [32], 40),
    "16 numbers, decoders of 64 and 128": (16, [64, 128], 40),
    "196 numbers, decoders of 512": (196, [512], 10),
}


def trained_on(numbers: int, hidden: list[int]) -> tuple[TrainedLatent, Samples]:
    random = np.random.default_rng(0)
    shared = random.normal(size=(POINTS, 4))
    samples = Samples.of(
        {
            name: shared @ random.normal(size=(4, numbers)) + 0.3 * random.normal(size=(POINTS, numbers))
            for name in MODALITIES
        }
    )
    decoders = {name: {"name": "mlp", "hidden": hidden} for name in MODALITIES}
    trainer = Trainer(epochs=2, device="cpu")
    return TrainedLatent.fit(samples, latent=16, decoders=decoders, trainer=trainer), samples


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Processor time, the least of some repeats."""
    found = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def measure(numbers: int, hidden: list[int], looped: int, repeats: int = 3) -> tuple[float, float]:
    """Seconds for all points: together, and in a loop."""
    trained, samples = trained_on(numbers, hidden)
    model, batch = trained.model.eval(), trained.preparation.batch(samples)
    names = list(model.names)

    def evidence(first: int, last: int) -> Tensor:
        return log_evidence(model, batch.part(first, last), names, DRAWS).value

    def together() -> None:
        for start in range(0, POINTS, 250):
            evidence(start, start + 250)

    def one_by_one() -> None:
        for row in range(looped):
            evidence(row, row + 1)

    one_by_one()  # what first calls set up
    return seconds(together, repeats), seconds(one_by_one, repeats) * POINTS / looped


def main() -> None:
    torch.set_num_threads(1)
    print(f"{POINTS} points, {DRAWS} draws, {len(MODALITIES)} modalities; seconds of processor time, one thread")
    print(f"{'':36}{'together':>10}{'point by point':>18}{'times':>8}")
    for name, (numbers, hidden, looped) in SIZES.items():
        whole, looped_whole = measure(numbers, hidden, looped)
        print(f"{name:36}{whole:>10.1f}{looped_whole:>18.1f}{looped_whole / whole:>8.1f}", flush=True)


if __name__ == "__main__":
    main()
