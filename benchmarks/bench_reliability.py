"""Fusing what may be broken: accuracy, NLL and ECE of `bayes-robust` and its rivals, clean and under 11 corruptions.

Every expert is trained once a seed, and all fusions of opinions hear the same experts. No corruption is seen in
training. Needs no download for digits and gaussians; the other sets are read from the folder CONSILIENCE_DATA.

    python benchmarks/bench_reliability.py --sets digits handwritten --seeds 5
"""

import argparse
import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from consilience.corruption import Corruptor
from consilience.data import load_data
from consilience.decision.calibration import fit_temperature
from consilience.decision.reliability import robust_posterior
from consilience.errors import MissingDataError
from consilience.evaluation import accuracy, ece, nll
from consilience.samples import Samples
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
ENCODERS = {"plain": False, "norm": True}


def read_named(name):
    return lambda seed: [load_data(name).resplit(seed).part(part) for part in ("train", "validation", "test")]


def read_gaussians(seed):
    data = load_data("gaussians", n=2000, seed=seed)
    return data.train, data.validation, data.test


def read_mosi(seed):
    """Utterances of CMU-MOSI: the test set is of other videos than the training set."""
    arrays = np.load(folder() / "mosi" / "utterance_features.npz")
    names, parts = ("text", "audio", "video"), ("train", "test")
    X = {name: np.concatenate([arrays[f"{name}_{part}"] for part in parts]) for name in names}
    y = np.concatenate([arrays[f"y_{part}"] for part in parts]).astype(int)
    return cut(Samples.of(X, y), np.arange(len(y)) >= len(arrays["y_train"]), seed)


def read_hydraulic(seed):
    """UCI's hydraulic rig, leakage of the pump. The cycles come ordered, so blocks of 15 are held out."""
    arrays = np.load(folder() / "hydraulic" / "cycles_1hz.npz")
    X = {name: arrays[name] for name in arrays.files if name != "profile"}
    y = arrays["profile"][:, 2].astype(int)
    block = np.arange(len(y)) // 15
    held_out = np.random.default_rng(seed).permutation(block.max() + 1)[: 3 * block.max() // 10]
    return cut(Samples.of(X, y), np.isin(block, held_out), seed)


def cut(samples, test, seed):
    train = np.random.default_rng(seed).permutation(np.flatnonzero(~test))
    few = len(train) * 15 // 100
    return samples[np.sort(train[few:])], samples[np.sort(train[:few])], samples[test]


def folder():
    where = os.environ.get("CONSILIENCE_DATA")
    if where is None:
        raise MissingDataError("set CONSILIENCE_DATA to the folder of public data sets")
    return Path(where)


SETS = {
    "digits": read_named("digits"),
    "gaussians": read_gaussians,
    "handwritten": read_named("handwritten"),
    "mvsa": read_named("mvsa"),
    "mosi": read_mosi,
    "hydraulic": read_hydraulic,
}


def train(samples, validation, normalise, seed):
    encoders = {name: {"name": "mlp", "hidden": [64], "normalise": normalise} for name in samples.names}
    settings = {"epochs": 40, "patience": 6, "lr": 3e-3, "seed": seed, "device": "cpu"}
    return {
        name: Model.fit(name, samples, validation, encoders=encoders, trainer=Trainer(**settings))
        for name in ("bayes-robust", "concat")
    }


def temperatures(model, validation):
    """Plain temperatures `[modality]`, of opinions on the validation set."""
    opinions = model.predict(validation, device="cpu").opinions.double().numpy()
    return torch.from_numpy(fit_temperature(opinions, model.task.encode(validation.y), validation.present))


def answers(models, temperature, samples, sound):
    """Every rival's log-probabilities `[n, class]`. sound: which modalities were left alone, `[n, modality]`.

    `rule.calibrated` does more than temperatures: it holds each expert to a constant reliability fitted on clean
    out-of-fold opinions. The theorem is shown without that and with it; what is below hears the calibrated opinions.
    """
    robust = models["bayes-robust"]
    said = robust.predict(samples, device="cpu")
    method, opinions = robust.method, said.opinions.double()
    log_p = method.rule.calibrated(opinions, torch.from_numpy(samples.present))
    prior, kappa = method.rule.prior.double().log(), method.gain.kappa.double()
    voices = opinions.log_softmax(2)
    plain = (opinions / temperature[:, None]).log_softmax(2)
    told = torch.where(torch.from_numpy(sound), 0.9, 0.1).double()
    return {
        "late, logits": opinions.mean(1).log_softmax(1),
        "late, probabilities": voices.exp().mean(1).log(),
        "concat": models["concat"].predict(samples, device="cpu").output.double().log_softmax(1),
        "theorem, κ=1, temperatures": robust_posterior(plain, prior, torch.ones_like(told)),
        "theorem, as bayes calibrates": robust_posterior(log_p, prior, torch.ones_like(told)),
        "bayes (calibrated κ)": method.rule(opinions),
        "constant ρ = .5": robust_posterior(log_p, prior, torch.full_like(told, 0.5)),
        "bayes-robust": said.output.double(),
        "oracle, ρ in {.1, .9}": robust_posterior(log_p, prior, told, kappa),
    }


def measure(name, encoder, seed, table):
    samples, validation, test = SETS[name](seed)
    models = train(samples, validation, ENCODERS[encoder], seed)
    temperature = temperatures(models["bayes-robust"], validation)
    corruptor = Corruptor(samples)
    y = models["concat"].task.encode(test.y)
    for probability in (0.0, 0.5, 0.8):
        for corruption, level in CORRUPTIONS if probability else [("", 0)]:
            shown, sound = test, np.ones(test.present.shape, dtype=bool)
            if probability:
                shown = corruptor.apply(test, corruption, level, probability=probability, random_state=seed)
                sound = np.stack([unchanged(test[one], shown[one]) for one in test.names], axis=1)
            for rival, log_p in answers(models, temperature, shown, sound).items():
                p = log_p.softmax(1).numpy()
                figures = 100 * accuracy(y, p.argmax(1)), nll(y, p), 100 * ece(y, p)
                table[rival, name, encoder, probability, f"{corruption} {level}"].append(figures)


def unchanged(before, after):
    return (before == after).reshape(len(before), -1).all(axis=1)


def mean(table, rival, encoder, sets, probability, figure, only=None):
    found = [
        np.mean([one[figure] for one in figures])
        for (who, name, with_encoder, p, what), figures in table.items()
        if (who, with_encoder, p) == (rival, encoder, probability) and name in sets and only in (None, what)
    ]
    return np.mean(found)


def show(table, title, sets, seeds):
    columns = [
        ("clean", 0.0, 0, None),
        ("p=.5", 0.5, 0, None),
        ("swapped", 0.5, 0, "swapped 10"),
        ("σ=2", 0.5, 0, "gaussian 2"),
        ("σ=10", 0.5, 0, "gaussian 10"),
        ("p=.8", 0.8, 0, None),
        ("NLL p=.5", 0.5, 1, None),
        ("ECE p=.5", 0.5, 2, None),
    ]
    print(f"\n{title} (mean of {seeds} seeds, plain MLP / with LayerNorm)")
    print(f"{'':30}" + "".join(f"{head:>14}" for head, *_ in columns))
    for rival in dict.fromkeys(key[0] for key in table):
        cells = []
        for _, probability, figure, only in columns:
            pair = [mean(table, rival, encoder, sets, probability, figure, only) for encoder in ENCODERS]
            cells.append("/".join(f"{one:.2f}" if figure == 1 else f"{one:.1f}" for one in pair))
        print(f"{rival:30}" + "".join(f"{cell:>14}" for cell in cells), flush=True)
    spread = [
        np.std(
            [
                np.mean(
                    [
                        t[seed][0]
                        for key, t in table.items()
                        if key[0] == "bayes-robust" and key[1] in sets and key[2] == encoder and key[3] == 0.5
                    ]
                )
                for seed in range(seeds)
            ]
        )
        for encoder in ENCODERS
    ]
    print("standard deviation over seeds of bayes-robust at p=.5: " + " / ".join(f"{one:.2f}" for one in spread))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=[*SETS, "all"], default=["digits"])
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    table, measured = defaultdict(list), []
    for name in SETS if "all" in arguments.sets else arguments.sets:
        try:
            for encoder in ENCODERS:
                for seed in range(arguments.seeds):
                    measure(name, encoder, seed, table)
        except FileNotFoundError as error:
            print(f"\n{name} is left out: {error}")
            continue
        measured.append(name)
        show(table, name, [name], arguments.seeds)
    if len(measured) > 1:
        show(table, "mean of " + ", ".join(measured), measured, arguments.seeds)


if __name__ == "__main__":
    main()
