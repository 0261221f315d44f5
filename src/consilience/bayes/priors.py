"""Class priors: of training labels, and estimated for unlabelled data with another mix of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from consilience.bayes.fuse import fuse
from consilience.bayes.opinion_inputs import as_floats, read_distribution
from consilience.core.errors import InputError
from consilience.core.settings import checked


def empirical_prior(
    y: np.ndarray, classes: int, smoothing: float = 1.0, *, weight: np.ndarray | None = None
) -> np.ndarray:
    """Return the share of each class among labels: `[class]`.

    Args:
        y: Class indices `[n]`.
        classes: The number of classes.
        smoothing: Added to the count of each class.
        weight: Weights of the labels `[n]`.

    >>> empirical_prior(np.array([0, 0, 0, 1]), 3).round(3)
    array([0.571, 0.286, 0.143])
    """
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InputError(f"prior: y must be class indices [n], got {labels.dtype} of shape {list(labels.shape)}")
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        raise InputError(f"prior: labels go from {labels.min()} to {labels.max()}, the classes from 0 to {classes - 1}")
    counts = np.bincount(labels, weights=weight, minlength=classes) + float(smoothing)
    if not counts.sum() > 0:
        raise InputError("prior: there are no labels to count")
    return counts / counts.sum()


@checked
def estimate_target_prior(
    opinions: Any,
    prior: Any,
    *,
    present: Any = None,
    weights: Any = None,
    log_kappa: Any = None,
    from_probabilities: bool = False,
    iterations: int = 10_000,
    tolerance: float = 1e-9,
) -> Any:
    """Estimate the shares of the classes in unlabelled data whose mix of classes differs from training.

    Expectation maximisation: the mean of the posterior, corrected by the current shares, is the next estimate; the
    likelihood rises at every step. It needs a calibrated posterior, which a fused one is more often than a single
    expert's. Saerens et al. 2002, Adjusting the Outputs of a Classifier to New a Priori Probabilities.

    Args:
        opinions: A posterior `[n, class]` as logits, or the opinions of several experts as `fuse` takes them, which are
            fused first.
        prior: The shares `[class]` under which the opinions were learned.
        present, weights, log_kappa: As for `fuse`.
        from_probabilities: Whether opinions are probabilities instead of logits.
        iterations: The most iterations.
        tolerance: The iteration stops when no share moves by more than this.

    Returns:
        The shares `[class]`.

    Example:
        >>> p = np.array([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9]])
        >>> estimate_target_prior(p, [0.5, 0.5], from_probabilities=True).round(4)  # (.75 − .1) / (.9 − .1)
        array([0.8125, 0.1875])
    """
    if not isinstance(opinions, Mapping) and getattr(opinions, "ndim", np.ndim(opinions)) == 2:
        # A single expert, whose fusion is its own posterior.
        opinions = (opinions if hasattr(opinions, "new_tensor") else np.asarray(opinions))[:, None]
    fused, conflict = fuse(
        opinions,
        prior,
        present=present,
        weights=weights,
        log_kappa=log_kappa,
        from_probabilities=from_probabilities,
        return_conflict=True,
    )
    posterior = _as_float(fused)
    if posterior.ndim != 2 or not len(posterior):
        raise InputError(f"target prior: the posterior must have shape [n, class], got {list(posterior.shape)}")
    posterior = posterior[_as_float(conflict) == 0]  # there the answer is the prior
    start = read_distribution("prior", prior, posterior.shape[1])
    estimate = maximise_likelihood(posterior, start, iterations, tolerance)
    return fused.new_tensor(estimate) if hasattr(fused, "new_tensor") else estimate


def maximise_likelihood(log_posterior: np.ndarray, prior: np.ndarray, iterations: int, tolerance: float) -> np.ndarray:
    """Expectation maximisation: log-posterior `[n, class]` under `prior` → the shares of largest likelihood."""
    possible = prior > 0
    # p(x | c) up to a factor per sample, which cancels; a class that the prior excludes stays excluded.
    ratio = np.where(possible, log_posterior - _log(np.where(possible, prior, 1.0)), -np.inf)
    top = ratio.max(axis=1, keepdims=True)
    informative = np.isfinite(top[:, 0])  # a sample that excludes every class has no information on the shares
    if not informative.any():
        raise InputError("target prior: no sample has a finite log-posterior")
    likelihood = np.exp(ratio[informative] - top[informative])
    shares = prior
    for _ in range(iterations):
        joint = likelihood * shares
        moved = (joint / joint.sum(axis=1, keepdims=True)).mean(axis=0)
        done = np.abs(moved - shares).max() <= tolerance
        shares = moved
        if done:
            break
    return shares / shares.sum()


def _as_float(values: Any) -> np.ndarray:
    return as_floats("the posterior", values).detach().cpu().double().numpy()


def _log(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(values)
