"""`bayes-robust`: Bayesian fusion of experts any of whom may be broken, learned from sound training data alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from consilience.bayes.anomaly_scores import REFERENCES
from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.kappa import Kappa
from consilience.bayes.learned_buffers import Learned
from consilience.bayes.reliability import Reliability, all_sound, fit_kappa, posterior_trust, robust_posterior
from consilience.bayes.score_density import FLOOR, bounded
from consilience.core.batches import Batch
from consilience.core.samples import Modality, Samples
from consilience.core.settings import whole_number, yes_or_no
from consilience.encoders import length_mask, masked_mean
from consilience.methods import Method, Prediction, Spec, register
from consilience.methods.opinions.unimodal import SeparateExperts
from consilience.training import Trainer

# Training samples that what is usual is learned from; more would cost memory and tell little.
_ROWS = 4000
# How certain of its soundness a modality may be when it is asked whether all of them are.
_NEARLY_ONE = 0.99
# The share of sound samples of which it may be thought more probable than not that something is broken.
_FALSE_ALARMS = 0.005


class Gain(Learned):
    """κ of the gain g = 1/(1 + κ·max(0, Σρ − 1)), for experts who repeat one another; 0 before it is fitted."""

    kappa: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.learn(kappa=torch.tensor(0.0))


class Alarm(Learned):
    """P(all are sound), held to what is known of sound samples: hardly any of them may raise an alarm.

    Many modalities that each look a little unusual, as some always do, multiply to an alarm; dependent experts that
    differ do too. So the log-odds are counted from where the lowest 1 in 200 of sound samples lie, if that is below
    even odds. Before `fit` they are left as they are.
    """

    threshold: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.learn(threshold=torch.tensor(0.0))

    def fit(self, whole: Tensor) -> Alarm:
        """Learn from P(all are sound) of sound samples, out-of-fold: `[n]`."""
        self.learn(threshold=_log_odds(whole).quantile(_FALSE_ALARMS).clamp(max=0))
        return self

    def forward(self, whole: Tensor) -> tuple[Tensor, Tensor]:
        """log P(all are sound) and log P(not all), `[n]` each, from P(all are sound) before that is held to anything.

        >>> sound, broken = Alarm().fit(torch.linspace(0.01, 0.99, 201))(torch.tensor([0.02, 1e-6]))
        >>> sound.exp(), broken.exp()
        (tensor([5.7434e-01, 6.6110e-05]), tensor([0.4257, 0.9999]))
        """
        above = _log_odds(whole) - self.threshold.to(whole)
        return functional.logsigmoid(above), functional.logsigmoid(-above)


def _log_odds(p: Tensor) -> Tensor:
    inside = p.clamp(torch.finfo(p.dtype).tiny, 1 - torch.finfo(p.dtype).eps)
    return inside.log() - (-inside).log1p()


@register("bayes-robust")
class BayesRobust(SeparateExperts):
    """Experts trained alone and calibrated out-of-fold; each is heard as far as its modality is probably sound.

    The posterior is P(all sound)·`bayes` + P(not all)·the sum over who is broken (`decision.reliability`): where
    nothing is amiss, what is known of the experts' dependence is used; where something is, it would mislead. Sound
    training samples say how low P(all sound) may be without anything being amiss (`Alarm`).

    P(sound) is learned from the training data alone: how unfamiliar the modality's input looks, and
    whether it fits the other modalities. Vectors and images are looked at as they are, sequences through their
    features' mean and spread over time, tokens through the encoder's features. weights are P(sound | everything), 0
    where missing; `extra["reliability"]` is P(sound | inputs).

    kappa: how `bayes` estimates dependence · folds: of the cross-fitting by which all of it is learned · pairs: whether
    to look for swapped modalities (among up to 10) · references: training inputs kept of each modality, to measure
    distances from.
    """

    tasks = ("classification",)

    def __init__(
        self,
        spec: Spec,
        *,
        kappa: Kappa = "gaussian",
        folds: int = 5,
        pairs: bool = True,
        references: int = REFERENCES,
    ):
        super().__init__(spec)
        self.folds = whole_number("folds", folds, least=2)
        self.rule = BayesRule(len(self.names), spec.task.outputs, kappa=kappa)
        self.gain, self.alarm = Gain(), Alarm()
        sizes = [view_size(one, self.experts[name].encoder.width) for name, one in spec.modalities.items()]
        self.reliability = Reliability(
            sizes,
            spec.task.outputs,
            pairs=yes_or_no("pairs", pairs),
            references=whole_number("references", references),
        )

    def forward(self, batch: Batch) -> Prediction:
        """Hear every expert, look at every modality, fuse."""
        heard = [expert(batch) for expert in self.experts.values()]
        opinions = torch.stack([one.output for one in heard], dim=1)
        log_p = self.rule.calibrated(opinions, batch.present)
        with torch.no_grad():
            looks, kept_as = zip(self.spec.modalities.values(), heard), self.gain.kappa.dtype
            views = [view(modality, batch, one.joint).to(kept_as) for modality, one in looks]
            sound = self.reliability.looks_sound(views, batch.present).to(log_p.dtype)
        rho = bounded(sound) * batch.present
        log_prior, kappa = self.rule.prior.to(log_p).log(), self.gain.kappa.to(log_p)
        some_broken = robust_posterior(log_p, log_prior, rho, kappa)
        whole, not_whole = self.alarm(_all_sound(log_p, log_prior, sound, batch.present))
        none_broken = self.rule(opinions, batch.present)
        output = torch.logaddexp(whole[:, None] + none_broken, not_whole[:, None] + some_broken)
        trust = posterior_trust(log_p, log_prior, rho, output)
        as_heard = torch.promote_types(opinions.dtype, torch.float32)
        return Prediction(
            output.to(as_heard), opinions=opinions, weights=trust.to(as_heard), extra={"reliability": rho.to(as_heard)}
        )

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Train each expert, cross-fit it for as many epochs as it took, calibrate, and learn what is usual.

        An interruption leaves the experts trained so far, uncalibrated and taken to be sound.
        """
        heard = list(self.cross_fit(train, validation, trainer, self.folds))
        if len(heard) < len(self.names):
            return
        opinions, fold_experts, folds = zip(*heard)
        self._learn_rule(train, trainer, np.stack(opinions, axis=1), fold_experts, folds[0])

    def _learn_rule(
        self,
        train: Samples,
        trainer: Trainer,
        opinions: np.ndarray,
        fold_experts: Sequence[Sequence[Method]],
        fold_of: np.ndarray,
    ) -> None:
        """Everything but the experts, from out-of-fold opinions `[n, modality, class]` and fold_of `[n]`."""
        assert train.y is not None
        self.to(next(self.parameters()).dtype)  # all of it in 64 bits if the experts are, as a loaded model will be
        weight = np.ones(len(train)) if train.weight is None else train.weight
        rows, y = np.flatnonzero(weight), self.task.encode(train.y)
        present = np.stack([train.present_in(name) for name in self.names], axis=1)
        self.rule.fit(opinions[rows], y[rows], present[rows], weight=weight[rows])
        if len(rows) > _ROWS:
            rows = np.sort(np.random.default_rng(trainer.seed).choice(rows, _ROWS, replace=False))
        y, present, weight, samples = y[rows], present[rows], weight[rows], train.select(rows)
        views = partial(self._training_views, samples, trainer, fold_experts)
        there = torch.from_numpy(present)
        sound = torch.from_numpy(self.reliability.fit(views, y, present, fold_of[rows]))
        log_p = self.rule.calibrated(torch.from_numpy(opinions[rows]), there)
        log_prior = self.rule.prior.to(log_p).log()
        rho = (bounded(sound) * there).numpy()
        self.gain.learn(kappa=fit_kappa(log_p.numpy(), log_prior.numpy(), rho, y, weight))
        self.alarm.fit(_all_sound(log_p, log_prior, sound, there))

    def _training_views(
        self, samples: Samples, trainer: Trainer, fold_experts: Sequence[Sequence[Method]], fold: int | None
    ) -> list[np.ndarray]:
        """Every modality of training samples, as it is looked at; features are those of the fold's own expert."""
        assert trainer.preparation is not None
        batch = trainer.preparation.batch(samples)
        views = []
        for m, (name, expert) in enumerate(self.experts.items()):
            modality, features = self.spec.modalities[name], None
            if not shows_itself(modality):
                features = trainer.predict(expert if fold is None else fold_experts[m][fold], samples).joint
            views.append(view(modality, batch, features).double().numpy())
        return views


def _all_sound(log_p: Tensor, log_prior: Tensor, sound: Tensor, present: Tensor) -> Tensor:
    """P(all are sound) `[n]` from how sound each looks, `[n, modality]`; shapes as in `all_sound`."""
    return all_sound(log_p, log_prior, bounded(sound, FLOOR, _NEARLY_ONE) * present, present)


def shows_itself(modality: Modality) -> bool:
    """Whether a modality's values are numbers to look at; the ids of tokens are not."""
    return modality.kind != "tokens"


def view_size(modality: Modality, width: int) -> int:
    """How many features `view` shows of a modality whose encoder is `width` wide."""
    if modality.kind == "sequence":
        return 2 * modality.shape[1]
    return math.prod(modality.shape) if shows_itself(modality) else width


def view(modality: Modality, batch: Batch, features: Tensor | None) -> Tensor:
    """What is looked at of one modality: `[n, feature]`.

    Vectors and images as they are (standardised); sequences as each feature's mean and standard deviation over time,
    so that any length will do; tokens as the encoder's features `[n, width]`.
    """
    if not shows_itself(modality):
        assert features is not None
        return features
    x = batch[modality.name]
    if modality.kind != "sequence":
        return x.flatten(1)
    mask = length_mask(batch.lengths.get(modality.name), x)
    mean = masked_mean(x, mask)
    variance = masked_mean((x - mean[:, None]).square(), mask)
    return torch.cat([mean, variance.sqrt()], dim=1)
