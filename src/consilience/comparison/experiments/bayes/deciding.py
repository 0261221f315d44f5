"""Ways to decide from the opinions of several experts, learned from opinions on samples that they did not train on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from consilience.bayes.bayes_rule import BayesRule, Calibration
from consilience.bayes.calibration import fit_temperature
from consilience.bayes.fuse import fuse
from consilience.bayes.kappa import Kappa
from consilience.bayes.priors import empirical_prior, estimate_target_prior
from consilience.bayes.reliability import OpinionReliability

# Names of the ways, as tables have them.
SINGLE, MEAN, SUM, THEOREM = "best single modality", "mean probability", "sum of logits", "theorem (κ = 1)"
TEMPERED, CALIBRATED, STACKED = "theorem, tempered", "calibrated, κ = 1", "stacking"
OURS, ROBUST, COPULA = "calibrated κ", "calibrated κ, robust", "calibrated κ, copula"
KEPT, TRUE, EM = "old shares kept", "true shares", "shares by EM"
TRUE_NAIVE, PUBLISHED = "κ = 1, true shares", "κ = 1, as published"
RELIABLE, TOLD = "calibrated κ, own ρ", "κ = 1, ρ known"

Posteriors = dict[str, np.ndarray]  # way → log-posterior [n, class]
# What a probability of 0 is taken for where a finite logarithm is needed: the least of a 32-bit number; and where it is
# asked how loud an expert is, which may be louder than that.
_LEAST, _IMPOSSIBLE = float(np.log(np.finfo(np.float32).tiny)), -745.0


@dataclass(frozen=True, eq=False)
class Case:
    """What there is to decide from. Opinions are log-probabilities `[n, modality, class]`.

    learned, labels: opinions and class indices `[n]` of samples that no expert trained on · asked: opinions on those to
    be decided · present: `[n, modality]`, who is there of those.
    """

    learned: np.ndarray
    labels: np.ndarray
    asked: np.ndarray
    present: np.ndarray | None = None

    @cached_property
    def prior(self) -> np.ndarray:
        """The classes' shares among the labels."""
        return empirical_prior(self.labels, self.learned.shape[2])

    @cached_property
    def best(self) -> int:
        """The expert of the least log-loss on what is learned from."""
        own = self.learned[np.arange(len(self.labels)), :, self.labels]
        return int(np.maximum(own, _LEAST).mean(axis=0).argmax())

    def rule(self, kappa: Kappa = "gaussian", calibration: Calibration = "temperature", **how: Any) -> BayesRule:
        """Bayes' rule, its calibration and dependence learned: what `BayesFusion` is made of."""
        rule = BayesRule(self.learned.shape[1], self.learned.shape[2], kappa=kappa, calibration=calibration).double()
        return rule.fit(self.learned, self.labels, **how)

    def decide(self, rule: BayesRule, target: np.ndarray | None = None, reliability: Any = None) -> np.ndarray:
        """The log-posterior of what is asked. target: the classes' shares there."""
        present = None if self.present is None else torch.from_numpy(self.present)
        shares = None if target is None else torch.from_numpy(target)
        return rule(torch.from_numpy(self.asked), present, shares, reliability).numpy()


@dataclass(frozen=True, eq=False)
class Decided:
    """Posteriors of every way on samples `rows` with class indices y, how much each counts, and what else was found."""

    ways: Posteriors
    rows: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None
    off: Mapping[str, float] = field(default_factory=dict)


def decide_all(case: Case) -> Posteriors:
    """Every way that opinions alone allow, all experts being present."""
    naive = fuse(case.asked, case.prior)
    temperature = fit_temperature(np.maximum(fuse(case.learned, case.prior), _LEAST)[:, None], case.labels)[0]
    return {
        SINGLE: case.asked[:, case.best],
        MEAN: mean_of_probabilities(case.asked),
        SUM: case.asked.sum(axis=1),
        THEOREM: naive,
        TEMPERED: naive / temperature,
        CALIBRATED: case.decide(case.rule("none")),
        OURS: case.decide(case.rule()),
        ROBUST: case.decide(case.rule(calibration="robust")),
        COPULA: case.decide(case.rule("copula")),
        STACKED: stack(case),
    }


def decide_with_gaps(case: Case) -> Posteriors:
    """The ways that need no opinion to be there."""
    return {
        MEAN: mean_of_probabilities(case.asked, case.present, case.prior),
        THEOREM: fuse(case.asked, case.prior, present=case.present),
        CALIBRATED: case.decide(case.rule("none")),
        OURS: case.decide(case.rule()),
        ROBUST: case.decide(case.rule(calibration="robust")),
    }


def decide_when_broken(case: Case, sound: float) -> Posteriors:
    """The ways that may bear an expert who is wrong and sure of it; learned while none was broken.

    sound: the probability that an expert is not broken, which one way is told.
    """
    loudness = OpinionReliability(case.learned.shape[1]).double()
    everyone = np.ones(case.learned.shape[:2], dtype=bool)
    rule = case.rule(reliability=loudness.fit(np.maximum(case.learned, _IMPOSSIBLE), everyone))
    asked = torch.from_numpy(np.maximum(case.asked, _IMPOSSIBLE))
    usual = loudness(asked, torch.ones(asked.shape[:2], dtype=torch.bool))
    independent = case.rule("none")
    return {
        MEAN: mean_of_probabilities(case.asked),
        THEOREM: fuse(case.asked, case.prior),
        CALIBRATED: case.decide(independent),
        TOLD: case.decide(independent, reliability=torch.full_like(usual, sound)),
        OURS: case.decide(case.rule()),
        ROBUST: case.decide(case.rule(calibration="robust")),
        RELIABLE: case.decide(rule, reliability=usual),
    }


def decide_elsewhere(case: Case, true: np.ndarray) -> tuple[Posteriors, dict[str, float]]:
    """With other shares of the classes than were learned under: kept, known (`true`), or estimated.

    Returns also how far the estimates are off, Σ_c |estimate − truth|, from the fused posterior and from the best
    expert's, calibrated.
    """
    rule, one = case.rule(), case.best
    alone = Case(case.learned[:, [one]], case.labels, case.asked[:, [one]])
    kept = case.decide(rule)
    found = estimate_target_prior(kept, case.prior)
    found_alone = estimate_target_prior(alone.decide(alone.rule("none")), case.prior)
    experts = case.asked.shape[1]
    decided = {
        KEPT: kept,
        TRUE: case.decide(rule, true),
        EM: case.decide(rule, found),
        TRUE_NAIVE: fuse(case.asked, case.prior, target_prior=true),
        PUBLISHED: case.asked.sum(axis=1) - (experts - 1) * np.log(true),
    }
    off = {"fused": np.abs(found - true).sum(), "alone": np.abs(found_alone - true).sum()}
    return decided, {name: float(error) for name, error in off.items()}


def mean_of_probabilities(
    opinions: np.ndarray, present: np.ndarray | None = None, prior: np.ndarray | None = None
) -> np.ndarray:
    """The logarithm of the experts' mean probability `[n, class]`, of those present; of none, the prior's."""
    probabilities = np.exp(opinions)
    if present is None or prior is None:
        return _log(probabilities.mean(axis=1))
    count = present.sum(axis=1)[:, None]
    total = (probabilities * present[:, :, None]).sum(axis=1)
    return _log(np.where(count > 0, total / count.clip(min=1), prior))


def stack(case: Case) -> np.ndarray:
    """The log-posterior of a logistic regression on all experts' log-probabilities side by side."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    seen, asked = (np.maximum(said, _LEAST).reshape(len(said), -1) for said in (case.learned, case.asked))
    fitted = make_pipeline(StandardScaler(), LogisticRegression(max_iter=3000)).fit(seen, case.labels)
    return _log(fitted.predict_proba(asked))


def _log(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(values)
