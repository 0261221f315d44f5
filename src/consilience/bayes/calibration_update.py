"""The calibration of one expert, moved by new rows as far as its old evidence allows.

The old evidence of N_0 rows is known by what the old calibration says of the opinions of the new rows. That says little
where these are few, or unlike those of the fit: a single row cannot tell a temperature from a reliability, and an
opinion that is nearly uniform says nothing about either. There the old evidence would count for nothing, though it is
that of N_0 rows. So what the new rows lack is filled in: with θ the parameters (ln 1/T, and the biases, or the log-odds
of the reliability), I the mean Fisher information about θ that a new row has under the old calibration, and D the least
that a row of a fit usually has,

    + N_0/2 (θ − θ_0)ᵀ [D − I]₊ (θ − θ_0)

is added to the loss. It is 0 where the new rows are as informative as usual.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

# The information that a row of a fit has at least: about ln 1/T, where it is the variance of z / T under the calibrated
# shares; about biases and the log-odds of a reliability, as a share of π(1 − π) and ρ(1 − ρ), the most that it can be.
_OF_TEMPERATURE, _SHARE = 0.05, 0.2
_LOG_BOUND = 12.0  # how far the logarithms of temperatures, and log-odds, are moved

Kind = Literal["temperature", "bias", "robust"]


class Expert(NamedTuple):
    """The calibration of one expert: ρ softmax(z / T + b) + (1 − ρ) π; bias `[class]`."""

    temperature: float
    bias: np.ndarray
    reliability: float


def update_expert(
    old: Expert,
    kind: Kind,
    z: np.ndarray,
    said: np.ndarray,
    labels: np.ndarray,
    importance: np.ndarray,
    prior: np.ndarray,
    *,
    old_rows: float,
    old_share: float,
) -> Expert:
    """Return the calibration that minimises the loss of new rows and that of the old evidence.

    Args:
        old: The calibration before.
        kind: What is moved: the temperature alone, with it the biases, or with it the reliability.
        z: Log-probabilities of the new rows `[n, class]`.
        said: The shares that the old calibration gives them `[n, class]`.
        labels: Class indices `[n]`.
        importance: How much each row counts `[n]`.
        prior: π `[class]`.
        old_rows: N_0.
        old_share: N_0 / n, by how much the old evidence counts for each new row.

    Example:
        >>> old = Expert(2.0, np.zeros(2), 0.9)
        >>> z, even = np.array([[0.0, 1e-6]]), np.array([0.5, 0.5])
        >>> one = (np.array([[0.5, 0.5]]), np.array([1]), np.ones(1), even)
        >>> new = update_expert(old, "robust", z, *one, old_rows=100, old_share=100)  # it says nothing
        >>> round(new.temperature, 4), round(new.reliability, 4)
        (2.0, 0.9)
    """
    from scipy.optimize import minimize

    model = _Model(old, kind, z - z.mean(axis=1, keepdims=True), prior)
    weight = importance[:, None] * (np.eye(len(prior))[labels] + old_share * said)
    missing = old_rows * model.missing_information(said, importance)
    total = weight.sum() + old_rows

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = model.loss(x, weight)
        pull = missing @ (x - model.start)
        return (value + 0.5 * pull @ (x - model.start)) / total, (gradient + pull) / total

    bounds = [(place - _LOG_BOUND, place + _LOG_BOUND) for place in model.start]
    options = {"ftol": 1e-15, "gtol": 1e-11, "maxiter": 500}
    found = minimize(loss, model.start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return model.expert(found.x)


class _Model:
    """ln (ρ softmax(β z + b) + (1 − ρ) π) of each row and class, as a function of the parameters that are moved."""

    def __init__(self, old: Expert, kind: Kind, z: np.ndarray, prior: np.ndarray):
        self.old, self.kind, self.z, self.prior = old, kind, z, prior
        self.sound = min(max(old.reliability, 1e-9), 1 - 1e-9)
        further = {
            "temperature": np.zeros(0),
            "bias": old.bias,
            "robust": np.log([self.sound / (1 - self.sound)]),
        }[kind]
        self.start = np.concatenate([[-np.log(old.temperature)], further])

    def expert(self, x: np.ndarray) -> Expert:
        """The calibration of parameters."""
        bias = x[1:] - x[1:].mean() if self.kind == "bias" else self.old.bias
        sound = float(1 / (1 + np.exp(-x[1]))) if self.kind == "robust" else self.old.reliability
        return Expert(float(np.exp(-x[0])), bias, sound)

    def _log_q(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """ln q `[n, class]`, and its derivatives by the parameters `[n, class, parameter]`."""
        beta, classes = np.exp(x[0]), len(self.prior)
        scores = beta * self.z + (x[1:] if self.kind == "bias" else self.old.bias)
        p = np.exp(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))
        by_beta = beta * (self.z - (p * self.z).sum(axis=1, keepdims=True))
        if self.kind == "robust":
            sound, unsound = 1 / (1 + np.exp(-x[1])), 1 / (1 + np.exp(x[1]))
            q = np.maximum(sound * p + unsound * self.prior, 1e-300)
            by_odds = (p - self.prior) / q * sound * unsound
            return np.log(q), np.stack([by_beta * sound * p / q, by_odds], axis=2)
        log_q = np.log(np.maximum(p, 1e-300))
        if self.kind == "temperature":
            return log_q, by_beta[:, :, None]
        by_bias = np.eye(classes) - p[:, None, :]
        return log_q, np.concatenate([by_beta[:, :, None], by_bias], axis=2)

    def loss(self, x: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray]:
        """−Σ w ln q and its gradient; weight: `[n, class]`."""
        log_q, slopes = self._log_q(x)
        return -float((weight * log_q).sum()), -np.einsum("nc,ncp->p", weight, slopes)

    def missing_information(self, said: np.ndarray, importance: np.ndarray) -> np.ndarray:
        """[D − I]₊ `[parameter, parameter]`."""
        slopes = self._log_q(self.start)[1]
        shares = importance[:, None] * said / importance.sum()
        information = np.einsum("nc,ncp,nck->pk", shares, slopes, slopes)
        spread = {
            "temperature": np.zeros(0),
            "bias": self.prior * (1 - self.prior),
            "robust": np.array([self.sound * (1 - self.sound)]),
        }[self.kind]
        least = np.concatenate([[_OF_TEMPERATURE], np.maximum(_SHARE * spread, 1e-6)])
        root = np.sqrt(least)
        values, vectors = np.linalg.eigh(np.eye(len(least)) - information / np.outer(root, root))
        return (vectors * np.maximum(values, 0.0)) @ vectors.T * np.outer(root, root)
