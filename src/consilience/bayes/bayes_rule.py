"""Bayes' rule with prior, calibration and dependence learned from opinions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from consilience.bayes.calibration import (
    MIN_LOG,
    calibrate,
    find_floor,
    fit_bias_temperature,
    fit_robust_temperature,
    fit_temperature,
    precise_dtype,
)
from consilience.bayes.class_gaussians import contrasts
from consilience.bayes.dependence_models import (
    DependenceModel,
    estimate,
    fit_dependence,
    fit_for_one_use,
    initial_tensors,
    model_of,
    tensors_of,
)
from consilience.bayes.earlier_rules import translate_earlier
from consilience.bayes.fuse import fuse
from consilience.bayes.kappa import Estimate, Kappa, centred, choose_ridge, clearly_lower, cross_fitted_models, gather
from consilience.bayes.learned_buffers import Learned
from consilience.bayes.pattern_tables import PATTERN_TABLES, estimate_by_table, pattern_tables
from consilience.bayes.posterior import least_reliable, traced_posterior
from consilience.bayes.presence_coefficients import count_rows, dependence_terms, expert_weights, fit_table
from consilience.bayes.priors import empirical_prior
from consilience.bayes.reliability import log_mixture
from consilience.bayes.row_pieces import in_pieces
from consilience.core.errors import unknown_name
from consilience.core.tracing import is_traced

Calibration = Literal["auto", "temperature", "robust", "bias"]
# The most logits that are computed at a time: 8 MB in float64.
_PIECE = 2**20


class _Prepared(NamedTuple):
    """What the coefficients are fitted to, with one calibration."""

    x: Tensor  # coordinates of the dependence model, [n, feature]
    evidence: Tensor  # [n, modality, class]
    estimate: Callable[[Tensor], Estimate]  # by models fitted without the sample
    low: Tensor
    high: Tensor
    ridge: float
    losses: np.ndarray  # cross-fitted, [n]


class BayesRule(Learned):
    """ln π + Σ_j w_j (z_j / T_j + b_j − ln π) + α ln κ̂ + β ln p̂, learned from opinions; before `fit`, the theorem.

    Opinions are logits `[n, modality, class]` with any offsets; −inf is allowed, and missing opinions may hold
    anything. Computed in float64.

    Args:
        modalities: The number of experts.
        classes: The number of classes.
        kappa: "gaussian" or "copula" estimate the dependence between experts (see `kappa`); "none" assumes independence
            given the class.
        calibration: Of each expert: "temperature"; "robust", also a share of opinions that do not depend on the class,
            for experts that are sometimes wrong and certain; "auto", the mean of the log-probabilities of these two, or
            "robust" alone if its cross-fitted log-loss after fusion is clearly lower; "bias", a temperature and a bias
            per class; or None.
    """

    prior: Tensor
    target: Tensor
    shift: Tensor
    temperature: Tensor
    bias: Tensor
    plain_temperature: Tensor
    plain_share: Tensor
    reliability: Tensor
    floor: Tensor
    weights: Tensor
    alpha: Tensor
    beta: Tensor
    low: Tensor
    high: Tensor

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
        self._prepared: tuple[list[tuple[Tensor, int]], DependenceModel] | None = None
        self.learn(
            prior=torch.full((classes,), 1 / classes),
            target=torch.full((classes,), 1 / classes),
            shift=torch.zeros(modalities, classes),
            temperature=torch.ones(modalities),
            plain_temperature=torch.ones(modalities),  # the one without a reliability, of "auto", and its share
            plain_share=torch.tensor(0.5 if calibration == "auto" else 0.0),
            bias=torch.zeros(modalities, classes),
            reliability=torch.ones(modalities),
            floor=torch.full((modalities,), MIN_LOG),
            weights=torch.ones(count_rows(modalities), modalities),
        )
        if not self.dependent:
            return
        tensors = initial_tensors(kappa, modalities, classes)
        self._dependence = tuple(tensors)
        self.learn(
            alpha=torch.zeros(count_rows(modalities)),
            beta=torch.zeros(count_rows(modalities)),
            low=torch.zeros(modalities, classes),
            high=torch.zeros(modalities, classes),
            **tensors,
        )

    @property
    def dependent(self) -> bool:
        """Whether dependence between experts is modelled; not for a single expert."""
        return self.kappa != "none" and self.modalities > 1

    def forward(
        self,
        opinions: Tensor,
        present: Tensor | None = None,
        target_prior: Tensor | None = None,
        reliability: Tensor | None = None,
    ) -> Tensor:
        """Return the log-posterior `[n, class]`.

        Args:
            opinions: `[n, modality, class]`.
            present, reliability: `[n, modality]`.
            target_prior: The class prior `[class]` where the posterior is used. None: that of the experts.
        """
        if present is None:
            present = torch.ones(opinions.shape[:2], dtype=torch.bool, device=opinions.device)
        z = self.calibrated(opinions, present)
        weights, log_kappa = self._terms(z, present)
        if log_kappa is not None and reliability is not None:
            log_kappa = log_kappa * least_reliable(reliability.to(z), present)
        prior = self.prior.to(z.dtype)
        prior = prior / prior.sum()
        target = self.target.to(z.dtype)
        target = target / target.sum() if target_prior is None else target_prior.to(z)
        if is_traced():  # the same theorem without checks of values
            assert reliability is None
            return traced_posterior(z, prior, target, present.to(z) if weights is None else weights, log_kappa)
        return fuse(
            z,
            prior,
            target_prior=target,
            present=present,
            weights=weights,
            reliability=None if reliability is None else reliability.to(z.dtype),
            log_kappa=log_kappa,
        )

    def calibrated(self, opinions: Tensor, present: Tensor, plain_share: float | None = None) -> Tensor:
        """Each expert's calibrated log-probabilities, finite everywhere; computed from zeros where missing.

        Args:
            opinions, present: As for `forward`.
            plain_share: Of the calibration without a reliability, with "auto". None: the learned share.
        """
        of_piece = partial(self._calibrate, plain_share=plain_share)
        return in_pieces(of_piece, self._rows_of_a_piece, opinions, present)

    def uncalibrated(self, opinions: Tensor, present: Tensor) -> Tensor:
        """Each expert's log-probabilities under the class shares of y, none below its floor: `[n, modality, class]`.

        They are computed from zeros where missing.
        """
        logits = torch.where(present[:, :, None], opinions.to(precise_dtype(opinions)), 0.0)
        return torch.maximum(logits.log_softmax(2), self.floor.to(logits)[:, None]) + self.shift.to(logits)

    def _calibrate(self, opinions: Tensor, present: Tensor, plain_share: float | None) -> Tensor:
        log_p = self.uncalibrated(opinions, present)
        z = calibrate(log_p, self.temperature.to(log_p), self.bias.to(log_p)).log_softmax(2)
        sound = self.reliability.to(log_p)[:, None]
        mixed = torch.logaddexp(sound.log() + z, (1 - sound).log() + self.prior.to(log_p).log())
        if self.calibration != "auto":
            return mixed
        plain = calibrate(log_p, self.plain_temperature.to(log_p)).log_softmax(2)
        share = self.plain_share.to(log_p) if plain_share is None else plain_share
        return ((1 - share) * mixed + share * plain).log_softmax(2)

    def expert_weights(self, present: Tensor) -> Tensor:
        """The weight of each expert's calibrated evidence: `[n, modality]`, 0 where missing."""
        dtype = precise_dtype(present)
        return expert_weights(self.weights.to(dtype), present) if self.dependent else present.to(dtype)

    def under_own_prior(self, opinions: Tensor, present: Tensor) -> Tensor:
        """Return the log-posterior `[n, class]` under the class shares of the experts."""
        prior = self.prior.to(precise_dtype(opinions))
        return self(opinions, present, prior / prior.sum())

    def moved_to_target(self, log_posterior: Tensor) -> Tensor:
        """Move a log-posterior `[n, class]` from the experts' class shares to those where the rule is used."""
        least = torch.finfo(log_posterior.dtype).tiny
        target, prior = (shares.to(log_posterior).clamp(min=least).log() for shares in (self.target, self.prior))
        return log_posterior + (target - prior)

    def fit(
        self,
        opinions: np.ndarray,
        y: np.ndarray,
        present: np.ndarray | None = None,
        *,
        prior: np.ndarray | None = None,
        weight: np.ndarray | None = None,
        reliability: np.ndarray | None = None,
        groups: np.ndarray | None = None,
    ) -> BayesRule:
        """Learn from opinions on samples that the experts were not trained on.

        Args:
            opinions: `[n, modality, class]`.
            y: Class indices `[n]`.
            present: `[n, modality]`.
            prior: The experts' class prior, `[class]` or `[modality, class]`. None: the shares of y. Opinions under
                another prior are moved to the shares of y before anything is learned from them.
            weight: Sample weights `[n]` in prior, calibration and coefficients; the Gaussians ignore them.
            reliability: `[n, modality]`, if `forward` will be given one.
            groups: Labels `[n]`; κ̂ of a sample is estimated without the samples of its group.
        """
        there = np.ones(opinions.shape[:2], dtype=bool) if present is None else present
        shares = empirical_prior(y, self.classes, weight=weight)
        priors = np.broadcast_to(shares if prior is None else prior, (self.modalities, self.classes))
        # A class that an expert takes for impossible has no evidence to move.
        shift = np.where(priors > 0, np.log(shares) - np.log(np.where(priors > 0, priors, 1.0)), 0.0)
        target = shares if prior is None else prior if np.ndim(prior) == 1 else priors.mean(axis=0)
        self.learn(prior=shares, target=target, shift=shift)
        given, seen = torch.from_numpy(opinions.astype(np.float64)), torch.from_numpy(there)
        log_p = torch.where(seen[:, :, None], given, 0.0).log_softmax(2)
        self.learn(floor=find_floor(log_p.numpy(), there))
        moved = self.uncalibrated(given, seen).numpy()
        if self.calibration in ("robust", "auto"):
            shares = self.prior.double().cpu().numpy()
            temperature, sound = fit_robust_temperature(moved, y, shares, there, weight=weight)
            self.learn(temperature=temperature, reliability=sound)
            if self.calibration == "auto":
                self.learn(plain_temperature=fit_temperature(moved, y, there, weight=weight), plain_share=0.5)
        elif self.calibration == "temperature":
            self.learn(temperature=fit_temperature(moved, y, there, weight=weight))
        elif self.calibration == "bias":
            temperature, bias = fit_bias_temperature(moved, y, there, weight=weight)
            self.learn(temperature=temperature, bias=bias)
        if self.dependent:
            rho = None if reliability is None else torch.from_numpy(reliability)
            raised = torch.maximum(log_p, self.floor.to(log_p)[:, None])
            self._fit_dependence(raised, torch.from_numpy(y), seen, weight, rho, groups)
        return self

    def _fit_dependence(
        self,
        opinions: Tensor,
        y: Tensor,
        present: Tensor,
        weight: np.ndarray | None,
        reliability: Tensor | None,
        groups: np.ndarray | None,
    ) -> None:
        prepare = partial(self._prepare, opinions, y, present, weight, reliability, groups)
        candidates, chosen = [prepare()], 0
        if self.calibration == "auto":
            self.learn(plain_share=0.0)
            candidates.append(prepare())
            chosen = int(clearly_lower(candidates[1].losses, candidates[0].losses, weight, groups))
            self.learn(plain_share=(1 - chosen) / 2)
        found = candidates[chosen]
        table = fit_table(
            found.evidence, y, self._log_prior(found.x), present, found.estimate, weight, ridge=found.ridge
        )
        self.learn(weights=table.weights, alpha=table.alpha, beta=table.beta, low=found.low, high=found.high)
        model = fit_dependence(self.kappa, found.x, y, self.classes, self._widths, present)
        self.learn(**tensors_of(model))

    def _prepare(
        self,
        opinions: Tensor,
        y: Tensor,
        present: Tensor,
        weight: np.ndarray | None,
        reliability: Tensor | None,
        groups: np.ndarray | None,
    ) -> _Prepared:
        """Cross-fit κ̂ with the calibration as it is, and choose the penalty."""
        z = self.calibrated(opinions, present)
        scores = centred(z)
        # A Gaussian extrapolates quadratically: opinions outside the range seen in fitting are clipped to it.
        self.learn(low=scores.amin(0), high=scores.amax(0))
        x = self._coordinates(z)

        def fit_model(rows: np.ndarray) -> Any:
            used = torch.from_numpy(rows)
            return fit_for_one_use(self.kappa, x[used], y[used], self.classes, self._widths, present[used])

        models = cross_fitted_models(fit_model, y.numpy(), groups)

        def held_out(there: Tensor) -> Estimate:
            log_kappa, log_density = gather([(rows, estimate(each, x[rows], there[rows])) for rows, each in models])
            if reliability is None:
                return log_kappa, log_density
            least = least_reliable(reliability.to(z), there)
            return least * log_kappa, None if log_density is None else least * log_density

        log_prior = self._log_prior(z)
        evidence = z - log_prior if reliability is None else log_mixture(z, log_prior, reliability.to(z))
        ridge, losses = choose_ridge(evidence, y, log_prior, present, held_out(present), weight, groups=groups)
        return _Prepared(x, evidence, held_out, self.low.clone(), self.high.clone(), ridge, losses)

    def _log_prior(self, like: Tensor) -> Tensor:
        return self.prior.to(like).clamp(min=1e-300).log()

    def _terms(self, z: Tensor, present: Tensor) -> tuple[Tensor | None, Tensor | None]:
        if not self.dependent:
            return None, None
        weights = expert_weights(self.weights.to(z), present)
        if is_traced():
            return weights, self._traced_terms(z, present)
        model, alpha, beta = self._model(z), self.alpha.to(z), self.beta.to(z)

        def terms(some: Tensor, there: Tensor) -> Tensor:
            return dependence_terms(alpha, beta, there, estimate(model, self._coordinates(some), there))

        return weights, in_pieces(terms, self._rows_of_a_piece, z, present)

    def tables(self) -> dict[str, Tensor]:
        """The dependence model for every set of modalities, unless the fit has found no use for it."""
        if not self.dependent or not (self.alpha.any() or self.beta.any()):
            return {}
        return pattern_tables(self._model(self.prior.double()))

    def _traced_terms(self, z: Tensor, present: Tensor) -> Tensor | None:
        """As `_terms`, from the tables."""
        if not (any(self.known("alpha")) or any(self.known("beta"))):
            return None
        names = [name for name in PATTERN_TABLES if f"table_{name}" in self._buffers]
        tables = {name: self.table(name).to(z) for name in names}
        estimated = estimate_by_table(tables, self._coordinates(z), present, self._widths)
        return dependence_terms(self.alpha.to(z), self.beta.to(z), present, estimated)

    def _model(self, like: Tensor) -> DependenceModel:
        """The dependence model in the type of a tensor, kept with its factors for as long as no buffer changes.

        What is kept is a function of the buffers alone, and is replaced in one step, so that threads may share it.
        """
        buffers = [self.get_buffer(name) for name in self._dependence]
        # The version of a tensor rises when it is changed in place; one made in inference mode has none.
        state = [(buffer, 0 if buffer.is_inference() else buffer._version) for buffer in buffers]
        kept = self._prepared
        if kept is not None and kept[1].mean.dtype == like.dtype and kept[1].mean.device == like.device:
            same = (now is then and version == before for (now, version), (then, before) in zip(state, kept[0]))
            if all(same):
                return kept[1]
        with torch.inference_mode(False), torch.no_grad():
            model = model_of({name: buffer.to(like) for name, buffer in zip(self._dependence, buffers)}, self._widths)
        if not any(buffer.is_inference() for buffer in buffers):
            self._prepared = state, model
        return model

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Models of earlier versions answer as they did."""
        translate_earlier(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles do not carry the factors along."""
        return {**self.__dict__, "_prepared": None}

    @property
    def _widths(self) -> tuple[int, ...]:
        return (self.classes - 1,) * self.modalities

    @property
    def _rows_of_a_piece(self) -> int:
        return max(_PIECE // (self.modalities * self.classes), 1)

    def _coordinates(self, z: Tensor) -> Tensor:
        """Opinions as the features of the dependence models: `[n, modality·(class − 1)]`, without offsets."""
        inside = torch.maximum(torch.minimum(centred(z), self.high.to(z)), self.low.to(z))
        return (inside @ contrasts(self.classes, z.dtype).to(z.device)).flatten(1)
