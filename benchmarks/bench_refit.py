"""What `refit=True` of an estimator gains: accuracy, log-loss and coverage of `late` and `concat` with few rows.

Only training rows of the sets are used, so that nothing is chosen by official test rows: of each seed, some rows to
learn from and up to 1000 others to judge by. Results are added to a JSON file after each set, size, seed and method,
and what is in it already is skipped, so that a run can be cut off and goes on with the same command.

    python benchmarks/bench_refit.py --sets all --out refit.json
"""

from __future__ import annotations

import argparse
import copy
import json
import time
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import torch

import consilience as cs
from consilience.core.samples import Samples
from consilience.estimators import FusionClassifier

METHODS = ("late", "concat")
FEWEST = 60  # rows to judge by


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


def parts(samples: Samples, size: int | None, seed: int) -> tuple[Samples, Samples]:
    """Rows to learn from and rows to judge by; classes with too few rows for both are left out. None: 70 % of them."""
    order = np.random.default_rng(seed).permutation(len(samples))
    size = round(0.7 * len(samples)) if size is None else size
    learned, judged = samples.select(np.sort(order[:size])), samples.select(np.sort(order[size : size + 1000]))
    return learned, judged.select(np.flatnonzero(np.isin(judged.y, np.unique(learned.y))))


def pair(method: str, learned: Samples, seed: int) -> dict[str, FusionClassifier]:
    """The model without a refit and the one with it, whose first training is the same and so is done once."""
    first = FusionClassifier(method, random_state=seed, device="cpu").fit(learned)
    final = copy.copy(first)
    final.refit = True
    train, validation = first._hold_out(learned, seed)
    assert validation is not None
    final._judge_and_refit(first.model_, train, validation, learned, seed, None)
    return {"once": first, "refit": final}


def measure(model: FusionClassifier, judged: Samples) -> list[float]:
    """Accuracy, log-loss, and the share of 90 % sets that hold the true class."""
    p = model.predict_proba(judged)
    column = np.searchsorted(model.classes_, judged.y)
    hit = p.argmax(axis=1) == column
    truth = p[np.arange(len(p)), column]
    held = model.predict_set(judged, coverage=0.9)[np.arange(len(p)), column]
    return [float(hit.mean()), float(-np.log(np.maximum(truth, 1e-12)).mean()), float(held.mean())]


def read_size(word: str) -> int | None:
    return None if word == "all" else int(word)


def main() -> None:
    """Measure every set that can be loaded, seed by seed."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--out", type=Path, help="a JSON file for all figures; what it holds is not computed again")
    reader.add_argument("--sets", nargs="+", default=["wine"], choices=[*SETS, "all"])
    reader.add_argument("--sizes", nargs="+", default=["100", "300", "all"], help="rows, or all")
    reader.add_argument("--methods", nargs="+", default=list(METHODS))
    reader.add_argument("--seeds", type=int, default=3)
    reader.add_argument("--minutes", type=float, help="begin nothing further after so many minutes")
    chosen = reader.parse_args()
    torch.set_num_threads(1)
    sets = list(SETS) if "all" in chosen.sets else chosen.sets
    found = json.loads(chosen.out.read_text()) if chosen.out is not None and chosen.out.exists() else {}
    started = time.monotonic()
    for seed, name, word, method in product(range(chosen.seeds), sets, chosen.sizes, chosen.methods):
        key, samples = f"{name} {word} {seed} {method}", SETS[name]()
        if key in found or len(samples) < (read_size(word) or 0) + FEWEST:
            continue
        if chosen.minutes is not None and time.monotonic() - started > 60 * chosen.minutes:
            break
        learned, judged = parts(samples, read_size(word), seed)
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            models = pair(method, learned, seed)
            found[key] = {which: np.round(measure(model, judged), 4).tolist() for which, model in models.items()}
        if chosen.out is not None:
            chosen.out.write_text(json.dumps(found, indent=1))
        print(f"{key}: {found[key]}  {time.process_time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
