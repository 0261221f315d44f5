"""`bayes-robust`: Bayesian fusion of experts any of whom may be broken, learned from sound training data alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from consilience.bayes.anomaly_scores import FEATURE_RESOLUTION, INPUT_RESOLUTION, REFERENCES
from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.kappa import Kappa
from consilience.bayes.learned_buffers import Learned
from consilience.bayes.reliability import Reliability, all_sound, fit_kappa, posterior_trust, robust_posterior
from consilience.bayes.score_density import FLOOR, bounded
from consilience.core.batches import Batch
from consilience.core.samples import Modality, Samples
from consilience.core.settings import PositiveInt
from consilience.encoders import length_mask, masked_mean
from consilience.methods import Method, Prediction, Spec, register
from consilience.methods.opinions.bayes import Folds
from consilience.methods.opinions.unimodal import SeparateExperts
from consilience.training import Trainer

# Training samples that reliability is learned from; more would cost memory and add little.
_ROWS = 4000
# The cap on P(sound) of a modality where P(all are sound) is computed.
_ALL_SOUND_CAP = 0.99
# The share of sound samples for which "something is broken" may come out more probable than not.
_FALSE_ALARMS = 0.005


class Gain(Learned):
    """κ of the gain g = 1/(1 + κ·max(0, Σρ − 1)), for experts that repeat one another; 0 before it is fitted."""

    kappa: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.learn(kappa=torch.tensor(0.0))


class Alarm(Learned):
    """P(all are sound), calibrated on sound samples: at most 1 in 200 of them may raise a false alarm.

    Many modalities that each look a little unusual multiply to a false alarm, and so do dependent experts that differ.
    The log-odds are therefore counted from the 0.5 % quantile of sound samples, if that is below even odds. Before
    `fit` they are left as they are.
    """

    threshold: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.learn(threshold=torch.tensor(0.0))

    def fit(self, all_sound: Tensor) -> Alarm:
        """Learn from P(all are sound) of sound samples, out-of-fold: `[n]`."""
        self.learn(threshold=_log_odds(all_sound).quantile(_FALSE_ALARMS).clamp(max=0))
        return self

    def forward(self, all_sound: Tensor) -> tuple[Tensor, Tensor]:
        """log P(all are sound) and log P(not all), `[n]` each, from the uncalibrated P(all are sound).

        >>> sound, broken = Alarm().fit(torch.linspace(0.01, 0.99, 201))(torch.tensor([0.02, 1e-6]))
        >>> sound.exp(), broken.exp()
        (tensor([5.7434e-01, 6.6110e-05]), tensor([0.4257, 0.9999]))
        """
        above = _log_odds(all_sound) - self.threshold.to(all_sound)
        return functional.logsigmoid(above), functional.logsigmoid(-above)


def _log_odds(p: Tensor) -> Tensor:
    inside = p.clamp(torch.finfo(p.dtype).tiny, 1 - torch.finfo(p.dtype).eps)
    return inside.log() - (-inside).log1p()


@register("bayes-robust", equation="ln P(c | x) = ln π_c + Σ_m [ln(ρ_m p_m(c) + (1 − ρ_m) π_c) − ln π_c] + const")
class BayesRobust(SeparateExperts):
    """Experts trained alone and calibrated out-of-fold; each counts as far as its modality is probably sound.

    Each modality of a sample is sound with a probability ρ_m that is learned from the training data alone: how
    unfamiliar its input looks, and whether it fits the other modalities, which detects swapped ones. The effect of a
    broken modality is bounded; at most it adds no information.

        ln P(c | x_S) = ln π_c + Σ_{m∈S} [ ln(ρ_m p_m(c) + (1 − ρ_m) π_c) − ln π_c ] + const

    This is mixed with the posterior of `bayes`, which also uses the experts' dependence, by the probability that all
    modalities are sound. That probability is calibrated on the training samples: only one in 200 of them may seem more
    probably broken than not, so that on clean data the method decides as `bayes` does. The input is looked at as it is
    for vectors and images, as each feature's mean and spread over time for sequences, as the encoder's features for
    tokens. The weights of a prediction are P(sound | inputs and opinions); `extra["reliability"]` is P(sound | inputs).

    Args:
        kappa: How dependence between experts is modelled, as for `bayes`.
        folds: Folds of the cross-fitting by which all of this is learned.
        pairs: Whether to look for swapped modalities, among up to ten.
        references: Training inputs of each modality that are kept to measure distances from.
    """

    tasks = ("classification",)
    weights_are_reliabilities = True

    def __init__(
        self,
        spec: Spec,
        *,
        kappa: Kappa = "gaussian",
        folds: Folds = 5,
        pairs: bool = True,
        references: PositiveInt = REFERENCES,
    ):
        super().__init__(spec)
        self.folds = folds
        self.rule = BayesRule(len(self.names), spec.task.outputs, kappa=kappa)
        self.gain, self.alarm = Gain(), Alarm()
        sizes = [view_size(seen, self.experts[name].encoder.width) for name, seen in spec.modalities.items()]
        exact = [is_numeric(seen) for seen in spec.modalities.values()]
        self.reliability = Reliability(
            sizes,
            spec.task.outputs,
            pairs=pairs,
            references=references,
            resolution=[INPUT_RESOLUTION if numbers else FEATURE_RESOLUTION for numbers in exact],
        )

    def forward(self, batch: Batch) -> Prediction:
        """Collect every expert's opinion, compute each modality's reliability, fuse."""
        predictions = [expert(batch) for expert in self.experts.values()]
        opinions = torch.stack([prediction.output for prediction in predictions], dim=1)
        log_p = self.rule.calibrated(opinions, batch.present)
        with torch.no_grad():
            pairs = zip(self.spec.modalities.values(), predictions)
            views = [view(modality, batch, prediction.joint, log_p.dtype) for modality, prediction in pairs]
            sound = self.reliability.soundness(views, batch.present)
        rho = bounded(sound) * batch.present
        log_prior, kappa = self.rule.prior.to(log_p).log(), self.gain.kappa.to(log_p)
        some_broken = robust_posterior(log_p, log_prior, rho, kappa)
        log_all_sound, log_not_all = self.alarm(_all_sound(log_p, log_prior, sound, batch.present))
        none_broken = self.rule(opinions, batch.present)
        output = torch.logaddexp(log_all_sound[:, None] + none_broken, log_not_all[:, None] + some_broken)
        trust = posterior_trust(log_p, log_prior, rho, output)
        dtype = torch.promote_types(opinions.dtype, torch.float32)
        return Prediction(
            output.to(dtype), opinions=opinions, weights=trust.to(dtype), extra={"reliability": rho.to(dtype)}
        )

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Train each expert, cross-fit it for as many epochs as it took, calibrate, and learn the reliabilities.

        An interruption leaves the experts trained so far, uncalibrated and taken to be sound.
        """
        fitted = list(self.cross_fit(train, validation, trainer, self.folds))
        if len(fitted) < len(self.names):
            return
        opinions, fold_experts, folds = zip(*fitted)
        self._learn_rule(train, trainer, np.stack(opinions, axis=1), fold_experts, folds[0])

    def _learn_rule(
        self,
        train: Samples,
        trainer: Trainer,
        opinions: np.ndarray,
        fold_experts: Sequence[Sequence[Method]],
        fold_of: np.ndarray,
    ) -> None:
        """Learn everything but the experts from out-of-fold opinions `[n, modality, class]` and fold_of `[n]`."""
        assert train.y is not None
        self.to(next(self.parameters()).dtype)  # in 64 bits if the experts are, as a loaded model will be
        weight = np.ones(len(train)) if train.weight is None else train.weight
        rows, y = np.flatnonzero(weight), self.task.encode(train.y)
        present = np.stack([train.present_in(name) for name in self.names], axis=1)
        self.rule.fit(opinions[rows], y[rows], present[rows], weight=weight[rows])
        if len(rows) > _ROWS:
            rows = np.sort(np.random.default_rng(trainer.seed).choice(rows, _ROWS, replace=False))
        y, present, weight, samples = y[rows], present[rows], weight[rows], train.select(rows)
        views = partial(self._training_views, samples, trainer, fold_experts)
        mask = torch.from_numpy(present)
        sound = torch.from_numpy(self.reliability.fit(views, y, present, fold_of[rows]))
        log_p = self.rule.calibrated(torch.from_numpy(opinions[rows]), mask)
        log_prior = self.rule.prior.to(log_p).log()
        rho = (bounded(sound) * mask).numpy()
        self.gain.learn(kappa=fit_kappa(log_p.numpy(), log_prior.numpy(), rho, y, weight))
        self.alarm.fit(_all_sound(log_p, log_prior, sound, mask))

    def _training_views(
        self, samples: Samples, trainer: Trainer, fold_experts: Sequence[Sequence[Method]], fold: int | None
    ) -> list[np.ndarray]:
        """Every modality's view of training samples; features are those of the fold's own expert."""
        assert trainer.preparation is not None
        batch = trainer.preparation.batch(samples)
        views = []
        for m, (name, expert) in enumerate(self.experts.items()):
            modality, features = self.spec.modalities[name], None
            if not is_numeric(modality):
                features = trainer.predict(expert if fold is None else fold_experts[m][fold], samples).joint
            views.append(view(modality, batch, features, torch.float64).numpy())
        return views


def _all_sound(log_p: Tensor, log_prior: Tensor, sound: Tensor, present: Tensor) -> Tensor:
    """P(all are sound) `[n]` from how sound each looks, `[n, modality]`; shapes as in `all_sound`."""
    return all_sound(log_p, log_prior, bounded(sound, FLOOR, _ALL_SOUND_CAP) * present, present)


def is_numeric(modality: Modality) -> bool:
    """Whether a modality's values are quantities; token ids are not."""
    return modality.kind != "tokens"


def view_size(modality: Modality, width: int) -> int:
    """The number of features that `view` returns for a modality whose encoder has this width."""
    if modality.kind == "sequence":
        return 2 * modality.shape[1]
    return math.prod(modality.shape) if is_numeric(modality) else width


def view(modality: Modality, batch: Batch, features: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The features from which a modality's reliability is judged: `[n, feature]`.

    Vectors and images as they are (standardised); sequences as each feature's mean and standard deviation over time,
    of any length; tokens as the encoder's features `[n, width]`. They are converted before anything is computed: sums
    in 32 bits depend on the size of the batch and on its padding.
    """
    if not is_numeric(modality):
        assert features is not None
        return features.to(dtype)
    x = batch[modality.name].to(dtype)
    if modality.kind != "sequence":
        return x.flatten(1)
    mask = length_mask(batch.lengths.get(modality.name), x)
    mean = masked_mean(x, mask)
    variance = masked_mean((x - mean[:, None]).square(), mask)
    return torch.cat([mean, variance.sqrt()], dim=1)
