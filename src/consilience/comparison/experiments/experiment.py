"""The registry of the studies; it leaves with them."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from consilience.comparison.reproduction import Reproduction
from consilience.core.errors import ConsilienceError, unknown_name


class Reproducible(Protocol):
    """Whatever has a name, a title and notes, and can be run: comparisons by a protocol, or a study of its own."""

    @property
    def name(self) -> str:
        """What it is asked for by."""

    @property
    def title(self) -> str:
        """What it asks, in a line."""

    @property
    def paper(self) -> str:
        """Whose table or figure it reproduces, "" for nobody's."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is known of differences to what was published."""

    def run(self, *, quick: bool = False, **how: Any) -> Reproduction:
        """Run it, or go on where an earlier run stopped.

        quick: in minutes on two cores, instead of at full size · how: `out`, the run folder, `jobs`, `cluster`,
        `verbose` and `command`, as `compare` takes them.
        """


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
