"""Fused linear experts are one linear classifier on their concatenated features (the theorem's Remark 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from consilience.bayes.opinion_inputs import read_distribution, read_prior
from consilience.core.errors import InputError


def concatenate_classifiers(
    weights: Sequence[Any], biases: Sequence[Any], prior: Any = None, *, target_prior: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return W and b such that softmax(W v + b) is the fusion of the linear experts W_j v_j + b_j.

    W = [W_1 | … | W_N], b = Σ_j (b_j − ln π_j) + ln π_target, which is Σ_j b_j + (1 − N) ln π where experts share a
    prior. Dependence between the modalities is not modelled (κ = 1): a logistic regression on all features can
    learn it, if there are samples that have all of them.

    Args:
        weights: Each expert's `[class, feature]`. One row, as scikit-learn keeps for two classes, is the log-odds of
            the second class; the result then has one row too.
        biases: Each expert's `[class]`.
        prior, target_prior: As for `fuse`.

    Returns:
        W `[class, Σ_j feature]` and b `[class]`.

    >>> W, b = concatenate_classifiers([[[2.0], [0.0]], [[1.0], [3.0]]], [[0.0, 1.0], [0.5, 0.0]], [0.25, 0.75])
    >>> W.tolist(), (b + np.log([0.25, 0.75])).round(12).tolist()
    ([[2.0, 1.0], [0.0, 3.0]], [0.5, 1.0])
    """
    if len(weights) != len(biases) or not len(weights):
        raise InputError(
            f"classifiers need as many biases as weights, at least one, got {len(weights)} and {len(biases)}"
        )
    blocks = [_read(f"weights of expert {number}", value, 2) for number, value in enumerate(weights)]
    offsets = [_read(f"bias of expert {number}", value, 1) for number, value in enumerate(biases)]
    rows = len(blocks[0])
    for number, (block, offset) in enumerate(zip(blocks, offsets)):
        if len(block) != rows or len(offset) != rows:
            raise InputError(
                f"classifiers must agree on the classes: expert 0 has {rows} rows, expert {number} has weights "
                f"{list(block.shape)} and bias {list(offset.shape)}"
            )
    log_odds = rows == 1
    priors = read_prior(prior, len(blocks), 2 if log_odds else rows)
    target = priors.mean(axis=0)
    if target_prior is not None:
        target = read_distribution("target_prior", target_prior, len(target))
    if not (priors.all() and target.all()):
        raise InputError("a linear classifier cannot exclude a class: every prior must be positive")
    log_prior = np.log(np.broadcast_to(priors, (len(blocks), priors.shape[1]))).sum(axis=0)
    shift = np.log(target) - log_prior
    if log_odds:
        shift = shift[1:] - shift[:1]
    return np.concatenate(blocks, axis=1), np.sum(offsets, axis=0) + shift


def _read(what: str, values: Any, ndim: int) -> np.ndarray:
    array = values.detach().cpu().double().numpy() if hasattr(values, "detach") else np.asarray(values)
    if array.ndim != ndim or array.dtype.kind not in "biuf" or not np.isfinite(array.astype(float)).all():
        form = "[class, feature]" if ndim == 2 else "[class]"
        raise InputError(f"{what} must be finite numbers of shape {form}, got {array.dtype} {list(array.shape)}")
    return array.astype(np.float64)
