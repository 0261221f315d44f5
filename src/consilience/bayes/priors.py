"""Class priors: of training labels, and estimated for unlabelled data with another mix of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from consilience.bayes.calibration import fit_bias_temperature
from consilience.bayes.fuse import fuse
from consilience.bayes.opinion_inputs import as_floats, read_opinions, read_prior
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
        prior: The shares under which the opinions were learned, `[class]`, or those of each expert, as for `fuse`.
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
    given = read_opinions(opinions)
    start = read_prior(prior, given.experts, given.classes, given.names).mean(axis=0)
    estimate = maximise_likelihood(posterior, start, iterations, tolerance)
    return fused.new_tensor(estimate) if hasattr(fused, "new_tensor") else estimate


def estimate_expert_priors(
    opinions: np.ndarray, y: np.ndarray, present: np.ndarray | None = None, *, weight: np.ndarray | None = None
) -> np.ndarray:
    """Estimate the class prior of each expert from its own opinions on labelled samples: `[modality, class]`.

    With the right prior π_j, the opinions z − ln π_j + ln π_y, moved to the shares of y, need no bias per class. The
    bias b and the temperature T of z / T + b that have the smallest log-loss therefore give π_j ∝ π_y exp(−T b).

    Args:
        opinions: Finite logits `[n, modality, class]`.
        y: Class indices `[n]`.
        present: `[n, modality]`.
        weight: Sample weights `[n]`.

    >>> says = np.repeat([0, 1, 0, 1], [640, 160, 40, 160])  # right four times in five, whichever class
    >>> y = np.repeat([0, 1], [800, 200])
    >>> estimate_expert_priors(np.log([[0.8, 0.2], [0.2, 0.8]])[says][:, None], y).round(1)
    array([[0.5, 0.5]])
    """
    temperature, bias = fit_bias_temperature(opinions, y, present, weight=weight)
    shares = empirical_prior(y, opinions.shape[2], weight=weight)
    scores = np.log(shares) - temperature[:, None] * bias
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


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
