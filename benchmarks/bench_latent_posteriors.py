"""How much of a latent model's likelihood its learned posterior keeps, and its imputations against simple rivals.

On digits in quadrants, two of them given: the error of the other two by the decoder's mean at the posterior's mean and
by the mean over draws from the posterior, beside 10 nearest neighbours and ridge regression; log p(rest | given) of the
model, whose posterior is exact, and of what it generates, whose posterior is the learned one; and log p of the last
quadrant given none, one, two and three of the others. All parts change with the seed; figures are of the test part.

    python benchmarks/bench_latent_posteriors.py --seeds 3
    python benchmarks/bench_latent_posteriors.py --keep docs/latent.json && python docs/latent_tables.py
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor

import consilience as cs

GIVEN, REST = ["top_left", "top_right"], ["bottom_left", "bottom_right"]
LAST = "bottom_right"
MODELS = {
    "m2vae": {},
    "m2vae, chain": {"subsets": "chain"},
    "m2vae, tight": {"bound": "tight"},
    "m2vae, tight, set encoder": {"bound": "tight", "subset_encoder": "set"},
    "joint": {"subset_encoder": "poe"},
    "jmvae": {},
    "mopoe": {},
    "mvtcae": {},
}
NEIGHBOURS, PENALTIES = 10, np.logspace(-2, 6, 17)


def side_by_side(samples, names):
    return np.concatenate([samples[name] for name in names], axis=1).astype(np.float64)


def error(made, samples):
    """Root mean square error over all numbers of the modalities."""
    return float(np.sqrt(np.mean((made - side_by_side(samples, REST)) ** 2)))


def rivals(data):
    """Errors of models that map the given modalities to the others; the penalty of ridge by leave-one-out."""
    X, y = side_by_side(data.train, GIVEN), side_by_side(data.train, REST)
    asked = side_by_side(data.test, GIVEN)
    found = {
        f"{NEIGHBOURS} nearest neighbours": KNeighborsRegressor(NEIGHBOURS).fit(X, y).predict(asked),
        "ridge regression": RidgeCV(PENALTIES).fit(X, y).predict(asked),
    }
    return {name: {"averaged": error(made, data.test)} for name, made in found.items()}


def latent(name, data, seed, draws):
    objective, settings = name.partition(",")[0], MODELS[name]
    model = cs.MultimodalVAE(objective, validation=data.validation, random_state=seed, device="cpu", **settings)
    model.fit(data.train)
    seen = data.test.only(GIVEN)
    at_mean = model.generate(REST, given=seen)
    averaged = model.impute(seen)
    found = {
        "at mean": error(np.concatenate([at_mean[each] for each in REST], axis=1), data.test),
        "averaged": error(side_by_side(averaged, REST), data.test),
    }
    for which, learned in (("model", False), ("generated", True)):
        values = model.log_likelihood(data.test, REST, GIVEN, importance_samples=draws, learned_posterior=learned)
        found[which] = float(values.mean())
        for count in range(len(data.train.names)):
            given = list(data.train.names[:count])
            values = model.log_likelihood(data.test, [LAST], given, importance_samples=draws, learned_posterior=learned)
            found[f"{which}, {count} given"] = float(values.mean())
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--draws", type=int, default=300, help="importance samples")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="a JSON file to put the figures into")
    asked = parser.parse_args()
    found = {}
    for seed in range(asked.first, asked.first + asked.seeds):
        data = cs.load_data("digits").resplit(seed)
        own = rivals(data)
        for name in asked.models:
            own[name] = latent(name, data, seed, asked.draws)
            print(
                f"seed {seed}, {name}: " + ", ".join(f"{key} {value:.2f}" for key, value in own[name].items()),
                flush=True,
            )
        for name, figures in own.items():
            for key, value in figures.items():
                found.setdefault(name, {}).setdefault(key, []).append(round(value, 4))
    for name, figures in found.items():
        print(
            f"{name}: "
            + ", ".join(f"{key} {np.mean(value):.2f} ± {np.std(value):.2f}" for key, value in figures.items())
        )
    if asked.keep:
        content = json.loads(asked.keep.read_text(encoding="utf-8")) if asked.keep.exists() else {}
        content["posteriors"] = {"seeds": asked.seeds, "first": asked.first, "draws": asked.draws, "found": found}
        asked.keep.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
