"""The jobs of the experiment: one objective trained with one seed by the recipe, and its log-likelihoods."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from consilience.comparison.experiments.jmvae_mnist.model import IMAGE, LABEL, fit, published_estimate
from consilience.comparison.experiments.latent_parts.pictures import draw_ink
from consilience.comparison.plan import Job, Source, digest, to_json
from consilience.comparison.store import Result, Store
from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.methods.latent.trained_latent_model import TrainedLatent
from consilience.training import Trainer
from consilience.training.devices import resolve_device
from consilience.version import __version__

DATA = Source("mnist")
# α of the published figure: how strongly the posteriors of one modality are pulled to the joint one.
OBJECTIVES: dict[str, dict[str, Any]] = {"jmvae": {"alpha": 0.1}, "m2vae": {}}


@dataclass(frozen=True)
class Protocol:
    """What decides the numbers; the defaults are the recipe.

    train, test: how many images at most, None for all · warmup: epochs until divergences count in full · draws: K of
    importance sampling · device: where; no result is named by it.
    """

    seeds: int = 10
    train: int | None = None
    test: int | None = None
    latent: int = 64
    hidden: int = 512
    epochs: int = 500
    warmup: int = 200
    batch_size: int = 100
    lr: float = 0.001
    draws: int = 1000
    device: str = "auto"

    @property
    def experiment(self) -> str:
        """The name it is asked for by."""
        return "jmvae-mnist"

    def cells(self) -> list[Job]:
        """Every job, all objectives of one seed before the next seed."""
        shared = self.asked()
        del shared["seeds"]
        return [
            Job(
                DATA.name,
                name,
                seed,
                shared["data"],
                digest({**shared, "objective": name, "settings": settings, "seed": seed}),
            )
            for seed in range(self.seeds)
            for name, settings in OBJECTIVES.items()
        ]

    def asked(self) -> dict[str, Any]:
        """What a run folder must have been made with, in JSON values; the images are known by their content."""
        asked = {name: value for name, value in asdict(self).items() if name != "device"}
        beside = {"experiment": self.experiment, "data": DATA.fingerprint(), "version": __version__}
        return json.loads(to_json(asked | beside))


FULL = Protocol()
QUICK = Protocol(seeds=2, train=5000, test=100, epochs=10, warmup=4, draws=100)


def measure_cell(cell: Job, protocol: Protocol, store: Store) -> Result:
    """Train by the recipe and estimate, as the engine of comparisons asks for it."""
    train, test = images_and_labels(DATA.load(), protocol, cell.seed)
    began = time.perf_counter()
    trainer = Trainer(
        epochs=protocol.epochs,
        patience=None,
        batch_size=protocol.batch_size,
        lr=protocol.lr,
        seed=cell.seed,
        device=protocol.device,
        cuda_graphs=True,
        on_interrupt="raise",
    )
    trained = fit(
        train,
        trainer,
        hidden=protocol.hidden,
        latent=protocol.latent,
        objective=cell.method,
        settings=OBJECTIVES[cell.method],
        warmup=protocol.warmup,
    )
    seconds = time.perf_counter() - began
    arrays, about = measure(trained, test, protocol.draws, protocol.device)
    about |= {
        "seconds": seconds,
        "measuring_seconds": time.perf_counter() - began - seconds,
        "trained_on": len(train),
        "device": str(resolve_device(protocol.device)),
    }
    return Result(about, arrays | {"index": test.index})


def images_and_labels(data: DataSet, protocol: Protocol, seed: int) -> tuple[Samples, Samples]:
    """All that is not for testing, in grey; and the test images, drawn black and white once and for all."""
    tested = data.split == "test"
    parts = []
    for rows, most in ((np.flatnonzero(~tested), protocol.train), (np.flatnonzero(tested), protocol.test)):
        if most is not None and most < len(rows):
            rows = np.sort(np.random.default_rng(seed).permutation(rows)[:most])
        pixels, y = np.asarray(data.samples[IMAGE])[rows], data.y[rows]
        labels = (y[:, None] == np.unique(data.y)).astype(np.float32)
        parts.append((pixels, labels, y, rows))
    (grey, *train), (pixels, *test) = parts
    ink = draw_ink(pixels, np.random.default_rng(0))
    return _samples(grey.astype(np.float32) / 255, *train), _samples(ink.astype(np.float32), *test)


def _samples(images: np.ndarray, labels: np.ndarray, y: np.ndarray, index: np.ndarray) -> Samples:
    return Samples.of({IMAGE: images, LABEL: labels}, y, index=index)


def measure(
    trained: TrainedLatent, test: Samples, draws: int, device: str
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Log-likelihoods of each test sample, `[n]` each: `published`, `image`, `joint`, `label`; and `right`, whether the
    label generated from the image is the true one.
    """
    found = {
        "published": published_estimate(trained, test, draws, device),
        "image": trained.log_likelihood(test, [IMAGE], draws=draws, device=device),
        "joint": trained.log_likelihood(test, draws=draws, device=device),
        "label": trained.log_likelihood(test, [LABEL], draws=draws, device=device),
    }
    guessed = trained.generate(test, [LABEL], [IMAGE], device=device)[LABEL]
    arrays = {name: one.value.numpy() for name, one in found.items()}
    arrays["right"] = guessed.argmax(axis=1) == np.asarray(test[LABEL]).argmax(axis=1)
    return arrays, {"effective": {name: float(one.effective_samples.median()) for name, one in found.items()}}
