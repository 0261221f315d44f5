"""Coverage of conformal sets: clean, for every pattern of present modalities, and under noise with and without ρ.

Three tables, for each data set and method:

1. Calibration by `calibrate` on a random half of the test samples, coverage on the other half: samples that are
   exchangeable, for which the guarantee is exact. Every pattern of present modalities (20 of them at most) is tried on
   all samples of the other half; "drawn" hides each modality of both halves with probability 0.3 (up to eight
   modalities) and counts the patterns that 100 or more test samples have. The mean is over seeds and random halves;
   the tolerance is 0.015.
2. Calibration from fitting (`calibration="auto"`, and 5 folds for `late`), coverage on the whole test set. It is
   approximate, and test samples of other videos (mosi), subjects (utd-mhad) or times (hydraulic) are not exchangeable.
3. A corruption of each modality of each sample with probability 0.5, calibrated on clean samples as in table 1.

A standard error is that of a mean over random halves; the test samples themselves are taken as given.

digits needs no download; the others are read from the folder CONSILIENCE_DATA, and left out where it does not lead to
them.

    python benchmarks/bench_conformal.py --sets all --seeds 3 --keep docs/conformal.json
"""

import argparse
import json
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from bench_reliability import SETS, read_named
from stored_runs import measure_all

from consilience import FusionClassifier
from consilience.core.errors import ConsilienceError
from consilience.corruption import Corruptor
from consilience.evaluation.availability_patterns import ALL_PATTERNS_UP_TO, Availability
from consilience.evaluation.calibration_scores import CalibrationScores
from consilience.evaluation.conformal_scores import class_scores

SETS = {**SETS, "breast-tcga": read_named("breast-tcga")}
METHODS = ("late", "bayes", "bayes-robust", "auto")
WITH_RHO = ("bayes-robust", "auto")
SCORES = ("aps", "raps", "lac")
COVERAGE, TOLERANCE = 0.9, 0.015
HALVES, MOST_PATTERNS, FEWEST = 40, 20, 100
CORRUPTIONS = {
    **{f"σ = {sigma:g}": ("gaussian", sigma) for sigma in (0.5, 1.0, 2.0, 5.0)},
    "stuck": ("stuck", 10),
    "swapped": ("swapped", 10),
}


def train(method, samples, validation, seed, calibration="auto"):
    choice = None if method == "auto" else {key: {"name": "mlp", "hidden": [64]} for key in samples.names}
    return FusionClassifier(
        method,
        encoders=choice,
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
    """Coverage, mean size and the standard error of coverage over random halves, by score.

    test, present: Test samples with other values or modalities.
    """
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
        found[score] = np.mean(covered), np.mean(size), np.std(covered, ddof=1) / len(covered) ** 0.5
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
        for name, (corruption, level) in CORRUPTIONS.items():
            noisy = Corruptor(samples).apply(test, corruption, level, probability=0.5, random_state=seed)
            found[name] = judge(model, noisy, None, column, halves)
            if method in WITH_RHO:
                found[name, "ρ"] = judge(model, noisy, None, column, halves, weigh=True)
        if method in WITH_RHO:
            found["clean", "ρ"] = judge(model, test, None, column, halves, weigh=True)
        if len(model.modalities_) <= ALL_PATTERNS_UP_TO:
            found["drawn"] = drawn(model, test, random, seed)
    except ConsilienceError as error:
        found["stopped"] = str(error)
    return found


def drawn(model, test, random, seed):
    """Coverage of patterns that calibration samples have themselves: pattern → (covered, samples) of each half.

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
        for pattern in np.unique(mask[rest], axis=0):
            key, own = tuple(pattern.tolist()), (mask[rest] == pattern).all(1)
            covered = (table[slot_of[key], rest[own]] <= most[own]).sum()
            counts.setdefault(key, []).append((int(covered), int(own.sum())))
    return counts


def held_and_size(sets, column):
    """Coverage, mean size and the standard error of coverage of independent test samples."""
    held = sets[np.arange(len(sets)), column].mean()
    return held, sets.sum(1).mean(), (held * (1 - held) / len(sets)) ** 0.5


def pooled(found):
    """The mean over seeds of (coverage, size, standard error), or of (coverage, standard error)."""
    *means, error = np.array(found, dtype=float).T
    return [
        *(round(float(values.mean()), 4) for values in means),
        round(float((error**2).sum() ** 0.5 / len(error)), 4),
    ]


def summary(runs):
    """What the runs of one set and method found, the mean over seeds; coverage comes with its standard error."""
    first = next(run for run in runs if "fitted" in run)
    content = {
        "test": first["n"],
        "calibration": first["calibration"],
        "accuracy": round(float(np.mean([run["accuracy"] for run in runs if "accuracy" in run])), 4),
    }
    for key in [key for run in runs for key in run if isinstance(run[key], dict) and key not in ("patterns", "drawn")]:
        name = " ".join(key) if isinstance(key, tuple) else key
        content[name] = {score: pooled([run[key][score] for run in runs if key in run]) for score in SCORES}
    # A test set is the same with every seed, or overlaps: more seeds do not make it larger.
    for key in {"fitted", "folds"} & set(content):
        for score, found in content[key].items():
            found[2] = round(float(np.mean([run[key][score][2] for run in runs if key in run])), 4)
    by_pattern, halves = {}, {}
    for run in runs:
        for pattern, found in run.get("patterns", {}).items():
            by_pattern.setdefault(pattern, []).append((found["aps"][0], found["aps"][2]))
        for pattern, found in run.get("drawn", {}).items():
            halves.setdefault(pattern, []).extend(found)
    content["patterns"] = [pooled(found) for found in by_pattern.values()]
    content["drawn"] = [
        share_of(np.array(found))
        for found in halves.values()
        if sum(t for _, t in found) >= FEWEST * HALVES * len(runs) / 2
    ]
    return content


def share_of(counts):
    """Coverage and its standard error from (covered, samples) of each half `[half, 2]`."""
    covered, total = counts.T
    share = covered.sum() / total.sum()
    error = np.std(covered - share * total, ddof=1) / total.mean() / len(total) ** 0.5
    return [round(float(share), 4), round(float(error), 4)]


def cell(found):
    return f"{'–':>14}" if found is None else f"{found[0]:>8.3f}{found[1]:>6.2f}"


def spread(found):
    """Lowest, highest, how many differ from the coverage asked for by more than the tolerance."""
    if not found:
        return "–"
    shares = np.array(found)[:, 0]
    outside = (np.abs(shares - COVERAGE) > TOLERANCE).sum()
    return f"{shares.min():.3f} {shares.max():.3f} {outside} of {len(shares)}"


def show(content):
    rows = [(f"{name} {method}", found) for name, of in content["figures"].items() for method, found in of.items()]
    heads = "".join(f"{score:>14}" for score in SCORES)
    print(
        f"\n1. Calibrated on half of the test samples ({content['seeds']} seeds, {HALVES} halves each): coverage, size"
    )
    print(f"{'':28}{heads}   patterns, aps: lowest, highest, |error| > {TOLERANCE}   drawn patterns: the same")
    for title, found in rows:
        if "clean" in found:
            line = "".join(cell(found["clean"][score]) for score in SCORES)
            print(f"{title:28}{line}   {spread(found['patterns']):>34}   {spread(found['drawn']):>32}")
    print("\n2. Calibrated in fitting, on the whole test set: coverage and size")
    print(f"{'':28}{'calibration':>12}{'test':>6}{'accuracy':>10}{heads}{'late, 5 folds: aps':>22}{'lac':>14}")
    for title, found in rows:
        line = "".join(cell(found["fitted"][score]) for score in SCORES)
        folds = "".join(cell(found["folds"][score]) for score in ("aps", "lac")) if "folds" in found else ""
        print(f"{title:28}{found['calibration']:>12}{found['test']:>6}{found['accuracy']:>10.3f}{line}{folds:>36}")
    for score in ("aps", "lac"):
        print(f"\n3. {score}, corrupted (p = 0.5), calibrated on clean samples: coverage and size")
        print(f"{'':28}{'clean':>14}" + "".join(f"{name:>14}" for name in CORRUPTIONS))
        for title, found in rows:
            if "clean" in found:
                print(f"{title:28}" + "".join(cell(found[name][score]) for name in ("clean", *CORRUPTIONS)))
            if "clean ρ" in found:
                cells = [cell(found[f"{name} ρ"][score]) for name in ("clean", *CORRUPTIONS)]
                print(f"{'  weighed by ρ':28}" + "".join(cells))


def _one_line(found):
    return "[" + " ".join(found[1].split()) + "]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=[*SETS, "all"], default=["digits"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="a JSON file for all figures, added to those in it")
    parser.add_argument("--store", type=Path, help="a file for finished runs, from which a second call goes on")
    parser.add_argument("--jobs", type=int, default=1, help="processes; each computes on one core")
    asked = parser.parse_args()
    names = list(SETS) if "all" in asked.sets else asked.sets
    keys = [(name, method, seed) for name in names for method in asked.methods for seed in range(asked.seeds)]
    table = measure_all(measure, keys, asked.jobs, asked.store)
    figures = {}
    if asked.keep is not None and asked.keep.exists():  # of sets and methods that are not measured now
        figures = json.loads(asked.keep.read_text(encoding="utf-8"))["figures"]
    for name, method, _ in keys:
        runs = [table[name, method, seed] for seed in range(asked.seeds)]
        if any("fitted" in run for run in runs):
            figures.setdefault(name, {})[method] = summary(runs)
    content = {"seeds": asked.seeds, "halves": HALVES, "coverage": COVERAGE, "tolerance": TOLERANCE, "figures": figures}
    if asked.keep is not None:
        text = json.dumps(content, ensure_ascii=False, indent=1)
        asked.keep.write_text(re.sub(r"\[\s+([-\d.,\s]+?)\s+\]", _one_line, text) + "\n", encoding="utf-8")
    show(content)
    reasons = {
        f"{key[0]} {key[1]}: {run[why]}" for key, run in table.items() for why in ("skipped", "stopped") if why in run
    }
    print("\n".join(sorted(reasons)))


if __name__ == "__main__":
    main()
