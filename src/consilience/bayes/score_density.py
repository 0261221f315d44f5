"""The probability that a modality is sound, from the distance of its scores to those of sound samples."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from consilience.bayes.anomaly_scores import INPUT_RESOLUTION, floored
from consilience.bayes.learned_buffers import Learned

FLOOR, CAP = 0.1, 0.9
_BROKEN_SPREAD = 10.0
# Of uᵀPu, whose usual size is the number of scores, and of the spread of its logarithm, which is near 1. Without these
# bounds samples that repeat one another would make rounding errors look unusual.
_LEAST_DISTANCE = 1e-3
_LEAST_SPREAD = 0.25


def log_distance(scores: Tensor, centre: Tensor, scale: Tensor, precision: Tensor) -> Tensor:
    """t = log uᵀPu with u = (scores − centre)/scale: `[n, score]` → `[n]`; distances below 0.002 are raised smoothly.

    >>> round(log_distance(torch.tensor([[3.0, 4.0]]), torch.zeros(2), torch.ones(2), torch.eye(2)).exp().item(), 4)
    25.0
    """
    u = (scores - centre) / scale
    return floored(torch.einsum("ns,st,nt->n", u, precision, u).clamp(min=0), _LEAST_DISTANCE).log()


def excess(t: Tensor, median: Tensor | float, spread: Tensor | float) -> Tensor:
    """ζ = max(0, (t − median)/spread): only distances above the median are suspicious.

    >>> excess(torch.tensor([1.0, 5.0]), 2.0, 1.5).tolist()
    [0.0, 2.0]
    """
    return ((t - median) / spread).clamp(min=0)


def soundness(zeta: Tensor) -> Tensor:
    """ρ₀ = 1.1 q/(1+q), q = 10·exp(−.495 ζ²): from 1 at ζ = 0 down to 0.

    q is the likelihood ratio of N(0, 1) (sound) to N(0, 10²) (broken) at ζ, and 1.1 makes the largest value 1.

    >>> soundness(torch.tensor([0.0, 2.0, 10.0]))
    tensor([1.0000e+00, 6.3795e-01, 3.4980e-21])
    """
    q = _BROKEN_SPREAD * torch.exp(-0.5 * (1 - _BROKEN_SPREAD**-2) * zeta.square())
    return (1 + 1 / _BROKEN_SPREAD) * q / (1 + q)


def bounded(rho: Tensor, floor: float = FLOOR, cap: float = CAP) -> Tensor:
    """floor + (cap − floor)·ρ: no modality is certainly broken or certainly sound.

    The cap keeps a confident broken modality from deciding alone; the floor lets a modality that only looks unusual
    count where all others agree with it.

    >>> bounded(torch.tensor([0.0, 0.5, 1.0]).double()).tolist()
    [0.1, 0.5, 0.9]
    """
    return floor + (cap - floor) * rho


class ScoreDensity(Learned):
    """ρ₀ of one modality from its scores `[n, score]`. Before `fit` every sample is sound.

    Args:
        scores: The number of scores, which are logarithms.
        resolution: A score that varies by less is constant but for rounding errors.
    """

    centre: Tensor
    scale: Tensor
    precision: Tensor
    median: Tensor
    spread: Tensor

    def __init__(self, scores: int, resolution: float = INPUT_RESOLUTION):
        super().__init__()
        self.resolution = resolution
        self.learn(
            centre=torch.zeros(scores),
            scale=torch.ones(scores),
            precision=torch.zeros(scores, scores),
            median=torch.tensor(0.0),
            spread=torch.tensor(1.0),
        )

    def fit(self, scores: np.ndarray) -> ScoreDensity:
        """Learn the distribution of out-of-fold scores `[n, score]` of sound samples."""
        from sklearn.covariance import ledoit_wolf

        scores = np.asarray(scores, dtype=np.float64)
        centre, scale = np.median(scores, axis=0), scores.std(axis=0)
        # A score that never varies has no scale; in units of 1 it has no effect until it moves.
        scale = np.where(scale > self.resolution, scale, 1.0)
        precision = np.linalg.pinv(ledoit_wolf((scores - centre) / scale)[0])
        self.learn(centre=centre, scale=scale, precision=precision)
        learned = (torch.from_numpy(values) for values in (scores, centre, scale, precision))
        t = log_distance(*learned).numpy()
        median = np.median(t)
        spread = max(1.4826 * np.median(np.abs(t - median)), 0.5 * t.std())
        self.learn(median=median, spread=max(spread, _LEAST_SPREAD))
        return self

    def forward(self, scores: Tensor) -> Tensor:
        """ρ₀ `[n]`, computed in the type of the scores."""
        return soundness(self.excess(scores))

    def excess(self, scores: Tensor) -> Tensor:
        """ζ `[n]` of the scores `[n, score]`."""
        t = log_distance(scores, self.centre.to(scores), self.scale.to(scores), self.precision.to(scores))
        return excess(t, self.median.to(scores), self.spread.to(scores))

    def deviations(self, scores: Tensor) -> Tensor:
        """Scores `[n, score]` in units of the standard deviation of sound samples, from their median."""
        return (scores - self.centre.to(scores)) / self.scale.to(scores)
