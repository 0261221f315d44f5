"""Fusing experts' numbers: each is a noisy measurement of the target, and the errors of the experts are dependent.

On a target y, expert m returns a number μ_m and a variance s_m. Out-of-fold, the numbers of all experts are modelled as

    μ_m = a_m + b_m y + ε_m,    ε ~ N(0, D^½ R D^½),    y ~ N(m_0, v_0)

b_m < 1 allows for experts that are trained by the squared error: their numbers are drawn towards the mean. D is the
diagonal matrix of the experts' calibrated variances α_m s_m^γ_m, and R the shrunk correlation of their standardised
errors. m_0 and v_0 are the mean and variance of the training targets. With the unbiased measurements
x_m = (μ_m − a_m)/b_m, whose errors have the covariance Σ, the best linear unbiased estimate has the weights
w = Σ⁻¹1 / 1ᵀΣ⁻¹1 and the precision 1ᵀΣ⁻¹1. The prior is one more measurement, independent of the others:

    1/v = 1/v_0 + 1ᵀΣ⁻¹1,    mean = v (m_0/v_0 + 1ᵀΣ⁻¹x)

Only the present modalities enter. With none present the result is N(m_0, v_0). Targets may be harder to predict where
all experts expect large errors, which changes the variance but not the mean. v is therefore multiplied by α s̄^γ. Here s̄
is the weighted geometric mean of the experts' variances; α and γ are fitted to out-of-fold errors of the fused numbers.

In this file a Gaussian opinion is a tensor whose last dimension holds the numbers of all targets, then their
log-variances: `[..., 2·target]`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from consilience.bayes.calibration import precise_dtype
from consilience.bayes.learned_buffers import Learned
from consilience.core.errors import UnsupportedError
from consilience.core.modality_sets import all_sets, set_numbers
from consilience.core.tracing import is_traced

# Log-variances of experts lie within ±this.
MAX_LOG_VARIANCE = 8.0
# Powers of an expert's own variances that are tried: 0 is one variance for all samples.
_POWERS = np.linspace(0.0, 1.5, 31)
# Up to so many modalities the inverses of all sets are a table in an exported model.
MAX_TRACED_MODALITIES = 10
_MIN_SAMPLES = 3  # for which an expert has opinions; with fewer it has no effect
# The smallest variance of an error as a share of the opinions' second moment, and of anything.
_LEAST_SHARE, _LEAST_VARIANCE = 1e-6, 1e-10
_LEAST_EIGENVALUE = 1e-2  # of R


def split_gaussian(opinions: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers and log-variances of Gaussian opinions: `[..., 2·target]` → `[..., target]` twice.

    >>> split_gaussian(torch.tensor([1.0, 2.0, -1.0, 0.0]))
    (tensor([1., 2.]), tensor([-1.,  0.]))
    """
    numbers, log_variances = opinions.chunk(2, dim=-1)
    return numbers, log_variances


class Measurements(NamedTuple):
    """The experts' numbers as measurements u = h·y + error, where every error has variance 1.

    Attributes:
        u: Numbers minus their mean at y = m_0, in units of the error, `[n, target, modality]`.
        h: What one unit of the target adds to u, `[n, target, modality]`.
        correlation: R, `[target, modality, modality]`.
        mean: m_0, `[target]`.
        variance: v_0, `[target]`.
        inverses: While a model is traced, what `invert_subsets` returns for `all_sets`.
    """

    u: Tensor
    h: Tensor
    correlation: Tensor
    mean: Tensor
    variance: Tensor
    inverses: tuple[Tensor, Tensor] | None = None


def invert_subsets(correlation: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse and log-determinant of R restricted to sets of modalities.

    Args:
        correlation: `[target, modality, modality]`.
        sets: Booleans `[..., modality]`.

    Returns:
        The inverses `[..., target, modality, modality]`, zeros outside the set, and log-determinants `[..., target]`.

    >>> inverse, log_determinant = invert_subsets(torch.eye(2)[None], torch.tensor([True, False]))
    >>> inverse.tolist(), log_determinant.tolist()
    ([[[1.0, 0.0], [0.0, 0.0]]], [0.0])
    """
    inside = sets[..., None, :, None] & sets[..., None, None, :]
    eye = torch.eye(sets.shape[-1], dtype=correlation.dtype, device=correlation.device)
    # Modalities outside the set are independent of those inside, so that their rows do not change the inverse.
    restricted = torch.where(inside, correlation, eye)
    return torch.linalg.inv(restricted) * inside, torch.linalg.slogdet(restricted)[1]


def gaussian_posterior(measured: Measurements, present: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Fuse the measurements of the present modalities.

    Args:
        measured: Of n samples.
        present: Booleans `[n, modality]`.

    Returns:
        Mean and variance `[n, target]`, and the weight of each unbiased measurement x_m in the mean
        `[n, target, modality]`; the weight of the prior is what is left to 1.
    """
    u, h, correlation, mean, variance, inverses = measured
    if inverses is None:
        patterns, which = present.unique(dim=0, return_inverse=True)
        inverse = invert_subsets(correlation, patterns)[0][which]
    else:
        inverse = inverses[0][set_numbers(present)]
    gain = torch.einsum("ntm,ntmk->ntk", h, inverse)
    precision = 1 / variance + (gain * h).sum(dim=2).clamp(min=0)
    weights = gain * h / precision[..., None]
    return mean + (gain * u).sum(dim=2) / precision, 1 / precision, weights


def shrunk_correlation(errors: np.ndarray, present: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The correlation of standardised errors, shrunk towards independence: `[modality, modality]`.

    Each pair is estimated from the samples that have both modalities. The shrinkage is Schäfer and Strimmer's: the sum
    of the estimates' variances, divided by the sum of their squares. Eigenvalues are at least 0.01.

    Args:
        errors: `[n, modality]`, of mean 0.
        present: `[n, modality]`.
        weight: `[n]`.
    """
    z = np.where(present, errors, 0.0)
    weighted, there = z * weight[:, None], present.astype(np.float64)
    squares = (weighted * z).T @ there  # of a, over the samples that have a and b
    size = np.sqrt(squares * squares.T)
    r = np.divide(weighted.T @ z, size, out=np.zeros_like(size), where=size > 0).clip(-1, 1)
    total, of_squares = (there * weight[:, None]).T @ there, (there * weight[:, None] ** 2).T @ there
    count = np.divide(total**2, of_squares, out=np.zeros_like(total), where=of_squares > 0)
    noise = np.where(count > 2, (1 - r**2) ** 2 / np.maximum(count - 1, 1), 1.0)
    off = ~np.eye(len(r), dtype=bool)
    strength = min(1.0, noise[off].sum() / max((r[off] ** 2).sum(), 1e-300)) if off.any() else 0.0
    shrunk = np.where(off, (1 - strength) * r, 1.0)
    values, vectors = np.linalg.eigh(shrunk)
    shrunk = (vectors * values.clip(min=_LEAST_EIGENVALUE)) @ vectors.T
    scale = np.sqrt(np.diag(shrunk))
    return shrunk / np.outer(scale, scale)


def fit_noise(
    y: np.ndarray,
    numbers: np.ndarray,
    log_variances: np.ndarray,
    slope: float,
    variance: float,
    weight: np.ndarray,
    least: float,
) -> tuple[float, float]:
    """The α and γ for which errors of variance exp(α + γ·log s) serve best to predict y from one expert.

    γ = 0 is one variance for all samples. Where s is large because the number is, the best γ is 0, although errors grow
    with s: the squared error of the prediction decides, not the likelihood of the errors.

    Args:
        y: Targets minus their mean, `[n]`.
        numbers: Of the expert, out-of-fold, minus their mean, `[n]`.
        log_variances: log s that the expert returned, minus its mean, `[n]`.
        slope: b of the expert.
        variance: v_0.
        weight: `[n]`.
        least: The smallest variance.
    """
    share = weight / weight.sum()
    relative = np.exp(log_variances[:, None] * _POWERS)
    alpha = np.log(np.maximum(share @ (np.square(numbers - slope * y)[:, None] / relative), least))
    information = slope / (np.exp(alpha) * relative)
    predicted = information * numbers[:, None] / (1 / variance + information * slope)
    best = _smallest_good_power(share @ np.square(y[:, None] - predicted))
    return float(alpha[best]), float(_POWERS[best])


def fit_spread(errors: np.ndarray, log_variances: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """The α and γ for which N(0, exp(α + γ·log s)) fits standardised errors best: `[n]`, `[n]`, `[n]`."""
    share = weight / weight.sum()
    squares = share @ (np.square(errors)[:, None] * np.exp(-log_variances[:, None] * _POWERS))
    alpha = np.log(np.maximum(squares, _LEAST_VARIANCE))
    best = _smallest_good_power(np.exp(alpha + _POWERS * (share @ log_variances)))
    return float(alpha[best]), float(_POWERS[best])


def _smallest_good_power(losses: np.ndarray) -> int:
    """The first of the positive losses that is within 0.1 % of the smallest."""
    return int((losses <= 1.001 * losses.min()).argmax())


class GaussianRule(Learned):
    """The rule above, learned from out-of-fold opinions. Before `fit`, experts have their own variances and R = 1.

    Args:
        modalities: The number of modalities.
        targets: The number of targets.
        dependent: Whether R is estimated; if not, the experts' errors are taken to be independent.

    >>> rule = GaussianRule(2, 1)
    >>> rule(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), torch.tensor([[True, True]]))[0, 0].item() * 3
    2.0
    """

    mean: Tensor
    variance: Tensor
    offset: Tensor
    slope: Tensor
    log_noise: Tensor
    power: Tensor
    centre: Tensor
    low: Tensor
    high: Tensor
    correlation: Tensor
    spread: Tensor

    def __init__(self, modalities: int, targets: int, *, dependent: bool = True):
        super().__init__()
        self.modalities, self.targets, self.dependent = modalities, targets, dependent
        each = torch.ones(modalities, targets)
        self.learn(
            mean=torch.zeros(targets),
            variance=torch.ones(targets),
            offset=0 * each,
            slope=each,
            log_noise=0 * each,
            power=each,
            centre=0 * each,
            low=-MAX_LOG_VARIANCE * each,
            high=MAX_LOG_VARIANCE * each,
            correlation=torch.eye(modalities).expand(targets, -1, -1),
            spread=torch.zeros(2, targets),  # ln α and γ of the fused variance
        )

    def measure(self, opinions: Tensor, present: Tensor) -> Measurements:
        """Gaussian opinions `[n, modality, 2·target]` as measurements, in 64 bits where the device has them."""
        exact = torch.where(present[:, :, None], opinions.to(precise_dtype(opinions)), 0.0)
        learned = {name: values.to(exact) for name, values in self.named_buffers()}
        scale = torch.exp(-0.5 * (learned["log_noise"] + learned["power"] * self._deviations(exact)))
        usual = learned["offset"] + learned["slope"] * learned["mean"]
        u, h = (split_gaussian(exact)[0] - usual) * scale, learned["slope"] * scale
        measured = Measurements(
            u.transpose(1, 2), h.transpose(1, 2), learned["correlation"], learned["mean"], learned["variance"]
        )
        if is_traced():
            inverses = self.table("inverse").to(exact), self.table("log_determinant").to(exact)
            measured = measured._replace(inverses=inverses)
        return measured

    def tables(self) -> dict[str, Tensor]:
        """The inverses of R for all sets of modalities."""
        if self.modalities > MAX_TRACED_MODALITIES:
            raise UnsupportedError(
                f"the fusion of numbers is exported with a table of all sets of modalities, of at most "
                f"{MAX_TRACED_MODALITIES} modalities, got {self.modalities}"
            )
        inverse, log_determinant = invert_subsets(self.correlation.double(), all_sets(self.modalities))
        return {"inverse": inverse, "log_determinant": log_determinant}

    def forward(self, opinions: Tensor, present: Tensor) -> Tensor:
        """Fuse Gaussian opinions `[n, modality, 2·target]` into one, `[n, 2·target]`; present: `[n, modality]`."""
        return self.fuse(opinions, present)[0]

    def fuse(self, opinions: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """The fused opinion `[n, 2·target]`, and each modality's weight in the mean, averaged over targets."""
        mean, variance, weights = gaussian_posterior(self.measure(opinions, present), present)
        offset, power = self.spread.to(mean)
        factor = offset + power * self._mean_deviation(opinions, present, weights)
        log_variance = variance.log() + torch.where(present.any(dim=1, keepdim=True), factor, 0.0)
        return torch.cat([mean, log_variance], dim=1), weights.mean(dim=1)

    def _deviations(self, opinions: Tensor) -> Tensor:
        """The experts' log-variances minus their means, `[n, modality, target]`."""
        log_variances = split_gaussian(opinions)[1].to(precise_dtype(opinions))
        # No sample is more certain than those that the variances were calibrated on.
        low, high, centre = (values.to(log_variances) for values in (self.low, self.high, self.centre))
        return log_variances.clamp(low, high) - centre

    def _mean_deviation(self, opinions: Tensor, present: Tensor, weights: Tensor) -> Tensor:
        """ln s̄: the mean of `_deviations` with the sizes of the weights `[n, target, modality]`: `[n, target]`."""
        there = torch.where(present[:, :, None], self._deviations(opinions), 0.0)
        share = weights.abs().transpose(1, 2)
        return (share * there).sum(dim=1) / share.sum(dim=1).clamp(min=_LEAST_VARIANCE)

    def fit(
        self, opinions: np.ndarray, y: np.ndarray, present: np.ndarray, *, weight: np.ndarray | None = None
    ) -> GaussianRule:
        """Learn from opinions on samples that the experts were not trained on.

        Args:
            opinions: `[n, modality, 2·target]`.
            y: Standardised numbers `[n, target]`.
            present: `[n, modality]`.
            weight: Sample weights `[n]`.
        """
        weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
        y = np.asarray(y, dtype=np.float64)
        numbers, log_variances = np.split(np.asarray(opinions, dtype=np.float64), 2, axis=2)
        mean = np.average(y, axis=0, weights=weight)
        variance = np.average((y - mean) ** 2, axis=0, weights=weight).clip(min=_LEAST_VARIANCE)
        shape = (self.modalities, self.targets)
        offset, slope, log_noise, power, centre, low, high = np.zeros((7, *shape))
        correlation = np.tile(np.eye(self.modalities), (self.targets, 1, 1))
        for t in range(self.targets):
            errors = np.zeros(present.shape)
            for m in range(self.modalities):
                rows = np.flatnonzero(present[:, m])
                if len(rows) < _MIN_SAMPLES:
                    continue
                x, s, w = numbers[rows, m, t], log_variances[rows, m, t], weight[rows]
                offset[m, t], slope[m, t] = _line(y[rows, t], x, w)
                low[m, t], high[m, t], centre[m, t] = s.min(), s.max(), np.average(s, weights=w)
                away, known = s - centre[m, t], y[rows, t] - mean[t]
                seen = x - offset[m, t] - slope[m, t] * mean[t]
                least = _LEAST_SHARE * np.average(seen**2, weights=w) + _LEAST_VARIANCE
                log_noise[m, t], power[m, t] = fit_noise(known, seen, away, slope[m, t], variance[t], w, least)
                error = seen - slope[m, t] * known
                errors[rows, m] = error * np.exp(-0.5 * (log_noise[m, t] + power[m, t] * away))
            if self.dependent:
                correlation[t] = shrunk_correlation(errors, present, weight)
        self.learn(
            mean=mean,
            variance=variance,
            offset=offset,
            slope=slope,
            log_noise=log_noise,
            power=power,
            centre=centre,
            low=low,
            high=high,
            correlation=correlation,
        )
        self._fit_spread(torch.from_numpy(np.asarray(opinions, dtype=np.float64)), y, torch.from_numpy(present), weight)
        return self

    def _fit_spread(self, opinions: Tensor, y: np.ndarray, present: Tensor, weight: np.ndarray) -> None:
        """Calibrate the variance of the fused numbers of samples that have any modality."""
        device = self.spread.device
        opinions, present = opinions.to(device), present.to(device)
        mean, variance, weights = gaussian_posterior(self.measure(opinions, present), present)
        away = self._mean_deviation(opinions, present, weights).cpu().numpy()
        errors = (y - mean.cpu().numpy()) / variance.sqrt().cpu().numpy()
        rows = np.flatnonzero(present.any(dim=1).cpu().numpy() & (weight > 0))
        if len(rows) >= _MIN_SAMPLES:
            each = [fit_spread(errors[rows, t], away[rows, t], weight[rows]) for t in range(self.targets)]
            self.learn(spread=np.array(each).T)


def _line(y: np.ndarray, x: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Offset and slope of the regression of opinions x on targets y; no slope below 0, where the expert is useless."""
    mean_x, mean_y = np.average(x, weights=weight), np.average(y, weights=weight)
    spread = np.average((y - mean_y) ** 2, weights=weight)
    slope = max(0.0, np.average((x - mean_x) * (y - mean_y), weights=weight) / spread) if spread > 0 else 0.0
    return float(mean_x - slope * mean_y), float(slope)
