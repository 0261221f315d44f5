"""The grid of experiment B.1, and the work on its cells: data of all trials, every net trained on them side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from consilience.comparison.experiments.progressive_synthetic.nets import MAIN, NETS
from consilience.comparison.experiments.study import measure_at_once
from consilience.comparison.plan import Job, digest
from consilience.comparison.store import Result, Store
from consilience.data import load_data
from consilience.training.settings import TrainingSettings
from consilience.training.stacked_data import Trials
from consilience.training.stacked_training import train_side_by_side
from consilience.version import __version__

DATA = "progressive-synthetic"


@dataclass(frozen=True)
class Protocol:
    """What decides the numbers; the defaults are the experiment at full size.

    sizes: training samples n; a quarter as many validate · etas: η, how far x2's content disturbs x1 · sigmas: σ₂,
    the noise of x2 · trials: draws of matrices, data and first weights; trial k is the same draw in every cell.
    """

    sizes: tuple[int, ...] = (200, 1500, 20_000)
    etas: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0)
    sigmas: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    trials: int = 30
    test: int = 10_000
    d: int = 4
    nets: tuple[str, ...] = tuple(NETS)
    epochs: int = 80
    patience: int = 15
    lr: float = 0.003

    @property
    def experiment(self) -> str:
        """The name it is asked for by."""
        return DATA

    def batch_size(self, size: int) -> int:
        """Some thirty steps an epoch for small sets, more for large ones.

        >>> Protocol().batch_size(200), Protocol().batch_size(20_000)
        (16, 256)
        """
        return min(max(size // 32, 16), 256)

    def cells(self) -> list[Cell]:
        """Every cell, the smaller sizes first: they are done soon."""
        return [Cell.of(self, n, eta, sigma) for n in self.sizes for eta in self.etas for sigma in self.sigmas]

    def asked(self) -> dict[str, Any]:
        """What a run folder must have been made with, in JSON values."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {"experiment": DATA, **plain, "version": __version__}


FULL = Protocol()
QUICK = Protocol(
    sizes=(200, 2000),
    etas=(0.0, 1.0, 2.0),
    sigmas=(0.0, 0.5, 1.0),
    trials=6,
    test=4000,
    nets=(*MAIN, "add-2"),
    epochs=40,
    patience=8,
)


@dataclass(frozen=True)
class Cell(Job):
    """One job: all trials of all nets at one n, η and σ₂."""

    n: int = 0
    eta: float = 0.0
    sigma: float = 0.0

    @classmethod
    def of(cls, protocol: Protocol, n: int, eta: float, sigma: float) -> Cell:
        """The cell of a protocol."""
        shared = {name: value for name, value in protocol.asked().items() if name not in ("sizes", "etas", "sigmas")}
        key = digest({**shared, "n": n, "eta": eta, "sigma": sigma})
        return cls(DATA, "all nets", 0, "", key, n, eta, sigma)

    def describe(self) -> str:
        """In one phrase, for progress and messages."""
        return f"n = {self.n}, η = {self.eta:g}, σ₂ = {self.sigma:g}"


def measure_cell(cell: Job, protocol: Protocol, store: Store) -> Result:
    """One cell, as the engine of comparisons asks for it."""
    assert isinstance(cell, Cell)
    return measure_cells([cell], protocol)[0]


def measure_cells(cells: Sequence[Cell], protocol: Protocol, device: str = "cpu") -> list[Result]:
    """Cells of one n, the trials of all of them side by side: on a GPU a single cell would leave it idle.

    Each result has the arrays `NET/validation`, `NET/test` (mean squared error in units of the target's variance on
    the training data) and `NET/epochs`, all `[trial]`.
    """
    parts = [part.to(device) for part in draw_cells(cells, protocol)]
    results = [Result({"n": cell.n, "eta": cell.eta, "sigma": cell.sigma, "nets": {}}) for cell in cells]
    for name in protocol.nets:
        found, about = measure_net(name, protocol, *parts)
        for place, result in enumerate(results):
            mine = slice(place * protocol.trials, (place + 1) * protocol.trials)
            result.arrays |= {f"{name}/{what}": values[mine] for what, values in found.items()}
            result.about["nets"][name] = {**about, "seconds": about["seconds"] / len(cells)}
    return results


def measure_on_gpu(cells: Sequence[Cell], protocol: Protocol, store: Store) -> None:
    """The open cells of each size side by side."""
    for n in protocol.sizes:
        same = [cell for cell in cells if cell.n == n]
        measure_at_once(same, lambda todo: measure_cells(todo, protocol, "cuda"), store)


def measure_net(
    name: str, protocol: Protocol, train: Trials, validation: Trials, test: Trials
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """One net on every trial: its errors and epochs `[trial]`, and what is to be known of it."""
    began = time.perf_counter()
    # Trial k begins with the same weights in every cell; stacking copies them.
    methods = NETS[name].build(protocol.d, range(protocol.trials)) * (len(train) // protocol.trials)
    settings: dict[str, Any] = {
        "epochs": protocol.epochs,
        "patience": protocol.patience,
        "lr": protocol.lr,
        "batch_size": protocol.batch_size(train.samples),
        **NETS[name].training,
    }
    trained = train_side_by_side(methods, train, validation, TrainingSettings(**settings))
    found = {"validation": trained.losses, "test": trained.measure(test), "epochs": trained.epochs}
    about = {
        "parameters": sum(one.numel() for one in methods[0].parameters()),
        "seconds": time.perf_counter() - began,
        "device": train.y.device.type,
    }
    return {what: values.cpu().numpy() for what, values in found.items()}, about


def draw_cells(cells: Sequence[Cell], protocol: Protocol) -> tuple[Trials, Trials, Trials]:
    """Training, validation and test data of every trial of every cell, standardised by each trial's training data."""

    def draw(place: tuple[Cell, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        cell, trial = place
        total = cell.n + cell.n // 4 + protocol.test
        data = load_data(DATA, n=total, d=protocol.d, eta=cell.eta, sigma2=cell.sigma, seed=trial)
        return data.samples["x1"], data.samples["x2"], data.y[:, None].astype(np.float32)

    places = [(cell, trial) for cell in cells for trial in range(protocol.trials)]
    with ThreadPoolExecutor() as pool:  # numpy draws its numbers outside the interpreter's lock
        drawn = list(pool.map(draw, places))
    n = cells[0].n
    x1, x2, y = (_standardised(torch.from_numpy(np.stack(part)), n) for part in zip(*drawn))
    whole = Trials({"x1": x1, "x2": x2}, y)
    # The rows are independent draws, so the first of them are as good a split as any.
    return whole.rows(slice(n)), whole.rows(slice(n, n + n // 4)), whole.rows(slice(n + n // 4, None))


def _standardised(values: torch.Tensor, n: int) -> torch.Tensor:
    """`[trial, sample, feature]` less the mean of the first n samples, over their standard deviation."""
    known = values[:, :n]
    return (values - known.mean(dim=1, keepdim=True)) / known.std(dim=1, keepdim=True, correction=0)
