"""`bayes-robust`: Bayesian fusion of experts any of whom may be broken, learned from sound training data alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.bayes.alarm import Alarm
from consilience.bayes.anomaly_scores import FEATURE_RESOLUTION, INPUT_RESOLUTION, REFERENCES
from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.calibration import precise_dtype
from consilience.bayes.gaussian_flags import Temper, all_sound_log_odds, flag_posterior, mixture_moments, set_evidence
from consilience.bayes.gaussian_fusion import GaussianRule, split_gaussian
from consilience.bayes.kappa import Kappa
from consilience.bayes.learned_buffers import Learned
from consilience.bayes.pair_consistency import Views
from consilience.bayes.reliability import Measured, Reliability, Signals, fit_kappa
from consilience.bayes.score_density import bounded
from consilience.bayes.trust_gate import ALL_SOUND_CAP, Opinions, TrustGate, mixed
from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.core.settings import NonNegativeFloat, PositiveInt
from consilience.corruption import Corruptor
from consilience.corruption.random_faults import FAULTS, check_faults, spoil
from consilience.data.folds import folds_as_groups, most_folds
from consilience.methods import Method, Prediction, Spec, Step, register
from consilience.methods.opinions.bayes import Folds, Rule, RuleData, fit_rule
from consilience.methods.opinions.gaussian_expert import GaussianExpert, expert_spread_losses
from consilience.methods.opinions.held_out_opinions import HeldOut, training_views
from consilience.methods.opinions.modality_views import is_numeric, view, view_size
from consilience.methods.opinions.unimodal import SeparateExperts, Unimodal
from consilience.training import Trainer

# Training samples that reliability is learned from; more would cost memory and add little. Of large images fewer, so
# that their values take about a gigabyte.
_ROWS, _LEAST_ROWS, _VIEW_BYTES = 4000, 500, 2**30
# Spoilt samples from which trust is learned: at most so many copies of each training sample, and of wide ones one.
_SPOILT, _COPIES, _SPOILT_BYTES = 4000, 10, 2**28
# The targets of a regression in so many groups take the place of classes where inputs are compared with class means.
_TARGET_GROUPS = 5
_NOISE = 0.5  # of experts of classes, in standard deviations


class Gain(Learned):
    """κ of the gain g = 1/(1 + κ·max(0, Σρ − 1)), for experts that repeat one another; 0 before it is fitted."""

    kappa: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.learn(kappa=torch.tensor(0.0))


@register("bayes-robust", equation="ln P(c | x) = ln π_c + Σ_m [ln(ρ_m p_m(c) + (1 − ρ_m) π_c) − ln π_c] + const")
class BayesRobust(SeparateExperts):
    """Experts trained alone and calibrated out-of-fold; each counts as far as its modality is probably sound.

    Each modality of a sample is sound with a probability ρ_m that is learned from the training data alone: how
    unfamiliar its input looks, and whether it fits the other modalities, which detects swapped ones. The effect of a
    broken modality is bounded; at most it adds no information.

        ln P(c | x_S) = ln π_c + Σ_{m∈S} [ ln(ρ_m p_m(c) + (1 − ρ_m) π_c) − ln π_c ] + const

    A modality that looks a little unusual still knows most of what it knew. How far it can be used is learned from
    training samples that are spoilt by generic faults: a small network computes ρ_m, and a temperature of p_m, from how
    unusual the modality and the whole sample look (see `bayes.trust_gate`). With few samples it stays near a fixed map.

    This is mixed with the posterior of `bayes`, which also uses the experts' dependence, by the probability that all
    modalities are sound. That probability is calibrated on held-out training samples, of which one in 200 may seem more
    probably broken than not. Samples of the training data are recognised by their values and judged by what was learned
    without their fold, so that they do not look unusual; the experts are still surer of them than of new samples.
    The input is looked at as it is for vectors and images, as each feature's mean and spread over time for sequences,
    as features for tokens. The weights of a prediction are P(sound | inputs and opinions), `extra["reliability"]` is
    P(sound | inputs); both are divided by the temperature of the opinion if that is above 1.

    For a regression the experts predict Gaussians that are calibrated and combined as in `bayes`. The number of a
    broken modality is independent of the target. The Gaussians of all sets F of modalities that may be sound are mixed,
    for up to ten modalities (see `bayes.gaussian_flags`); ρ is the fixed map, and `extra["variance"]` is the variance.

        p(y | x_S) = Σ_{F⊆S} P(F | x_S) N(y; mean_F, v_F)         P(F) = Π_{m∈F} ρ_m · Π_{m∈S∖F} (1 − ρ_m)

    Held-out outputs are computed from experts, rules, anomaly scores and directions of pairs that were learned without
    a sample's fold. The few numbers that follow from them were learned from all samples, these included: the usual
    range of the scores, the network of ρ, the gain and the alarm.

    Args:
        kappa: How dependence between experts is modelled, as for `bayes`.
        folds: Folds of the cross-fitting by which all of this is learned.
        pairs: Whether to look for swapped modalities, among up to ten.
        references: Training inputs of each modality that are kept to measure distances from.
        faults: The corruptions that spoil training samples for the network of ρ; none ([]): the fixed map, which a
            regression always has.
        noise: Experts of vectors are trained with Gaussian noise of up to this many standard deviations, unless
            `augment` of the training is set. It keeps them useful where everything is a little noisy. None: 0.5 for
            classes, and 0 for a regression, where it can cost much.
    """

    weights_are_reliabilities = True

    def __init__(
        self,
        spec: Spec,
        *,
        kappa: Kappa = "gaussian",
        folds: Folds = 5,
        pairs: bool = True,
        references: PositiveInt = REFERENCES,
        faults: Sequence[str] = tuple(FAULTS),
        noise: NonNegativeFloat | None = None,
    ):
        classification, outputs = spec.task.classification, spec.task.outputs
        super().__init__(spec, Unimodal if classification else GaussianExpert)
        self.folds, self.kappa, self.faults = folds, kappa, check_faults(faults)
        self.noise = (_NOISE if spec.task.classification else 0.0) if noise is None else noise
        self.rule = self._build_rule()
        if classification:
            self.gain, self.gate = Gain(), TrustGate(len(self.names))
        else:
            self.temper = Temper()
        self.alarm = Alarm()
        sizes = [view_size(seen, self.experts[name].encoder.width) for name, seen in spec.modalities.items()]
        exact = [is_numeric(seen) for seen in spec.modalities.values()]
        self.reliability = Reliability(
            sizes,
            outputs if classification else _TARGET_GROUPS,
            pairs=pairs,
            references=references,
            resolution=[INPUT_RESOLUTION if numbers else FEATURE_RESOLUTION for numbers in exact],
        )
        self._held_out: HeldOut | None = None

    def forward(self, batch: Batch) -> Prediction:
        """Collect every expert's opinion, compute each modality's reliability, fuse."""
        predictions = [expert(batch) for expert in self.experts.values()]
        raw = torch.stack([prediction.output for prediction in predictions], dim=1)
        with torch.no_grad():
            dtype = precise_dtype(raw)
            pairs = zip(self.spec.modalities.values(), predictions)
            views = [view(modality, batch, prediction.joint, dtype) for modality, prediction in pairs]
            signals = self.reliability.signals(views, batch.present)
        if isinstance(self.rule, GaussianRule):
            return self._fuse_numbers(self.rule, raw, batch.present, signals)
        return self._fuse_classes(self.rule, raw, batch.present, signals, self._if_sound(raw, batch))

    def _fuse_classes(
        self, rule: BayesRule, raw: Tensor, present: Tensor, signals: Signals, if_sound: Tensor
    ) -> Prediction:
        """The prediction of classes from opinions `[n, modality, class]` and the log-posterior if all are sound."""
        log_p = rule.calibrated(raw, present)
        seen = Opinions(log_p, rule.prior.to(log_p).log(), present, signals)
        graded = self.gate(seen, self.gain.kappa.to(log_p))
        output = mixed(self.alarm(graded.log_odds), if_sound, graded.log_posterior)
        trust = graded.trust(seen.log_prior, output)
        output = rule.moved_to_target(output)
        dtype = torch.promote_types(raw.dtype, torch.float32)
        return Prediction(
            output.to(dtype), opinions=raw, weights=trust.to(dtype), extra={"reliability": graded.reliability.to(dtype)}
        )

    def _if_sound(self, raw: Tensor, batch: Batch) -> Tensor:
        """The log-posterior `[n, class]` if all modalities are sound, from opinions `[n, modality, class]`."""
        assert isinstance(self.rule, BayesRule)
        return self.rule.under_own_prior(raw, batch.present)

    def _learn_if_sound(
        self,
        raw: Tensor,
        parts: Sequence[Samples],
        y: np.ndarray,
        weight: np.ndarray,
        fold_of: np.ndarray,
        trainer: Trainer,
    ) -> Tensor:
        """Learn what `_if_sound` adds to the rule, and return its posterior of every part, out-of-fold: `[n, class]`.

        Args:
            raw: Out-of-fold opinions on all parts `[n, modality, class]`.
            parts: The training samples, then their spoilt copies.
            y, weight, fold_of: Of the training samples: class indices, weights and folds.
            trainer: How to predict.
        """
        return self.rule(raw, torch.from_numpy(np.concatenate([part.present_among(self.names) for part in parts])))

    def _fuse_numbers(self, rule: GaussianRule, raw: Tensor, present: Tensor, signals: Signals) -> Prediction:
        """The prediction of a regression from Gaussian opinions `[n, modality, 2·target]`."""
        rho = bounded(signals.sound) * present
        evidence = self.temper(set_evidence(rule.measure(raw, present), present, rho))
        robust_mean, robust_variance, trust = flag_posterior(evidence, present, rho)
        mean, log_variance = split_gaussian(rule(raw, present))
        cautious = bounded(signals.sound, cap=ALL_SOUND_CAP)
        sound = torch.sigmoid(self.alarm(all_sound_log_odds(evidence, present, cautious)))
        output, variance = mixture_moments(
            torch.stack([sound, 1 - sound], dim=1),
            torch.stack([mean, robust_mean], dim=1),
            torch.stack([log_variance.exp(), robust_variance], dim=1),
        )
        numbers, log_variances = split_gaussian(raw)
        dtype = torch.promote_types(raw.dtype, torch.float32)
        extra = {"reliability": rho.to(dtype), "variance": variance.to(dtype), "log_variances": log_variances}
        return Prediction(output.to(dtype), opinions=numbers, weights=trust.to(dtype), extra=extra)

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """Each expert's own loss, and that of its variances in a regression."""
        losses = super().objective(prediction, batch, step)
        return losses if self.task.classification else losses | expert_spread_losses(self.names, prediction, batch)

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Train each expert, cross-fit it for as many epochs as it took, calibrate, and learn the reliabilities.

        An interruption leaves the experts trained so far, uncalibrated and taken to be sound.
        """
        self._held_out, self.folds = None, most_folds(train, self.folds)
        fitted = list(self.cross_fit(train, validation, self._with_noise(train, trainer), self.folds))
        if len(fitted) < len(self.names):
            return
        opinions, fold_experts, folds = zip(*fitted)
        self._learn_rule(train, trainer, np.stack(opinions, axis=1), fold_experts, folds[0])

    def held_out_output(self, rows: np.ndarray, present: np.ndarray) -> Tensor | None:
        """Out-of-fold opinions, fused by what the other folds have taught; zeros for samples of weight 0."""
        found = self._predict_held_out(rows, present)
        return None if found is None else found.output

    def held_out_variance(self, rows: np.ndarray, present: np.ndarray) -> Tensor | None:
        """The variances of the fused numbers of a regression; ones for samples of weight 0."""
        found = None if self.task.classification else self._predict_held_out(rows, present)
        return None if found is None else found.extra["variance"]

    def held_out_weights(self, rows: np.ndarray, present: np.ndarray) -> Tensor | None:
        """P(sound | inputs and opinions) of each modality, out-of-fold; zeros for samples of weight 0."""
        found = self._predict_held_out(rows, present)
        return None if found is None else found.weights

    def forget_held_out(self) -> None:
        """Free the out-of-fold opinions, the samples, and all that was learned without a fold."""
        self._held_out = None
        self.reliability.forget_held_out()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held_out": None}

    def _build_rule(self) -> Rule:
        if self.task.classification:
            return BayesRule(len(self.names), self.task.outputs, kappa=self.kappa)
        return GaussianRule(len(self.names), self.task.outputs, dependent=self.kappa != "none")

    @torch.no_grad()
    def _predict_held_out(self, rows: np.ndarray, present: np.ndarray) -> Prediction | None:
        """The prediction for training samples `[k]` with some modalities, from what was learned without their fold."""
        held = self._held_out
        if held is None:
            return None
        rules = held.rules = held.rules or held.fit_rules(self._build_rule, self.folds)
        measured = held.measured = held.measured or self._measure_held_out(held)
        output = torch.zeros(len(rows), self.task.outputs, dtype=torch.float64)
        weights, variance = torch.zeros(present.shape, dtype=torch.float64), torch.ones_like(output)
        for fold, chosen, place in held.by_fold(rows):
            rule, there = rules[fold], present[chosen] & held.learned.present[place]
            raw, mask = torch.from_numpy(held.learned.opinions[place]), torch.from_numpy(there)
            signals = self.reliability.signals_of(measured.select(place), mask)
            if isinstance(rule, GaussianRule):
                found = self._fuse_numbers(rule, raw, mask, signals)
                variance[chosen] = found.extra["variance"]
            else:
                if_sound = self._held_out_if_sound(rule(raw, mask), fold, held, rows[chosen], there)
                found = self._fuse_classes(rule, raw, mask, signals, if_sound)
            assert found.weights is not None
            output[chosen], weights[chosen] = found.output, found.weights
        return Prediction(output, weights=weights, extra={"variance": variance})

    def _held_out_if_sound(
        self, fused: Tensor, fold: int, held: HeldOut, rows: np.ndarray, present: np.ndarray
    ) -> Tensor:
        """`_if_sound` for training samples of one fold by parts that did not learn from it, `[k, class]`.

        Args:
            fused: Their opinions, fused by the rule of the fold `[k, class]`.
            fold: The fold.
            held: What is known of all training samples.
            rows: The samples `[k]`.
            present: Which of their modalities to use, `[k, modality]`.
        """
        return fused

    def _measure_held_out(self, held: HeldOut) -> Measured:
        """Measure all samples out-of-fold, also those beyond the ones that reliability was learned from."""
        found, order = [], []
        for fold, places in held.parts(self._most_rows):
            samples = held.samples.select(held.rows[places])
            own = np.full(len(places), fold)
            views = training_views(self.experts, [samples], held.trainer, held.experts, own, fold)
            found.append(self.reliability.measure([torch.from_numpy(seen) for seen in views], fold=fold))
            order.append(places)
        return Measured.joined(found).select(np.argsort(np.concatenate(order)))

    def _with_noise(self, train: Samples, trainer: Trainer) -> Trainer:
        vectors = [name for name, modality in train.modalities.items() if modality.kind == "vector"]
        if trainer.augment is not None or not self.noise or not vectors:
            return trainer
        return replace(trainer, augment=dict.fromkeys(vectors, f"gaussian:0..{self.noise}"))

    def _learn_rule(
        self,
        train: Samples,
        trainer: Trainer,
        opinions: np.ndarray,
        fold_experts: Sequence[Sequence[Method]],
        fold_of: np.ndarray,
    ) -> None:
        """Learn everything but the experts from out-of-fold opinions `[n, modality, output]` and fold_of `[n]`."""
        assert train.y is not None
        like = next(self.parameters(), torch.empty(0))  # trees have no parameters
        self.to(like.dtype)  # in 64 bits if the experts are, as a loaded model will be
        weight = np.ones(len(train)) if train.weight is None else train.weight
        rows, y = np.flatnonzero(weight), self.task.encode(train.y)
        present = train.present_among(self.names)
        learned = RuleData(opinions[rows], y[rows], present[rows], weight[rows])
        fit_rule(self.rule, learned, folds_as_groups(train, fold_of[rows]))
        self._held_out = HeldOut(learned, rows, fold_of[rows], train, trainer, fold_experts)
        if len(rows) > self._most_rows:
            rows = np.sort(np.random.default_rng(trainer.seed).choice(rows, self._most_rows, replace=False))
        opinions, y, weight, fold_of, samples = opinions[rows], y[rows], weight[rows], fold_of[rows], train.select(rows)
        if isinstance(self.rule, GaussianRule):
            views = partial(training_views, self.experts, [samples], trainer, fold_experts, fold_of)
            self._learn_alarm(self.rule, views, opinions, y, present[rows], fold_of)
            return
        parts = [samples, *self._spoilt(samples, trainer.seed)]
        views = partial(training_views, self.experts, parts, trainer, fold_experts, fold_of)
        said = [opinions, *(self._opinions_by_fold(part, trainer, fold_experts, fold_of) for part in parts[1:])]
        raw = torch.from_numpy(np.concatenate(said))
        there = np.concatenate([part.present_among(self.names) for part in parts])
        mask, sound = torch.from_numpy(there), np.arange(len(there)) < len(samples)
        copies = len(parts)
        signals = self.reliability.fit(views, np.tile(y, copies), there, np.tile(fold_of, copies), sound=sound)
        log_p = self.rule.calibrated(raw, mask)
        seen = Opinions(log_p, self.rule.prior.to(log_p).log(), mask, signals)
        clean = seen.select(torch.arange(len(samples)))
        rho = (bounded(clean.signals.sound) * clean.present).numpy()
        self.gain.learn(kappa=fit_kappa(clean.log_p.numpy(), clean.log_prior.numpy(), rho, y, weight))
        kappa = self.gain.kappa.to(log_p)
        if_sound = self._learn_if_sound(raw, parts, y, weight, fold_of, trainer)
        if copies > 1:
            targets, weights = torch.from_numpy(np.tile(y, copies)), torch.from_numpy(np.tile(weight, copies))
            self.gate.fit(seen, kappa, if_sound, targets, torch.from_numpy(sound), weights, trainer.seed)
        self.alarm.fit(self.gate(clean, kappa).log_odds)

    def _learn_alarm(
        self,
        rule: GaussianRule,
        views: Views,
        opinions: np.ndarray,
        y: np.ndarray,
        present: np.ndarray,
        fold_of: np.ndarray,
    ) -> None:
        """Learn the reliabilities and the alarm of a regression from out-of-fold opinions and y `[n, target]`."""
        order = y.mean(axis=1).argsort(kind="stable").argsort()
        signals = self.reliability.fit(views, order * _TARGET_GROUPS // len(y), present, fold_of)
        there, cautious = torch.from_numpy(present), bounded(signals.sound, cap=ALL_SOUND_CAP)
        evidence = set_evidence(rule.measure(torch.from_numpy(opinions), there), there, cautious)
        self.temper.fit(evidence, there)
        self.alarm.fit(all_sound_log_odds(self.temper(evidence), there, cautious))

    @property
    def _view_bytes(self) -> int:
        """The size of one sample where its reliability is judged."""
        return 8 * sum(score.features for score in self.reliability.scores)

    @property
    def _most_rows(self) -> int:
        """The most samples whose views are in memory at a time."""
        return min(_ROWS, max(_LEAST_ROWS, _VIEW_BYTES // self._view_bytes))

    def _spoilt(self, samples: Samples, seed: int) -> list[Samples]:
        """Copies of the training samples, each spoilt by other faults."""
        if not self.faults:
            return []
        most = min(_SPOILT, _SPOILT_BYTES // self._view_bytes)
        copies = min(max(1, round(most / len(samples))), _COPIES)
        corruptor = Corruptor(samples)
        seeds = [(seed * _COPIES + copy) % 2**63 for copy in range(copies)]
        return [spoil(samples, corruptor, self.faults, seed=own) for own in seeds]

    def _opinions_by_fold(
        self, samples: Samples, trainer: Trainer, fold_experts: Sequence[Sequence[Method]], fold_of: np.ndarray
    ) -> np.ndarray:
        """Opinions `[n, modality, class]` of the experts of each sample's fold."""
        opinions = np.zeros((len(samples), len(self.names), self.task.outputs))
        for fold in np.unique(fold_of):
            rows = np.flatnonzero(fold_of == fold)
            part = samples.select(rows)
            for m, experts in enumerate(fold_experts):
                opinions[rows, m] = trainer.predict(experts[fold], part).output.double().numpy()
        return opinions
