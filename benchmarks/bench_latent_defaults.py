"""The settings that the defaults of `MultimodalVAE` were chosen from, on validation samples of digits in quadrants.

An eighth of a split's training part stops the training, the rest is learned from, and the validation part of the split
is asked for: the root mean square error of two quadrants given the other two, averaged over draws, over three choices,
without the regression that `impute` has beside the model.

    python benchmarks/bench_latent_defaults.py --seeds 1
    python benchmarks/bench_latent_defaults.py --keep docs/latent.json && python docs/latent_tables.py
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor

import consilience as cs

FIRST = 100  # seeds of the splits
OLD = {"bound": "paper", "subsets": "all", "subset_encoder": "trunk", "encoder": [128, 64], "decoder": [64, 128]}
IN_EPOCHS = {"epochs": 100, "batch_size": 64, "patience": 15}
SET = OLD | {"bound": "tight", "subset_encoder": "set"}
CHAIN = SET | {"subsets": "chain"}
WIDE = CHAIN | {"encoder": [256, 128], "decoder": [256]}
VARIANTS = {
    "paper, all subsets, a head each, 100 epochs": OLD | IN_EPOCHS,
    "tight": OLD | IN_EPOCHS | {"bound": "tight"},
    "tight, set encoder": SET | IN_EPOCHS,
    "tight, 4000 steps": OLD | {"bound": "tight"},
    "tight, set encoder, 4000 steps": SET,
    "the same, chain": CHAIN,
    "the same, decoders of 128 and 256": SET | {"decoder": [128, 256]},
    "the same, encoders of 256 and 128, decoders of 256": SET | {"encoder": [256, 128], "decoder": [256]},
    "the same, averaged weights": SET | {"average": 0.99},
    "chain and these networks (the default)": WIDE,
    "the default, encoders of 512 and 256, decoders of 512": WIDE | {"encoder": [512, 256], "decoder": [512]},
    "the default without norm layers": WIDE | {"normalise": False},
    "the default, weight decay 0.05": WIDE | {"optimizer": "adamw", "weight_decay": 0.05},
    "the default, 32 latent dimensions": WIDE | {"latent": 32},
    "the default, a scale for each pixel": WIDE | {"scale": "feature"},
    "the default, cosine schedule, averaged weights": WIDE
    | {"schedule": "cosine", "lr": 2e-3, "patience": None, "average": 0.99},
}
RIVALS = {
    "10 nearest neighbours": lambda: KNeighborsRegressor(10),
    "ridge regression": lambda: RidgeCV(np.logspace(-2, 6, 17)),
}
CHOICES = (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))


def side_by_side(samples, names):
    return np.concatenate([np.asarray(samples[name]) for name in names], axis=1).astype(np.float64)


def error(asked, make):
    """make: names given, names of the rest → `[n, pixel]`."""
    squares = []
    for choice in CHOICES:
        given, rest = ([asked.names[place] for place in places] for places in choice)
        squares.append(np.mean((make(given, rest) - side_by_side(asked, rest)) ** 2))
    return float(np.sqrt(np.mean(squares)))


def measure(name, seed):
    """The error, and seconds of processor time for the training."""
    data = cs.load_data("digits").resplit(FIRST + seed)
    asked, order = data.validation, np.random.default_rng(seed).permutation(len(data.train))
    if name in RIVALS:
        train = data.train

        def make_rival(given, rest):
            model = RIVALS[name]().fit(side_by_side(train, given), side_by_side(train, rest))
            return model.predict(side_by_side(asked, given))

        return error(asked, make_rival), 0.0
    held = len(order) // 8
    stop, train = data.train[np.sort(order[:held])], data.train[np.sort(order[held:])]
    settings = dict(VARIANTS[name])
    network = {"name": "mlp", "hidden": settings.pop("encoder"), "dropout": 0.0}
    network["normalise"] = settings.pop("normalise", True)
    decoder = {"name": "mlp", "hidden": settings.pop("decoder")}
    likelihood = {"name": "gaussian", "scale": settings.pop("scale", "modality")}
    each = {
        key: dict.fromkeys(train.names, choice)
        for key, choice in (("encoders", network), ("decoders", decoder), ("likelihoods", likelihood))
    }
    began = time.process_time()
    settings = {"regression_features": 0, "validation": stop, "random_state": seed, "device": "cpu", **settings}
    model = cs.MultimodalVAE(**each, **settings).fit(train)
    seconds = time.process_time() - began
    return error(asked, lambda given, rest: side_by_side(model.impute(asked.only(given)), rest)), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--keep", type=Path, metavar="FILE", help="a JSON file to put the figures into")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for name in (*RIVALS, *asked.variants):
        for seed in range(asked.seeds):
            value, seconds = measure(name, seed)
            one = found.setdefault(name, {"error": [], "seconds": []})
            one["error"].append(round(value, 4))
            one["seconds"].append(round(seconds, 1))
            print(f"{name}, seed {seed}: {value:.3f}, {seconds:.0f} s", flush=True)
    if asked.keep:
        content = json.loads(asked.keep.read_text(encoding="utf-8")) if asked.keep.exists() else {}
        content["choice"] = found
        asked.keep.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
