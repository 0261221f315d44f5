"""Fusing what may be broken: accuracy, NLL and ECE of `bayes-robust` and its rivals, clean and under 11 corruptions.

Every expert is trained once a seed, and all fusions of opinions have the same experts. `bayes-robust` learns from
training samples that are spoilt by generic faults, at random levels; in the row "families left out" each corruption is
judged by a gate that was learned from the other half of the families. Its settings were chosen on validation rows of
other seeds, many of which are test rows here on digits and hydraulic, whose splits change with the seed. The mean of
the sets other than handwritten is what counts. digits needs no download; the others are read
from the folder CONSILIENCE_DATA, and left out where it does not lead to them.

    python benchmarks/bench_reliability.py --sets all --seeds 5 --jobs 2
"""

import argparse
import copy
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from stored_runs import measure_all

from consilience import fuse, load_data
from consilience.bayes.reliability import robust_posterior
from consilience.bayes.trust_gate import TrustGate
from consilience.core.errors import MissingDataError
from consilience.core.samples import Samples
from consilience.corruption import Corruptor
from consilience.evaluation import accuracy, ece, nll
from consilience.methods.opinions.bayes_robust import BayesRobust
from consilience.training import Model, Trainer

CORRUPTIONS = [
    ("gaussian", 1),
    ("gaussian", 2),
    ("gaussian", 5),
    ("gaussian", 10),
    ("blank", 10),
    ("stuck", 10),
    ("swapped", 10),
    ("salt-and-pepper", 30),
    ("scaled", 4),
    ("drop", 5),
    ("structured-drop", 5),
]
# Mild noise on every modality.
ON_ALL = [("gaussian", 0.5), ("gaussian", 1), ("gaussian", 2)]
# The families of faults in two halves: a gate learned from one is judged on the other.
HALVES = [("gaussian", "swapped", "scaled", "drop"), ("blank", "stuck", "salt-and-pepper", "structured-drop")]
ENCODERS = {"plain MLP": False, "LayerNorm": True}
# Trained as a user would train them, beside `bayes-robust`.
TRAINED = {
    "late": None,
    "late, trained with noise": "gaussian:0..1",
    "concat": None,
    "qmf": None,
    "etmc": None,
    "mmtm": None,
}
# Title, probability, figure (accuracy, NLL or ECE) and what was done; None: the mean over the corruptions.
COLUMNS = [
    ("clean", 0.0, 0, None),
    ("p=.5", 0.5, 0, None),
    ("swapped", 0.5, 0, "swapped 10"),
    ("σ=2", 0.5, 0, "gaussian 2"),
    ("σ=10", 0.5, 0, "gaussian 10"),
    ("p=.8", 0.8, 0, None),
    ("σ=.5 on all", 1.0, 0, "gaussian 0.5"),
    ("σ=1 on all", 1.0, 0, "gaussian 1"),
    ("missing", 0.5, 0, "missing"),
    ("NLL p=.5", 0.5, 1, None),
    ("ECE p=.5", 0.5, 2, None),
]
DESIGNED_ON = "handwritten"
WINDOWS = 10  # of a sequence of movements


def read_named(name):
    return lambda seed: [load_data(name).resplit(seed).part(part) for part in ("train", "validation", "test")]


def read_mosi(seed):
    """Utterances of CMU-MOSI: the test set is of other videos than the training set."""
    arrays = np.load(find("mosi", "utterance_features.npz"))
    names, parts = ("text", "audio", "video"), ("train", "test")
    X = {name: np.concatenate([arrays[f"{name}_{part}"] for part in parts]) for name in names}
    y = np.concatenate([arrays[f"y_{part}"] for part in parts]).astype(int)
    return cut(Samples.of(X, y), np.arange(len(y)) >= len(arrays["y_train"]), seed)


def read_hydraulic(seed):
    """UCI's hydraulic rig, leakage of the pump. The cycles come ordered, so blocks of 15 are held out."""
    arrays = np.load(find("hydraulic", "cycles_1hz.npz"))
    X = {name: arrays[name] for name in arrays.files if name != "profile"}
    y = arrays["profile"][:, 2].astype(int)
    block = np.arange(len(y)) // 15
    held_out = np.random.default_rng(seed).permutation(block.max() + 1)[: 3 * block.max() // 10]
    return cut(Samples.of(X, y), np.isin(block, held_out), seed)


def read_utd_mhad(seed):
    """27 actions by an inertial sensor and a skeleton, each in ten windows of time; the even subjects are the test."""
    arrays = np.load(find("utd_mhad", "sequences.npz"))
    clips = sorted(name.partition("/")[2] for name in arrays.files if name.startswith("inertial/"))
    X = {
        sensor: np.stack([summarise(arrays[f"{sensor}/{clip}"]) for clip in clips])
        for sensor in ("inertial", "skeleton")
    }
    action, subject = np.array([[int(part[1:]) for part in clip.split("_")[:2]] for clip in clips]).T
    return cut(Samples.of(X, action), subject % 2 == 0, seed)


def summarise(sequence):
    """Mean and standard deviation in each window of time: `[time, channel]` → `[2 · window · channel]`."""
    windows = np.array_split(sequence.astype(np.float32), WINDOWS)
    return np.concatenate([moment(window, axis=0) for window in windows for moment in (np.mean, np.std)])


def cut(samples, test, seed):
    train = np.random.default_rng(seed).permutation(np.flatnonzero(~test))
    few = len(train) * 15 // 100
    return samples[np.sort(train[few:])], samples[np.sort(train[:few])], samples[test]


def find(*path):
    root = os.environ.get("CONSILIENCE_DATA")
    if root is None or not Path(root, *path).is_file():
        raise MissingDataError(f"CONSILIENCE_DATA does not lead to {'/'.join(path)}")
    return Path(root, *path)


SETS = {
    "handwritten": read_named("handwritten"),
    "digits": read_named("digits"),
    "hydraulic": read_hydraulic,
    "mosi": read_mosi,
    "mvsa": read_named("mvsa"),
    "utd-mhad": read_utd_mhad,
}


def train(samples, validation, encoder, seed):
    choice = {"name": "mlp", "hidden": [64], "normalise": ENCODERS[encoder]}
    settings = {"epochs": 40, "patience": 6, "batch_size": 64, "lr": 3e-3, "seed": seed, "device": "cpu"}
    encoders = dict.fromkeys(samples.names, choice)
    learned, models = [], {}
    for label, augment in {"bayes-robust": None, **TRAINED}.items():
        trainer = Trainer(**settings, augment=augment)
        with patch.object(BayesRobust, "_learn_rule", recorded(BayesRobust._learn_rule, learned)):
            models[label] = Model.fit(label.partition(",")[0], samples, validation, encoders=encoders, trainer=trainer)
    method, arguments = models["bayes-robust"].method, learned[0]
    for label, faults in (("fixed map", ()), ("first half", HALVES[0]), ("second half", HALVES[1])):
        other = copy.deepcopy(method)
        other.faults, other.gate = faults, TrustGate(len(method.names))
        other._learn_rule(*arguments)
        models[label] = replace(models["bayes-robust"], method=other)
    return models


def recorded(function, calls):
    def call(self, *arguments):
        calls.append(arguments)
        return function(self, *arguments)

    return call


def shown(test, corruptor, seed) -> Iterator[tuple[float, str, Samples, np.ndarray]]:
    """The test samples, clean and under every corruption: probability, what was done, samples, and what was left alone.

    The last is `[n, modality]`.
    """
    yield 0.0, "clean", test, np.ones(test.present.shape, dtype=bool)
    for probability in (0.5, 0.8):
        for corruption, level in CORRUPTIONS:
            changed = corruptor.apply(test, corruption, level, probability=probability, random_state=seed)
            same = [(test[name] == changed[name]).reshape(len(test), -1).all(axis=1) for name in test.names]
            yield probability, f"{corruption} {level}", changed, np.stack(same, axis=1)
    for corruption, level in ON_ALL:
        changed = corruptor.apply(test, corruption, level, probability=1, random_state=seed)
        yield 1.0, f"{corruption} {level}", changed, np.zeros(test.present.shape, dtype=bool)
    missing = corruptor.apply(test, "missing", 10, probability=0.5, random_state=seed)
    yield 0.5, "missing", missing, missing.present


def answers(models, samples, sound, what):
    """Every rival's log-probabilities `[n, class]`.

    sound: which modalities were left alone, `[n, modality]`; what: the corruption and its level.
    """
    robust = models["bayes-robust"]
    said, method = robust.predict(samples, device="cpu"), robust.method
    opinions = said.opinions.double()
    voices = opinions.log_softmax(2)
    # Temperatures of out-of-fold opinions, and nothing else of what `bayes` learns.
    tempered = (opinions / method.rule.temperature.double()[:, None]).log_softmax(2)
    prior, kappa = method.rule.prior.double(), method.gain.kappa.double()
    prior = prior / prior.sum()
    left_out = models["second half" if what.split()[0] in HALVES[0] else "first half"]
    there = torch.from_numpy(samples.present)
    told = torch.where(torch.from_numpy(sound), 0.9, 0.1).double() * there
    share = (there / there.sum(1, keepdim=True).clamp(min=1)).double()[:, :, None]
    half = torch.full_like(told, 0.5) * there
    trained = {name: models[name].predict(samples, device="cpu").output.double().log_softmax(1) for name in TRAINED}
    return {
        **trained,
        "mean of logits": (share * opinions).sum(1).log_softmax(1),
        "mean of probabilities": (share * voices.exp()).sum(1).clamp(min=1e-300).log(),
        "theorem, κ=1, temperatures": fuse(tempered, prior, present=there),
        "constant ρ = .5": robust_posterior(tempered, prior.log(), half),
        "bayes": method.rule(opinions, there),
        "bayes-robust, fixed map": models["fixed map"].predict(samples, device="cpu").output.double(),
        "bayes-robust": said.output.double(),
        "families left out": left_out.predict(samples, device="cpu").output.double(),
        "oracle, ρ in {.1, .9}": robust_posterior(tempered, prior.log(), told, kappa),
    }


def measure(name, encoder, seed):
    """(rival, probability, what was done) → accuracy in per cent, NLL, ECE in per cent; None where data are missing."""
    torch.set_num_threads(1)
    try:
        samples, validation, test = SETS[name](seed)
    except MissingDataError:
        return None
    models, found = train(samples, validation, encoder, seed), {}
    y = models["concat"].task.encode(test.y)
    for probability, what, changed, sound in shown(test, Corruptor(samples), seed):
        for rival, log_p in answers(models, changed, sound, what).items():
            p = log_p.softmax(1).numpy()
            found[rival, probability, what] = 100 * accuracy(y, p.argmax(1)), nll(y, p), 100 * ece(y, p)
    return found


def mean(table, sets, encoder, seed, rival, probability, figure, what=None):
    """One figure of one seed, the mean over sets and corruptions."""
    return np.mean(
        [
            figures[figure]
            for name in sets
            for (who, p, done), figures in table[name, encoder, seed].items()
            if (who, p) == (rival, probability) and (done == what if what else done != "missing")
        ]
    )


def show(table, title, sets, seeds):
    def over_seeds(encoder, rival, *which):
        return np.array([mean(table, sets, encoder, seed, rival, *which) for seed in range(seeds)])

    def pairs(form, found):
        return "/".join(form.format(one) for one in found)

    print(f"\n{title} (mean of {seeds} seeds, {' / '.join(ENCODERS)})")
    print(f"{'':28}" + "".join(f"{head:>14}" for head, *_ in COLUMNS))
    for rival in dict.fromkeys(key[0] for key in table[sets[0], next(iter(ENCODERS)), 0]):
        cells = [
            pairs("{:.2f}" if which[1] == 1 else "{:.1f}", [over_seeds(e, rival, *which).mean() for e in ENCODERS])
            for _, *which in COLUMNS
        ]
        print(f"{rival:28}" + "".join(f"{cell:>14}" for cell in cells))
    cost = [over_seeds(e, "bayes-robust", 0.0, 0) - over_seeds(e, "bayes", 0.0, 0) for e in ENCODERS]
    spread = [over_seeds(e, "bayes-robust", 0.5, 0).std(ddof=min(1, seeds - 1)) for e in ENCODERS]
    print(f"bayes-robust less bayes, clean accuracy: {pairs('{:+.2f}', [one.mean() for one in cost])}")
    print(f"standard deviation of bayes-robust over seeds at p=.5: {pairs('{:.2f}', spread)}", flush=True)


def _one_line(found):
    return "[" + " ".join(found[1].split()) + "]"


def _order(run):
    """The set of most modalities first, since it takes longest; the one that no mean contains last."""
    return run[0] == DESIGNED_ON, run[0] != "hydraulic", run[2]


def kept(table, sets, seeds):
    """Set → encoder → rival → a list for each column, with the figure of each seed."""
    rivals = dict.fromkeys(key[0] for key in table[sets[0], next(iter(ENCODERS)), 0])
    figures = {
        name: {
            encoder: {
                rival: [
                    [round(float(mean(table, [name], encoder, seed, rival, *which)), 4) for seed in range(seeds)]
                    for _, *which in COLUMNS
                ]
                for rival in rivals
            }
            for encoder in ENCODERS
        }
        for name in sets
    }
    return {"columns": [head for head, *_ in COLUMNS], "designed_on": DESIGNED_ON, "figures": figures}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=[*SETS, "all"], default=["digits"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="a JSON file for all figures, such as docs/robust.json")
    parser.add_argument("--store", type=Path, help="a file for finished runs, from which a second call goes on")
    parser.add_argument("--jobs", type=int, default=1, help="processes; each computes on one core")
    asked = parser.parse_args()
    wanted = list(SETS) if "all" in asked.sets else asked.sets
    runs = [(name, encoder, seed) for name in wanted for encoder in ENCODERS for seed in range(asked.seeds)]
    found = measure_all(measure, sorted(runs, key=_order), asked.jobs, asked.store)
    table = {run: figures for run, figures in found.items() if figures is not None}
    measured = [name for name in wanted if (name, next(iter(ENCODERS)), 0) in table]
    if asked.keep is not None:
        content = json.dumps(kept(table, measured, asked.seeds), ensure_ascii=False, indent=1)
        asked.keep.write_text(re.sub(r"\[\s+([-\d.,\s]+?)\s+\]", _one_line, content) + "\n", encoding="utf-8")
    for name in wanted:
        if name in measured:
            show(table, name, [name], asked.seeds)
        else:
            print(f"\n{name}: left out, CONSILIENCE_DATA does not lead to its files")
    others = [name for name in measured if name != DESIGNED_ON]
    if len(others) > 1:
        show(table, "mean of " + ", ".join(others), others, asked.seeds)


if __name__ == "__main__":
    main()
