"""Permutation importance: how much worse a model is if a group of columns is shuffled among the samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from consilience.core.errors import InputError, UnsupportedError, unknown_name
from consilience.core.samples import Samples
from consilience.core.settings import NonNegativeInt, OwnCheck, PositiveInt, checked
from consilience.corruption.mapping_output import like_given
from consilience.evaluation.metrics import Metric
from consilience.evaluation.model_scores import as_read, score_model

if TYPE_CHECKING:
    import polars

# A modality; a modality with some of its columns; or several of these, which are shuffled together.
Group = str | tuple[str, Sequence[int]] | Sequence[Any]


@dataclass(frozen=True)
class PermutationImportance:
    """How much worse a model is with each group of columns shuffled.

    Attributes:
        groups: Their names.
        metric: Its name.
        baseline: The metric of the samples as they are.
        per_repeat: How much worse it is `[group, repeat]`, a column for each shuffling; positive: worse.
        larger_is_better: Of the metric.
    """

    groups: tuple[str, ...]
    metric: str
    baseline: float
    per_repeat: np.ndarray
    larger_is_better: bool

    @property
    def values(self) -> np.ndarray:
        """The mean over repeats `[group]`."""
        return self.per_repeat.mean(axis=1)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "metric": self.metric,
            "baseline": self.baseline,
            "groups": list(self.groups),
            "importance": self.values.tolist(),
            "per_repeat": self.per_repeat.tolist(),
        }

    def table(self) -> polars.DataFrame:
        """Return one row per group, the most important first: `group`, `metric`, `importance`, `std`, `shuffled`.

        `std` is over repeats, null for one; `shuffled` is the mean metric with the group shuffled.
        """
        import polars

        repeats = self.per_repeat.shape[1]
        spread = self.per_repeat.std(axis=1, ddof=1).tolist() if repeats > 1 else [None] * len(self.groups)
        columns = {
            "group": list(self.groups),
            "metric": [self.metric] * len(self.groups),
            "importance": self.values,
            "std": polars.Series(spread, dtype=polars.Float64),
            "shuffled": self.baseline - self.values if self.larger_is_better else self.baseline + self.values,
        }
        return polars.DataFrame(columns).sort("importance", descending=True, maintain_order=True)


@checked
def permutation_importance(
    model: Any,
    X: Annotated[Mapping[str, Any] | Samples, OwnCheck],
    y: Any = None,
    *,
    groups: Annotated[Mapping[str, Any] | None, OwnCheck] = None,
    metric: str | Metric | None = None,
    repeats: PositiveInt = 5,
    random_state: NonNegativeInt = 0,
) -> PermutationImportance:
    """Measure how much worse a fitted model is if groups of columns are shuffled among the samples.

    A shuffled group keeps its distribution and loses its relation to the target and to the other columns. Its columns
    are shuffled together, so that what they say among themselves is kept: columns that repeat each other must be in
    one group, or each of them looks unimportant. A whole modality takes along which samples lack it; columns are
    shuffled among the samples that have their modality.

    Args:
        model: Has `predict`, and for metrics of probabilities `predict_proba` and `classes_`.
        X: A mapping or `Samples`; for an estimator of consilience whatever it predicts, such as DataFrames.
        y: The targets; by default those of the `Samples`.
        groups: Name → a modality, `(modality, columns)` with the numbers of columns of a vector as the model reads it,
            or a list of these. None: each modality is a group.
        metric: A name or a `Metric`; by default accuracy for a classifier, mse for a regressor.
        repeats: How often each group is shuffled.
        random_state: Seed of the shuffling; the samples of all groups are shuffled alike.

    Returns:
        How much worse the metric is, for each group and repeat.

    Example:
        >>> class Sign:
        ...     classes_ = np.array([False, True])
        ...     def predict(self, X):
        ...         return X["a"][:, 0] > 0
        >>> y = np.arange(200) % 2 == 1
        >>> X = {"a": np.where(y, 1.0, -1.0)[:, None], "b": np.arange(200.0)[:, None]}
        >>> permutation_importance(Sign(), X, y).table()["group"].to_list()
        ['a', 'b']
    """
    truth = X.y if y is None and isinstance(X, Samples) else y
    if truth is None:
        raise InputError("permutation_importance needs the targets y, and the samples carry none")
    X = as_read(model, X)
    samples = Samples.of(X)
    named = {name: name for name in samples.names} if groups is None else dict(groups)
    if not named:
        raise InputError("permutation_importance: groups is empty; None makes each modality a group")
    chosen, score = score_model(model, truth, metric)
    read = {name: _read_group(samples, name, group) for name, group in named.items()}
    baseline, sign = score(X), 1 if chosen.larger_is_better else -1
    worse = np.empty((len(read), repeats))
    for repeat in range(repeats):
        order = np.random.default_rng([random_state, repeat]).permutation(len(samples))
        for place, parts in enumerate(read.values()):
            changed = samples
            for modality, columns in parts:
                changed = _shuffled(changed, modality, columns, order)
            worse[place, repeat] = sign * (
                baseline - score(changed if isinstance(X, Samples) else like_given(X, samples, changed))
            )
    return PermutationImportance(tuple(read), chosen.name, baseline, worse, chosen.larger_is_better)


def _read_group(samples: Samples, name: str, group: Group) -> list[tuple[str, np.ndarray | None]]:
    """The modalities of a group, each with its columns, or None for the whole of it."""
    if isinstance(group, str):
        members: list[Any] = [group]
    elif isinstance(group, tuple) and len(group) == 2 and not isinstance(group[1], str | tuple):
        members = [group]
    elif isinstance(group, Sequence):
        members = list(group)
    else:
        members = [group]
    return [_read_member(samples, name, member) for member in members]


def _read_member(samples: Samples, name: str, member: Any) -> tuple[str, np.ndarray | None]:
    modality, columns = (
        (member, None) if isinstance(member, str) else member if isinstance(member, tuple) else (None, 0)
    )
    if not isinstance(modality, str):
        raise InputError(
            f"permutation_importance: group {name!r} must be a modality, (modality, columns) or a list of these, got "
            f"{member!r}"
        )
    if modality not in samples.modalities:
        raise unknown_name("modality", modality, samples.modalities, f"It is in group {name!r}")
    if columns is None:
        return modality, None
    described = samples.modalities[modality]
    if described.kind != "vector":
        raise UnsupportedError(f"columns of group {name!r}: {described.describe()} has none, only vectors do")
    numbers, width = np.asarray(columns), described.shape[0]
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or ((numbers < 0) | (numbers >= width)).any():
        raise InputError(f"columns of group {name!r} must be numbers from 0 to {width - 1}, got {columns!r}")
    return modality, numbers


def _shuffled(samples: Samples, modality: str, columns: np.ndarray | None, order: np.ndarray) -> Samples:
    """The samples with a modality, or some of its columns, taken from other samples."""
    values, place = samples.values[modality], samples.names.index(modality)
    if columns is None:
        present = samples.present.copy()
        present[:, place] = present[order, place]
        lengths = {modality: samples.lengths[modality][order]} if modality in samples.lengths else None
        return samples.replaced({modality: np.asarray(values)[order]}, present, lengths)
    changed = np.array(values)
    there = np.flatnonzero(samples.present[:, place])
    others = order[samples.present[order, place]]  # the samples that have it, in the order of the shuffling
    changed[np.ix_(there, columns)] = changed[np.ix_(others, columns)]
    return samples.replaced({modality: changed})
