"""What `refit=True` of an estimator gains: accuracy, log-loss and coverage of `late` and `concat` with few rows.

Only training rows of the sets are used, so that nothing is chosen by official test rows: of each seed, some rows to
learn from and up to 1000 others to judge by. Figures are means over seeds. Results are added to a JSON file after each
set, and sets that are in it already are skipped.

    python benchmarks/bench_refit.py --out refit.json
"""

from __future__ import annotations

import argparse
import copy
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import consilience as cs
from consilience.core.samples import Samples
from consilience.estimators import FusionClassifier

METHODS = ("late", "concat")
SEEDS = 3


def of_scikit_learn(name: str) -> Samples:
    """A set of scikit-learn, its columns cut into three modalities."""
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    parts = np.array_split(np.arange(x.shape[1]), 3)
    return Samples.of({"abc"[k]: x[:, part] for k, part in enumerate(parts)}, y)


SETS = {
    "wdbc": lambda: of_scikit_learn("breast_cancer"),
    "wine": lambda: of_scikit_learn("wine"),
    "digits": lambda: cs.load_data("digits").train,
    "handwritten": lambda: cs.load_data("handwritten").train,
    "mosi": lambda: cs.load_data("mosi").train,
    "mvsa": lambda: cs.load_data("mvsa").train,
    "hyd-accumulator": lambda: cs.load_data("hydraulic", component="accumulator").train,
    "hyd-pump": lambda: cs.load_data("hydraulic", component="pump").train,
}


def runs(samples: Samples, size: int) -> Iterator[tuple[int, Samples, Samples]]:
    """Each seed with rows to learn from and rows to judge by; classes with too few rows for both are left out."""
    for seed in range(SEEDS):
        order = np.random.default_rng(seed).permutation(len(samples))
        learned, judged = samples.select(np.sort(order[:size])), samples.select(np.sort(order[size : size + 1000]))
        known = np.isin(judged.y, np.unique(learned.y))
        yield seed, learned, judged.select(np.flatnonzero(known))


def pair(method: str, learned: Samples, seed: int) -> dict[str, FusionClassifier]:
    """The model without a refit and the one with it, whose first training is the same and so is done once."""
    first = FusionClassifier(method, random_state=seed, device="cpu").fit(learned)
    final = copy.copy(first)
    final.refit = True
    train, validation = first._hold_out(learned, seed)
    assert validation is not None
    final._judge_and_refit(first.model_, train, validation, learned, seed, None)
    return {method: first, f"{method}, refit": final}


def measure(model: FusionClassifier, judged: Samples) -> list[float]:
    """Accuracy, log-loss, and the share of 90 % sets that hold the true class."""
    p = model.predict_proba(judged)
    column = np.searchsorted(model.classes_, judged.y)
    hit = p.argmax(axis=1) == column
    truth = p[np.arange(len(p)), column]
    held = model.predict_set(judged, coverage=0.9)[np.arange(len(p)), column]
    return [float(hit.mean()), float(-np.log(np.maximum(truth, 1e-12)).mean()), float(held.mean())]


def main() -> None:
    """Measure every set that can be loaded."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--out", type=Path, required=True)
    reader.add_argument("--sets", nargs="+", default=list(SETS))
    reader.add_argument("--sizes", nargs="+", type=int, default=[100, 300])
    chosen = reader.parse_args()
    torch.set_num_threads(1)
    found = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    for name in chosen.sets:
        for size in chosen.sizes:
            key = f"{name} {size}"
            if key in found:
                continue
            samples = SETS[name]()
            if len(samples) < size + 60:
                continue
            began, figures = time.process_time(), {}
            for method in METHODS:
                for seed, learned, judged in runs(samples, size):
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        models = pair(method, learned, seed)
                    for which, model in models.items():
                        figures.setdefault(which, []).append(measure(model, judged))
            row = {which: np.mean(measured, axis=0).round(4).tolist() for which, measured in figures.items()}
            found[key] = row
            chosen.out.write_text(json.dumps(found, indent=1))
            print(f"{key}: {row}  {time.process_time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
