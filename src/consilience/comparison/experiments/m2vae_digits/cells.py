"""One job of the experiment: one latent model on one split of the digits, and what it makes of every subset of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from consilience.comparison.plan import Job, digest
from consilience.comparison.store import Result, Store
from consilience.data import DataSet, load_data
from consilience.generative.judging import linear_probe
from consilience.generative.trained import TrainedLatent
from consilience.samples import Samples
from consilience.training import Trainer
from consilience.version import __version__

DATA = "digits"
SIZES = (1, 2, 3)  # quadrants that are given, the others are generated


@dataclass(frozen=True)
class Variant:
    """A latent model to be compared: its objective with settings, and the encoder of subsets where not the default."""

    objective: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    subset_encoder: str | None = None


VARIANTS: dict[str, Variant] = {
    "m2vae": Variant("m2vae"),
    "m2vae, chain": Variant("m2vae", {"subsets": "chain"}),
    "m2vae, tight": Variant("m2vae", {"bound": "tight"}),
    "m2vae, tight, chain": Variant("m2vae", {"bound": "tight", "subsets": "chain"}),
    "joint": Variant("joint", subset_encoder="poe"),
    "jmvae": Variant("jmvae"),
    "mvae": Variant("mvae"),
    "mmvae": Variant("mmvae"),
    "mopoe": Variant("mopoe"),
    "mvtcae": Variant("mvtcae"),
}


@dataclass(frozen=True)
class Protocol:
    """What decides the numbers; the defaults are the experiment at full size. draws: K of importance sampling."""

    variants: tuple[str, ...] = tuple(VARIANTS)
    seeds: int = 10
    latent: int = 16
    epochs: int = 300
    patience: int = 30
    batch_size: int = 64
    lr: float = 0.001
    draws: int = 1000

    def cells(self) -> list[Cell]:
        """Every job, all variants of one seed before the next seed."""
        return [Cell.of(self, name, seed) for seed in range(self.seeds) for name in self.variants]

    def asked(self) -> dict[str, Any]:
        """What a run folder must have been made with, in JSON values."""
        return {"experiment": "m2vae-digits", **asdict(self), "variants": list(self.variants), "version": __version__}


FULL = Protocol()
QUICK = Protocol(seeds=3, epochs=60, patience=15, draws=300)


@dataclass(frozen=True)
class Cell(Job):
    """One variant with one seed, which also draws the split."""

    @classmethod
    def of(cls, protocol: Protocol, name: str, seed: int) -> Cell:
        """The cell of a protocol."""
        shared = {key: value for key, value in protocol.asked().items() if key not in ("variants", "seeds")}
        return cls(DATA, name, seed, "", digest({**shared, "variant": name, "seed": seed}))

    def describe(self) -> str:
        """In one phrase, for progress and messages."""
        return f"{self.method}, seed {self.seed}"


def measure_cell(cell: Job, protocol: Protocol, store: Store) -> Result:
    """Train one variant and measure it on the test part, as the engine of comparisons asks for it."""
    variant, began = VARIANTS[cell.method], time.perf_counter()
    data = load_data(DATA, seed=cell.seed)
    trained = TrainedLatent.fit(
        data.train,
        data.validation,
        objective=variant.objective,
        settings=dict(variant.settings),
        subset_encoder=variant.subset_encoder,
        latent=protocol.latent,
        trainer=Trainer(
            epochs=protocol.epochs,
            patience=protocol.patience,
            batch_size=protocol.batch_size,
            lr=protocol.lr,
            seed=cell.seed,
            device="cpu",
        ),
    )
    seconds = time.perf_counter() - began
    arrays, about = measure(trained, data, protocol.draws)
    rows = sum(len(log.rows) for log in trained.logs)
    return Result({**about, "seconds": seconds, "epochs": rows}, arrays)


def measure(trained: TrainedLatent, data: DataSet, draws: int) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Each test sample's figures, the mean over all subsets of a size: `[size, n]` each, and `joint` `[n]`."""
    test = data.test
    classifier = PixelClassifier(data.train)
    joint = trained.log_likelihood(test, draws=draws, device="cpu")
    found: dict[str, list[np.ndarray]] = {"squared_error": [], "conditional": [], "coherent": []}
    effective = [joint.effective_samples]
    for size in SIZES:
        each: dict[str, list[np.ndarray]] = {name: [] for name in found}
        for given in itertools.combinations(test.names, size):
            of = [name for name in test.names if name not in given]
            made = trained.generate(test, of, given, device="cpu")
            apart = np.concatenate([test[name] - made[name] for name in of], axis=1)
            each["squared_error"].append(np.square(apart.astype(np.float64)).mean(axis=1))
            evidence = trained.log_likelihood(test, list(given), draws=draws, device="cpu")
            effective.append(evidence.effective_samples)
            each["conditional"].append((joint.value - evidence.value).numpy())
            each["coherent"].append(classifier.predict({**dict(test), **made}) == test.y)
        for name, values in each.items():
            found[name].append(np.mean(values, axis=0))
    arrays = {name: np.stack(values) for name, values in found.items()}
    arrays |= {"joint": joint.value.numpy(), "index": test.index}
    latents = [trained.encode(part, device="cpu")[0] for part in (data.train, test)]
    about = {
        "classifier": float(np.mean(classifier.predict(test) == test.y)),
        "probe": linear_probe(latents[0], np.asarray(data.train.y), latents[1], np.asarray(test.y)),
        "effective_samples": float(np.median(np.concatenate([one.numpy() for one in effective]))),
    }
    return arrays, about


class PixelClassifier:
    """A support vector machine on the pixels of all quadrants: the judge of whether what is generated fits."""

    def __init__(self, train: Samples):
        from sklearn.svm import SVC

        self.names = train.names
        self._machine = SVC(gamma="scale", C=10.0).fit(self._pixels(train), train.y)

    def predict(self, samples: Any) -> np.ndarray:
        """Labels `[n]` of a mapping with all quadrants."""
        return self._machine.predict(self._pixels(samples))

    def _pixels(self, samples: Any) -> np.ndarray:
        return np.concatenate([samples[name] for name in self.names], axis=1)
