"""What a model's experts said about labelled samples: their weights, their own losses, and the fused one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import InputError, UnsupportedError
from consilience.core.samples import Samples
from consilience.evaluation.metric_inputs import as_array, class_columns

if TYPE_CHECKING:
    from consilience.methods import Prediction

# How far below the most probable class one counts that is ruled out: far, but not infinitely.
_RULED_OUT = 2 * float(np.log(np.finfo(np.float64).eps))


@dataclass(frozen=True)
class ExpertRecord:
    """Labelled samples as the experts saw them.

    weights: `[n, modality]`, raw · losses: `[n, modality]`, each expert's own, 0 where missing · present: the same
    shape · fused: `[n]`, the loss of the method's output · averaged: `[n]`, the loss of the mean of the opinions that
    are present, which is what static fusion makes of the same experts.
    """

    names: tuple[str, ...]
    weights: np.ndarray
    losses: np.ndarray
    present: np.ndarray
    fused: np.ndarray
    averaged: np.ndarray

    @classmethod
    def concatenate(cls, parts: Sequence[ExpertRecord]) -> ExpertRecord:
        """Records of one model on several sets of samples as one."""
        fields = ("weights", "losses", "present", "fused", "averaged")
        return cls(parts[0].names, *(np.concatenate([getattr(part, name) for part in parts]) for name in fields))


def record_experts(model: Any, X: Any, y: Any) -> ExpertRecord:
    """Ask a fitted model (an estimator, or a `training.Model`) about labelled samples."""
    prediction, present, names = predict_fully(model, X)
    inner = getattr(model, "model_", model)
    if prediction.weights is None or prediction.opinions is None:
        raise lacks_weights(getattr(inner, "name", type(model).__name__), prediction)
    task = getattr(inner, "task", None)
    if task is not None:
        return record_prediction(prediction, task.encode(as_array(y)), present, names, task.classification)
    columns = class_columns(y, prediction.output.shape[1], model.classes_)
    return record_prediction(prediction, columns, present, names)


def record_prediction(
    prediction: Prediction, y: np.ndarray, present: np.ndarray, names: Sequence[str], classification: bool = True
) -> ExpertRecord:
    """From a prediction with opinions and weights; y: encoded, class indices `[n]` or standardised `[n, target]`."""
    assert prediction.opinions is not None
    assert prediction.weights is not None
    output, weights = as_array(prediction.output).astype(np.float64), as_array(prediction.weights).astype(np.float64)
    there = np.asarray(present, dtype=bool)
    said = np.where(there[:, :, None], as_array(prediction.opinions).astype(np.float64), 0.0)
    if len(y) != len(output):
        raise InputError(f"there are {len(y)} targets but {len(output)} samples")
    if classification:
        said, output = _finite(said), _finite(output)
    losses = np.where(there, _losses(said, y[:, None], classification), 0.0)
    share = there / np.maximum(there.sum(axis=1, keepdims=True), 1)
    averaged = _losses(np.einsum("nm,nmc->nc", share, said), y, classification)
    weights = np.where(there, weights, 0.0)
    return ExpertRecord(tuple(names), weights, losses, there, _losses(output, y, classification), averaged)


def predict_fully(model: Any, X: Any) -> tuple[Prediction, np.ndarray, tuple[str, ...]]:
    """A fitted model's prediction with opinions and weights, who was present `[n, modality]`, and their names."""
    from consilience.training import Model

    if isinstance(model, Model):
        raw = model.preparation.raw
        kinds = None if isinstance(X, Samples) else {name: raw[name].kind for name in X if name in raw}
        samples = Samples.of(X, kinds=kinds)
        return model.predict(samples), who_is_there(samples, tuple(raw)), tuple(raw)
    if not hasattr(model, "full_prediction"):
        raise InputError(
            "trust diagnostics read a fitted FusionClassifier, FusionRegressor, BayesFusion or training.Model, got "
            f"{type(model).__name__}"
        )
    prediction = model.full_prediction(X)
    return prediction, as_array(prediction.extra["present"]), tuple(model.modalities_)


def who_is_there(samples: Samples, names: Sequence[str]) -> np.ndarray:
    """Which of the named modalities each sample has: `[n, modality]`."""
    nobody = np.zeros(len(samples), dtype=bool)
    return np.stack([samples.present_in(name) if name in samples else nobody for name in names], axis=1)


def lacks_weights(name: str, prediction: Prediction) -> UnsupportedError:
    """The error for a method that joins features, or that does not say whom it trusts."""
    lacking = "opinions of single modalities" if prediction.opinions is None else "weights"
    if prediction.opinions is None and prediction.weights is None:
        lacking = "weights and no opinions of single modalities"
    return UnsupportedError(
        f"trust diagnostics compare each modality's weight with its own loss, and {name!r} has no {lacking}: use a "
        "method that joins opinions, such as late, bayes or bayes-robust"
    )


def _losses(said: np.ndarray, y: np.ndarray, classification: bool) -> np.ndarray:
    """The loss of logits or numbers `[..., output]`: `[...]`; y has one dimension for each sample, and broadcasts."""
    if not classification:
        return np.square(said - y).mean(axis=-1)
    from scipy.special import log_softmax

    target = np.broadcast_to(y, said.shape[:-1])[..., None]
    return -np.take_along_axis(log_softmax(said, axis=-1), target, axis=-1)[..., 0]


def _finite(logits: np.ndarray) -> np.ndarray:
    """Logits `[..., class]` without −inf, so that whoever rules out the truth has a loss that can be averaged."""
    return np.where(np.isneginf(logits), logits.max(axis=-1, keepdims=True) + _RULED_OUT, logits)
