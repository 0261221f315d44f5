"""What averaged weights are worth under noise, and what averaging costs a step.

1. Accuracy of the last weights against their mean over all steps, in ten folds of a set's training samples, clean and
   with each modality of each held-out sample noisy with probability ½; the test set stays unseen. handwritten is read
   from the folder CONSILIENCE_DATA; digits, which needs no download, had no part in the choice of what `reproduce
   qmf-handwritten` trains with.
2. CPU time of an epoch with averaging over that of one without, in turns in this one process.

    python benchmarks/bench_averaging.py --sets digits handwritten --jobs 2
"""

import argparse
import statistics
import time

import numpy as np
import torch
from joblib import Parallel, delayed

from consilience import load_data
from consilience.corruption import Corruptor
from consilience.targets import Task
from consilience.training import Model, Trainer
from consilience.training.trainer import split_folds

METHODS = ("late", "concat", "qmf", "tmc", "ecml", "pdf")
FOLDS, DRAWS, LEVELS = 10, 4, (0, 5, 10)
# What the tables of handwritten digits were trained with before weights were averaged, and since.
SETTINGS = {
    "last": {"lr": 3e-4, "batch_size": 100},
    "last, small steps": {"lr": 5e-4, "batch_size": 50},
    "mean": {"lr": 5e-4, "batch_size": 50, "average": "mean"},
}
ENCODER = {"name": "mlp", "hidden": [64], "dropout": 0.1}


def fit(name, train, **settings):
    trainer = Trainer(epochs=60, patience=None, device="cpu", **settings)
    return Model.fit(name, train, encoders=dict.fromkeys(train.names, ENCODER), trainer=trainer)


def measure(source, fold):
    """(method, setting) → accuracy at every level, in per cent, on one fold of the training samples."""
    torch.set_num_threads(1)
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
    print(f"{source}: accuracy in %, clean and at noise of {' and '.join(map(str, LEVELS[1:]))} deviations; below, the")
    print(f"mean weights less the last, ± the standard error of the difference over {FOLDS} folds")
    for name in METHODS:
        for label in SETTINGS:
            figures = "  ".join(f"{value:5.2f}" for value in np.mean([one[name, label] for one in folds], axis=0))
            print(f"  {name:7} {label:18} {figures}")
        gain = np.array([one[name, "mean"] - one[name, "last"] for one in folds])
        error = gain.std(axis=0, ddof=1) / np.sqrt(FOLDS)
        print(f"  {'':26} {'  '.join(f'{mean:+.2f} ± {one:.2f}' for mean, one in zip(gain.mean(axis=0), error))}")


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
