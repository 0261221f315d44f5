"""Each default against its neighbours, one at a time: accuracy and log-loss on held-out training rows.

Some training rows of a set are drawn to learn from, and a fifth of these judges, in blocks where test rows are blocks.
Test rows have no part in it. A setting is worth changing only if that helps on sets that it was not chosen on: for each
set the variant with the lowest mean log-loss on all others is judged, too.

    python benchmarks/bench_choices.py --sets all --keep docs/defaults_choices.json --jobs 2
    python benchmarks/bench_choices.py --show docs/defaults_choices.json
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import default_sets
import numpy as np
import torch
from schedules import OwnStop, RateByWidth
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits
from timed_runs import results_within

from consilience import FusionClassifier
from consilience.comparison.job import import_training

# From small to large. The training rows of breast-tcga-official are rows of breast-tcga, and the cooler is too easy.
SETS = ("wine", "breast-cancer", "breast-tcga", "mosi", "digits", "digits-rows", "hydraulic-valve", "hydraulic-pump")
SETS += ("hydraulic-accumulator", "handwritten", "utd-mhad", "mvsa")
DEFAULT = "default"
LOCKSTEP = "consilience.training.lockstep."
POOL = "consilience.methods.opinions.pooled_expert."
LOOP = "consilience.training.training_settings."
TRAINING: dict[str, dict[str, Any]] = {
    "validation=0.05": {"validation": 0.05},
    "validation=0.2": {"validation": 0.2},
    "rate=3e-3": {"lr": 3e-3},
    "rate=3e-4": {"lr": 3e-4},
    "batch=16": {"batch_size": 16},
    "2000 steps": {"constants": {LOOP + "STEPS": 2000}},
    "patience 200 steps": {"constants": {LOOP + "PATIENCE_STEPS": 200}},
    "patience 1000 steps": {"constants": {LOOP + "PATIENCE_STEPS": 1000}},
    "no least steps": {"constants": {LOOP + "LEAST_STEPS": 0}},
}
# Schedules for each modality: callbacks, published ways of balancing, and hiding modalities at random.
SCHEDULES: dict[str, dict[str, Any]] = {
    "rate by width": {"callbacks": RateByWidth},
    **{balance: {"balance": balance} for balance in ("ogm-ge", "agm", "pmr", "mmpareto")},
    "modality_dropout=0.25": {"modality_dropout": 0.25},
}
# Method → variant → what the estimator is given, and constants of modules. `concat` has no experts to stop.
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "auto": {
        DEFAULT: {},
        "noise=0": {"settings": {"noise": 0.0}},
        "noise=1": {"settings": {"noise": 1.0}},
        "folds=3": {"settings": {"folds": 3}},
        "folds=10": {"settings": {"folds": 10}},
        "hidden=0": {"settings": {"hidden": 0.0}},
        "hidden=0.5": {"settings": {"hidden": 0.5}},
        "rate=1e-3, last weights": {"lr": 1e-3},
        "batch=64": {"batch_size": 64},
        "stops sooner": {"constants": {LOCKSTEP + "_LONGER": 0.3}},
        "stops later": {"constants": {LOCKSTEP + "_LONGER": 1.2}},
        "30 trees": {"constants": {POOL + "_TREES": 30}},
        "300 trees": {"constants": {POOL + "_TREES": 300}},
    },
    "late": {DEFAULT: {}, **TRAINING, **SCHEDULES, "own stop": {"callbacks": OwnStop}},
    "concat": {DEFAULT: {}, **TRAINING, **SCHEDULES},
}


def measure(name: str, size: int | str, seed: int, method: str, variant: str) -> tuple[str, list[float]]:
    """Return the key of a run, and its accuracy in per cent, log-loss and processor seconds."""
    torch.set_num_threads(1)
    with threadpool_limits(1), warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        import_training(method, {})  # which is no part of a training
        learned, judged = default_sets.hold_out(name, size, seed)
        judged = judged[np.isin(judged.y, np.unique(learned.y))]
        given = dict(VARIANTS[method][variant])
        for constant, value in given.pop("constants", {}).items():
            stack.enter_context(mock.patch(constant, value))
        if "callbacks" in given:
            given["callbacks"] = [given["callbacks"]()]
        begun = time.process_time()
        model = FusionClassifier(method, random_state=seed, device="cpu", **given).fit(learned)
        seconds = time.process_time() - begun
        p = model.predict_proba(judged).astype(np.float64)
        right = model.classes_[p.argmax(axis=1)] == judged.y
        loss = log_loss(judged.y, p / p.sum(axis=1, keepdims=True), labels=model.classes_)
    key = "|".join(map(str, (name, size, seed, method, variant)))
    return key, np.round([100 * right.mean(), loss, seconds], 5).tolist()


def in_sets(found: Mapping[str, list[float]], method: str) -> dict[str, dict[str, np.ndarray]]:
    """Set → variant → mean accuracy and log-loss over the seeds that have all variants."""
    runs: dict[str, dict[str, dict[str, list[float]]]] = {}
    for key, figures in found.items():
        name, _, seed, own, variant = key.split("|")
        if own == method:
            runs.setdefault(name, {}).setdefault(seed, {})[variant] = figures[:2]
    means = {}
    for name, by_seed in runs.items():
        whole = [own for own in by_seed.values() if VARIANTS[method].keys() <= own.keys()]
        if whole:
            means[name] = {variant: np.mean([own[variant] for own in whole], axis=0) for variant in VARIANTS[method]}
    return means


def left_out(means: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, str]:
    """Set → the variant with the lowest mean log-loss on all other sets.

    >>> left_out({"a": {"x": [90, 0.2], "y": [90, 0.1]}, "b": {"x": [90, 0.2], "y": [90, 0.3]}})
    {'a': 'x', 'b': 'y'}
    """
    chosen = {}
    for name in means:
        others = [own for other, own in means.items() if other != name]
        if others:
            chosen[name] = min(others[0], key=lambda variant: float(np.mean([own[variant][1] for own in others])))
    return chosen


def show(found: Mapping[str, list[float]]) -> None:
    """Print the means over sets, and what the choice on other sets gains."""
    for method in VARIANTS:
        means = in_sets(found, method)
        if not means:
            continue
        print(
            f"\n{method}: accuracy / log-loss, mean over {len(means)} sets; log-loss less that of the default, ± s.e."
        )
        for variant in VARIANTS[method]:
            accuracy, loss = np.mean([own[variant] for own in means.values()], axis=0)
            more = np.array([own[variant][1] - own[DEFAULT][1] for own in means.values()])
            error = more.std(ddof=1) / len(more) ** 0.5 if len(more) > 1 else np.nan
            print(f"  {variant:24} {accuracy:.2f} / {loss:.4f}  {more.mean():+.4f} ± {error:.4f}")
        gains = [means[name][variant] - means[name][DEFAULT] for name, variant in left_out(means).items()]
        if gains:
            print(f"  chosen on the other sets  {np.mean(gains, axis=0).round(4).tolist()}")


def main() -> None:
    """Measure what is not kept yet, and show everything."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--keep", type=Path, help="a JSON file for all figures; what it holds is not computed again")
    reader.add_argument("--show", type=Path, help="print the figures of such a file and compute nothing")
    reader.add_argument("--sets", nargs="+", default=["wine"], choices=[*SETS, "all"])
    reader.add_argument("--methods", nargs="+", default=["late"], choices=list(VARIANTS))
    reader.add_argument("--size", type=int, default=300, help="training rows; of a smaller set all")
    reader.add_argument("--seeds", type=int, default=1)
    reader.add_argument("--jobs", type=int, default=1)
    reader.add_argument("--minutes", type=float, help="end after so many minutes; runs under way are lost")
    reader.add_argument("--sets-from", type=Path, help="a folder of bench_defaults.py --keep-sets")
    asked = reader.parse_args()
    if asked.show is not None:
        show(json.loads(asked.show.read_text(encoding="utf-8")))
        return
    if asked.sets_from is not None:
        os.environ[default_sets.KEPT] = str(asked.sets_from)
    kept = asked.keep is not None and asked.keep.is_file()
    found = json.loads(asked.keep.read_text(encoding="utf-8")) if kept else {}
    tasks = []
    for seed, name, method in product(range(asked.seeds), SETS, asked.methods):
        if name in asked.sets or "all" in asked.sets:
            size = asked.size if asked.size < len(default_sets.draw(name, default_sets.ALL, seed).train) else "all"
            tasks += [(name, size, seed, method, variant) for variant in VARIANTS[method]]
    tasks = [task for task in tasks if "|".join(map(str, task)) not in found]
    for key, figures in results_within(measure, tasks, asked.jobs, asked.minutes):
        found[key] = figures
        print(key, figures, flush=True)
        if asked.keep is not None:
            asked.keep.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    show(found)


if __name__ == "__main__":
    main()
