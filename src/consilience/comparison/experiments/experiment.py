"""Named experiments: what `consilience reproduce NAME` runs, and the registry of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from consilience.errors import ConsilienceError, unknown_name

if TYPE_CHECKING:
    import polars

    from consilience.comparison.comparison import Comparison
    from consilience.report.account import Account


@dataclass(frozen=True)
class Reproduction:
    """An experiment that was run: its run folder, what it found, and the page that says so."""

    folder: Path
    account: Account
    page: Path


class Reproducible(Protocol):
    """Whatever has a name, a title and notes, and can be run: a comparison by a protocol, or a study of its own."""

    @property
    def name(self) -> str:
        """What it is asked for by."""

    @property
    def title(self) -> str:
        """What it asks, in a line."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is known of differences to what was published."""

    def run(self, *, quick: bool = False, **how: Any) -> Comparison | Reproduction:
        """Run it, or go on where an earlier run stopped.

        quick: in minutes on two cores, instead of at full size · how: `out`, the run folder, `jobs`, `cluster`,
        `verbose` and `command`, as `compare` takes them.
        """


@dataclass(frozen=True)
class Experiment:
    """A comparison by a protocol, beside the figures published for it.

    full, quick: the arguments of `compare`, at full size and in minutes on two cores · published: (method,
    corruption, level) → the figure in the paper, in the metric's own unit · notes: known reasons for differences.
    """

    name: str
    title: str
    full: Mapping[str, Any]
    quick: Mapping[str, Any]
    paper: str = ""
    published: Mapping[tuple[str, str, float], float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def run(self, *, quick: bool = False, **how: Any) -> Comparison:
        """Compare by this protocol; `how` says where and with how many processes."""
        from consilience.comparison.comparison import compare

        protocol = {**self.full, **(self.quick if quick else {})}
        return compare(protocol.pop("data"), **protocol, **how)

    def beside_published(self, comparison: Comparison) -> polars.DataFrame:
        """Ours beside the paper's: set, method, corruption, level, ours, std, published, difference."""
        import polars as pl

        findings = comparison.findings
        values = findings.values.filter(pl.col("metric") == findings.metric)
        ours = values.group_by("set", "method", "corruption", "level", maintain_order=True).agg(
            pl.col("value").mean().alias("ours"), pl.col("value").std().alias("std")
        )
        told = [self.published.get((row["method"], row["corruption"], row["level"])) for row in ours.to_dicts()]
        return ours.with_columns(pl.Series("published", told, dtype=pl.Float64)).with_columns(
            (pl.col("ours") - pl.col("published")).alias("difference")
        )


_Some = TypeVar("_Some", bound=Reproducible)
_EXPERIMENTS: dict[str, Reproducible] = {}


def register_experiment(experiment: _Some) -> _Some:
    """Make an experiment known by its name."""
    if experiment.name in _EXPERIMENTS:
        raise ConsilienceError(f"experiment {experiment.name!r} is registered twice")
    _EXPERIMENTS[experiment.name] = experiment
    return experiment


def experiments() -> dict[str, Reproducible]:
    """All experiments by name."""
    return dict(sorted(_EXPERIMENTS.items()))


def find_experiment(name: str) -> Reproducible:
    """The experiment of this name."""
    if name not in _EXPERIMENTS:
        raise unknown_name("experiment", name, _EXPERIMENTS)
    return _EXPERIMENTS[name]
