"""Bayes' rule with everything in it that is learned from opinions: prior, calibration, dependence."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from consilience.bayes.calibration import (
    calibrate,
    fit_bias_temperature,
    fit_robust_temperature,
    fit_temperature,
)
from consilience.bayes.class_gaussians import ClassGaussian, contrasts, fit_gaussian
from consilience.bayes.copula import ClassCopula, fit_copula, normal_quantiles
from consilience.bayes.fuse import fuse
from consilience.bayes.kappa import (
    Coefficients,
    Estimate,
    Kappa,
    centred,
    combine_terms,
    cross_fit,
    fit_coefficients,
    recipe_weights,
)
from consilience.bayes.learned_buffers import Learned
from consilience.bayes.priors import empirical_prior
from consilience.bayes.reliability import log_mixture
from consilience.core.errors import InputError, unknown_name

Calibration = Literal["temperature", "robust", "bias"]
# The logarithm of the least positive float64: what a probability of 0 is read as, if none was seen in fitting.
_LEAST = -745.0
# Entries of the covariances of all classes; 2²⁷ of them are a gigabyte.
_MOST_ENTRIES = 2**27


class BayesRule(Learned):
    """ln π + Σ_j w_j (z_j / T_j + b_j − ln π) + α ln κ̂ + β ln p̂, learned from opinions; before `fit`, the theorem.

    kappa: "gaussian" or "copula" estimate the dependence between experts (`decision.kappa`), "none" takes them for
    independent given the class · calibration: of each expert, "temperature", "robust" (and a share of what it says that
    has nothing to do with the class, for experts who are sometimes wrong and sure of it), "bias" (and a bias per class)
    or None. Opinions are logits `[n, modality, class]` with any offsets, −inf allowed; absent ones may hold anything.
    Computed in float64.
    """

    prior: Tensor
    temperature: Tensor
    bias: Tensor
    reliability: Tensor
    floor: Tensor
    weights: Tensor
    alpha: Tensor
    beta: Tensor
    low: Tensor
    high: Tensor
    mean: Tensor
    covariance: Tensor
    knots: Tensor

    def __init__(
        self,
        modalities: int,
        classes: int,
        *,
        kappa: Kappa = "gaussian",
        calibration: Calibration | None = "temperature",
    ):
        super().__init__()
        if kappa not in get_args(Kappa):
            raise unknown_name("kappa", kappa, get_args(Kappa))
        if calibration is not None and calibration not in get_args(Calibration):
            raise unknown_name("calibration", calibration, get_args(Calibration), "None leaves opinions as they are")
        self.kappa, self.calibration = kappa, calibration
        self.modalities, self.classes = modalities, classes
        self.learn(
            prior=torch.full((classes,), 1 / classes),
            temperature=torch.ones(modalities),
            bias=torch.zeros(modalities, classes),
            reliability=torch.ones(modalities),
            floor=torch.full((modalities,), _LEAST),
            weights=torch.ones(modalities),
        )
        if not self.dependent:
            return
        features = modalities * (classes - 1)
        if classes * features**2 > _MOST_ENTRIES:
            raise InputError(
                f"kappa={kappa!r} needs a covariance of {features} features for each of {classes} classes, more than "
                f"{_MOST_ENTRIES:.1e} numbers: use kappa='none'"
            )
        self.learn(
            alpha=torch.tensor(0.0),
            beta=torch.tensor(0.0),
            low=torch.zeros(modalities, classes),
            high=torch.zeros(modalities, classes),
            mean=torch.zeros(classes, features),
            covariance=torch.eye(features).repeat(classes, 1, 1),
        )
        if kappa == "copula":
            self.learn(knots=normal_quantiles(torch.float32).repeat(classes, features, 1))

    @property
    def dependent(self) -> bool:
        """Whether dependence between experts is modelled; a single expert depends on no one."""
        return self.kappa != "none" and self.modalities > 1

    def forward(
        self,
        opinions: Tensor,
        present: Tensor | None = None,
        target_prior: Tensor | None = None,
        reliability: Tensor | None = None,
    ) -> Tensor:
        """The log-posterior: `[n, modality, class]`, present and reliability `[n, modality]` → `[n, class]`.

        target_prior: `[class]`, the shares of the classes where it is used, if they differ from those learned under.
        """
        there = _everyone(opinions) if present is None else present
        z = self.calibrated(opinions, there)
        weights, log_kappa = self._terms(z, there)
        if log_kappa is not None and reliability is not None:
            # What is estimated of all together holds as far as the least reliable of them does.
            log_kappa = log_kappa * torch.where(there, reliability.to(z.dtype), 1.0).amin(1, keepdim=True)
        prior = self.prior.to(z.dtype)
        return fuse(
            z,
            prior / prior.sum(),
            target_prior=None if target_prior is None else target_prior.to(z),
            present=there,
            weights=weights,
            reliability=None if reliability is None else reliability.to(z.dtype),
            log_kappa=log_kappa,
        )

    def calibrated(self, opinions: Tensor, present: Tensor) -> Tensor:
        """Each expert's calibrated log-probabilities, finite everywhere; absent ones say nothing: all classes alike."""
        wide = opinions.to(torch.float32 if opinions.device.type == "mps" else torch.float64)
        wide = torch.where(present[:, :, None], wide, 0.0)
        log_p = torch.maximum(wide.log_softmax(2), self.floor.to(wide)[:, None])
        z = calibrate(log_p, self.temperature.to(wide), self.bias.to(wide)).log_softmax(2)
        sound = self.reliability.to(wide)[:, None]
        return torch.logaddexp(sound.log() + z, (1 - sound).log() + self.prior.to(wide).log())

    def expert_weights(self, present: Tensor) -> Tensor:
        """How much each expert's calibrated evidence counts: `[n, modality]`, 0 where absent."""
        wide = torch.float32 if present.device.type == "mps" else torch.float64
        return recipe_weights(self.weights.to(wide), present) if self.dependent else present.to(wide)

    def fit(
        self,
        opinions: np.ndarray,
        y: np.ndarray,
        present: np.ndarray | None = None,
        *,
        prior: np.ndarray | None = None,
        weight: np.ndarray | None = None,
        reliability: np.ndarray | None = None,
    ) -> BayesRule:
        """Learn from opinions `[n, modality, class]` on samples that the experts were not trained on.

        y: `[n]` class indices · prior: `[class]`, by default the shares of y · weight: `[n]`, how much each sample
        counts in prior, calibration and coefficients; in the Gaussians of the classes all count alike · reliability:
        `[n, modality]`, if `forward` will be given one.
        """
        there = np.ones(opinions.shape[:2], dtype=bool) if present is None else present
        self.learn(prior=empirical_prior(y, self.classes, weight=weight) if prior is None else prior)
        log_p = torch.from_numpy(np.where(there[:, :, None], opinions, 0.0).astype(np.float64)).log_softmax(2).numpy()
        self.learn(floor=_find_floor(log_p, there))
        log_p = np.maximum(log_p, self.floor.double().cpu().numpy()[:, None])
        if self.calibration == "robust":
            shares = self.prior.double().cpu().numpy()
            temperature, usual = fit_robust_temperature(log_p, y, shares, there, weight=weight)
            self.learn(temperature=temperature, reliability=usual)
        elif self.calibration == "temperature":
            self.learn(temperature=fit_temperature(log_p, y, there, weight=weight))
        elif self.calibration == "bias":
            temperature, bias = fit_bias_temperature(log_p, y, there, weight=weight)
            self.learn(temperature=temperature, bias=bias)
        if self.dependent:
            rho = None if reliability is None else torch.from_numpy(reliability)
            self._fit_dependence(torch.from_numpy(log_p), torch.from_numpy(y), torch.from_numpy(there), weight, rho)
        return self

    def _fit_dependence(
        self, opinions: Tensor, y: Tensor, present: Tensor, weight: np.ndarray | None, reliability: Tensor | None
    ) -> None:
        z = self.calibrated(opinions, present)
        between = centred(z)
        # Beyond what was seen a Gaussian extrapolates by squares: there it is asked at the border of what was seen.
        self.learn(low=between.amin(0), high=between.amax(0))
        x = self._coordinates(z)
        widths = [self.classes - 1] * self.modalities
        fit_model = fit_gaussian if self.kappa == "gaussian" else fit_copula

        def fit_rows(rows: np.ndarray) -> ClassGaussian | ClassCopula:
            learned = torch.from_numpy(rows)
            return fit_model(x[learned], y[learned], self.classes, widths, present[learned])

        def fit_and_judge(rows: np.ndarray) -> Any:
            model = fit_rows(rows)
            return lambda judged: _estimate(model, x[judged], present[judged])

        estimate = cross_fit(fit_and_judge, y.numpy())
        log_prior = self.prior.to(z).clamp(min=1e-300).log()
        evidence = z - log_prior
        if reliability is not None:  # as `fuse` and `forward` will
            evidence = log_mixture(z, log_prior, reliability.to(z))
            least = torch.where(present, reliability.to(z), 1.0).amin(1, keepdim=True)
            estimate = (least * estimate[0], None if estimate[1] is None else least * estimate[1])
        found: Coefficients = fit_coefficients(evidence, y, log_prior, present, estimate, weight)
        self.learn(weights=found.weights, alpha=found.alpha, beta=found.beta)
        model = fit_rows(np.arange(len(y)))
        gaussian = model if isinstance(model, ClassGaussian) else model.gaussian
        self.learn(mean=gaussian.mean, covariance=gaussian.covariance)
        if isinstance(model, ClassCopula):
            self.learn(knots=model.knots)

    def _terms(self, z: Tensor, present: Tensor) -> tuple[Tensor | None, Tensor | None]:
        if not self.dependent:
            return None, None
        gaussian = ClassGaussian(self.mean.to(z), self.covariance.to(z), (self.classes - 1,) * self.modalities)
        model = gaussian if self.kappa == "gaussian" else ClassCopula(self.knots.to(z), gaussian)
        estimate = _estimate(model, self._coordinates(z), present)
        return combine_terms(self.weights.to(z), self.alpha.to(z), self.beta.to(z), present, estimate)

    def _coordinates(self, z: Tensor) -> Tensor:
        """What the dependence models see of opinions: `[n, modality·(class − 1)]`, free of offsets."""
        inside = torch.maximum(torch.minimum(centred(z), self.high.to(z)), self.low.to(z))
        return (inside @ contrasts(self.classes, z.dtype).to(z.device)).flatten(1)


def _estimate(model: ClassGaussian | ClassCopula, x: Tensor, present: Tensor) -> Estimate:
    """ln κ̂ and ln p̂; a copula, which is about dependence alone, has no density to offer."""
    if isinstance(model, ClassCopula):
        return model.log_kappa(x, present), None
    log_density, log_kappa = model.log_density_and_kappa(x, present)
    return log_kappa, log_density


def _find_floor(log_p: np.ndarray, present: np.ndarray) -> np.ndarray:
    """What each expert's "impossible" is read as: half of the least probability it gave to anything: `[modality]`.

    A forest says 0 when no tree voted for a class: that is rarity on its own scale, and no certainty.
    """
    floor = np.full(log_p.shape[1], _LEAST)
    for expert in range(log_p.shape[1]):
        said = log_p[present[:, expert], expert]
        if np.isneginf(said).any() and np.isfinite(said).any():
            floor[expert] = max(said[np.isfinite(said)].min() - math.log(2), _LEAST)
    return floor


def _everyone(opinions: Tensor) -> Tensor:
    return torch.ones(opinions.shape[:2], dtype=torch.bool, device=opinions.device)
