"""Joint likelihoods of 1000 points with 1000 draws each: all points together against a loop over points, in one run.

Both do the same arithmetic, so what a loop loses is what small calls cost beside it: much where decoders are small or
a GPU waits for them, little where the matrix products of one point's draws fill a core. Both refine their proposals
first. On a processor it is measured twice: one thread and its processor time, which is how much work there is; and as
many threads as torch takes by itself and the clock, which is how long a user waits, and where one point's draws are too
few to share out.

    python benchmarks/bench_likelihood.py                   # one thread, then all
    python benchmarks/bench_likelihood.py --device cuda
    python benchmarks/bench_likelihood.py --keep docs/latent.json && python docs/latent_tables.py    # the page's table
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from consilience.core.samples import Samples
from consilience.methods.latent.importance_sampling import log_evidence
from consilience.methods.latent.trained_latent_model import TrainedLatent
from consilience.training import Trainer
from consilience.training.devices import kept_memory

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
    trainer = Trainer(epochs=2, batch_size=64, device="cpu")
    return TrainedLatent.fit(samples, latent=16, decoders=decoders, trainer=trainer), samples


def seconds(work: Callable[[], object], repeats: int, device: str) -> float:
    """The least of some repeats: processor time of one thread, or the clock's where several or a device work."""

    def now() -> float:
        if device == "cpu":
            return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()
        torch.cuda.synchronize()
        return time.perf_counter()

    found = []
    for _ in range(repeats):
        began = now()
        work()
        found.append(now() - began)
    return min(found)


def measure(numbers: int, hidden: list[int], looped: int, device: str, repeats: int = 3) -> tuple[float, float]:
    """Seconds for all points: together, and in a loop."""
    trained, samples = trained_on(numbers, hidden)
    model, batch = trained.model.eval().to(device), trained.preparation.batch(samples).to(torch.device(device))
    names = list(model.names)

    def evidence(first: int, last: int) -> Tensor:
        return log_evidence(model, batch.part(first, last), names, DRAWS).value

    def together() -> None:
        for start in range(0, POINTS, 250):
            evidence(start, start + 250)

    def one_by_one() -> None:
        for row in range(looped):
            evidence(row, row + 1)

    with kept_memory(device == "cpu"):  # as TrainedLatent.log_likelihood has it
        one_by_one()  # what first calls set up
        together()
        return seconds(together, repeats, device), seconds(one_by_one, repeats, device) * POINTS / looped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="a JSON file to put the figures into")
    given = parser.parse_args()
    device = given.device
    if given.keep and device != "cpu":
        parser.error("--keep is for the table of the page, which is about a processor")
    measured: dict[str, dict[str, dict[str, float]]] = {name: {} for name in SIZES}
    for threads in sorted({1, torch.get_num_threads()}) if device == "cpu" else [1]:  # as many as torch takes by itself
        torch.set_num_threads(threads)
        where = "processor time, one thread" if threads == 1 else f"the clock, {threads} threads"
        where = where if device == "cpu" else torch.cuda.get_device_name()
        print(f"{POINTS} points, {DRAWS} draws, {len(MODALITIES)} modalities; seconds, {where}")
        print(f"{'':36}{'together':>10}{'point by point':>18}{'times':>8}")
        for name, (numbers, hidden, looped) in SIZES.items():
            whole, looped_whole = measure(numbers, hidden, looped, device)
            print(f"{name:36}{whole:>10.1f}{looped_whole:>18.1f}{looped_whole / whole:>8.1f}", flush=True)
            measured[name][str(threads)] = {"together": round(whole, 3), "one by one": round(looped_whole, 3)}
    if given.keep:
        content = json.loads(given.keep.read_text(encoding="utf-8")) if given.keep.exists() else {}
        content["likelihoods"] = measured
        given.keep.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
