"""`Explanation`: why a model predicts what it predicts, for all samples of a call as arrays, and row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import InputError
from consilience.evaluation.contributions import Contributions, MeanContributions, mean_contributions, relate_pairs
from consilience.evaluation.explained_sample import ExplainedSample, ModalityPart, PairPart, Value

if TYPE_CHECKING:
    from consilience.report.drawing import Drawing


@dataclass(frozen=True)
class Explanation:
    """What `explain` returns: NumPy arrays with one row for each sample.

    `explanation[17]` is one sample in plain data, `text(17)` says it in words, `figure(17)` draws it, `mean()` gives
    the mean contributions. Iteration goes over the samples.

    Attributes:
        modalities: Names, in the order of the columns.
        classes: Labels, in the order of the columns; None for a regression.
        value: What is explained, such as "probability".
        of: The label, or the number of the target, that is explained `[n]`.
        present: Booleans `[n, modality]`.
        decision: Predicted labels `[n]`, or numbers `[n]` or `[n, target]`.
        probabilities: `[n, class]`; None for a regression.
        contributions: Shapley values with their intervals and the pairs' interactions.
        without: Decision without each modality `[n, modality]`, or `[n, modality, target]`; that of all modalities
            where it is missing anyway.
        without_probability: Its probability `[n, modality]`; None for a regression.
        without_value: Probability of the label `of`, or the number, without each modality `[n, modality]`.
        opinions: Probabilities `[n, modality, class]` by the experts, or numbers `[n, modality]`; nan where missing,
            None if the method has no experts.
        reliability: ρ `[n, modality]`, or None.
        trust: `[n, modality]`, or None.
        conflict: `[n]`, see `opinion_conflict`; None without opinions of classes.
        excluded: Whether the opinions together exclude every class `[n]`, as `fuse(…, return_conflict=True)` says.
        sets: Conformal sets, booleans `[n, class]`, or intervals `[n, 2]`; None if the model has none.
        coverage: Of the sets.
        set_absence: Why there are no sets.
    """

    modalities: tuple[str, ...]
    classes: np.ndarray | None
    value: Value
    of: np.ndarray
    present: np.ndarray
    decision: np.ndarray
    probabilities: np.ndarray | None
    contributions: Contributions
    without: np.ndarray
    without_probability: np.ndarray | None
    without_value: np.ndarray
    opinions: np.ndarray | None = None
    reliability: np.ndarray | None = None
    trust: np.ndarray | None = None
    conflict: np.ndarray | None = None
    excluded: np.ndarray | None = None
    sets: np.ndarray | None = None
    coverage: float = 0.9
    set_absence: str = ""

    def __len__(self) -> int:
        return len(self.present)

    def __iter__(self) -> Iterator[ExplainedSample]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        return f"Explanation of the {self.value} of {len(self)} samples by {', '.join(self.modalities)}"

    def __getitem__(self, row: int) -> ExplainedSample:
        if not isinstance(row, int | np.integer) or not -len(self) <= row < len(self):
            raise InputError(f"explanation: row must be a whole number from 0 to {len(self) - 1}, got {row!r}")
        row = int(row) % len(self)
        decision = self.decision[row].tolist()
        of_row, found = self.of[row].item(), self.contributions
        return ExplainedSample(
            row=row,
            value=self.value,
            of=of_row,
            decision=decision,
            probability=None if self.probabilities is None else float(self.probabilities[row].max()),
            none=float(found.none[row]),
            all=float(found.all[row]),
            parts=tuple(self._part(row, place) for place in range(len(self.modalities))),
            pairs=self._pairs(row),
            conflict=None if self.conflict is None or np.isnan(self.conflict[row]) else float(self.conflict[row]),
            excluded=None if self.excluded is None else bool(self.excluded[row]),
            prediction_set=self._set(row),
            coverage=None if self.sets is None else self.coverage,
            set_absence=self.set_absence,
        )

    def text(self, row: int = 0) -> str:
        """Return the explanation of a sample in a few sentences, one in a line."""
        from consilience.report.explanation_words import say_sample

        return "\n".join(say_sample(self[row]))

    def figure(self, row: int = 0, path: str | Path | None = None) -> Drawing:
        """Draw the explanation of a sample.

        Args:
            row: The sample.
            path: A .svg or .png file to write it to.

        Returns:
            The drawing; `drawing.figure` is a matplotlib figure.
        """
        from consilience.report.explanation_figure import draw_sample, save_drawing

        drawing = draw_sample(self[row])
        if path is not None:
            save_drawing(drawing, path)
        return drawing

    def mean(self) -> MeanContributions:
        """Return the mean contributions over the samples; a modality counts 0 where it is missing."""
        return mean_contributions(self.contributions, self.modalities)

    def _part(self, row: int, place: int) -> ModalityPart:
        name, there = self.modalities[place], bool(self.present[row, place])
        if not there:
            return ModalityPart(name, present=False, contribution=0.0, error=0.0)
        opinion, confidence, support = self._opinion(row, place)
        found = self.contributions
        return ModalityPart(
            name,
            present=True,
            contribution=float(found.values[row, place]),
            error=float(found.errors[row, place]),
            opinion=opinion,
            confidence=confidence,
            support=support,
            reliability=_entry(self.reliability, row, place),
            trust=_entry(self.trust, row, place),
            without=self.without[row, place].tolist(),
            without_probability=_entry(self.without_probability, row, place),
            without_value=float(self.without_value[row, place]),
        )

    def _opinion(self, row: int, place: int) -> tuple[Any, float | None, float | None]:
        """The label or number, its probability, and the probability of the explained label."""
        if self.opinions is None:
            return None, None, None
        opinion = self.opinions[row, place]
        if self.classes is None:
            return float(opinion), None, None
        explained = opinion[self.classes == self.of[row]]
        label = self.classes[opinion.argmax()].item()
        return label, float(opinion.max()), float(explained[0])

    def _pairs(self, row: int) -> tuple[PairPart, ...] | None:
        found = self.contributions
        if found.interactions is None:
            return None
        relations = relate_pairs(found.values[row], found.interactions[row])
        there = np.flatnonzero(self.present[row])
        return tuple(
            PairPart(
                self.modalities[i],
                self.modalities[j],
                float(found.interactions[row, i, j]),
                relations[i, j].item(),
            )
            for place, i in enumerate(there)
            for j in there[place + 1 :]
        )

    def _set(self, row: int) -> tuple[Any, ...] | None:
        if self.sets is None:
            return None
        if self.classes is None:
            return tuple(self.sets[row].tolist())
        return tuple(self.classes[self.sets[row]].tolist())


def _entry(values: np.ndarray | None, row: int, place: int) -> float | None:
    return None if values is None else float(values[row, place])
