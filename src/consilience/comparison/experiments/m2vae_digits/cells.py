"""One job of the experiment: one latent model on one split of pictures cut into parts, and what it makes of every
subset of the parts.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
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

# Below so many effective draws an estimated log-likelihood is not to be leaned on.
FEW_DRAWS = 10


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
    """What decides the numbers; the defaults are the experiment on digits at full size.

    parts: what a set of whole pictures is cut into, None for one that is cut already · most: samples at most of train,
    validation and test, drawn with the seed · draws: K of importance sampling.
    """

    experiment: str = "m2vae-digits"
    data: str = "digits"
    parts: str | None = None
    count: int = 4
    most: tuple[int, int, int] | None = None
    variants: tuple[str, ...] = tuple(VARIANTS)
    seeds: int = 10
    latent: int = 16
    epochs: int = 300
    patience: int = 30
    batch_size: int = 64
    lr: float = 0.001
    draws: int = 1000

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many of the parts are given, the others being generated."""
        return tuple(range(1, self.count))

    def cells(self) -> list[Cell]:
        """Every job, all variants of one seed before the next seed."""
        return [Cell.of(self, name, seed) for seed in range(self.seeds) for name in self.variants]

    def asked(self) -> dict[str, Any]:
        """What a run folder must have been made with, in JSON values."""
        asked = {**asdict(self), "variants": list(self.variants), "version": __version__}
        return asked | {"most": None if self.most is None else list(self.most)}

    def load(self, seed: int) -> DataSet:
        """The data with the split of a seed."""
        options: dict[str, Any] = {} if self.parts is None else {"parts": self.parts}
        return load_data(self.data, seed=seed, **options)


@dataclass(frozen=True)
class Cell(Job):
    """One variant with one seed, which also draws the split."""

    @classmethod
    def of(cls, protocol: Protocol, name: str, seed: int) -> Cell:
        """The cell of a protocol."""
        shared = {key: value for key, value in protocol.asked().items() if key not in ("variants", "seeds")}
        return cls(protocol.data, name, seed, "", digest({**shared, "variant": name, "seed": seed}))

    def describe(self) -> str:
        """In one phrase, for progress and messages."""
        return f"{self.method}, seed {self.seed}"


def measure_cell(cell: Job, protocol: Protocol, store: Store) -> Result:
    """Train one variant and measure it on the test part, as the engine of comparisons asks for it."""
    variant, began = VARIANTS[cell.method], time.perf_counter()
    data = protocol.load(cell.seed)
    train, validation, test = (
        some_of(part, most, cell.seed)
        for part, most in zip((data.train, data.validation, data.test), protocol.most or (None,) * 3)
    )
    trained = TrainedLatent.fit(
        train,
        validation,
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
    arrays, about = measure(trained, train, test, protocol)
    rows = sum(len(log.rows) for log in trained.logs)
    return Result({**about, "seconds": seconds, "epochs": rows}, arrays)


def some_of(samples: Samples, most: int | None, seed: int) -> Samples:
    """At most so many, drawn at random."""
    if most is None or len(samples) <= most:
        return samples
    return samples[np.sort(np.random.default_rng(seed).permutation(len(samples))[:most])]


def measure(
    trained: TrainedLatent, train: Samples, test: Samples, protocol: Protocol
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Each test sample's figures, the mean over all subsets of a size: `[size, n]` each, and `joint` `[n]`."""
    draws = protocol.draws
    classifier = PixelClassifier(train)
    joint = trained.log_likelihood(test, draws=draws, device="cpu")
    found: dict[str, list[np.ndarray]] = {"squared_error": [], "conditional": [], "coherent": []}
    effective = [joint.effective_samples]
    for size in protocol.sizes:
        each: dict[str, list[np.ndarray]] = {name: [] for name in found}
        for given in itertools.combinations(test.names, size):
            of = [name for name in test.names if name not in given]
            made = trained.generate(test, of, given, device="cpu")
            apart = flat(test, of) - flat(made, of)
            each["squared_error"].append(np.square(apart).mean(axis=1))
            evidence = trained.log_likelihood(test, list(given), draws=draws, device="cpu")
            effective.append(evidence.effective_samples)
            each["conditional"].append((joint.value - evidence.value).numpy())
            each["coherent"].append(classifier.predict({**dict(test), **made}) == test.y)
        for name, values in each.items():
            found[name].append(np.mean(values, axis=0))
    arrays = {name: np.stack(values) for name, values in found.items()}
    arrays |= {"joint": joint.value.numpy(), "index": test.index}
    latents = [trained.encode(part, device="cpu")[0] for part in (train, test)]
    effective_draws = np.concatenate([one.numpy() for one in effective])
    about = {
        "classifier": float(np.mean(classifier.predict(test) == test.y)),
        "probe": linear_probe(latents[0], np.asarray(train.y), latents[1], np.asarray(test.y)),
        "effective_samples": float(np.median(effective_draws)),
        "few_draws": float(np.mean(effective_draws < FEW_DRAWS)),
    }
    return arrays, about


class PixelClassifier:
    """A support vector machine on the pixels of all parts: the judge of whether what is generated fits."""

    def __init__(self, train: Samples):
        from sklearn.svm import SVC

        self.names = train.names
        self._machine = SVC(gamma="scale", C=10.0).fit(flat(train, self.names), train.y)

    def predict(self, samples: Any) -> np.ndarray:
        """Labels `[n]` of a mapping with all parts."""
        return self._machine.predict(flat(samples, self.names))


def flat(samples: Any, names: Sequence[str]) -> np.ndarray:
    """The pixels of some parts in one row a sample: `[n, pixel]`."""
    return np.concatenate(
        [np.asarray(samples[name], dtype=np.float64).reshape(len(samples[name]), -1) for name in names], 1
    )
