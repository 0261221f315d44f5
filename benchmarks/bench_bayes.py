"""How good Bayesian fusion of opinions is beside stacking and a regression on all features.

Digits, handwritten digits, breast tumours, a hydraulic rig and MOSI. Experts are logistic regressions, their opinions
for fitting out-of-fold. Every seed has a fresh split, except for MOSI and the tumours without protein, where it draws
the training rows. Splits of different seeds overlap, so that intervals over seeds are somewhat too narrow. Sets whose
files CONSILIENCE_DATA does not lead to are left out.

    python benchmarks/bench_bayes.py --seeds 10 --keep docs/bayes.json
"""

import argparse
import json
import time
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy.stats import t as student
from sklearn.model_selection import train_test_split

from consilience import BayesFusion, load_data
from consilience.core.errors import MissingDataError
from consilience.core.samples import Samples
from consilience.reproduction.study import load_script

ways = load_script(Path(__file__).parents[1] / "papers" / "bayes" / "decisions.py")
STRETCH = 15  # cycles of the rig that stay together
AUTO, TEMPERATURE, ROBUST, STACKED, CONCAT = "auto", "temperature", "robust", "stacking", "concat regression"


def flat(data):
    """A set's samples as rows of numbers, 0 where there is none, and class indices."""
    views = {name: np.nan_to_num(np.asarray(data.samples[name], dtype=np.float64)) for name in data.modalities}
    y = np.unique(data.y, return_inverse=True)[1]
    return Samples.of({name: x.reshape(len(y), -1) for name, x in views.items()}, y)


def joined(samples):
    """All features side by side."""
    return np.concatenate([samples[name] for name in samples.names], axis=1)


def listen(samples, train, test, seed, groups=None):
    """Opinions of one split, and the regression on all features: what no fusion of ours changes."""
    case, y = ways.opinions_of_experts(samples, train, test, seed, None, groups), np.asarray(samples.y)
    concat = ways.log_of(ways.regression().fit(joined(samples)[train], y[train]).predict_proba(joined(samples)[test]))
    return {"case": case, "y": y[test], "groups": None if groups is None else groups[train], CONCAT: concat}


def quadrants(name, n, missing=False):
    """The sets that the recipe was designed on."""
    samples = load_data(name).samples
    y = np.asarray(samples.y)

    def run(seed):
        train, test = ways.draw_evenly(y, n, seed)
        if not missing:
            return listen(samples, train, test, seed)
        rng = np.random.default_rng(seed)
        present = rng.random((len(test), len(samples.names))) >= ways.MISSING
        case = ways.opinions_of_experts(samples, train, test, seed, present)
        dropped = ways.concat_with_dropout(samples, train, test, present, rng)
        return {"case": case, "y": y[test], "groups": None, CONCAT: dropped}

    return run


def tumours(unmeasured=False):
    """unmeasured: protein is there in training, and in no test sample; the regression is on the other modalities."""
    data = load_data("breast-tcga")
    samples, subtype = flat(data), np.unique(data.y, return_inverse=True)[1]
    whole, without = np.flatnonzero(data.split != "test"), np.flatnonzero(data.split == "test")
    others = Samples.of({name: samples[name] for name in samples.names[:-1]}, samples.y)
    present = np.tile(np.arange(len(samples.names)) < len(others.names), (len(without), 1))

    def run(seed):
        train, test = train_test_split(whole, train_size=2 / 3, stratify=subtype[whole], random_state=seed)
        if not unmeasured:
            return listen(samples, train, test, seed)
        heard = listen(others, train, without, seed)
        return heard | {"case": ways.opinions_of_experts(samples, train, without, seed, present)}

    return run


def rig(component):
    """Cycles come in order, so that whole stretches of them are held out."""
    samples = flat(load_data("hydraulic", component=component))
    stretch = np.arange(len(samples)) // STRETCH

    def run(seed):
        held = np.random.default_rng(seed).permutation(stretch.max() + 1)[: (stretch.max() + 1) // 2]
        chosen = np.isin(stretch, held)
        return listen(samples, np.flatnonzero(~chosen), np.flatnonzero(chosen), seed, stretch)

    return run


def mosi():
    """The features were learned on the training set, which spoils it for what this is about: what is learned from
    opinions that are better than those to come cannot hold. The table shows what that does to each way.
    """
    data = load_data("mosi")
    samples = flat(data)
    train, test = np.flatnonzero(data.split != "test"), np.flatnonzero(data.split == "test")
    return lambda seed: listen(samples, np.random.default_rng(seed).permutation(train)[: len(train) // 2], test, seed)


# Title → a function that loads the set, and returns a function from the seed to opinions.
CASES = {
    "digits, n = 900": partial(quadrants, "digits", 900),
    "digits, n = 300": partial(quadrants, "digits", 300),
    "digits, n = 100": partial(quadrants, "digits", 100),
    "digits, n = 900, half missing": partial(quadrants, "digits", 900, True),
    "handwritten, n = 1000": partial(quadrants, "handwritten", 1000),
    "handwritten, n = 100": partial(quadrants, "handwritten", 100),
    "handwritten, n = 1000, half missing": partial(quadrants, "handwritten", 1000, True),
    "breast-tcga, n = 100": tumours,
    "breast-tcga, no protein in use": partial(tumours, True),
    "hydraulic, cooler": partial(rig, "cooler"),
    "hydraulic, valve": partial(rig, "valve"),
    "hydraulic, pump": partial(rig, "pump"),
    "hydraulic, accumulator": partial(rig, "accumulator"),
    "mosi, half of the training set": mosi,
}


def decide(heard):
    """The log-posterior of every way on the test samples, `[n, class]`."""
    case, found = heard["case"], {}
    for calibration in (AUTO, TEMPERATURE, ROBUST):
        fusion = BayesFusion(calibration=calibration).fit(case.learned, case.labels, groups=heard["groups"])
        found[calibration] = fusion.predict_log_proba(case.asked, case.present)
    if case.present is None:
        found[STACKED] = ways.stack(case)
    return found | {CONCAT: heard[CONCAT]}


def hear(folder, title, seed, source):
    """Opinions of one split, from a file of an earlier run if there is one."""
    if folder is None:
        return source()(seed)
    file = folder / f"{title}, seed {seed}.npz".replace(" ", "_")
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        heard = source()(seed)
        flat_case = {**heard, **heard.pop("case")._asdict()}
        np.savez_compressed(file, **{name: values for name, values in flat_case.items() if values is not None})
    read = dict(np.load(file))
    case = ways.Case(*(read.get(name) for name in ways.Case._fields))
    return {"case": case, "y": read["y"], "groups": read.get("groups"), CONCAT: read[CONCAT]}


def table(title, seeds, source, opinions):
    """Run every seed and print every way; returns way → accuracy and log-loss of every seed."""
    start, results = time.process_time(), []
    for seed in range(seeds):
        heard = hear(opinions, title, seed, source)
        decided = ways.Decided(decide(heard), np.arange(len(heard["y"])), heard["y"])
        results.append(ways.judge(decided).about["scores"])
    print(f"\n{title} ({seeds} seeds, {time.process_time() - start:.0f} s of CPU)", flush=True)
    found = {}
    for name in results[0]:
        accuracy, loss = ([result[name][one] for result in results] for one in ("accuracy", "nll"))
        found[name] = {"accuracy": accuracy, "log-loss": loss}
        away = np.array(loss) - np.array([result[AUTO]["nll"] for result in results])
        against = "" if name == AUTO else f"   {away.mean():+.3f} ± {half_width(away):.3f}"
        print(f"  {name:20} {100 * np.mean(accuracy):5.1f} % / {np.mean(loss):.3f}{against}", flush=True)
    return found


def half_width(values):
    """Half of the 95 % interval of a mean over seeds."""
    n = len(values)
    return student.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n) if n > 1 else np.nan


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="TITLE", help="tables to run")
    parser.add_argument("--keep", type=Path, help="JSON file to write the figures to; other tables in it stay")
    parser.add_argument("--opinions", type=Path, help="folder that keeps the experts' opinions for the next run")
    asked = parser.parse_args()
    for title in asked.only:
        try:
            found = table(title, asked.seeds, cache(CASES[title]), asked.opinions)
        except MissingDataError as error:
            print(f"\nleft out: {error}")
            continue
        if asked.keep is not None:
            content = json.loads(asked.keep.read_text(encoding="utf-8")) if asked.keep.exists() else {}
            content[title] = {"seeds": asked.seeds, "ways": found}
            asked.keep.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
