"""A named experiment: data, methods and protocol, the figures published for it, and what is known of differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from consilience.errors import ConsilienceError, unknown_name

if TYPE_CHECKING:
    import polars

    from consilience.comparison.comparison import Comparison


@dataclass(frozen=True)
class Experiment:
    """What `consilience reproduce NAME` runs.

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


_EXPERIMENTS: dict[str, Experiment] = {}


def register_experiment(experiment: Experiment) -> Experiment:
    """Make an experiment known by its name."""
    if experiment.name in _EXPERIMENTS:
        raise ConsilienceError(f"experiment {experiment.name!r} is registered twice")
    _EXPERIMENTS[experiment.name] = experiment
    return experiment


def experiments() -> dict[str, Experiment]:
    """All experiments by name."""
    return dict(sorted(_EXPERIMENTS.items()))


def find_experiment(name: str) -> Experiment:
    """The experiment of this name."""
    if name not in _EXPERIMENTS:
        raise unknown_name("experiment", name, _EXPERIMENTS)
    return _EXPERIMENTS[name]
