"""Latent models against nearest neighbours and ridge regression, and how much of a likelihood a posterior keeps.

Imputed is the model's expectation alone, without the regression of `bench_latent_imputation`.

On digits in quadrants, all of them learn from the training and validation samples of a split and are asked for the test
samples: the error of two quadrants given the other two, over all six choices; log p(lower half | upper half) of the
model, whose posterior is exact, and of what it generates, whose posterior is the learned one; and log p of the last
quadrant given none, one, two and three of the others. All parts change with the seed. Of log-likelihoods the median
over test samples is kept: a pixel inked that is blank in all training samples costs thousands of nats.

Every cell (a seed and a model) is kept in the folder --cells and not measured again, so that several processes may
share the work. The table is of all cells that are there.

    python benchmarks/bench_latent_posteriors.py --seeds 5 --cells runs/latent-posteriors
    python benchmarks/bench_latent_posteriors.py --seeds 0 --cells runs/latent-posteriors --keep docs/latent.json
    python benchmarks/bench_latent_posteriors.py --rows 200 --models m2vae "m2vae, paper" --cells runs/few-200
    python docs/latent_tables.py
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor

import consilience as cs
from consilience.comparison.significance import compare_to_reference
from consilience.core.errors import CollapseWarning

PAPER = {"bound": "paper", "subsets": "all", "subset_encoder": "trunk"}
# What differs from the defaults.
MODELS = {
    "m2vae": {},
    "m2vae, all subsets": {"subsets": "all"},
    "m2vae, paper": PAPER,
    "joint": {"subset_encoder": "poe"},
    "jmvae": {},
    "mmvae": {},
    "mopoe": {},
    "mvtcae": {},
}
NEIGHBOURS, PENALTIES = 10, np.logspace(-2, 6, 17)
KNN, RIDGE = f"{NEIGHBOURS} nearest neighbours", "ridge regression"
RIVALS = {KNN: lambda: KNeighborsRegressor(NEIGHBOURS), RIDGE: lambda: RidgeCV(PENALTIES)}
REFERENCE, ERRORS = "m2vae", ("at mean", "averaged")


def side_by_side(samples, names):
    return np.concatenate([samples[name] for name in names], axis=1).astype(np.float64)


def halves(names):
    """Every choice of two quadrants that are given, with the other two."""
    return [(given, [name for name in names if name not in given]) for given in itertools.combinations(names, 2)]


def squared_errors(test, make):
    """Mean over choices and pixels of the squared error of each test sample `[n]`; make: given, rest → `[n, pixel]`."""
    each = [
        np.square(make(list(given), rest) - side_by_side(test, rest)).mean(axis=1) for given, rest in halves(test.names)
    ]
    return np.mean(each, axis=0)


def rival(name, train, test):
    def make(given, rest):
        model = RIVALS[name]().fit(side_by_side(train, given), side_by_side(train, rest))
        return model.predict(side_by_side(test, given))

    return {"averaged": squared_errors(test, make)}


def latent(name, train, test, seed, draws):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = time.process_time()
        settings = {"regression_features": 0, "device": "cpu", **MODELS[name]}
        model = cs.MultimodalVAE(name.partition(",")[0], random_state=seed, **settings).fit(train)
        seconds = time.process_time() - began
    found = {"seconds": seconds, "collapsed": any(issubclass(each.category, CollapseWarning) for each in caught)}
    names = list(train.names)
    for key, make in (
        ("at mean", lambda given, rest: side_by_side(model.generate(rest, given=test.only(given)), rest)),
        ("averaged", lambda given, rest: side_by_side(model.impute(test.only(given)), rest)),
    ):
        found[key] = squared_errors(test, make)
    if draws:
        upper, lower = names[:2], names[2:]
        for which, learned in (("model", False), ("generated", True)):
            options = {"importance_samples": draws, "learned_posterior": learned}
            found[which] = model.log_likelihood(test, lower, upper, **options)
            for count in range(len(names)):
                found[f"{which}, {count} given"] = model.log_likelihood(test, names[-1:], names[:count], **options)
    return found


def measure(seed, name, rows, draws):
    """Arrays of the test samples of a split `[n]`, and numbers."""
    whole = cs.load_data("digits").resplit(seed)
    learned = np.flatnonzero(whole.split != "test")
    if rows is not None:
        learned = np.sort(np.random.default_rng(seed).permutation(learned)[:rows])
    train, test = whole.samples[learned].without_targets(), whole.test
    found = rival(name, train, test) if name in RIVALS else latent(name, train, test, seed, draws)
    return {**found, "index": test.index}


def summary(cells):
    """Name → key → a number for each seed; and name → 1 where its error is surely less than m2vae's, −1 if more."""
    found, errors, index = {}, {}, {}
    for name, seeds in cells.items():
        for seed, cell in seeds.items():
            index[seed] = cell["index"]
            errors.setdefault(name, {})[seed] = -cell["averaged"]
            for key, values in cell.items():
                if key != "index":
                    figure = np.sqrt(np.mean(values)) if key in ERRORS else np.median(values)
                    found.setdefault(name, {}).setdefault(key, []).append(round(float(figure), 4))
            found[name].setdefault("seed", []).append(seed)
    rows = compare_to_reference(errors, REFERENCE, samples=index) if REFERENCE in errors else []
    sure = {row["method"]: (1 if row["difference"] > 0 else -1) if row["significant"] else 0 for row in rows}
    return found, sure


def read_cells(folder):
    cells = {}
    for file in sorted(folder.glob("*.npz")):
        with np.load(file, allow_pickle=False) as stored:
            arrays = dict(stored)
        cells.setdefault(str(arrays.pop("name")), {})[int(arrays.pop("seed"))] = arrays
    return {name: dict(sorted(cells[name].items())) for name in (*RIVALS, *MODELS) if name in cells}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--rows", type=int, help="learn from so many samples; all by default")
    parser.add_argument("--draws", type=int, default=200, help="importance samples; 0: no likelihoods")
    parser.add_argument("--cells", type=Path, default=Path("runs/latent-posteriors"), help="what was measured")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="a JSON file to put the figures into")
    parser.add_argument("--part", default="posteriors", help="the name of the table in that file")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    asked.cells.mkdir(parents=True, exist_ok=True)
    for seed in range(asked.first, asked.first + asked.seeds):
        for name in (*RIVALS, *asked.models):
            file = asked.cells / f"{seed} {name.replace(', ', '-').replace(' ', '-')}.npz"
            if not file.exists():
                cell = measure(seed, name, asked.rows, asked.draws)
                np.savez(file, name=name, seed=seed, **cell)
                print(f"seed {seed}, {name}: error {np.sqrt(cell['averaged'].mean()):.3f}", flush=True)
    found, sure = summary(read_cells(asked.cells))
    for name, figures in found.items():
        told = ", ".join(
            f"{key} {np.mean(values):.2f} ± {np.std(values):.2f}" for key, values in figures.items() if key != "seed"
        )
        print(f"{name} ({sure.get(name, 0):+d}): {told}")
    if asked.keep:
        content = json.loads(asked.keep.read_text(encoding="utf-8")) if asked.keep.exists() else {}
        content[asked.part] = {"rows": asked.rows, "draws": asked.draws, "found": found, "sure": sure}
        asked.keep.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
