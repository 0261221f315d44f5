"""How good Bayesian fusion of opinions is on sets that had no part in the choice of its recipe.

The sets it was chosen on are `consilience reproduce bayes-digits` and `bayes-handwritten`; here are the same ways to
decide on a hydraulic rig, breast tumours and MOSI. Experts are logistic regressions, their opinions for fitting
out-of-fold. Each figure is the mean over seeds (fresh splits); behind ± is a 95 % interval of the difference in
log-loss to calibrated κ, paired by seed. Splits of different seeds overlap, so that the intervals are somewhat too
narrow. Sets whose files CONSILIENCE_DATA does not lead to are left out.

    python benchmarks/bench_bayes.py --seeds 10
"""

import argparse
import time
from pathlib import Path

import numpy as np
from scipy.stats import t as student
from sklearn.model_selection import train_test_split

from consilience import load_data
from consilience.core.errors import MissingDataError
from consilience.core.samples import Samples
from consilience.reproduction.study import load_script

ways = load_script(Path(__file__).parents[1] / "papers" / "bayes" / "decisions.py")
STRETCH = 15  # cycles of the rig that stay together


def flat(data):
    """A set's samples as rows of numbers, 0 where there is none, and class indices."""
    views = {name: np.nan_to_num(np.asarray(data.samples[name], dtype=np.float64)) for name in data.modalities}
    y = np.unique(data.y, return_inverse=True)[1]
    return Samples.of({name: x.reshape(len(y), -1) for name, x in views.items()}, y)


def every_way(samples, train, test, seed, groups=None):
    """All ways to decide on one split."""
    return ways.Decided(ways.decide_every_way(samples, train, test, seed, groups), test, samples.y[test])


def unmeasured(samples, train, test, seed):
    """The last modality is there in training, and in no test sample."""
    others = Samples.of({name: samples[name] for name in samples.names[:-1]}, samples.y)
    present = np.tile(np.arange(len(samples.names)) < len(others.names), (len(test), 1))
    decided = ways.decide_with_missing(ways.opinions_of_experts(samples, train, test, seed, present))
    alone = ways.decide_every_way(others, train, test, seed)
    decided |= {f"{name}, others alone": alone[name] for name in (ways.OURS, ways.CONCAT)}
    return ways.Decided(decided, test, samples.y[test])


def tumours():
    data = load_data("breast-tcga")
    samples, subtype = flat(data), np.unique(data.y, return_inverse=True)[1]
    whole, without = np.flatnonzero(data.split != "test"), np.flatnonzero(data.split == "test")

    def drawn(seed):
        return train_test_split(whole, train_size=2 / 3, stratify=subtype[whole], random_state=seed)

    yield "breast-tcga, n = 100", lambda seed: every_way(samples, *drawn(seed), seed)
    yield "breast-tcga, no protein in use", lambda seed: unmeasured(samples, drawn(seed)[0], without, seed)


def rig(component):
    """Cycles come in order, so that whole stretches of them are held out."""
    samples = flat(load_data("hydraulic", component=component))
    stretch = np.arange(len(samples)) // STRETCH

    def run(seed):
        held = np.random.default_rng(seed).permutation(stretch.max() + 1)[: (stretch.max() + 1) // 2]
        chosen = np.isin(stretch, held)
        return every_way(samples, np.flatnonzero(~chosen), np.flatnonzero(chosen), seed, stretch)

    yield f"hydraulic, {component}", run


def mosi():
    """The features were learned on the training set, which spoils it for what this is about: what is learned from
    opinions that are better than those to come cannot hold. The table shows what that does to each way.
    """
    data = load_data("mosi")
    samples = flat(data)
    train, test = np.flatnonzero(data.split != "test"), np.flatnonzero(data.split == "test")

    def run(seed):
        return every_way(samples, np.random.default_rng(seed).permutation(train)[: len(train) // 2], test, seed)

    yield "mosi, half of the training set", run


def table(title, seeds, run):
    """Run every seed, print every way."""
    start = time.perf_counter()
    results = [ways.judge(run(seed)).about["scores"] for seed in range(seeds)]
    print(f"\n{title} ({seeds} seeds, {time.perf_counter() - start:.0f} s)")
    for name in results[0]:
        accuracy, loss = (np.array([result[name][one] for result in results]) for one in ("accuracy", "nll"))
        away = loss - np.array([result[ways.OURS]["nll"] for result in results])
        half = student.ppf(0.975, seeds - 1) * away.std(ddof=1) / np.sqrt(seeds) if seeds > 1 else np.nan
        against = "" if name == ways.OURS else f"   {away.mean():+.3f} ± {half:.3f}"
        print(f"  {name:30} {100 * accuracy.mean():5.1f} % / {loss.mean():.3f}{against}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default="", help="run the tables whose title contains this")
    asked = parser.parse_args()
    rigs = [lambda one=one: rig(one) for one in ("cooler", "valve", "pump", "accumulator")]
    for source in (tumours, *rigs, mosi):
        try:
            for title, run in source():
                if asked.only in title:
                    table(title, asked.seeds, run)
        except MissingDataError as error:
            print(f"\nleft out: {error}")


if __name__ == "__main__":
    main()
