"""The method that a comparison chose, how sure that is, and what the published model was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Published:
    """What the model in `best/` was trained on.

    Attributes:
        folder: Its place in the run folder.
        method: The method.
        seed: Of its initial weights, and of the split where each seed has its own.
        rows: How many samples it learned from.
        refitted: Whether it learned from the train and validation parts, as the chosen method trained once more.
        steps: Steps of the optimizer for each run and phase of its training; empty if they are not known.
        stopped_by: Of a refit, what ended each run: "steps", "held-out" or "fit", see `training.step_counts`; empty if
            that is not known.
        tested: How many test samples it was measured on, which it has not seen; 0 if it was not.
        values: Metric → value on these, clean.
    """

    folder: str
    method: str
    seed: int
    rows: int
    refitted: bool
    steps: tuple[tuple[int, ...], ...] = ()
    stopped_by: tuple[str, ...] = ()
    tested: int = 0
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """The method that was chosen on a set by its validation samples, and how sure that is.

    Attributes:
        set: The set.
        method: The method.
        metric: By which it was chosen.
        scores: Method → mean over seeds, of the clean and corrupted conditions together; the best method first.
        shares: Method → in which share of resamples of seeds and samples it comes first.
        rivals: The methods that are not distinguishable from it: their differences are not significant after Holm's
            correction.
        seeds: How many seeds were compared.
        by_rows: Whether samples were resampled too, not only seeds.
        published: What `best/` holds; None if there is no whole model.
        reason: Why the model in `best/` was not refitted, if it was to be.
    """

    set: str
    method: str
    metric: str
    scores: Mapping[str, float]
    shares: Mapping[str, float]
    rivals: tuple[str, ...]
    seeds: int
    by_rows: bool
    published: Published | None = None
    reason: str = ""

    @property
    def score(self) -> float:
        """The score of the chosen method."""
        return self.scores[self.method]

    @property
    def share(self) -> float:
        """In which share of resamples the chosen method comes first."""
        return self.shares[self.method]
