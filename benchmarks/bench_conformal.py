"""Coverage of conformal sets: clean, for every pattern of present modalities, and under noise with and without ρ.

Three tables, for each data set and method:

1. Calibration by `calibrate` on a random half of the test samples, coverage on the other half: samples that are
   exchangeable, for which the guarantee is exact. Every pattern of present modalities (20 of them at most) is tried on
   all samples of the other half; "drawn" hides each modality of both halves with probability 0.3 (up to eight
   modalities) and counts the patterns that 100 or more test samples have. The mean is over seeds and random halves;
   the tolerance is 0.015.
2. Calibration from fitting (`calibration="auto"`, and 5 folds for `late`), coverage on the whole test set. It is
   approximate, and test samples of other videos (mosi), subjects (utd-mhad) or times (hydraulic) are not exchangeable.
3. Gaussian noise on each modality of each sample with probability 0.5, calibrated on clean samples as in table 1.

digits needs no download; the others are read from the folder CONSILIENCE_DATA, and left out where it does not lead to
them.

    python benchmarks/bench_conformal.py --sets all --seeds 3
"""

import argparse
import warnings
from dataclasses import replace

import numpy as np
import torch
from bench_reliability import SETS, read_named
from joblib import Parallel, delayed

from consilience import FusionClassifier
from consilience.core.errors import ConsilienceError
from consilience.corruption import Corruptor
from consilience.evaluation.availability_patterns import ALL_PATTERNS_UP_TO, Availability
from consilience.evaluation.calibration_scores import CalibrationScores
from consilience.evaluation.conformal_scores import class_scores

SETS = {**SETS, "breast-tcga": read_named("breast-tcga")}
METHODS = ("late", "bayes", "bayes-robust")
SCORES = ("aps", "raps", "lac")
COVERAGE, TOLERANCE = 0.9, 0.015
HALVES, MOST_PATTERNS, FEWEST = 40, 20, 100
NOISE = (0.5, 1.0, 2.0, 5.0)


def train(method, samples, validation, seed, calibration="auto"):
    choice = {"name": "mlp", "hidden": [64]}
    return FusionClassifier(
        method,
        encoders=dict.fromkeys(samples.names, choice),
        validation=validation,
        calibration=calibration,
        random_state=seed,
        epochs=40,
        patience=6,
        batch_size=64,
        lr=3e-3,
        device="cpu",
    ).fit(samples)


def half_of(scores, rows):
    """The scores of some of the calibration samples."""
    known = scores.availability
    part = Availability(known.present[rows], known.patterns, known.drawn[:, rows])
    return replace(scores, availability=part, values={name: table[:, rows] for name, table in scores.values.items()})


def splits(n, seed):
    random = np.random.default_rng(seed)
    for _ in range(HALVES):
        order = random.permutation(n)
        yield order[: n // 2], order[n // 2 :]


def judge(model, test, present, column, halves, weigh=False):
    """Coverage and mean size over random halves, by score: test samples with other modalities or values."""
    outputs, there = model._conformal_outputs(test, present)
    found = {}
    for score in SCORES:
        table = class_scores(outputs.values, score)
        covered, size = [], []
        for known, rest in halves:
            rho = outputs.reliability[rest] if weigh else None
            held = table[rest] <= known.quantiles(score, there[rest], COVERAGE, rho)[:, None]
            covered.append(held[np.arange(len(rest)), column[rest]].mean())
            size.append(held.sum(1).mean())
        found[score] = np.mean(covered), np.mean(size)
    return found


def measure(name, method, seed):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        samples, validation, test = SETS[name](seed)
        model = train(method, samples, validation, seed)
    except ConsilienceError as error:
        return {"skipped": str(error)}
    random = np.random.default_rng(seed)
    column = model.model_.task.encode(test.y)
    found = {"n": len(test), "calibration": len(model.calibration_), "accuracy": model.score(test)}
    try:
        found["fitted"] = {score: held_and_size(model.predict_set(test, COVERAGE, score), column) for score in SCORES}
        if method == "late":
            folds = train(method, samples, validation, seed, calibration=5)
            found["folds"] = {
                score: held_and_size(folds.predict_set(test, COVERAGE, score), column) for score in SCORES
            }
        if len(test) < 2 * FEWEST:
            return found
        model.calibrate(test)
        halves = [(half_of(model.calibration_, known), rest) for known, rest in splits(len(test), seed)]
        found["clean"] = judge(model, test, None, column, halves)
        patterns = model.calibration_.availability.patterns
        if len(model.modalities_) > ALL_PATTERNS_UP_TO:  # also patterns that have no quantile of their own
            patterns = random.random((200, len(model.modalities_))) < 0.5
            patterns = np.unique(patterns[patterns.any(1)], axis=0)
        chosen = patterns[np.sort(random.permutation(len(patterns))[:MOST_PATTERNS])]
        found["patterns"] = {
            tuple(pattern.tolist()): judge(model, test, np.tile(pattern, (len(test), 1)), column, halves)
            for pattern in chosen
        }
        for sigma in NOISE:
            noisy = Corruptor(samples).apply(test, "gaussian", sigma, probability=0.5, random_state=seed)
            found["noise", sigma] = judge(model, noisy, None, column, halves)
            if method == "bayes-robust":
                found["noise ρ", sigma] = judge(model, noisy, None, column, halves, weigh=True)
        if method == "bayes-robust":
            found["clean ρ"] = judge(model, test, None, column, halves, weigh=True)
        if len(model.modalities_) <= ALL_PATTERNS_UP_TO:
            found["drawn"] = drawn(model, test, random, seed)
    except ConsilienceError as error:
        found["stopped"] = str(error)
    return found


def drawn(model, test, random, seed):
    """Coverage of patterns that calibration samples have themselves: pattern → (covered, samples) over the halves.

    `model` is calibrated with all test samples, complete, so that the scores under every pattern are known.
    """
    table, patterns = model.calibration_.values["aps"], model.calibration_.availability.patterns
    slot_of = {tuple(pattern): slot for slot, pattern in enumerate(patterns.tolist())}
    counts = {}
    for known, rest in splits(len(test), seed):
        mask = test.present & (random.random(test.present.shape) < 0.7)
        known, rest = (rows[mask[rows].any(1)] for rows in (known, rest))
        availability = Availability.of(mask[known])
        values = np.full((availability.slots, len(known)), np.nan)
        for slot, rows, _ in availability.masks():
            values[slot, rows] = table[slot, known[rows]]
        for slot, rows, others in availability.copied():
            values[slot, rows] = values[others, rows]
        most = CalibrationScores(availability, {"aps": values}, "given").quantiles("aps", mask[rest], COVERAGE)
        for row, threshold in zip(rest, most):
            key = tuple(mask[row].tolist())
            covered, total = counts.get(key, (0, 0))
            counts[key] = covered + (table[slot_of[key], row] <= threshold), total + 1
    return counts


def held_and_size(sets, column):
    return sets[np.arange(len(sets)), column].mean(), sets.sum(1).mean()


def average(runs, key, score):
    values = np.array([run[key][score] for run in runs if key in run])
    return values.mean(0) if len(values) else None


def cell(pair):
    return f"{'–':>14}" if pair is None else f"{pair[0]:>8.3f}{pair[1]:>6.2f}"


def show(table, names, seeds):
    heads = "".join(f"{score:>14}" for score in SCORES)
    print(f"\n1. Calibrated on half of the test samples ({seeds} seeds, {HALVES} halves each): coverage and size")
    print(f"{'':28}{heads}   patterns, aps: lowest, highest, |error| > {TOLERANCE}   drawn patterns: the same")
    for name in names:
        for method in METHODS:
            runs = [table[name, method, seed] for seed in range(seeds)]
            if not any("clean" in run for run in runs):
                continue
            line = "".join(cell(average(runs, "clean", score)) for score in SCORES)
            by_pattern = {}
            for run in runs:
                for pattern, found in run.get("patterns", {}).items():
                    by_pattern.setdefault(pattern, []).append(found["aps"][0])
            means = np.array([np.mean(values) for values in by_pattern.values()])
            counts = {}
            for run in runs:
                for pattern, (covered, total) in run.get("drawn", {}).items():
                    before = counts.get(pattern, (0, 0))
                    counts[pattern] = before[0] + covered, before[1] + total
            shares = np.array([c / t for c, t in counts.values() if t >= FEWEST * HALVES * seeds / 2])
            print(f"{name + ' ' + method:28}{line}   {spread(means):>34}   {spread(shares):>32}")
    print("\n2. Calibrated in fitting, on the whole test set: coverage and size")
    print(f"{'':28}{'calibration':>12}{'test':>6}{'accuracy':>10}{heads}{'late, 5 folds: aps':>22}{'lac':>14}")
    for name in names:
        for method in METHODS:
            runs = [table[name, method, seed] for seed in range(seeds)]
            if not any("fitted" in run for run in runs):
                continue
            known = next(run for run in runs if "fitted" in run)
            line = "".join(cell(average(runs, "fitted", score)) for score in SCORES)
            folds = "".join(cell(average(runs, "folds", score)) for score in ("aps", "lac")) if method == "late" else ""
            accuracy = np.mean([run["accuracy"] for run in runs if "accuracy" in run])
            print(
                f"{name + ' ' + method:28}{known['calibration']:>12}{known['n']:>6}{accuracy:>10.3f}{line}{folds:>36}"
            )
    for score in ("aps", "lac"):
        print(f"\n3. {score} under Gaussian noise (p = 0.5), calibrated on clean samples: coverage and size")
        print(f"{'':28}{'clean':>14}" + "".join(f"{f'σ = {sigma:g}':>14}" for sigma in NOISE))
        for name in names:
            for method in METHODS:
                runs = [table[name, method, seed] for seed in range(seeds)]
                if not any("clean" in run for run in runs):
                    continue
                keys = ["clean", *(("noise", sigma) for sigma in NOISE)]
                print(f"{name + ' ' + method:28}" + "".join(cell(average(runs, key, score)) for key in keys))
                if method == "bayes-robust":
                    keys = ["clean ρ", *(("noise ρ", sigma) for sigma in NOISE)]
                    print(f"{'  weighed by ρ':28}" + "".join(cell(average(runs, key, score)) for key in keys))
    reasons = {
        f"{key[0]} {key[1]}: {run[why]}" for key, run in table.items() for why in ("skipped", "stopped") if why in run
    }
    print("\n".join(sorted(reasons)))


def spread(shares):
    if not len(shares):
        return "–"
    outside = (np.abs(shares - COVERAGE) > TOLERANCE).sum()
    return f"{shares.min():.3f} {shares.max():.3f} {outside} of {len(shares)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=[*SETS, "all"], default=["digits"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="processes; each computes on one core")
    asked = parser.parse_args()
    names = list(SETS) if "all" in asked.sets else asked.sets
    runs = [(name, method, seed) for name in names for method in METHODS for seed in range(asked.seeds)]
    found = Parallel(n_jobs=asked.jobs, batch_size=1)(delayed(measure)(*run) for run in runs)
    show(dict(zip(runs, found)), names, asked.seeds)


if __name__ == "__main__":
    main()
