"""Measure whether memory grows over many fits and over a long loop of predictions.

python tests/faults/memory.py --fits 1000 --predictions 5000
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import consilience as cs

# Growth in KB that is no leak: memory of a process is counted in pages and blocks of allocators.
PER_FIT, PER_PREDICTION = 20.0, 1.0
METHODS = ("late", "concat", "bayes-robust", "qmf", "tensor", "pro:concat", "m2vae")


def resident_megabytes() -> float:
    """The memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def growth(step: Callable[[int], object], count: int) -> tuple[float, float, float]:
    """Call a step many times; returns MB after the first third and at the end, and KB per step between them."""
    sizes = []
    for number in range(count):
        step(number)
        sizes.append(resident_megabytes())
    late = np.array(sizes[count // 3 :])  # caches and allocators have filled by then
    slope = np.polyfit(np.arange(len(late)), late, 1)[0] * 1024
    return late[0], late[-1], slope


def main(fits: int, predictions: int) -> bool:
    """Print the figures; returns whether memory grows."""
    warnings.simplefilter("ignore")
    data = cs.load_data("digits")
    train, test = data.train[:150], data.test[:50]

    def fit(number: int) -> None:
        cs.FusionClassifier(METHODS[number % len(METHODS)], epochs=1, device="cpu").fit(train, train.y)

    print(f"methods: {', '.join(METHODS)}")
    first, last, slope = growth(fit, fits)
    grows = slope > PER_FIT
    print(f"{fits} fits: {first:.0f} MB after a third, {last:.0f} MB at the end, {slope:+.1f} KB per fit", flush=True)
    for name in METHODS:
        model = cs.FusionClassifier(name, epochs=1, device="cpu").fit(train, train.y)
        first, last, slope = growth(lambda _: model.predict_proba(test), predictions)  # noqa: B023
        grows |= slope > PER_PREDICTION
        print(f"{predictions} predictions of {name}: {first:.0f} MB, {last:.0f} MB, {slope:+.2f} KB each", flush=True)
    return grows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=1000)
    parser.add_argument("--predictions", type=int, default=2000)
    sys.exit(main(**vars(parser.parse_args())))
