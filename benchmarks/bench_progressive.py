"""What a loop costs: time of forward and backward against the base, and parameters.

Time: `concat` on AV-MNIST shapes (28×28 images, 112×112 spectrograms, convolutional encoders) and on series of prices
(recurrent encoders of width 128). Base and loops take turns in this one process, in CPU time on one thread; ratios are
of the shortest rounds. With everything in the loop, R passes should cost R times the base; where the feedback joins at
an inner stage, what comes before it runs once. Parameters: as in table 10 of Shankar et al. 2022.

Two passes hold twice the memory of one. Where the C library gives it back to the system after every step, that costs
as much as the loop itself does; two passes of the base without any loop cost it too. `Trainer` has it kept
(`keep_memory`), and so has this.

    python benchmarks/bench_progressive.py                  # as the trainer has it
    python benchmarks/bench_progressive.py --give-back      # as a loop of one's own has it, if nothing is done
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import torch

from consilience import methods
from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.preparation import Preparation
from consilience.training.devices import kept_memory

LIMIT = 2.05


def av_mnist(n: int = 40) -> Samples:
    random = np.random.default_rng(0)
    X = {"image": random.normal(size=(n, 1, 28, 28)), "audio": random.normal(size=(n, 1, 112, 112))}
    return Samples.of(X, y=np.arange(n) % 10)


def prices(n: int = 64) -> Samples:
    random = np.random.default_rng(0)
    return Samples.of({name: random.normal(size=(n, 60, 1)) for name in ("MCD", "SBUX", "HSY")}, y=np.arange(n) % 2)


# Set → (samples, encoders, loops by name with their settings).
CASES = {
    "AV-MNIST shapes": (
        av_mnist,
        {},
        {
            "R=2, into the input": {},
            "R=2, into conv2": {"into": "conv2"},
            "R=2, into conv3": {"into": "conv3"},
            "R=2, concatenated": {"mode": "concat"},
            "R=3, into the input": {"steps": 3},
        },
    ),
    "series of prices": (
        prices,
        {name: {"name": "lstm", "hidden": 128, "layers": 2} for name in ("MCD", "SBUX", "HSY")},
        {
            "R=2, into the input": {},
            "R=2, into layer2": {"into": "layer2"},
            "R=2, concatenated": {"mode": "concat"},
        },
    ),
}


def step(method: methods.Method, batch: Batch) -> float:
    """CPU-seconds of one forward and backward pass."""
    began = time.process_time()
    losses = method.objective(method(batch), batch, methods.Step())
    torch.stack(list(losses.values())).sum().backward()
    return time.process_time() - began


def race(case: str, rounds: int) -> dict[str, float]:
    """Each loop's time over the base's, both the shortest of the rounds in which all take turns."""
    make, encoders, loops = CASES[case]
    samples = make()
    task = Task.of(samples.y, "classification")
    preparation = Preparation.fit(samples, task)
    spec = methods.Spec(preparation.modalities, task, encoders)
    batch = preparation.batch(samples)
    built = {"base": methods.build("concat", spec)}
    built |= {name: methods.build("pro:concat", spec, settings) for name, settings in loops.items()}
    times: dict[str, list[float]] = {name: [] for name in built}
    for method in built.values():
        step(method.train(), batch)
    for _ in range(rounds):
        for name, method in built.items():
            times[name].append(step(method, batch))
    print(f"\n{case}: base {1e3 * min(times['base']):.1f} ms")
    ratios = {name: min(times[name]) / min(times["base"]) for name in built}
    for name in loops:
        print(f"  {name:22} {ratios[name]:.2f} × the base")
    return ratios


def parameters() -> None:
    """Parameters of every method with a fusion on AV-MNIST shapes, and what the loop adds."""
    samples = av_mnist()
    task = Task.of(samples.y, "classification")
    spec = methods.Spec(Preparation.fit(samples, task).modalities, task)
    print(f"\nparameters on AV-MNIST shapes\n{'':16}{'base':>10}{'loop':>10}{'added':>16}{'after encoders':>16}")
    for name in methods.registry()["pro:"].arguments(()):
        if methods.find(name)[0].reason_against(spec) is not None:
            continue
        added = []
        for settings in ({}, {"into": "end"}):
            loop = methods.build(f"pro:{name}", spec, settings)
            counts = loop.overhead()
            added.append(f"{counts['added']} ({100 * counts['added'] / counts['base']:.1f} %)")
        total = sum(one.numel() for one in loop.parameters())
        print(f"{name:16}{counts['base']:>10}{total:>10}{added[0]:>16}{added[1]:>16}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--give-back", action="store_true", help="with what giving memory back costs; not judged")
    given = parser.parse_args()
    rounds = given.rounds
    torch.set_num_threads(1)
    missed = False
    with kept_memory(not given.give_back) as kept:
        if not kept:
            print("memory is given back after every step: two passes look dearer than they are, and are not judged")
        for case in CASES:
            ratios = race(case, rounds)
            worst = ratios["R=2, into the input"]
            missed |= kept and worst > LIMIT
            print(f"  two passes of everything: {worst:.2f} × the base (target ≤ {LIMIT})")
    parameters()
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
