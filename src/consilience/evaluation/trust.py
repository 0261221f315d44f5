"""Trust: a method's weights made comparable, how well they track which modality is right, and the experts' losses.

`evaluation.diagnostics` puts them together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from consilience.core.correlation import correlation
from consilience.core.errors import InputError, UnsupportedError, name_rows
from consilience.core.modalities import to_numpy
from consilience.core.samples import Samples
from consilience.core.settings import checked
from consilience.evaluation.metric_inputs import as_array, class_columns
from consilience.evaluation.weighted_sum import (
    SumBound,
    Terms,
    bound_sum,
    bound_terms,
    is_weighted_sum,
    weighted_terms,
    why_unbounded,
)

if TYPE_CHECKING:
    import polars
    from torch import Tensor

    from consilience.methods import Prediction

Array = TypeVar("Array", np.ndarray, "Tensor")
# The logit of a class with probability 0, below that of the most probable class: far, but finite.
_RULED_OUT = 2 * float(np.log(np.finfo(np.float64).eps))


@checked
def trust_from_weights(weights: Array, present: Any = None) -> Array:
    """Turn raw fusion weights into trust: clipped at 0, each row summing to one over the present modalities.

    Where no present modality has a positive weight, all are trusted alike; where nothing is present, trust is 0.

    Args:
        weights: `[..., modality]`, NumPy or torch; the result is of the same kind.
        present: Which modalities are present, of the same shape; all by default.

    Example:
        >>> trust_from_weights(np.array([[3.0, 1.0], [-1.0, 2.0], [-1.0, -2.0]]))
        array([[0.75, 0.25],
               [0.  , 1.  ],
               [0.5 , 0.5 ]])
    """
    import torch

    if not isinstance(weights, torch.Tensor):
        given = to_numpy("weights", weights)
        if given.dtype.kind not in "biuf":
            raise InputError(f"weights must be numbers, got {given.dtype}")
        tensor: Any = torch.tensor(given.astype(given.dtype.newbyteorder("=")))
        trust: Any = trust_from_weights(tensor, present)
        return trust.numpy()
    weights = weights if weights.is_floating_point() else weights.float()
    if present is None:
        there = torch.ones_like(weights, dtype=torch.bool)
    elif isinstance(present, torch.Tensor):
        there = present.to(weights.device, torch.bool)
    else:
        there = torch.tensor(to_numpy("present", present).astype(bool), device=weights.device)
    if there.shape != weights.shape:
        raise InputError(
            f"present must have the weights' shape [..., modality] = {list(weights.shape)}, got {list(there.shape)}"
        )
    broken = ~weights.isfinite() & there
    if broken.any():
        rows = broken.reshape(-1, weights.shape[-1]).any(dim=1).nonzero()[:, 0].tolist()
        raise InputError(f"weights of present modalities must be finite ({name_rows(rows)})")
    positive = weights.masked_fill(~there, 0).clamp(min=0)
    largest = positive.amax(dim=-1, keepdim=True)
    # Dividing by the largest first keeps the sum between 1 and the number of modalities, however large the weights.
    share = torch.where(largest > 0, positive / largest.where(largest > 0, 1), there.to(weights.dtype))
    return share / share.sum(dim=-1, keepdim=True).clamp(min=1)


@dataclass(frozen=True)
class TrustQuality:
    """How well trust tracks which modality is right, one entry per modality.

    Attributes:
        names: The modalities.
        correlation: r between weights and the modality's own loss, wanted ≤ 0; nan where either is constant.
        auc: The probability that a sound sample of this modality is trusted more than a corrupted one (½ is chance,
            ties count half); nan where all or none are corrupted, None if `corrupted` was not given.
        pooled_auc: The same over all modalities together.
    """

    names: tuple[str, ...]
    correlation: np.ndarray
    auc: np.ndarray | None = None
    pooled_auc: float | None = None

    def table(self) -> polars.DataFrame:
        """One row a modality: `modality`, `correlation` and, if known, `auc`."""
        import polars

        columns: dict[str, Any] = {"modality": list(self.names), "correlation": self.correlation}
        return polars.DataFrame(columns if self.auc is None else columns | {"auc": self.auc})


@checked
def trust_quality(
    weights: Any, losses: Any, present: Any = None, *, corrupted: Any = None, names: Sequence[str] | None = None
) -> TrustQuality:
    """Measure whether trust goes to the modalities that are right.

    Zhang et al., Provable Dynamic Fusion for Low-Quality Multimodal Data (2023), theorem 2: dynamic weights have the
    smaller bound on the error if r(weights, own loss) ≤ 0 for every modality, and the theorem speaks of raw weights.
    The area under the ROC curve is taken on trust, which is comparable between samples.

    Args:
        weights: `[n, modality]`, raw, as the method used them.
        losses: Each expert's own loss `[n, modality]`.
        present: `[n, modality]`; missing modalities are left out.
        corrupted: Which modalities were corrupted `[n, modality]`, if known.
        names: Of the modalities.

    Example:
        >>> quality = trust_quality([[3.0, 1.0], [1.0, 2.0], [2.0, 0.0]], [[0.1, 1.0], [2.0, 0.3], [0.9, 2.0]])
        >>> quality.correlation.round(2)
        array([-1.  , -0.99])
    """
    given = as_array(weights)
    if given.ndim != 2 or not given.size:
        raise InputError(f"weights must have shape [n, modality], got {list(given.shape)}")
    n, modalities = given.shape
    labels = tuple(f"modality {column}" for column in range(modalities)) if names is None else tuple(names)
    if len(labels) != modalities:
        raise InputError(f"weights have {modalities} modalities but there are {len(labels)} names: {labels}")
    own = _like(given, "losses", losses)
    there = np.ones((n, modalities), bool) if present is None else _like(given, "present", present).astype(bool)
    for what, values in (("weights", given), ("losses", own)):
        broken = ~np.isfinite(values) & there
        for column in np.flatnonzero(broken.any(axis=0))[:1]:
            rows = np.flatnonzero(broken[:, column])
            raise InputError(f"{what} of {labels[column]} contain NaN or infinity ({name_rows(rows)})")
    r = np.array([correlation(given[:, m], own[:, m], there[:, m]).r for m in range(modalities)])
    if corrupted is None:
        return TrustQuality(labels, r)
    unsound = _like(given, "corrupted", corrupted).astype(bool)
    trust = trust_from_weights(given, there)
    auc = [_auc(trust[there[:, m], m], ~unsound[there[:, m], m]) for m in range(modalities)]
    return TrustQuality(labels, r, np.array(auc), _auc(trust[there], ~unsound[there]))


@dataclass(frozen=True)
class ExpertRecord:
    """Weights and losses of the experts of a model on labelled samples.

    Attributes:
        names: The modalities.
        weights: Raw fusion weights `[n, modality]`.
        losses: Each expert's own loss `[n, modality]`, 0 where its modality is missing.
        present: Which modalities each sample has `[n, modality]`.
        fused: The loss of the method's output `[n]`.
        summed: Whether the output is the weighted sum of the opinions.
        guessing: ln K, the loss of equal odds; None where losses are squared errors.
        opinions: `[n, modality, output]`, 0 where a modality is missing. None: not kept.
        output: The method's `[n, output]`. None: not kept.
        truth: Encoded targets. None: not kept.
    """

    names: tuple[str, ...]
    weights: np.ndarray
    losses: np.ndarray
    present: np.ndarray
    fused: np.ndarray
    summed: bool = False
    guessing: float | None = None
    opinions: np.ndarray | None = None
    output: np.ndarray | None = None
    truth: np.ndarray | None = None

    @property
    def trust(self) -> np.ndarray:
        """The weights as trust `[n, modality]`."""
        return trust_from_weights(self.weights, self.present)

    @property
    def terms(self) -> Terms:
        """What eq. 2 sums over modalities, of weights and losses."""
        return weighted_terms(self.weights, self.losses, self.present)

    @property
    def trust_terms(self) -> Terms:
        """The same of trust, for the sum Σ trust·f, which is not the method's output."""
        return bound_terms(self.trust, self.losses, self.present)

    @property
    def unbounded(self) -> str | None:
        """Why theorem 1 does not bound the loss of the method's output, or None."""
        return why_unbounded(self.weights, self.present, self.summed, self.guessing is not None)

    @property
    def sum_bound(self) -> SumBound | None:
        """The bound on the loss of the method's output, where there is one."""
        if self.unbounded is not None:
            return None
        return bound_sum(self.weights, self.losses, self.present, self.guessing or 0.0)

    @classmethod
    def concatenate(cls, parts: Sequence[ExpertRecord]) -> ExpertRecord:
        """Records of one model on several sets of samples as one."""
        fields = ("weights", "losses", "present", "fused")
        kept: Any = {name: np.concatenate([getattr(part, name) for part in parts]) for name in fields}
        for name in ("opinions", "output", "truth"):
            values = [getattr(part, name) for part in parts]
            kept[name] = None if any(value is None for value in values) else np.concatenate(values)
        summed = all(part.summed for part in parts)
        return cls(parts[0].names, summed=summed, guessing=parts[0].guessing, **kept)


def record_experts(model: Any, X: Any, y: Any) -> ExpertRecord:
    """Record what the experts of a fitted model (an estimator, or a `training.Model`) predict for labelled samples."""
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
    prediction: Prediction,
    y: np.ndarray,
    present: np.ndarray,
    names: Sequence[str],
    classification: bool = True,
    *,
    keep_opinions: bool = True,
) -> ExpertRecord:
    """From a prediction with opinions and weights; y: encoded, class indices `[n]` or standardised `[n, target]`."""
    assert prediction.opinions is not None
    assert prediction.weights is not None
    output, weights = as_array(prediction.output).astype(np.float64), as_array(prediction.weights).astype(np.float64)
    there = np.asarray(present, dtype=bool)
    opinions = np.where(there[:, :, None], as_array(prediction.opinions).astype(np.float64), 0.0)
    if len(y) != len(output):
        raise InputError(f"there are {len(y)} targets but {len(output)} samples")
    if classification:
        opinions, output = _finite(opinions), _finite(output)
    weights, some = np.where(there, weights, 0.0), there.any(axis=1)
    return ExpertRecord(
        tuple(names),
        weights,
        np.where(there, losses_of(opinions, y[:, None], classification), 0.0),
        there,
        losses_of(output, y, classification),
        summed=is_weighted_sum(output[some], weights[some], opinions[some], classification),
        guessing=math.log(output.shape[1]) if classification else None,
        opinions=opinions if keep_opinions else None,
        output=output if keep_opinions else None,
        truth=y if keep_opinions else None,
    )


def predict_fully(model: Any, X: Any) -> tuple[Prediction, np.ndarray, tuple[str, ...]]:
    """Return a fitted model's prediction with opinions and weights, `present` `[n, modality]`, and the modalities."""
    from consilience.training import Model

    if isinstance(model, Model):
        raw = model.preparation.raw
        kinds = None if isinstance(X, Samples) else {name: raw[name].kind for name in X if name in raw}
        samples = Samples.of(X, kinds=kinds)
        return model.predict(samples), samples.present_among(tuple(raw)), tuple(raw)
    if not hasattr(model, "full_prediction"):
        raise InputError(
            "trust diagnostics read a fitted FusionClassifier, FusionRegressor, BayesFusion or training.Model, got "
            f"{type(model).__name__}"
        )
    prediction = model.full_prediction(X)
    return prediction, as_array(prediction.extra["present"]), tuple(model.modalities_)


def targets_of(X: Any, y: Any, what: str) -> Any:
    """Return y, or that of the `Samples` X; `what` names X in the error where there is neither."""
    truth = X.y if y is None and isinstance(X, Samples) else y
    if truth is None:
        raise InputError(f"trust diagnostics need the targets of {what}, and the samples carry none")
    return truth


def lacks_weights(name: str, prediction: Prediction) -> UnsupportedError:
    """Return the error for a method without weights, or without opinions of single modalities."""
    lacking = "opinions of single modalities" if prediction.opinions is None else "weights"
    if prediction.opinions is None and prediction.weights is None:
        lacking = "weights and no opinions of single modalities"
    return UnsupportedError(
        f"trust diagnostics compare each modality's weight with its own loss, and {name!r} has no {lacking}: use a "
        "method that joins opinions, such as late, bayes or bayes-robust"
    )


def signed(value: float, digits: int = 2) -> str:
    """Return a number with its sign, written as in print.

    >>> signed(-0.314), signed(0.0), signed(-0.0001)
    ('−0.31', '0.00', '0.00')
    """
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text[1:]


def losses_of(opinions: np.ndarray, y: np.ndarray, classification: bool) -> np.ndarray:
    """Return the loss `[...]` of logits or numbers `[..., output]`; y has one dimension a sample, and broadcasts."""
    if not classification:
        return np.square(opinions - y).mean(axis=-1)
    from scipy.special import log_softmax

    target = np.broadcast_to(y, opinions.shape[:-1])[..., None]
    return -np.take_along_axis(log_softmax(opinions, axis=-1), target, axis=-1)[..., 0]


def _finite(logits: np.ndarray) -> np.ndarray:
    """Logits `[..., class]` without −inf, so that a true class of probability 0 has a finite loss."""
    return np.where(np.isneginf(logits), logits.max(axis=-1, keepdims=True) + _RULED_OUT, logits)


def _like(weights: np.ndarray, what: str, values: Any) -> np.ndarray:
    given = as_array(values)
    if given.shape != weights.shape:
        raise InputError(
            f"{what} must have the weights' shape [n, modality] = {list(weights.shape)}, got {list(given.shape)}"
        )
    return given


def _auc(score: np.ndarray, positive: np.ndarray) -> float:
    """The probability that a positive scores above a negative, ties counting half; nan where one of them is absent."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(positive, score)) if positive.any() and not positive.all() else float("nan")
