"""How far each expert can be trusted where only opinions are known, learned from opinions that were spoilt on purpose.

Without inputs there are two signs that an expert is broken: its opinion has an unusual size, certainty or entropy, or
it contradicts the other experts. `TrustGate` learns how far an expert with such signs can still be used:

    P(c | x) = σ(a)·P_rule(c | x) + (1 − σ(a))·P_robust(c | x; ρ, τ)

where P_rule is the posterior of `BayesRule`, which takes all experts to be sound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from consilience.bayes.alarm import Alarm
from consilience.bayes.anomaly_scores import OPINION_SCORES
from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.kappa import spread_folds
from consilience.bayes.learned_buffers import Learned
from consilience.bayes.reliability import OpinionReliability, Signals, fit_kappa, gain, log_mixture
from consilience.bayes.row_pieces import in_pieces
from consilience.bayes.score_density import bounded
from consilience.bayes.spoilt_opinions import spoil_opinions
from consilience.bayes.trust_gate import Opinions, TrustGate, mixed

# The most samples from which trust is learned, the most spoilt ones, the most spoilt copies of a sample, and the most
# bytes of either.
_ROWS, _SPOILT, _COPIES, _BYTES = 4000, 4000, 10, 2**27
# Folds of the rule's posterior from which the gate learns.
_FOLDS = 4
# The most logits that are computed at a time: 8 MB in float64.
_PIECE = 2**20


class Trusted(NamedTuple):
    """The posterior of some samples and the trust in their experts.

    Attributes:
        log_posterior: Under the prior of the rule, `[n, class]`.
        reliability: P(sound | opinion) `[n, modality]`, 0 where missing.
        trust: P(sound | all opinions) `[n, modality]`, 0 where missing.
    """

    log_posterior: Tensor
    reliability: Tensor
    trust: Tensor


def agreement(log_p: Tensor, log_prior: Tensor, rho: Tensor, kappa: Tensor | float = 0.0) -> Tensor:
    """log Σ_c q(c) p_m(c)/π_c, with q the posterior of the experts other than m: `[n, modality]`.

    It is 0 if the others or the expert itself have no information, positive if they agree, negative if not.

    Args:
        log_p: Calibrated log-probabilities `[n, modality, class]`.
        log_prior: `[class]`.
        rho: P(sound) of each expert `[n, modality]`, 0 where missing.
        kappa: Of the gain, see `reliability.gain`.

    >>> p, prior = torch.tensor([[[0.8, 0.2], [0.4, 0.6]]]).log(), torch.tensor([0.5, 0.5]).log()
    >>> agreement(p, prior, torch.ones(1, 2)).exp()  # 2·(.8·.4 + .2·.6)
    tensor([[0.8800, 0.8800]])
    """
    evidence = log_mixture(log_p, log_prior, rho)
    others = evidence.sum(dim=1, keepdim=True) - evidence
    count = rho.sum(dim=1, keepdim=True) - rho
    posterior = (log_prior + gain(count[..., None], kappa)[..., None] * others).log_softmax(dim=2)
    return torch.logsumexp(posterior + log_p - log_prior, dim=2) * (rho > 0)


class OpinionTrust(Learned):
    """Posterior and trust from opinions alone. Before `fit` every opinion looks sound.

    Args:
        modalities: The number of experts.
    """

    kappa: Tensor

    def __init__(self, modalities: int):
        super().__init__()
        self.learn(kappa=torch.tensor(0.0))
        self.usual = OpinionReliability(modalities)
        self.gate, self.alarm = TrustGate(modalities, deviations=OPINION_SCORES), Alarm()

    def forward(self, rule: BayesRule, logits: Tensor, present: Tensor) -> Trusted:
        """Compute posterior and trust.

        Args:
            rule: The fitted rule.
            logits: `[n, modality, class]`; −inf is allowed.
            present: `[n, modality]`.
        """
        _, modalities, classes = logits.shape

        def joined(some: Tensor, there: Tensor) -> Tensor:
            return torch.cat(self._trusted(rule, some, there), dim=1)

        result = in_pieces(joined, max(_PIECE // (modalities * classes), 1), logits, present)
        return Trusted(*result.split([classes, modalities, modalities], dim=1))

    def fit(
        self,
        rule: BayesRule,
        logits: np.ndarray,
        y: np.ndarray,
        present: np.ndarray,
        *,
        fit_rule: Callable[[np.ndarray], BayesRule],
        weight: np.ndarray | None = None,
        groups: np.ndarray | None = None,
        seed: int = 0,
    ) -> OpinionTrust:
        """Learn from opinions on sound samples that the experts were not trained on.

        The posterior of the rule from which the gate learns is that of a rule fitted without the sample and its group,
        since densities of many classes fit their own samples too well. The calibration has few parameters, and is that
        of the rule itself.

        Args:
            rule: Fitted on all samples.
            logits: `[n, modality, class]`.
            y: Class indices `[n]`.
            present: `[n, modality]`.
            fit_rule: Takes rows and returns the rule fitted on them.
            weight: Positive sample weights `[n]`. The alarm and the usual scores ignore them.
            groups: Labels `[n]`; samples with the same one are left out together.
            seed: Of the samples used, of the faults and of the gate.
        """
        if not present.any():  # there is nothing to learn from: the fixed map remains
            return self
        size = 8 * logits.shape[1] * logits.shape[2]
        chosen = np.arange(len(y))
        most = max(min(_ROWS, _BYTES // size), 1)
        if len(y) > most:
            chosen = np.sort(np.random.default_rng(seed).choice(len(y), most, replace=False))
        fold_of = spread_folds(y, min(_FOLDS, len(y)), groups)[chosen]
        said, there, labels = logits[chosen], present[chosen], y[chosen]
        weights = np.ones(len(chosen)) if weight is None else weight[chosen]
        said = _above_floor(rule, torch.from_numpy(said)).numpy()
        self.usual.fit(said, there)
        clean = self._opinions(rule, torch.from_numpy(said), torch.from_numpy(there))
        rho = (bounded(clean.signals.sound) * clean.present).numpy()
        self.learn(kappa=fit_kappa(clean.log_p.numpy(), clean.log_prior.numpy(), rho, labels, weights))
        copies = min(max(1, round(min(_SPOILT, _BYTES // size) / len(chosen))), _COPIES)
        parts = [said, *(spoil_opinions(said, there, seed * _COPIES + copy) for copy in range(copies))]
        raw, mask = torch.from_numpy(np.concatenate(parts)), torch.from_numpy(np.tile(there, (copies + 1, 1)))
        seen = self._opinions(rule, raw, mask)
        bayes = torch.zeros(len(raw), raw.shape[2], dtype=torch.float64)
        for fold in np.unique(fold_of):
            held_out = torch.from_numpy(np.flatnonzero(np.tile(fold_of == fold, copies + 1)))
            learned = np.setdiff1d(np.arange(len(y)), chosen[fold_of == fold])
            fitted = fit_rule(learned) if len(learned) else rule  # nothing is left without a single sample
            bayes[held_out] = fitted(raw[held_out], mask[held_out], rule.prior)
        sound = torch.arange(len(raw)) < len(chosen)
        targets, counted = (torch.from_numpy(np.tile(values, copies + 1)) for values in (labels, weights))
        with torch.inference_mode(False), torch.enable_grad():
            self.gate.fit(seen, self.kappa, bayes, targets, sound, counted, seed)
        self.alarm.fit(self.gate(seen.select(torch.where(sound)[0]), self.kappa).log_odds)
        return self

    def _trusted(self, rule: BayesRule, logits: Tensor, present: Tensor) -> Trusted:
        seen = self._opinions(rule, logits, present)
        graded = self.gate(seen, self.kappa.to(seen.log_p))
        log_odds = self.alarm(graded.log_odds)
        output = mixed(log_odds, rule(logits, present, rule.prior), graded.log_posterior)
        return Trusted(output, graded.reliability, graded.trust(seen.log_prior, output))

    def _opinions(self, rule: BayesRule, logits: Tensor, present: Tensor) -> Opinions:
        """Calibrated opinions and their signals."""
        log_p = rule.calibrated(logits, present)
        log_prior = rule.prior.to(log_p).log()
        alone = self.usual.signals(_above_floor(rule, logits).to(log_p), present)
        rho = bounded(alone.sound) * present
        signals = Signals(alone.sound, alone.excess, alone.deviations, agreement(log_p, log_prior, rho, self.kappa))
        return Opinions(log_p, log_prior, present, signals)


def _above_floor(rule: BayesRule, logits: Tensor) -> Tensor:
    """Finite logits: no probability is below the smallest one that the rule allows."""
    return torch.maximum(logits, torch.logsumexp(logits, dim=2, keepdim=True) + rule.floor.to(logits)[:, None])
