"""Which method for numbers? R² of the candidates for the default of `FusionRegressor`, clean and corrupted.

A third of the rows of each set judges: blocks of the hydraulic rig, single rows elsewhere. The targets are numbers that
the sets have: a progression of diabetes, the alcohol of wines, the largest cells of a tumour, the pressure of an
accumulator.

    python benchmarks/bench_regression.py --sets all --seeds 5 --keep docs/defaults_regression.json --jobs 2
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from itertools import product
from pathlib import Path

import default_sets
import numpy as np
import torch
from sklearn import datasets
from sklearn.metrics import r2_score
from threadpoolctl import threadpool_limits
from timed_runs import results_within

from consilience import FusionRegressor
from consilience.comparison.job import import_training
from consilience.core.samples import Samples
from consilience.corruption import Corruptor

METHODS = ("concat", "late", "bayes", "bayes-robust")
# Title → corruption, level, probability that a modality of a sample is hit.
CONDITIONS = {"clean": None, "missing": ("missing", 10, 0.3), "σ=5": ("gaussian", 5, 0.3)}
TEST_SHARE = 1 / 3


def diabetes() -> tuple[Samples, np.ndarray]:
    """Progression of the disease from age, sex and weight, and two groups of blood values; each row is a block."""
    X, y = datasets.load_diabetes(return_X_y=True)
    columns = {"person": slice(0, 4), "lipids": slice(4, 7), "other": slice(7, 10)}
    return Samples.of({name: X[:, own] for name, own in columns.items()}, y), np.arange(len(y))


def wine() -> tuple[Samples, np.ndarray]:
    """The alcohol of wines from their other measurements."""
    X, _ = datasets.load_wine(return_X_y=True)
    columns = {"minerals": slice(1, 5), "phenols": slice(5, 9), "colour": slice(9, 13)}
    return Samples.of({name: X[:, own] for name, own in columns.items()}, X[:, 0]), np.arange(len(X))


def breast_cancer() -> tuple[Samples, np.ndarray]:
    """The largest radius of a tumour's cells from the means and standard errors of all measurements but sizes."""
    X, _ = datasets.load_breast_cancer(return_X_y=True)
    means, errors = X[:, [1, *range(4, 10)]], X[:, [11, *range(14, 20)]]
    return Samples.of({"mean": means, "error": errors}, X[:, 20]), np.arange(len(X))


def accumulator() -> tuple[Samples, np.ndarray]:
    """The pressure of the accumulator from eight sensors."""
    source = default_sets.read("hydraulic-accumulator")
    assert source.block is not None
    assert source.samples.y is not None
    return Samples.of(source.samples.without_targets(), source.samples.y.astype(float)), source.block


SETS = {"diabetes": diabetes, "wine": wine, "breast-cancer": breast_cancer, "accumulator": accumulator}


def measure(name: str, seed: int, method: str) -> tuple[str, dict[str, float]]:
    """Return the key of a run, and R² under each condition."""
    torch.set_num_threads(1)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_training(method, {})
        samples, block = SETS[name]()
        blocks = np.unique(block)
        tested = np.random.default_rng([seed, 13]).choice(blocks, round(TEST_SHARE * len(blocks)), replace=False)
        held = np.isin(block, tested)
        train, test = samples[~held], samples[held]
        model = FusionRegressor(method, random_state=seed, device="cpu").fit(train)
        corruptor, found = Corruptor(train), {}
        for title, done in CONDITIONS.items():
            shown = test.without_targets()
            if done is not None:
                corruption, level, probability = done
                shown = corruptor.apply(shown, corruption, level, probability=probability, random_state=seed)
            there = shown.present.any(axis=1)  # samples that have lost everything are left out
            found[title] = round(float(r2_score(test.y[there], model.predict(shown[there]))), 4)
    return f"{name}|{seed}|{method}", found


def main() -> None:
    """Measure what is not kept yet, and print the means."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--sets", nargs="+", default=["wine"], choices=[*SETS, "all"])
    reader.add_argument("--seeds", type=int, default=2)
    reader.add_argument("--jobs", type=int, default=1)
    reader.add_argument("--minutes", type=float, help="end after so many minutes; runs under way are lost")
    reader.add_argument("--sets-from", type=Path, help="a folder of bench_defaults.py --keep-sets")
    reader.add_argument("--keep", type=Path, help="a JSON file for all figures; what it holds is not computed again")
    asked = reader.parse_args()
    if asked.sets_from is not None:
        os.environ[default_sets.KEPT] = str(asked.sets_from)
    sets = list(SETS) if "all" in asked.sets else asked.sets
    kept = asked.keep is not None and asked.keep.is_file()
    found = json.loads(asked.keep.read_text(encoding="utf-8")) if kept else {}
    tasks = [(name, seed, method) for seed, name, method in product(range(asked.seeds), sets, METHODS)]
    tasks = [task for task in tasks if "|".join(map(str, task)) not in found]
    for key, figures in results_within(measure, tasks, asked.jobs, asked.minutes):
        found[key] = figures
        if asked.keep is not None:
            asked.keep.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, method in product(sets, METHODS):
        own = [of for key, of in found.items() if key.split("|")[::2] == [name, method]]
        if own:
            means = {title: np.mean([of[title] for of in own]) for title in CONDITIONS}
            print(
                f"{name:14} {method:13}", *(f"{title} {value:.3f}" for title, value in means.items()), f"{len(own)} ×"
            )


if __name__ == "__main__":
    main()
