"""Where opinions come from, given arrays or scikit-learn classifiers, and which class each of their columns is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from consilience.bayes.kappa import spread_folds
from consilience.bayes.opinion_inputs import read_opinions, read_present, to_logits
from consilience.core.errors import InputError, name_rows, unknown_name
from consilience.core.samples import Samples
from consilience.core.targets import check_labels, label_positions


@dataclass(frozen=True)
class OpinionSet:
    """Checked opinions.

    Attributes:
        logits: Float64 `[n, modality, class]`, −inf where a class is excluded.
        present: Booleans `[n, modality]`.
        names: Names of the experts.
        columns: Class names, if the opinions are tables with named columns.
    """

    logits: np.ndarray
    present: np.ndarray
    names: tuple[str, ...]
    columns: tuple[str, ...] | None = None

    def select(self, rows: np.ndarray, present: np.ndarray | None = None) -> OpinionSet:
        """Return the opinions of some rows, with another `present` `[row, modality]` if given."""
        there = self.present[rows] if present is None else present
        return replace(self, logits=self.logits[rows], present=there)


def read_opinion_set(
    opinions: Any,
    present: Any = None,
    *,
    names: Sequence[str] | None = None,
    classes: int | None = None,
    probabilities: bool = False,
) -> OpinionSet:
    """Check opinions and return them as logits.

    Args:
        opinions: Mapping name → `[n, class]`, or `[n, modality, class]`. A row that is all NaN is missing.
        present: `[n, modality]`, or a mapping name → `[n]`; False: missing.
        names: Experts of the fit; one that is not in the mapping is missing. None when fitting.
        classes: Number of classes of the fit; None when fitting.
        probabilities: Whether opinions are probabilities instead of logits.
    """
    columns = _named_columns(opinions)
    if isinstance(opinions, Mapping) and names is not None and opinions:
        for name in opinions:
            if name not in names:
                raise unknown_name("modality", name, names, "The fusion was fitted on the known ones")
        like = next(iter(opinions.values()))
        tensors = isinstance(like, torch.Tensor)
        absent = torch.full_like(like, torch.nan) if tensors else np.full(np.shape(like), np.nan)
        opinions = {name: opinions.get(name, absent) for name in names}
    read = read_opinions(opinions)
    if len(read.leading) != 1:
        raise InputError(
            "opinions must be a mapping name → [n, class], or an array [n, modality, class], got shape "
            f"{[*read.leading, read.experts, read.classes]}"
        )
    if names is not None and len(names) != read.experts:
        raise InputError(f"the fusion was fitted on {len(names)} experts ({', '.join(names)}), got {read.experts}")
    if classes is not None and classes != read.classes:
        raise InputError(f"opinions must be on the {classes} classes of fitting, got {read.classes}")
    there = ~read.rows().isnan().all(2)
    mask = read_present(present, read)
    there = there if mask is None else there & mask
    if probabilities:
        read = to_logits(read, there)
    experts = tuple(names or read.names or (f"m{number + 1}" for number in range(read.experts)))
    logits = torch.where(there[:, :, None], read.rows().detach().cpu().double(), 0.0).numpy()
    _check_logits(logits, experts)
    return OpinionSet(logits, there.cpu().numpy(), experts, columns)


def read_rows(sample_weight: Any, groups: Any, n: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Check and return sample weights and groups, `[n]` each, where given."""
    weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    group_of = None if groups is None else np.asarray(groups)
    for name, values in (("sample_weight", weight), ("groups", group_of)):
        if values is not None and values.shape != (n,):
            raise InputError(f"{name} must have shape [{n}], one for each sample, got {list(values.shape)}")
    if weight is not None and not (np.isfinite(weight).all() and (weight >= 0).all() and weight.any()):
        raise InputError("sample_weight must be finite, not negative, and positive for at least one sample")
    return weight, group_of


def experts_by_modality(experts: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return modality → classifier; a single classifier serves every modality."""
    if not isinstance(experts, Mapping):
        return dict.fromkeys(names, experts)
    for name in experts:
        if name not in names:
            raise unknown_name("modality", name, names, "It was given in experts")
    for name in names:
        if name not in experts:
            raise InputError(f"experts: modality {name!r} has none; give one, or leave the modality out")
    return {name: experts[name] for name in names}


def expert_opinions(
    experts: Mapping[str, Any], samples: Samples, names: tuple[str, ...], classes: np.ndarray
) -> OpinionSet:
    """Return the opinions of fitted classifiers on new samples; `names` are the modalities of fitting, in order."""
    logits = np.zeros((len(samples), len(names), len(classes)))
    there = np.zeros(logits.shape[:2], dtype=bool)
    for name in samples.names:
        if name not in names:
            raise unknown_name("modality", name, names, "The fusion was fitted on the known ones")
        place, rows = names.index(name), np.flatnonzero(samples.present_in(name))
        there[rows, place] = True
        if len(rows):
            logits[rows, place] = expert_logits(experts[name], samples[name][rows], classes)
    return OpinionSet(logits, there, names)


def expert_logits(expert: Any, x: Any, classes: np.ndarray) -> np.ndarray:
    """Return the logits of a scikit-learn classifier `[n, class]`, columns in the order of `classes`.

    A class that the classifier does not know gets −inf. A classifier without probabilities gives its decision function.
    """
    if hasattr(expert, "predict_proba"):
        with np.errstate(divide="ignore"):
            scores = np.log(expert.predict_proba(x))
    elif hasattr(expert, "decision_function"):
        scores = np.asarray(expert.decision_function(x), dtype=np.float64)
        scores = np.stack([np.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores
    else:
        raise InputError(f"{type(expert).__name__} has neither predict_proba nor decision_function")
    known, own = classes.tolist(), np.asarray(expert.classes_).tolist()
    if unknown := [label for label in own if label not in known]:
        raise InputError(f"{type(expert).__name__} knows the class {unknown[0]!r}, and the fusion only {known}")
    if scores.shape[1:] != (len(own),) or np.isnan(scores).any():
        raise InputError(f"{type(expert).__name__} gives no opinion [n, class] on {own}: its answers are damaged")
    logits = np.full((len(scores), len(classes)), -np.inf)
    logits[:, [known.index(label) for label in own]] = scores
    return logits


def cross_fit_experts(
    experts: Mapping[str, Any],
    samples: Samples,
    y: np.ndarray,
    classes: np.ndarray,
    folds: int,
    weight: np.ndarray | None = None,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """Return logits of scikit-learn classifiers on samples they were not trained on, `[n, modality, class]`.

    Args:
        experts: Modality → classifier.
        samples: The samples.
        y: Indices into classes `[n]`.
        classes: Labels `[class]`.
        folds: Number of folds.
        weight: Sample weights `[n]` in training the classifiers.
        groups: Labels `[n]`; samples with the same one are in the same fold.
    """
    if not isinstance(folds, int) or not 2 <= folds <= len(y):
        raise InputError(f"cross-fitting: folds must be between 2 and {len(y)} (the samples), got {folds!r}")
    fold_of = spread_folds(y, folds, groups)
    logits = np.zeros((len(y), len(experts), len(classes)))
    for place, (name, expert) in enumerate(experts.items()):
        there, values = samples.present_in(name), samples[name]
        for fold in range(folds):
            tested = np.flatnonzero(there & (fold_of == fold))
            if len(tested):
                trained = np.flatnonzero(there & (fold_of != fold))
                counted = None if weight is None else weight[trained]
                fitted = fit_expert(name, clone(expert), values[trained], classes[y[trained]], counted)
                logits[tested, place] = expert_logits(fitted, values[tested], classes)
    return logits


def fit_expert(name: str, expert: Any, values: Any, labels: np.ndarray, weight: np.ndarray | None = None) -> Any:
    """Fit a scikit-learn classifier; its errors are raised with the name of the modality."""
    if weight is not None and not has_fit_parameter(expert, "sample_weight"):
        raise InputError(
            f"sample_weight: {type(expert).__name__}, the expert of modality {name!r}, does not take it; use another "
            "expert, or leave sample_weight out"
        )
    try:
        return expert.fit(values, labels) if weight is None else expert.fit(values, labels, sample_weight=weight)
    except ValueError as error:
        raise InputError(f"the expert of modality {name!r} failed on {len(labels)} samples: {error}") from error


def find_classes(given: Any, labels: np.ndarray, columns: int, names: tuple[str, ...] | None = None) -> np.ndarray:
    """Return the classes in the order of the columns of the opinions.

    These are the given ones, those of the column names, the labels of y, or 0, 1, 2, …

    Args:
        given: `[class]` or None.
        labels: `[n]`.
        columns: Number of columns.
        names: Column names of tables.

    >>> find_classes(None, np.array([2, 0, 0]), columns=4)
    array([0, 1, 2, 3])
    """
    if given is not None:
        classes = read_classes(given)
        if len(classes) != columns:
            raise InputError(f"classes must name the opinions' {columns} columns, got {classes.tolist()}")
        return classes
    found = np.unique(labels)
    named = None if names is None else order_by_columns(names, found)
    if named is not None:
        return named
    if len(found) == columns:
        return found
    if found.dtype.kind in "biuf" and found[0] >= 0 and found[-1] < columns:
        return np.arange(columns)
    listing = ", ".join(map(repr, found.tolist()[:10]))
    raise InputError(
        f"the opinions are on {columns} classes, y has {len(found)} labels ({listing}): "
        "give the class of each column with classes=[...], or use labels from 0 to " + str(columns - 1)
    )


def read_classes(given: Any) -> np.ndarray:
    """Check given classes; each must occur once."""
    classes = check_labels(given)
    if len(np.unique(classes)) < len(classes):
        raise InputError(f"classes must name each class once, got {classes.tolist()}")
    return classes


def encode_labels(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return labels as indices into classes, in any order of the classes."""
    found = label_positions(labels, {label: number for number, label in enumerate(classes.tolist())})
    if (found < 0).any():
        rows = np.flatnonzero(found < 0)
        raise InputError(
            f"label {labels[rows[0]].item()!r} ({name_rows(rows)}) is not one of the classes "
            f"{', '.join(map(repr, classes.tolist()[:10]))}"
        )
    return found


def order_by_columns(columns: tuple[str, ...], labels: np.ndarray) -> np.ndarray | None:
    """Return the classes in the order of the column names; None if no column name is a label.

    labels: the different labels that occur.

    >>> order_by_columns(("dog", "cat"), np.array(["cat"])), order_by_columns(("p0", "p1"), np.array(["cat", "dog"]))
    (array(['dog', 'cat'], dtype='<U3'), None)
    """
    names = [str(label) for label in labels.tolist()]
    unknown = [label for label in names if label not in columns]
    if len(unknown) == len(names):
        return None
    if unknown:
        raise InputError(
            f"the opinions' columns name the classes {', '.join(map(repr, columns))}, and label {unknown[0]!r} is "
            "not one of them. If the names mean something else, give the class of each column with classes=[...]"
        )
    known = dict(zip(names, labels.tolist()))
    read = {"U": str, "i": int, "u": int}.get(labels.dtype.kind)
    try:
        # A class that does not occur in y is converted like the others.
        classes = np.array([known[name] if name in known else read(name) for name in columns])  # type: ignore[misc]
    except (TypeError, ValueError):
        raise InputError(
            f"the opinions' columns {', '.join(map(repr, columns))} cannot be read as labels like "
            f"{labels[0].item()!r}: give the class of each column with classes=[...]"
        ) from None
    return read_classes(classes)


def _named_columns(opinions: Any) -> tuple[str, ...] | None:
    """The column names of the first table, if they are strings; that all tables agree is checked elsewhere."""
    values = opinions.values() if isinstance(opinions, Mapping) else ()
    named = [tuple(value.columns) for value in values if hasattr(value, "columns")]
    return named[0] if named and all(isinstance(name, str) for name in named[0]) else None


def _check_logits(logits: np.ndarray, names: tuple[str, ...]) -> None:
    """Raise an error for rows with some NaN, with +inf, or with every class excluded."""
    for place, name in enumerate(names):
        values = logits[:, place]
        for broken, why in (
            (np.isnan(values).any(axis=1), "are NaN in part; a row that is all NaN is missing"),
            (np.isposinf(values).any(axis=1), "hold +inf: a logit is finite, or −inf for an excluded class"),
            (np.isneginf(values).all(axis=1), "exclude every class"),
        ):
            if broken.any():
                raise InputError(f"opinions of {name!r} {why} ({name_rows(np.flatnonzero(broken))})")
