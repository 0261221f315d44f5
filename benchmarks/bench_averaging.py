"""What averaged weights are worth under noise, and what averaging costs.

1. Accuracy of the last weights against their mean over all steps, in ten folds of a set's training samples, clean and
   with each modality of each held-out sample noisy with probability ½; the test set stays unseen. handwritten is read
   from the folder CONSILIENCE_DATA; digits, which needs no download, had no part in the choice of what `reproduce
   qmf-handwritten` trains with.
2. CPU time of a training with averaging over that of one without, in turns in this one process.

    python benchmarks/bench_averaging.py --sets digits handwritten --jobs 2
"""

import argparse
import statistics
import time
import warnings

import numpy as np
import torch
from joblib import Parallel, delayed

from consilience import load_data
from consilience.core.errors import TrustWarning
from consilience.core.targets import Task
from consilience.corruption import Corruptor
from consilience.training import Model, Trainer
from consilience.training.trainer import split_folds

METHODS = ("late", "concat", "qmf", "tmc", "ecml", "pdf")
FOLDS, DRAWS, LEVELS = 10, 4, (0, 5, 10)
# Noise is stood best with little training, so the last weights are also those of fewer and smaller steps.
SETTINGS = {
    "mean": {"lr": 5e-4, "batch_size": 50, "average": "mean"},
    "last": {"lr": 5e-4, "batch_size": 50},
    "last, fewer": {"lr": 3e-4, "batch_size": 100},
}
ENCODER = {"name": "mlp", "hidden": [64], "dropout": 0.1}


def fit(name, train, **settings):
    trainer = Trainer(epochs=60, patience=None, device="cpu", **settings)
    return Model.fit(name, train, encoders=dict.fromkeys(train.names, ENCODER), trainer=trainer)


def measure(source, fold):
    """(method, setting) → accuracy at every level, in per cent, on one fold of the training samples."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", TrustWarning)  # accuracy says it too
    samples = load_data(source).train
    fold_of = split_folds(samples, Task.of(samples.y, "classification"), FOLDS, seed=0)
    train, held_out = samples[fold_of != fold], samples[fold_of == fold]
    corruptor = Corruptor(train)
    shown = [
        [corruptor.apply(held_out, "gaussian", level, probability=0.5, random_state=draw) for draw in range(DRAWS)]
        for level in LEVELS
    ]
    found = {}
    for name in METHODS:
        for label, settings in SETTINGS.items():
            model = fit(name, train, seed=fold, **settings)
            y = model.task.encode(held_out.y)
            right = [[model.predict(one, device="cpu").output.argmax(1).numpy() == y for one in each] for each in shown]
            found[name, label] = 100 * np.array(right).mean(axis=(1, 2))
    return found


def show(source, jobs):
    folds = Parallel(n_jobs=jobs)(delayed(measure)(source, fold) for fold in range(FOLDS))
    noise = " and ".join(map(str, LEVELS[1:]))
    print(f"{source}: accuracy in %, clean and at noise of {noise} deviations, in {FOLDS} folds; in brackets what the")
    print("mean weights gain on these, ± its standard error")
    for name in METHODS:
        for label in SETTINGS:
            figures = np.array([one[name, label] for one in folds])
            gain = np.array([one[name, "mean"] for one in folds]) - figures
            means, errors = gain.mean(axis=0), gain.std(axis=0, ddof=1) / np.sqrt(FOLDS)
            gains = [""] * len(LEVELS) if label == "mean" else [f"({a:+.2f} ± {b:.2f})" for a, b in zip(means, errors)]
            cells = [f"{value:5.2f} {gained:15}" for value, gained in zip(figures.mean(axis=0), gains)]
            print(f"  {name:7} {label:12} {'  '.join(cells)}".rstrip())


def cost(rounds=9):
    torch.set_num_threads(1)
    samples = load_data("digits").train
    ratios = []
    for turn in range(rounds + 1):
        seconds = {}
        for average in (None, "mean"):
            trainer = Trainer(epochs=5, batch_size=50, device="cpu", average=average)
            began = time.process_time()
            Model.fit("late", samples, encoders=dict.fromkeys(samples.names, ENCODER), trainer=trainer)
            seconds[average] = time.process_time() - began
        if turn:  # the first round warms up
            ratios.append(seconds["mean"] / seconds[None])
    print(f"training with averaged weights takes {statistics.median(ratios):.2f} × the time")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", default=["digits"])
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    for source in asked.sets:
        show(source, asked.jobs)
    cost()
