"""Named experiments: what `consilience reproduce NAME` runs, and the registry of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from consilience.comparison.reproduction import Reproduction, run_folder
from consilience.core.errors import ConsilienceError, MissingDataError, unknown_name

if TYPE_CHECKING:
    from consilience.comparison.comparison import Comparison
    from consilience.report.document import Section


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


@dataclass(frozen=True)
class Part:
    """One comparison of an experiment. full: the arguments of `compare`; quick: what differs in minutes on two cores.

    title: how the page calls it, by default by its sets.
    """

    full: Mapping[str, Any]
    quick: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""

    def arguments(self, quick: bool) -> dict[str, Any]:
        """The arguments of `compare` at one of the two sizes."""
        return {**self.full, **(self.quick if quick else {})}


@dataclass(frozen=True)
class Claim:
    """What a paper says that a comparison can check: under a condition, one method is better than another.

    says: the claim in words, as a sentence without its full stop · part: which comparison · level: 0 is clean.
    """

    says: str
    part: str
    method: str
    than: str
    corruption: str = ""
    level: float = 0.0


@dataclass(frozen=True)
class Experiment:
    """Comparisons by a protocol, beside the figures published for them.

    published: (part, method, corruption, level) → the figure in the paper, in the metric's own unit; the corruption of
    level 0 is "clean" · published_worst: the same of the worst seed · claims: what the paper says of it · verdicts: on
    what else it says, a sentence each, from the finished comparisons by part · notes: known reasons for differences ·
    more: sections of its own, from the same.
    """

    name: str
    title: str
    parts: Mapping[str, Part]
    paper: str = ""
    published: Mapping[tuple[str, str, str, float], float] = field(default_factory=dict)
    published_worst: Mapping[tuple[str, str, str, float], float] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    verdicts: Callable[[Mapping[str, Comparison]], Sequence[str]] | None = None
    notes: tuple[str, ...] = ()
    more: Callable[[Mapping[str, Comparison]], Sequence[Section]] | None = None

    def run(self, *, quick: bool = False, out: str | Path | None = None, command: str = "", **how: Any) -> Reproduction:
        """Compare by every part's protocol, each in a folder of its own below the run folder, and write the page.

        A part whose data are not there is left out, and the page says what to get; without any, that is the error.
        """
        from consilience.comparison.comparison import compare

        folder = run_folder(self.name, quick, out)
        done: dict[str, Comparison] = {}
        absent: dict[str, MissingDataError] = {}
        for name, part in self.parts.items():
            arguments = part.arguments(quick)
            try:
                done[name] = compare(arguments.pop("data"), **arguments, out=folder / name, command=command, **how)
            except MissingDataError as error:
                absent[name] = error
        if not done:
            raise next(iter(absent.values()))
        return self.write(folder, done, {name: str(error) for name, error in absent.items()}, command)

    def write(
        self, folder: Path, comparisons: Mapping[str, Comparison], absent: Mapping[str, str], command: str
    ) -> Reproduction:
        """Write the page of finished comparisons by part; absent: part → what to get."""
        from consilience.comparison.experiments.published import write_page

        return write_page(self, folder, comparisons, absent, command)


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
