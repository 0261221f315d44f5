"""Fusing opinions of experts that may be broken: accuracy and NLL of `BayesFusion` for each choice of `reliability`.

The experts are those of `bench_reliability`, trained on clean data. `BayesFusion` is given their out-of-fold opinions,
and predicts from their opinions on clean and corrupted test samples. It never sees an input. digits needs no download;
the others are read from the folder CONSILIENCE_DATA, and left out where it does not lead to them. The strength of the
faults in `spoilt_opinions` was chosen on the sets DESIGNED_ON, with other seeds but in part the same test samples; the
mean of the other sets is what counts.

    python benchmarks/bench_opinion_trust.py --sets all --seeds 3
"""

import argparse
import warnings
from unittest.mock import patch

import numpy as np
import torch
from bench_reliability import ENCODERS, SETS
from joblib import Parallel, delayed

from consilience import BayesFusion
from consilience.core.errors import MissingDataError
from consilience.corruption import Corruptor
from consilience.evaluation import accuracy, nll
from consilience.methods.opinions.bayes_robust import BayesRobust
from consilience.training import Model, Trainer

# Column → corruption, level, probability that a modality is hit.
SHOWN = {
    "clean": None,
    "σ=1": ("gaussian", 1, 0.5),
    "σ=5": ("gaussian", 5, 0.5),
    "σ=10": ("gaussian", 10, 0.5),
    "swapped": ("swapped", 10, 0.5),
    "σ=1 on all": ("gaussian", 1, 1.0),
}
RIVALS = {
    "None": {},
    "None, calibration robust": {"calibration": "robust"},
    "auto": {"reliability": "auto"},
    "graded": {"reliability": "graded"},
}
DESIGNED_ON = ("digits", "handwritten", "utd-mhad", "mvsa")


def train(samples, validation, encoder, seed):
    """Trained experts, and their out-of-fold opinions on the training samples `[n, modality, class]`."""
    choice = {"name": "mlp", "hidden": [64], "normalise": ENCODERS[encoder]}
    trainer = Trainer(epochs=40, patience=6, batch_size=64, lr=3e-3, seed=seed, device="cpu")
    held_out = []

    def record(self, train, trainer, opinions, *_):
        held_out.append(opinions)

    with patch.object(BayesRobust, "_learn_rule", record):
        encoders = dict.fromkeys(samples.names, choice)
        model = Model.fit(
            "bayes-robust", samples, validation, settings={"noise": 0.0}, encoders=encoders, trainer=trainer
        )
    return model, held_out[0]


def measure(name, encoder, seed):
    """(rival, column) → accuracy in per cent and NLL; None where data are missing."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        samples, validation, test = SETS[name](seed)
    except MissingDataError:
        return None
    model, held_out = train(samples, validation, encoder, seed)
    y, corruptor, found = model.task.encode(test.y), Corruptor(samples), {}
    rivals = {rival: BayesFusion(**settings) for rival, settings in RIVALS.items()}
    for rival in rivals.values():
        rival.fit(held_out, model.task.encode(samples.y))
    for column, done in SHOWN.items():
        changed = test
        if done is not None:
            corruption, level, probability = done
            changed = corruptor.apply(test, corruption, level, probability=probability, random_state=seed)
        opinions = model.predict(changed, device="cpu").opinions.double().numpy()
        for rival, fusion in rivals.items():
            p = fusion.predict_proba(opinions)
            found[rival, column] = 100 * accuracy(y, p.argmax(1)), nll(y, p)
    return found


def show(title, runs):
    """Print the mean over runs, accuracy / NLL, and over the corrupted columns."""
    print(f"\n{title}\n{'':26}" + "".join(f"{column:>14}" for column in [*SHOWN, "corrupted"]))
    for rival in RIVALS:
        figures = np.array([[run[rival, column] for column in SHOWN] for run in runs]).mean(axis=0)
        figures = np.concatenate([figures, figures[1:].mean(axis=0, keepdims=True)])
        print(f"{rival:26}" + "".join(f"{f'{right:.1f} / {loss:.2f}':>14}" for right, loss in figures), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=[*SETS, "all"], default=["digits"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="processes; each computes on one core")
    asked = parser.parse_args()
    wanted = list(SETS) if "all" in asked.sets else asked.sets
    runs = [(name, encoder, seed) for name in wanted for encoder in ENCODERS for seed in range(asked.seeds)]
    found = Parallel(n_jobs=asked.jobs, batch_size=1)(delayed(measure)(*run) for run in runs)
    table = {run: figures for run, figures in zip(runs, found) if figures is not None}
    for name in wanted:
        for encoder in ENCODERS:
            own = [figures for (of, by, _), figures in table.items() if (of, by) == (name, encoder)]
            if own:
                show(f"{name}, {encoder}, {asked.seeds} seeds, accuracy / NLL", own)
        if not own:
            print(f"\n{name}: left out, CONSILIENCE_DATA does not lead to its files")
    if len(wanted) > 1 and table:
        show("mean of all", list(table.values()))
        if others := [figures for (name, *_), figures in table.items() if name not in DESIGNED_ON]:
            show("mean of the sets that no choice was made on", others)


if __name__ == "__main__":
    main()
