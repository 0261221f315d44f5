"""The conditions of the three experiments, and their jobs: one condition with one seed, every way to decide in it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from consilience.comparison.experiments.bayes import linear, predictions
from consilience.comparison.experiments.bayes.deciding import EM, OURS, Decided
from consilience.comparison.plan import Job, Source, digest, to_json
from consilience.comparison.store import Result, Store
from consilience.core.samples import Samples
from consilience.evaluation.classification import accuracy, ece, nll
from consilience.version import __version__

RUNS = 3  # trainings of the networks whose predictions are saved


@dataclass(frozen=True)
class Condition:
    """Under which all ways are compared. kind: in `KINDS` · n: samples to learn from, where that is chosen ·
    reference: the way that the others are compared with · over_n: whether it is a point of the curve over n.
    """

    name: str
    kind: str
    title: str
    n: int | None = None
    reference: str = OURS
    over_n: bool = False


def linear_conditions(n: int) -> tuple[Condition, ...]:
    """Of experts that are trained here; n: as many as there are to learn from."""
    few = tuple(Condition(f"n{few}", "all", f"{few} samples to learn from", few, over_n=True) for few in (300, 100))
    return (
        Condition(f"n{n}", "all", f"{n} samples to learn from", n, over_n=True),
        *few,
        Condition("uneven", "uneven", "Classes 20:1 in learning and in use, n = 600", 600),
        Condition("uneven-last", "uneven, rising", "Classes 1:20 in learning and in use, n = 600", 600),
        Condition("missing", "missing", f"Each modality missing with probability ½ in use, n = {n}", n),
        Condition("reversed", "reversed", "Classes 20:1 in learning and 1:20 in use, n = 600", 600, EM),
    )


PROTOCOLS: dict[str, tuple[str, tuple[Condition, ...]]] = {
    "bayes-digits": ("digits", linear_conditions(900)),
    "bayes-handwritten": ("handwritten", linear_conditions(1000)),
    "bayes-predictions": (
        "avmnist-predictions",
        (
            Condition("pairs", "pairs", "Fusing what the networks said"),
            Condition("missing", "saved, missing", "Each missing with probability ½"),
            Condition("broken", "saved, broken", "Each broken with probability ¼"),
            Condition("shares", "saved, shares", "Classes 20:1 in use", reference=EM),
        ),
    ),
}
KINDS: dict[str, Callable[..., Decided]] = {
    "all": linear.with_all_present,
    "uneven": linear.with_uneven_classes,
    "uneven, rising": partial(linear.with_uneven_classes, rising=True),
    "missing": linear.with_modalities_missing,
    "reversed": linear.with_shares_reversed,
    "pairs": predictions.of_pairs,
    "saved, missing": predictions.with_one_missing,
    "saved, broken": predictions.with_one_broken,
    "saved, shares": predictions.with_other_shares,
}


@dataclass(frozen=True)
class Protocol:
    """What decides the numbers. data: a set by name; of saved predictions, seed k is of training run k mod 3 + 1."""

    experiment: str
    data: str
    conditions: tuple[Condition, ...]
    seeds: int = 10

    def cells(self) -> list[Cell]:
        """Every job, all conditions of one seed before the next seed."""
        fingerprint = self._source().fingerprint()
        return [Cell.of(self, one, seed, fingerprint) for seed in range(self.seeds) for one in self.conditions]

    def asked(self) -> dict[str, Any]:
        """What a run folder must have been made with, in JSON values; the data are known by their content."""
        data = {self.data: self._source().fingerprint()}
        return json.loads(to_json({**asdict(self), "data": data, "version": __version__}))

    def load(self, seed: int) -> Samples:
        """All samples; which of them are learned from, each condition draws itself."""
        run = {"run": seed % RUNS + 1} if self.data == "avmnist-predictions" else {}
        return replace(self._source(), options=run).load().samples

    def _source(self) -> Source:
        return Source.of(self.data, {})


@dataclass(frozen=True)
class Cell(Job):
    """One condition with one seed, which draws the rows, the folds and what is missing or broken."""

    @classmethod
    def of(cls, protocol: Protocol, condition: Condition, seed: int, fingerprint: str) -> Cell:
        """The cell of a protocol."""
        settings = {"condition": asdict(condition), "seed": seed, "data": fingerprint, "version": __version__}
        return cls(protocol.data, condition.name, seed, fingerprint, digest(settings))


def measure_cell(cell: Job, protocol: Protocol, store: Store) -> Result:
    """Decide in every way, as the engine of comparisons asks for it."""
    condition = next(one for one in protocol.conditions if one.name == cell.method)
    chosen = {} if condition.n is None else {"n": condition.n}
    began = time.perf_counter()
    decided = KINDS[condition.kind](protocol.load(cell.seed), seed=cell.seed, **chosen)
    return judge(decided, time.perf_counter() - began)


def judge(decided: Decided, seconds: float = 0.0) -> Result:
    """Scores of every way, and for comparing them each sample's loss times its weight: `[way, n]`."""
    from scipy.special import log_softmax

    weight = np.ones(len(decided.y)) if decided.weight is None else decided.weight
    rows = np.arange(len(decided.y))
    scores, losses = {}, []
    for name, log_posterior in decided.ways.items():
        p = np.exp(log_softmax(log_posterior, axis=1))
        scores[name] = {
            "accuracy": accuracy(decided.y, p.argmax(axis=1), weight=weight),
            "nll": nll(decided.y, p, weight=weight),
            "ece": ece(decided.y, p, weight=weight),
        }
        losses.append(-np.log(p[rows, decided.y].clip(np.finfo(np.float64).eps, 1.0)) * weight)
    about = {"scores": scores, "off": dict(decided.off), "seconds": seconds}
    return Result(about, {"loss": np.stack(losses), "index": decided.rows})
