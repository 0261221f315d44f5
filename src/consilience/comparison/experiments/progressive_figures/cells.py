"""The trainings behind figures 6, 10a and 10b: one job for each loop and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from consilience.comparison.experiments.progressive_avmnist import BUILD, INTO, LOOP, QUICK_BUILD, TRAINING
from consilience.comparison.experiments.progressive_figures import NAME
from consilience.comparison.experiments.progressive_figures.timing import time_depths
from consilience.comparison.experiments.study import measure_at_once
from consilience.comparison.plan import Job, digest
from consilience.comparison.store import Result, Store
from consilience.core.modalities import Modality
from consilience.core.samples import Samples
from consilience.data import DataSet, load_data
from consilience.encoders import build_encoder
from consilience.evaluation.loop_diagnostics import probe_steps, step_through
from consilience.methods.progressive.looped_encoder import END
from consilience.training import Model, Trainer
from consilience.training.stacked_seeds import fit_together
from consilience.version import __version__


@dataclass(frozen=True)
class Unrolled:
    """A base method in a loop. into: modality and stage that hears what was fused, of each · probed: linearly."""

    method: str
    steps: int
    into: tuple[tuple[str, str], ...]
    probed: bool = False

    @property
    def name(self) -> str:
        """As `build` knows it."""
        return f"{LOOP}:{self.method}"

    @property
    def settings(self) -> dict[str, Any]:
        """As `build` takes them."""
        return {"steps": self.steps, "into": dict(self.into)}


@dataclass(frozen=True)
class Protocol:
    """All that decides the numbers.

    build: options of `av-mnist` · training: settings of `Trainer` · probed: the methods of figure 6, with so many
    passes (probed_steps), whose probes learn from so many pairs (probe_samples) · joined: the method of figure 10a ·
    deep: those of figure 10b, at every one of `depths`, timed with a batch in so many rounds (time_rounds).
    """

    build: Mapping[str, Any] = field(default_factory=lambda: dict(BUILD))
    training: Mapping[str, Any] = field(default_factory=lambda: dict(TRAINING))
    seeds: int = 10
    probed: tuple[str, ...] = ("lowrank", "mfm", "refnet")
    probed_steps: int = 4
    probe_samples: int = 5000
    joined: str = "concat"
    deep: tuple[str, ...] = ("concat", "lowrank")
    depths: tuple[int, ...] = (1, 2, 3, 4)
    time_rounds: int = 20

    @property
    def experiment(self) -> str:
        """The name it is asked for by."""
        return NAME

    def places(self) -> list[dict[str, str]]:
        """Where feedback may join both encoders, from their beginnings to their ends."""
        side = self.build.get("side", 112)
        shapes = {"image": (1, 28, 28), "audio": (1, side, side)}
        encoders = {name: build_encoder(Modality(name, "image", shape), None) for name, shape in shapes.items()}
        return step_through({name: [*encoder.stages, END] for name, encoder in encoders.items()})

    def probing(self) -> list[Unrolled]:
        """The loops of figure 6."""
        return [Unrolled(method, self.probed_steps, _into(INTO), probed=True) for method in self.probed]

    def joining(self) -> list[Unrolled]:
        """The loops of figure 10a, in the order of their places."""
        return [self._plain(self.joined, 2, place) for place in self.places()]

    def deepening(self) -> list[Unrolled]:
        """The loops of figure 10b."""
        return [self._plain(method, steps, _into(INTO)) for method in self.deep for steps in self.depths]

    def _plain(self, method: str, steps: int, into: Any) -> Unrolled:
        """A loop that is no figure's alone: what is probed too is trained once."""
        place = tuple(sorted(dict(into).items()))
        known = [one for one in self.probing() if (one.method, one.steps, one.into) == (method, steps, place)]
        return known[0] if known else Unrolled(method, steps, place)

    def cells(self) -> list[Cell]:
        """Every job; seeds outermost, so that a run stopped early has something of every figure."""
        loops = dict.fromkeys([*self.probing(), *self.joining(), *self.deepening()])
        trained = [Cell.of(self, one, seed) for seed in range(self.seeds) for one in loops]
        return [*(Cell.timing(self, method) for method in self.deep), *trained]

    def asked(self) -> dict[str, Any]:
        """What a run folder must have been made with, in JSON values."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {"experiment": NAME, **plain, "version": __version__}


FULL = Protocol()
QUICK = Protocol(
    build={**BUILD, **QUICK_BUILD, "n": 1500},
    training={**TRAINING, "epochs": 5, "batch_size": 32},
    seeds=2,
    probed_steps=3,
    probe_samples=800,
    deep=("concat",),
    depths=(1, 2, 3),
    time_rounds=8,
)


@dataclass(frozen=True)
class Cell(Job):
    """One job: a loop trained with one seed, scored, and where figure 6 asks for it probed; or a method's loops timed.

    loop: None where the job is to time a method at every depth.
    """

    loop: Unrolled | None = None

    @classmethod
    def of(cls, protocol: Protocol, loop: Unrolled, seed: int) -> Cell:
        """The cell of a protocol."""
        shared = {name: protocol.asked()[name] for name in ("build", "training", "probe_samples", "version")}
        key = digest({**shared, "loop": asdict(loop), "seed": seed})
        return cls("av-mnist", loop.name, seed, "", key, loop)

    @classmethod
    def timing(cls, protocol: Protocol, method: str) -> Cell:
        """The cell that times a method at every depth."""
        shared = {name: protocol.asked()[name] for name in ("build", "training", "depths", "time_rounds", "version")}
        return cls("av-mnist", f"{LOOP}:{method}", 0, "", digest({**shared, "timed": method}))

    def describe(self) -> str:
        """In one phrase, for progress and messages."""
        if self.loop is None:
            return f"time of {self.method}"
        into = ", ".join(f"{name} {stage}" for name, stage in self.loop.into)
        return f"{self.method} with R = {self.loop.steps} into {into}, seed {self.seed}"


def measure_cell(cell: Job, protocol: Protocol, store: Store) -> Result:
    """One cell, as the engine of comparisons asks for it."""
    assert isinstance(cell, Cell)
    data = load_pairs(protocol)
    if cell.loop is None:
        settings = [Unrolled("", steps, _into(INTO)).settings for steps in protocol.depths]
        size = protocol.training["batch_size"]
        times = time_depths(data, cell.method, settings, samples=size, rounds=protocol.time_rounds)
        return Result({"times": dict(zip(map(str, protocol.depths), times))})
    trainer = Trainer(**{**protocol.training, "seed": cell.seed, "on_interrupt": "raise"})
    model = Model.fit(cell.loop.name, data.train, data.validation, settings=cell.loop.settings, trainer=trainer)
    return look_into(cell, protocol, data, model)


def measure_cells(cells: Sequence[Cell], protocol: Protocol) -> list[Result]:
    """Cells of one loop, their seeds side by side."""
    data = load_pairs(protocol)
    loop, seeds = cells[0].loop, [cell.seed for cell in cells]
    assert loop is not None
    trainer = Trainer(**protocol.training)
    parts = [(data.train, data.validation)] * len(seeds)
    models = fit_together(loop.name, parts, seeds, settings=loop.settings, trainer=trainer)
    return [look_into(cell, protocol, data, model) for cell, model in zip(cells, models)]


def measure_on_gpu(cells: Sequence[Cell], protocol: Protocol, store: Store) -> None:
    """The open seeds of each loop side by side."""
    for loop in dict.fromkeys(cell.loop for cell in cells if cell.loop is not None):
        same = [cell for cell in cells if cell.loop == loop]
        measure_at_once(same, lambda todo: measure_cells(todo, protocol), store)


def look_into(cell: Cell, protocol: Protocol, data: DataSet, model: Model) -> Result:
    """What one trained loop scores on test and validation pairs, and what probes read in its passes."""
    about = {
        "value": accuracy(model, data.test),
        "validation": accuracy(model, data.validation),
        "parameters": sum(one.numel() for one in model.method.parameters()),
        "device": str(next(model.method.parameters()).device),
        "sizes": data.sizes,
        "probes": [],
    }
    if cell.loop is not None and cell.loop.probed:
        some = data.train[: protocol.probe_samples]  # the pairs lie in MNIST's order, which is none
        about["probes"] = probe_steps(model, some, data.test).to_dicts()
    return Result(about)


def accuracy(model: Model, samples: Samples) -> float:
    """The share of samples that a model is right about."""
    return float((model.task.decode(model.predict(samples).output.numpy()) == samples.y).mean())


def load_pairs(protocol: Protocol) -> DataSet:
    """The pairs of a protocol, read once by a process."""
    return _load(tuple(sorted(protocol.build.items())))


@cache
def _load(build: tuple[tuple[str, Any], ...]) -> DataSet:
    return load_data("av-mnist", **dict(build))


def _into(stage: str) -> tuple[tuple[str, str], ...]:
    return (("audio", stage), ("image", stage))
