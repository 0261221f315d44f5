"""What the experiment compares, and its jobs: one latent model trained on one split of pictures cut into parts."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from consilience.comparison.experiments.latent_parts.measuring import measure
from consilience.comparison.experiments.latent_parts.pictures import CUTS, Cut, Pictures, prepare
from consilience.comparison.plan import Job, digest, to_json
from consilience.comparison.store import Result, Store
from consilience.methods.latent.trained_latent_model import TrainedLatent
from consilience.training import Trainer
from consilience.training.devices import resolve_device
from consilience.version import __version__


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

    most: samples at most of train, validation and test, drawn with the seed · hidden: widths of each part's encoder,
    whose decoder has them in reverse; None for the defaults by kind · draws: K of importance sampling · estimated: of
    how many test samples likelihoods are estimated, None for all · device: where; no result is named by it.
    """

    experiment: str = "m2vae-digits"
    cuts: tuple[Cut, ...] = (CUTS["digits"],)
    variants: tuple[str, ...] = tuple(VARIANTS)
    seeds: int = 10
    most: tuple[int, int, int] | None = None
    latent: int = 16
    hidden: tuple[int, ...] | None = None
    epochs: int = 300
    patience: int = 30
    batch_size: int = 64
    lr: float = 0.001
    draws: int = 1000
    estimated: int | None = None
    device: str = "cpu"

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> Protocol:
        """The protocol that a run folder was made with, from what its plan says was asked."""
        own = {name: value for name, value in asked.items() if name not in ("data", "version")}
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in own.items()
        }
        return cls(**plain | {"cuts": tuple(Cut(**cut) for cut in asked["cuts"])})

    def cells(self) -> list[Cell]:
        """Every job, all variants of one seed before the next seed."""
        shared = {name: value for name, value in self.asked().items() if name not in ("cuts", "variants", "seeds")}
        return [
            Cell.of(shared, cut, name, seed)
            for seed in range(self.seeds)
            for cut in self.cuts
            for name in self.variants
        ]

    def asked(self) -> dict[str, Any]:
        """What a run folder must have been made with, in JSON values; the pictures are known by their content."""
        asked = {name: value for name, value in asdict(self).items() if name != "device"}
        data = {cut.name: cut.source.fingerprint() for cut in self.cuts}
        return json.loads(to_json({**asked, "data": data, "version": __version__}))


@dataclass(frozen=True)
class Cell(Job):
    """One variant on one cut with one seed, which also draws the split."""

    @classmethod
    def of(cls, shared: Mapping[str, Any], cut: Cut, name: str, seed: int) -> Cell:
        """The cell of a protocol. shared: what all its cells are asked."""
        fingerprint = shared["data"][cut.name]
        key = digest({**shared, "data": fingerprint, "cut": asdict(cut), "variant": name, "seed": seed})
        return cls(cut.name, name, seed, fingerprint, key)


def measure_cell(cell: Job, protocol: Protocol, store: Store) -> Result:
    """Train one variant and measure it on the test part, as the engine of comparisons asks for it."""
    cut = next(one for one in protocol.cuts if one.name == cell.source)
    pictures = prepare(cut, protocol.most, cell.seed)
    began = time.perf_counter()
    trained = train(VARIANTS[cell.method], cut, pictures, protocol, cell.seed)
    seconds = time.perf_counter() - began
    arrays, about = measure(
        trained, pictures, cut.sizes, draws=protocol.draws, estimated=protocol.estimated, device=protocol.device
    )
    about |= {
        "seconds": seconds,
        "measuring_seconds": time.perf_counter() - began - seconds,
        "epochs": sum(len(log.rows) for log in trained.logs),
        "device": str(resolve_device(protocol.device)),
    }
    return Result(about, arrays)


def train(variant: Variant, cut: Cut, pictures: Pictures, protocol: Protocol, seed: int) -> TrainedLatent:
    """A variant, trained until it no longer gets better on validation data."""
    names = pictures.train.names
    nets: dict[str, Any] = {}
    if protocol.hidden is not None:
        nets["encoders"] = {name: {"name": "mlp", "hidden": list(protocol.hidden)} for name in names}
        nets["decoders"] = {name: {"name": "mlp", "hidden": list(reversed(protocol.hidden))} for name in names}
    return TrainedLatent.fit(
        pictures.train,
        pictures.validation,
        objective=variant.objective,
        settings=dict(variant.settings),
        subset_encoder=variant.subset_encoder,
        latent=protocol.latent,
        likelihoods=dict.fromkeys(names, cut.likelihood),
        **nets,
        trainer=Trainer(
            epochs=protocol.epochs,
            patience=protocol.patience,
            batch_size=protocol.batch_size,
            lr=protocol.lr,
            seed=seed,
            device=protocol.device,
            cuda_graphs=True,
            on_interrupt="raise",
        ),
    )
