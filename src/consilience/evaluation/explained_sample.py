"""The explanation of one sample's prediction as plain data, and the values that are explained."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from consilience.core.errors import InputError, unknown_name
from consilience.core.targets import TaskKind
from consilience.evaluation.contributions import Relation

Value = Literal["probability", "log-probability", "accuracy", "nll", "output", "mse"]
OF_CLASSIFICATION: tuple[Value, ...] = ("probability", "log-probability", "accuracy", "nll")
OF_REGRESSION: tuple[Value, ...] = ("output", "mse")
# Values that compare with the true target: a sample's share in a metric.
OF_TARGETS: tuple[Value, ...] = ("accuracy", "nll", "mse")
# The log-probability that counts for a class with probability 0: that of the smallest number in 64 bits.
_SMALLEST_LOG = -745.0


def choose_value(value: Any, task: TaskKind) -> Value:
    """Return the value to explain; None: the probability of a class, or the output of a regression.

    >>> choose_value(None, "classification")
    'probability'
    """
    allowed = OF_CLASSIFICATION if task == "classification" else OF_REGRESSION
    if value is None:
        return allowed[0]
    if value not in get_args(Value):
        raise unknown_name("value", value, allowed, "It was given to explain")
    if value not in allowed:
        raise InputError(f"explain: value={value!r} is not for {task}; choose one of {', '.join(allowed)}")
    return value


def sample_values(value: Value, output: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return what is explained of each output, `[k]`; larger is better for the values that are part of a metric.

    Args:
        value: "probability" and "log-probability" of a class; "accuracy", 1 where the true class is the most probable
            and 0 elsewhere; "nll", the log-probability of the true class; "output", a predicted number; "mse", minus
            the squared error, the mean over targets.
        output: Log-probabilities `[k, class]`, or numbers `[k, target]`.
        target: The column of the class or target `[k]`; for "mse" the true numbers `[k, target]`.

    Example:
        >>> output = np.log([[0.25, 0.75]])
        >>> [sample_values(value, output, np.array([1])).round(2).item() for value in ("probability", "accuracy")]
        [0.75, 1.0]
    """
    if value == "mse":
        return -((output - target) ** 2).mean(axis=1)
    if value == "accuracy":
        return (output.argmax(axis=1) == target).astype(np.float64)
    chosen = np.take_along_axis(output, target[:, None], axis=1)[:, 0]
    if value == "probability":
        return np.exp(chosen)
    return chosen if value == "output" else np.maximum(chosen, _SMALLEST_LOG)


@dataclass(frozen=True)
class ModalityPart:
    """What one modality has to do with the prediction of a sample.

    Attributes:
        name: Of the modality.
        present: Whether the sample has it. If not, it contributes 0 and everything below is None.
        contribution: Its Shapley value.
        error: Half the width of the 95 % interval of the contribution; 0 if it is exact.
        opinion: The most probable class, or the number, by the expert of this modality; None if there is no expert.
        confidence: Probability that the expert gives its own opinion.
        support: Probability that the expert gives the class of the explanation.
        reliability: ρ, the probability that the modality is sound.
        trust: Share of the decision.
        without: The decision if this modality were missing.
        without_probability: The probability of that decision; None for a regression.
        without_value: The probability of the class of the explanation, or the number, in that case.
    """

    name: str
    present: bool
    contribution: float
    error: float
    opinion: Any = None
    confidence: float | None = None
    support: float | None = None
    reliability: float | None = None
    trust: float | None = None
    without: Any = None
    without_probability: float | None = None
    without_value: float | None = None


@dataclass(frozen=True)
class PairPart:
    """How two present modalities of a sample interact; `relation` is named by `relate_pairs`."""

    first: str
    second: str
    interaction: float
    relation: Relation


@dataclass(frozen=True)
class ExplainedSample:
    """Why a model predicts what it predicts for one sample.

    Attributes:
        row: Number of the sample, from 0.
        value: What is explained, see `sample_values`.
        of: The class, or the number of the target, that `value` is about.
        decision: The predicted label or number.
        probability: Of the predicted label; None for a regression.
        none: The value without any modality.
        all: The value with all modalities of the sample. The contributions sum to `all` − `none`.
        parts: One entry for each modality.
        pairs: One entry for each pair of present modalities; None if contributions were sampled.
        conflict: The largest total variation distance between two experts' opinions, from 0 (the same) to 1 (no class
            in common); None without two opinions.
        excluded: Whether the experts together exclude every class; None without opinions.
        prediction_set: Labels of the conformal set, or the two ends of the interval; None if there is none.
        coverage: The coverage of that set.
        set_absence: Why there is no set; empty if the model does not make any.
    """

    row: int
    value: Value
    of: Any
    decision: Any
    probability: float | None
    none: float
    all: float
    parts: tuple[ModalityPart, ...]
    pairs: tuple[PairPart, ...] | None = None
    conflict: float | None = None
    excluded: bool | None = None
    prediction_set: tuple[Any, ...] | None = None
    coverage: float | None = None
    set_absence: str = ""

    @property
    def classification(self) -> bool:
        """Whether a class is predicted."""
        return self.value in OF_CLASSIFICATION

    @property
    def exact(self) -> bool:
        """Whether the contributions are exact, not sampled."""
        return self.pairs is not None

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as plain values; an infinite end of an interval is None."""
        ends = self.prediction_set
        if ends is not None and not self.classification:
            ends = tuple(end if np.isfinite(end) else None for end in ends)
        return {**asdict(self), "prediction_set": ends}


def opinion_conflict(probabilities: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Return how far the opinions of each sample contradict each other, `[n]`.

    Args:
        probabilities: Opinions `[n, modality, class]`.
        present: Booleans `[n, modality]`.

    Returns:
        The largest total variation distance between two present opinions; nan where there are fewer than two.

    Example:
        >>> opinion_conflict(np.array([[[0.9, 0.1], [0.4, 0.6]]]), np.array([[True, True]])).round(2).item()
        0.5
    """
    n, modalities = present.shape
    largest = np.full(n, np.nan)
    for i in range(modalities):
        for j in range(i):
            apart = np.abs(probabilities[:, i] - probabilities[:, j]).sum(axis=1) / 2
            largest = np.fmax(largest, np.where(present[:, i] & present[:, j], apart, np.nan))
    return largest
