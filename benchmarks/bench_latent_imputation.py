"""Imputation by latent models, nearest neighbours and ridge regression, and whether more evidence helps: six cases.

digits       64 numbers in quadrants; two of them are given, in all six choices
digits-gaps  the same after learning from digits of which each quadrant is observed with probability 0.8
digits-few   the same after learning from 200 digits
halves       MNIST, binarised, one of two halves given
quadrants    MNIST, binarised, two of four quadrants given, in all six choices
breast-tcga  mRNA, miRNA and protein, one of them missing; learned from samples of which many have no protein

Everything learns from the same samples of a split that changes with the seed, and is asked for complete test samples.
The error is the root mean square in the data's units, of breast-tcga in standard deviations of each feature; for latent
models that of `impute`, and of the model's expectation alone. Evidence
is log p of the last modality given none, one, two, … of the others, the median over test samples, under the model and
in what it generates.

Every cell (a case, a seed and a model) is kept in the folder --cells and not measured again. --arrays is a file that
--write-arrays wrote: with it nothing else of the data is read.

    python benchmarks/bench_latent_imputation.py --write-arrays latent-arrays.npz
    python benchmarks/bench_latent_imputation.py --arrays latent-arrays.npz --cells runs/imputation --jobs 16
    python benchmarks/bench_latent_imputation.py --cells runs/imputation --seeds 0 --keep docs/latent.json
    python benchmarks/bench_latent_imputation.py --features 0 --cells runs/alone --part objectives …
    python docs/latent_tables.py
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.spatial.distance import pdist
from sklearn.impute import KNNImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline

from consilience import MultimodalVAE
from consilience.core.errors import CollapseWarning
from consilience.core.samples import Samples

NEIGHBOURS, PENALTIES = 10, np.logspace(-2, 6, 17)
ERRORS = ("averaged", "alone")
KNN, RIDGE = f"{NEIGHBOURS} nearest neighbours", "ridge regression"
FEATURES, COUNT, WIDTH = "ridge regression on random features", 1000, 0.5  # of the median distance
RIVALS = (KNN, RIDGE, FEATURES)
PAPER = {"bound": "paper", "subsets": "all", "subset_encoder": "trunk"}
# What differs from the defaults.
MODELS: dict[str, dict] = {"m2vae": {}, "m2vae, paper": PAPER, "mopoe": {}, "mvtcae": {}}
OBSERVED = 0.8  # the share of quadrants that digits-gaps learns from
LEARNED, ASKED, FEW = 6000, 1000, 200  # digits of MNIST, and of digits-few
HELD_OUT = {
    "digits": 360,
    "digits-gaps": 360,
    "digits-few": 360,
    "breast-tcga": 40,
    "halves": ASKED,
    "quadrants": ASKED,
}
CASES = tuple(HELD_OUT)
KEPT_DIGITS = 20_000  # of MNIST in the file of arrays


class Case(NamedTuple):
    """Samples to learn from, complete test samples, and the unit of each feature of a modality."""

    train: Samples
    test: Samples
    unit: dict[str, np.ndarray]

    def choices(self) -> list[tuple[list[str], list[str]]]:
        """Every choice of what is given, half of the modalities or, of three, two, with the rest."""
        names = list(self.train.names)
        count = len(names) // 2 if len(names) % 2 == 0 else len(names) - 1
        return [
            (list(given), [name for name in names if name not in given])
            for given in itertools.combinations(names, count)
        ]


def write_arrays(file: Path) -> None:
    """Put the data of all cases into one file."""
    import consilience as cs

    digits, tcga, mnist = cs.load_data("digits").samples, cs.load_data("breast-tcga").samples, cs.load_data("mnist")
    rows = np.random.default_rng(0).permutation(len(mnist.samples))[:KEPT_DIGITS]
    bytes_ = np.asarray(mnist.samples["image"])[rows, 0]
    ink = np.random.default_rng(1).integers(0, 255, bytes_.shape, dtype=np.uint8) < bytes_
    arrays = {f"digits {name}": np.asarray(digits[name], dtype=np.uint8) for name in digits.names}
    arrays |= {f"tcga {name}": np.asarray(tcga[name], dtype=np.float32) for name in tcga.names}
    np.savez_compressed(file, **arrays, tcga=tcga.present, mnist=np.packbits(ink.reshape(len(ink), -1), axis=1))


def read_case(name: str, seed: int, file: Path) -> Case:
    """The case of a seed."""
    with np.load(file, allow_pickle=False) as stored:
        parts, present = modalities_of(name, stored)
    rng = np.random.default_rng([CASES.index(name.partition("-")[0] if "digits" in name else name), seed])
    n = len(next(iter(parts.values())))
    complete = rng.permutation(np.flatnonzero(present.all(axis=1)))
    asked, rest = complete[: HELD_OUT[name]], np.setdiff1d(np.arange(n), complete[: HELD_OUT[name]])
    learned = np.sort(rng.permutation(rest)[: FEW if name == "digits-few" else LEARNED])
    there = present[learned]
    if name == "digits-gaps":
        there = rng.random(there.shape) < OBSERVED
        learned, there = learned[there.any(axis=1)], there[there.any(axis=1)]
    train = Samples.of({key: values[learned] for key, values in parts.items()}, present=there)
    test = Samples.of({key: values[np.sort(asked)] for key, values in parts.items()}, index=np.sort(asked))
    unit = {key: np.ones(values.shape[1]) for key, values in parts.items()}
    if name == "breast-tcga":
        unit = {key: train[key][train.present_in(key)].std(axis=0) for key in train.names}
    return Case(train, test, unit)


def modalities_of(name: str, stored: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Vectors of each modality of a case, and which are there."""
    if name in ("halves", "quadrants"):
        ink = np.unpackbits(stored["mnist"], axis=1).reshape(-1, 28, 28)
        tiles = {"left": ink[:, :, :14], "right": ink[:, :, 14:]}
        if name == "quadrants":
            tiles = {
                f"{row}_{side}": tile[:, part]
                for row, part in (("top", slice(14)), ("bottom", slice(14, 28)))
                for side, tile in tiles.items()
            }
        parts = {key: tile.reshape(len(tile), -1).astype(np.float32) for key, tile in tiles.items()}
    else:
        prefix = "tcga " if name == "breast-tcga" else "digits "
        parts = {key.removeprefix(prefix): stored[key].astype(np.float32) for key in stored if key.startswith(prefix)}
    n = len(next(iter(parts.values())))
    return parts, stored["tcga"] if name == "breast-tcga" else np.ones((n, len(parts)), dtype=bool)


def squared_errors(case: Case, make: Callable[[list[str], list[str]], dict[str, np.ndarray]]) -> np.ndarray:
    """Mean over choices and features of the squared error of each test sample `[n]`."""
    each = []
    for given, rest in case.choices():
        made = make(given, rest)
        off = [(made[name] - case.test[name]) / case.unit[name] for name in rest]
        each.append(np.square(np.concatenate(off, axis=1)).mean(axis=1))
    return np.mean(each, axis=0)


def standardised(case: Case) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, tuple]]:
    """Modalities of training and test samples around 0 and in their units, NaN where missing, and means and units."""
    train, test, moments = {}, {}, {}
    for name in case.train.names:
        there = case.train.present_in(name)
        mean = case.train[name][there].mean(axis=0)
        moments[name] = mean, case.unit[name]
        train[name] = np.where(there[:, None], (case.train[name] - mean) / case.unit[name], np.nan)
        test[name] = (case.test[name] - mean) / case.unit[name]
    return train, test, moments


def in_parts(values: np.ndarray, names: list[str], moments: dict[str, tuple]) -> dict[str, np.ndarray]:
    """Modalities in their own units, from columns side by side."""
    ends = np.cumsum([len(moments[name][0]) for name in names])
    parts = dict(zip(names, np.split(values, ends[:-1], axis=1)))
    return {name: moments[name][0] + part * moments[name][1] for name, part in parts.items()}


def neighbours(case: Case) -> np.ndarray:
    """Errors of the mean of the nearest samples that have what is asked for, by what both have."""
    train, test, moments = standardised(case)
    names = list(train)
    known = np.concatenate(list(train.values()), axis=1)
    imputer = KNNImputer(n_neighbors=NEIGHBOURS, keep_empty_features=True).fit(known)

    def make(given: list[str], rest: list[str]) -> dict[str, np.ndarray]:
        shown = [test[name] if name in given else np.full_like(test[name], np.nan) for name in names]
        return in_parts(imputer.transform(np.concatenate(shown, axis=1)), names, moments)

    return squared_errors(case, make)


def ridge(case: Case, on_features: bool = False) -> np.ndarray:
    """Errors of ridge regression on the samples that have what is asked for; what they lack has its mean and a flag.

    on_features: on random Fourier features of these numbers instead, a kernel regression.
    """
    train, test, moments = standardised(case)

    def inputs(parts: dict[str, np.ndarray], given: list[str]) -> np.ndarray:
        missing = [np.isnan(parts[name][:, :1]) for name in given]
        values = [np.nan_to_num(parts[name]) for name in given]
        return np.concatenate([*values, *(flag.astype(float) for flag in missing)], axis=1)

    def make(given: list[str], rest: list[str]) -> dict[str, np.ndarray]:
        made = {}
        for name in rest:
            rows = case.train.present_in(name)
            rows = rows & case.train.present_among(given).any(axis=1)
            shown = inputs({key: train[key][rows] for key in given}, given)
            regression = RidgeCV(PENALTIES)
            if on_features:
                width = WIDTH * np.median(pdist(shown[:500]))
                regression = make_pipeline(
                    RBFSampler(gamma=0.5 / width**2, n_components=COUNT, random_state=0), regression
                )
            predicted = regression.fit(shown, train[name][rows]).predict(inputs(test, given))
            made |= in_parts(predicted, [name], moments)
        return made

    return squared_errors(case, make)


def latent(case: Case, name: str, seed: int, asked: argparse.Namespace) -> dict[str, np.ndarray | float]:
    """Errors, seconds of training, whether it collapsed, and log-likelihoods of the last modality."""
    device, steps, draws, judged = asked.device, asked.steps, asked.draws, asked.judged
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = time.perf_counter()
        settings = MODELS[name] | ({} if asked.features is None else {"regression_features": asked.features})
        model = MultimodalVAE(name.partition(",")[0], random_state=seed, device=device, steps=steps, **settings)
        model.fit(case.train)
        seconds = time.perf_counter() - began
    collapsed = any(issubclass(each.category, CollapseWarning) for each in caught)
    found = {"seconds": seconds, "collapsed": collapsed}
    found["averaged"] = squared_errors(case, lambda given, rest: model.impute(case.test.only(given)))
    if model.trained_.regression is not None:
        model.trained_.regression = None  # the model's expectation alone
        found["alone"] = squared_errors(case, lambda given, rest: model.impute(case.test.only(given)))
    names, some = list(case.train.names), case.test[:judged]
    for which, learned in (("model", False), ("generated", True)):
        for count in range(len(names) if draws else 0):
            found[f"{which}, {count} given"] = model.log_likelihood(
                some, names[-1:], names[:count], importance_samples=draws, learned_posterior=learned
            )
    return found


def measure(case_name: str, seed: int, name: str, asked: argparse.Namespace) -> None:
    """Measure a cell, unless it is there."""
    file = asked.cells / f"{case_name} {seed} {name.replace(', ', '-').replace(' ', '-')}.npz"
    if file.exists() or time.time() > asked.until:
        return
    torch.set_num_threads(1)
    case = read_case(case_name, seed, asked.arrays)
    if name == KNN:
        cell = {"averaged": neighbours(case)}
    elif name in RIVALS:
        cell = {"averaged": ridge(case, on_features=name == FEATURES)}
    else:
        cell = latent(case, name, seed, asked)
    part = file.with_suffix(".part")
    with part.open("wb") as stream:
        np.savez(stream, case=case_name, name=name, seed=seed, index=case.test.index, **cell)
    part.rename(file)
    print(f"{case_name}, seed {seed}, {name}: error {np.sqrt(np.mean(cell['averaged'])):.4f}", flush=True)


def read_cells(folder: Path) -> dict[str, dict[str, dict[int, dict[str, np.ndarray]]]]:
    """Case → model → seed → arrays."""
    cells: dict = {}
    for file in folder.glob("*.npz"):
        with np.load(file, allow_pickle=False) as stored:
            arrays = dict(stored)
        case, name, seed = str(arrays.pop("case")), str(arrays.pop("name")), int(arrays.pop("seed"))
        cells.setdefault(case, {}).setdefault(name, {})[seed] = arrays
    return {
        case: {name: dict(sorted(cells[case][name].items())) for name in (*RIVALS, *MODELS) if name in cells[case]}
        for case in CASES
        if case in cells
    }


def summary(cells: dict[str, dict[int, dict[str, np.ndarray]]], reference: str) -> dict[str, dict]:
    """Of a case: model → key → a number for each seed; and whether its error surely differs from the reference's."""
    from consilience.comparison.significance import compare_to_reference

    found: dict[str, dict] = {name: {"seed": list(seeds)} for name, seeds in cells.items()}
    for name, seeds in cells.items():
        for cell in seeds.values():
            for key, values in cell.items():
                if key != "index":
                    figure = np.sqrt(np.mean(values)) if key in ERRORS else np.median(values)
                    found[name].setdefault(key, []).append(round(float(figure), 4))
    errors = {name: {seed: -cell["averaged"] for seed, cell in seeds.items()} for name, seeds in cells.items()}
    index = {seed: cell["index"] for seeds in cells.values() for seed, cell in seeds.items()}
    rows = compare_to_reference(errors, reference, samples=index) if reference in errors else []
    sure = {row["method"]: (1 if row["difference"] > 0 else -1) if row["significant"] else 0 for row in rows}
    return {"found": found, "sure": sure}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write-arrays", type=Path, metavar="FILE", help="write the data of all cases, and end")
    parser.add_argument("--arrays", type=Path, metavar="FILE", help="what --write-arrays wrote")
    parser.add_argument("--cells", type=Path, help="folder of what was measured")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--models", nargs="+", choices=(*RIVALS, *MODELS), default=[*RIVALS, *MODELS])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--draws", type=int, default=200, help="importance samples; 0: no likelihoods")
    parser.add_argument("--judged", type=int, default=360, help="likelihoods of so many test samples")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--features", type=int, help="of the regression that shares in imputations; 0: none")
    parser.add_argument("--steps", type=int, help="of training; None: as many as by default")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no cell after so many seconds")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="a JSON file to put the figures into")
    parser.add_argument("--part", default="imputation", help="the name of the tables in that file")
    asked = parser.parse_args()
    if asked.write_arrays:
        write_arrays(asked.write_arrays)
        return
    asked.until = time.time() + asked.seconds
    asked.cells.mkdir(parents=True, exist_ok=True)
    seeds = range(asked.first, asked.first + asked.seeds)
    work = [(case, seed, name, asked) for seed in seeds for case in asked.cases for name in asked.models]
    if asked.jobs > 1:
        with ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool:
            list(pool.map(measure, *zip(*work)))
    else:
        for one in work:
            measure(*one)
    if asked.keep:
        content = json.loads(asked.keep.read_text(encoding="utf-8")) if asked.keep.exists() else {}
        content[asked.part] = {case: summary(cells, "m2vae") for case, cells in read_cells(asked.cells).items()}
        asked.keep.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
