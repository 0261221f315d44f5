"""Experts heard: opinions that are given, checked at the door, or those of scikit-learn classifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from consilience.bayes.kappa import spread_folds
from consilience.bayes.opinion_inputs import read_opinions, read_present, to_logits
from consilience.core.errors import InputError, name_rows, unknown_name
from consilience.core.samples import Samples


@dataclass(frozen=True)
class Heard:
    """Logits `[n, modality, class]` in float64, −inf where a class is ruled out; who is present; the names.

    columns: what tables call the classes, where opinions came as such with names that are text.
    """

    logits: np.ndarray
    present: np.ndarray
    names: tuple[str, ...]
    columns: tuple[str, ...] | None = None


def hear(
    opinions: Any,
    present: Any = None,
    *,
    names: Sequence[str] | None = None,
    classes: int | None = None,
    probabilities: bool = False,
) -> Heard:
    """Check opinions: a mapping name → `[n, class]`, or one array `[n, modality, class]`.

    names, classes: those of fitting, if this is not it; a modality left out of the mapping is missing for all. A row
    that is all NaN, and a False in present (`[n, modality]`, or a mapping name → `[n]`), mean missing.
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
    called = tuple(names or read.names or (f"m{number + 1}" for number in range(read.experts)))
    logits = torch.where(there[:, :, None], read.rows().detach().cpu().double(), 0.0).numpy()
    _check_logits(logits, called)
    return Heard(logits, there.cpu().numpy(), called, columns)


def opine(expert: Any, x: Any, classes: np.ndarray) -> np.ndarray:
    """A scikit-learn classifier's logits `[n, class]`, columns in the order of `classes`; −inf where it knows no such.

    Of a classifier without probabilities, its decision function.
    """
    if hasattr(expert, "predict_proba"):
        with np.errstate(divide="ignore"):
            said = np.log(expert.predict_proba(x))
    elif hasattr(expert, "decision_function"):
        said = np.asarray(expert.decision_function(x), dtype=np.float64)
        said = np.stack([np.zeros_like(said), said], axis=1) if said.ndim == 1 else said
    else:
        raise InputError(f"{type(expert).__name__} has neither predict_proba nor decision_function: it has no opinions")
    logits = np.full((len(said), len(classes)), -np.inf)
    logits[:, [classes.tolist().index(one) for one in expert.classes_.tolist()]] = said
    return logits


def cross_fit_experts(
    experts: Mapping[str, Any], samples: Samples, y: np.ndarray, classes: np.ndarray, folds: int
) -> np.ndarray:
    """Opinions of scikit-learn classifiers on samples they were not trained on: `[n, modality, class]`.

    y: `[n]` indices into classes.
    """
    from sklearn.base import clone

    if not isinstance(folds, int) or not 2 <= folds <= len(y):
        raise InputError(f"cross-fitting: folds must be between 2 and {len(y)} (the samples), got {folds!r}")
    fold_of = spread_folds(y, folds)
    logits = np.zeros((len(y), len(experts), len(classes)))
    for place, (name, expert) in enumerate(experts.items()):
        there, values = samples.present_in(name), samples[name]
        for fold in range(folds):
            judged = np.flatnonzero(there & (fold_of == fold))
            if len(judged):
                learned = np.flatnonzero(there & (fold_of != fold))
                fitted = fit_expert(name, clone(expert), values[learned], classes[y[learned]])
                logits[judged, place] = opine(fitted, values[judged], classes)
    return logits


def fit_expert(name: str, expert: Any, values: Any, labels: np.ndarray) -> Any:
    """Fit a scikit-learn classifier; what it refuses is told with the modality's name."""
    try:
        return expert.fit(values, labels)
    except ValueError as error:
        raise InputError(f"the expert of modality {name!r} cannot learn from {len(labels)} samples: {error}") from error


def _named_columns(opinions: Any) -> tuple[str, ...] | None:
    """What tables call the classes; that all experts agree is checked where they are read."""
    values = opinions.values() if isinstance(opinions, Mapping) else ()
    named = [tuple(value.columns) for value in values if hasattr(value, "columns")]
    return named[0] if named and all(isinstance(one, str) for one in named[0]) else None


def _check_logits(logits: np.ndarray, names: tuple[str, ...]) -> None:
    """Refuse what is no opinion: NaN in part, +inf, every class ruled out."""
    for place, name in enumerate(names):
        said = logits[:, place]
        for broken, why in (
            (np.isnan(said).any(axis=1), "are NaN in part; a row that is all NaN is missing"),
            (np.isposinf(said).any(axis=1), "hold +inf: a logit is finite, or −inf where a class is ruled out"),
            (np.isneginf(said).all(axis=1), "rule out every class"),
        ):
            if broken.any():
                raise InputError(f"opinions of {name!r} {why} ({name_rows(np.flatnonzero(broken))})")
