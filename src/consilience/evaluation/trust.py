"""Trust: a method's weights made comparable, and how well they track which modality is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from consilience.core.correlation import correlation
from consilience.core.errors import InputError, name_rows
from consilience.evaluation.metric_inputs import as_array

if TYPE_CHECKING:
    import polars
    from torch import Tensor

Array = TypeVar("Array", np.ndarray, "Tensor")


def trust_from_weights(weights: Array, present: Any = None) -> Array:
    """Raw fusion weights as trust: clipped at 0, each row summing to one over what is present.

    weights, present: `[..., modality]`, NumPy or torch, and so is the result. Where no present modality has a positive
    weight, all of them are trusted alike; where nothing is present, trust is 0 throughout.

    >>> trust_from_weights(np.array([[3.0, 1.0], [-1.0, 2.0], [-1.0, -2.0]]))
    array([[0.75, 0.25],
           [0.  , 1.  ],
           [0.5 , 0.5 ]])
    """
    import torch

    if not isinstance(weights, torch.Tensor):
        return trust_from_weights(torch.tensor(np.asarray(weights)), present).numpy()
    weights = weights if weights.is_floating_point() else weights.float()
    if present is None:
        there = torch.ones_like(weights, dtype=torch.bool)
    elif isinstance(present, torch.Tensor):
        there = present.to(weights.device, torch.bool)
    else:
        there = torch.tensor(np.asarray(present, dtype=bool), device=weights.device)
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
    """How well trust tracks who is right, one entry a modality.

    correlation: r between weights and the modality's own loss, wanted ≤ 0; nan where either is constant ·
    auc: the probability that a sound sample of this modality is trusted more than a corrupted one (½ is chance, ties
    count half); nan where all or none are corrupted, None if it is not known who is · pooled_auc: the same over all
    modalities together.
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


def trust_quality(
    weights: Any, losses: Any, present: Any = None, *, corrupted: Any = None, names: Sequence[str] | None = None
) -> TrustQuality:
    """Measure whether trust goes to the modalities that are right.

    weights: `[n, modality]`, raw, as the method used them · losses: `[n, modality]`, each expert's own loss ·
    present: `[n, modality]`; what is missing is left out · corrupted: `[n, modality]`, who was corrupted, if known.

    Zhang et al., Provable Dynamic Fusion for Low-Quality Multimodal Data (2023), theorem 2: dynamic weights have the
    smaller bound on the error if r(weights, own loss) ≤ 0 for every modality, and the theorem speaks of raw weights.
    The area under the ROC curve is taken on trust, which is comparable between samples.

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


def _like(weights: np.ndarray, what: str, values: Any) -> np.ndarray:
    given = as_array(values)
    if given.shape != weights.shape:
        raise InputError(
            f"{what} must have the weights' shape [n, modality] = {list(weights.shape)}, got {list(given.shape)}"
        )
    return given


def _auc(score: np.ndarray, positive: np.ndarray) -> float:
    """The probability that a positive scores above a negative, ties counting half: Mann and Whitney's U, scaled."""
    above = int(positive.sum())
    below = len(positive) - above
    if not above or not below:
        return float("nan")
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((rank[positive].sum() - above * (above + 1) / 2) / (above * below))
