"""Fusing modalities that may be broken: the probability that each is sound, and the posterior that follows.

Each modality m of a sample has a hidden flag: sound, or broken and then independent of the class. With ρ_m the
probability that it is sound given its input, the sum over the flags gives

    log post(c) = log π_c + g Σ_m [log(ρ_m p_m(c) + (1 − ρ_m) π_c) − log π_c]

so that the effect of a broken modality is bounded, however certain its expert is. The gain g ≤ 1 allows for experts
that repeat one another. ρ is learned from sound training samples alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.bayes.anomaly_scores import (
    COMPONENTS,
    INPUT_RESOLUTION,
    OPINION_SCORES,
    REFERENCES,
    SHARED,
    InputScores,
    opinion_scores,
)
from consilience.bayes.learned_rows import LearnedRows
from consilience.bayes.pair_consistency import PairCheck, Views, revise
from consilience.bayes.score_density import CAP, ScoreDensity, bounded, soundness

_MAX_KAPPA = 10.0


def log_mixture(log_p: Tensor, log_prior: Tensor, rho: Tensor) -> Tensor:
    """log(ρ p + (1−ρ) π) − log π, the evidence of a modality that may be broken: `[..., modality, class]`.

    Args:
        log_p: Log-probabilities `[..., modality, class]`.
        log_prior: `[class]`.
        rho: `[..., modality]`.

    >>> log_mixture(torch.tensor([[0.9, 0.1]]).log(), torch.tensor([0.5, 0.5]).log(), torch.tensor([0.0])).tolist()
    [[0.0, 0.0]]
    """
    sound, broken = rho.log()[..., None], (-rho).log1p()[..., None]
    return torch.logaddexp(sound + log_p - log_prior, broken.expand_as(log_p))


def gain(rho: Tensor, kappa: Tensor | float) -> Tensor:
    """g = 1/(1 + κ·max(0, Σρ − 1)): the more sound modalities, the more they repeat each other: `[..., m]` → `[...]`.

    >>> gain(torch.tensor([1.0, 1.0, 1.0]), 0.5).item()
    0.5
    """
    return 1 / (1 + kappa * (rho.sum(dim=-1) - 1).clamp(min=0))


def robust_posterior(log_p: Tensor, log_prior: Tensor, rho: Tensor, kappa: Tensor | float = 0.0) -> Tensor:
    """The log-posterior `[..., class]` of the formula above; shapes as in `log_mixture`."""
    total = log_mixture(log_p, log_prior, rho).sum(dim=-2)
    return functional.log_softmax(log_prior + gain(rho, kappa)[..., None] * total, dim=-1)


def posterior_trust(log_p: Tensor, log_prior: Tensor, rho: Tensor, log_posterior: Tensor) -> Tensor:
    """P(modality m is sound | everything) = Σ_c post(c)·ρp_m(c)/(ρp_m(c) + (1−ρ)π_c): `[..., modality]`.

    A modality that contradicts the joint posterior loses trust, however usual its input looks.

    >>> p, prior = torch.tensor([[0.99, 0.01], [0.5, 0.5]]).log(), torch.tensor([0.5, 0.5]).log()
    >>> posterior_trust(p, prior, torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]).log())
    tensor([0.0196, 0.5000])
    """
    sound = rho.log()[..., None] + log_p - log_prior - log_mixture(log_p, log_prior, rho)
    return (log_posterior.exp()[..., None, :] * sound.exp()).sum(dim=-1)


def all_sound(log_p: Tensor, log_prior: Tensor, rho: Tensor, present: Tensor) -> Tensor:
    """P(every present modality is sound | everything): `[..., modality, class]`, … → `[...]`.

    Π_m ρ_m · Σ_c π_c Π_m p_m(c)/π_c divided by the same sum with broken modalities allowed. It is high if all look
    sound and agree.

    >>> prior, rho = torch.tensor([0.5, 0.5]).double().log(), torch.tensor([0.9, 0.9]).double()
    >>> for second in ([0.9, 0.1], [0.1, 0.9]):
    ...     log_p = torch.tensor([[0.9, 0.1], second]).double().log()
    ...     print(f"{all_sound(log_p, prior, rho, rho > 0):.3f}")
    0.875
    0.605
    """
    believed = torch.where(present, rho.log(), 0.0).sum(dim=-1)
    agreed = torch.where(present[..., None], log_p - log_prior, 0.0).sum(dim=-2)
    either = log_mixture(log_p, log_prior, rho).sum(dim=-2)
    log_odds = believed + torch.logsumexp(log_prior + agreed, dim=-1) - torch.logsumexp(log_prior + either, dim=-1)
    return log_odds.exp().clamp(max=1)


def fit_kappa(log_p: np.ndarray, log_prior: np.ndarray, rho: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    """Fit the κ of the gain with the smallest negative log-likelihood on out-of-fold opinions.

    Args:
        log_p: `[n, modality, class]`.
        log_prior: `[class]`.
        rho: `[n, modality]`, 0 where missing.
        y: Class indices `[n]`.
        weight: Sample weights `[n]`.
    """
    from scipy.optimize import minimize_scalar

    tensors = (torch.from_numpy(np.asarray(values, np.float64)) for values in (log_p, log_prior, rho))
    total = log_mixture(*tensors).sum(dim=1)
    more = np.maximum(rho.sum(axis=1) - 1, 0.0)

    def loss(kappa: float) -> float:
        logits = log_prior + total.numpy() / (1 + kappa * more)[:, None]
        own = logits[np.arange(len(y)), y] - np.logaddexp.reduce(logits, axis=1)
        return float(-(weight * own).sum() / weight.sum())

    best = minimize_scalar(loss, bounds=(0.0, _MAX_KAPPA), method="bounded")
    return float(best.x) if best.fun < loss(0.0) else 0.0


class Signals(NamedTuple):
    """How unusual every modality of a sample looks. Zeros where it is missing.

    Attributes:
        sound: ρ before floor and cap, `[n, modality]`: 1 where nothing is unusual.
        excess: ζ of the modality's scores, `[n, modality]`.
        deviations: Standardised scores that all modalities have, `[n, modality, score]`.
        agreement: Evidence of all its pairs that it shows the same object as the others, `[n, modality]`.
    """

    sound: Tensor
    excess: Tensor
    deviations: Tensor
    agreement: Tensor


class Measured(NamedTuple):
    """What is measured of samples as if they had all modalities, for `Reliability.signals_of`.

    Attributes:
        scores: Anomaly scores `[n, score]` of each modality.
        evidence: Of the pairs, `[n, pair]`; None if pairs are not looked at.
    """

    scores: Sequence[Tensor]
    evidence: Tensor | None

    def select(self, rows: np.ndarray) -> Measured:
        """Those of some of the samples."""
        return Measured([score[rows] for score in self.scores], None if self.evidence is None else self.evidence[rows])

    @classmethod
    def joined(cls, parts: Sequence[Measured]) -> Measured:
        """Those of several sets of samples, one after the other."""
        evidence = [part.evidence for part in parts if part.evidence is not None]
        scores = [torch.cat(of_one) for of_one in zip(*(part.scores for part in parts))]
        return cls(scores, torch.cat(evidence) if evidence else None)


class Reliability(nn.Module):
    """ρ of every modality from its inputs, or from features where inputs are token ids.

    Args:
        sizes: The number of features of each modality.
        classes: The number of classes.
        extra_scores: The number of further scores that are given with each call, such as an expert's.
        pairs: Whether to look for swapped modalities too.
        references, components: As for `InputScores`.
        resolution: The smallest relative difference of each modality that is not a rounding error.
    """

    scores: Sequence[InputScores]
    densities: Sequence[ScoreDensity]

    def __init__(
        self,
        sizes: Sequence[int],
        classes: int,
        *,
        extra_scores: int = 0,
        pairs: bool = True,
        references: int = REFERENCES,
        components: int = COMPONENTS,
        resolution: Sequence[float] | None = None,
    ):
        super().__init__()
        scores = [
            InputScores(size, classes, references=references, components=components, resolution=least)
            for size, least in zip(sizes, resolution or [INPUT_RESOLUTION] * len(sizes))
        ]
        densities = [ScoreDensity(score.count + extra_scores, score.resolution) for score in scores]
        self.scores = nn.ModuleList(scores)  # type: ignore[assignment]
        self.densities = nn.ModuleList(densities)  # type: ignore[assignment]
        self.pairs = PairCheck([score.components for score in scores] if pairs else [])
        self.learned = LearnedRows([score.count for score in scores], self.pairs.pairs)
        self._fold_scores: dict[int, Sequence[InputScores]] = {}  # see `fit`

    def fit(
        self,
        views: Views,
        y: np.ndarray,
        present: np.ndarray,
        fold_of: np.ndarray,
        extra_scores: Sequence[np.ndarray] | None = None,
        *,
        sound: np.ndarray | None = None,
    ) -> Signals:
        """Learn from sound samples and return the `signals` of all samples, out-of-fold.

        What was learned without each fold is kept for `measure`, until `forget_held_out`.

        Args:
            views: See `Views`; standardised.
            y: Class indices `[n]`.
            present: `[n, modality]`.
            fold_of: Each sample's fold `[n]`.
            extra_scores: Each modality's further scores `[n, score]`, out-of-fold.
            sound: The samples to learn from, a mask `[n]`. None: all.
        """
        buffer = next(self.buffers())
        self.to("cpu", torch.float64)
        self.forget_held_out()
        n = len(present)
        learned = np.ones(n, dtype=bool) if sound is None else sound
        folds = [int(fold) for fold in np.unique(fold_of)]
        scores = [np.zeros((n, score.count)) for score in self.scores]
        centred: dict[int | None, list[np.ndarray]] = {}
        for fold in (*folds, None):  # the fit on all samples comes last and is kept
            held = np.zeros(n, dtype=bool) if fold is None else fold_of == fold
            seen = [torch.from_numpy(np.asarray(view, dtype=np.float64)) for view in views(fold)]
            for m, score in enumerate(self.scores):
                rows = present[:, m] & ~held & learned
                score.fit(seen[m][rows].numpy(), y[rows])
                scores[m][held] = score(seen[m][held]).numpy()
            centred[fold] = [score.centre(seen[m]).numpy() for m, score in enumerate(self.scores)]
            if fold is not None:
                self._fold_scores[fold] = deepcopy(list(self.scores))
        if extra_scores is not None:
            scores = [np.concatenate(both, axis=1) for both in zip(scores, extra_scores)]
        for m, density in enumerate(self.densities):
            density.fit(scores[m][present[:, m] & learned])
        evidence = None
        if self.pairs.pairs:
            evidence = torch.from_numpy(self.pairs.fit(centred.__getitem__, present, fold_of, sound=learned))
        measured = Measured([torch.from_numpy(score) for score in scores], evidence)
        there, rows = torch.from_numpy(present), torch.from_numpy(learned)
        signals = self.signals_of(measured, there)
        self.to(buffer)
        own = [score(view[rows]) for score, view in zip(self.scores, seen)]
        held_out = None if evidence is None else evidence[rows]
        self.learned.fit(own, there[rows], [score[rows] for score in measured.scores], held_out)
        return signals

    def forward(self, views: Sequence[Tensor], present: Tensor, extra_scores: Sequence[Tensor] | None = None) -> Tensor:
        """ρ `[n, modality]` between floor and cap, from views `[n, feature]` of each modality; exactly 0 if missing."""
        return bounded(self.signals(views, present, extra_scores).sound) * present

    def signals(
        self, views: Sequence[Tensor], present: Tensor, extra_scores: Sequence[Tensor] | None = None
    ) -> Signals:
        """How unusual each modality looks; shapes as in `forward`. Training samples look as they did out-of-fold."""
        scores, evidence = self.measure(views, extra_scores)
        found = self.learned.find(scores, present)
        return self.signals_of(Measured(*self.learned.restore(found, scores, evidence)), present)

    def measure(
        self, views: Sequence[Tensor], extra_scores: Sequence[Tensor] | None = None, *, fold: int | None = None
    ) -> Measured:
        """Measure samples from views `[n, feature]` of all modalities, whichever are present.

        Args:
            views, extra_scores: As for `forward`.
            fold: Measure by what was learned without this fold; None: by what was learned from all samples.
        """
        # A fold in which no sample was learned from has nothing of its own: what was learned from all is without it.
        used = self.scores if fold is None else self._fold_scores.get(fold, self.scores)
        scores = [score(view) for score, view in zip(used, views)]
        if extra_scores is not None:
            scores = [torch.cat(both, dim=1) for both in zip(scores, extra_scores)]
        evidence = None
        if self.pairs.pairs:
            evidence = self.pairs.evidence([score.centre(view) for score, view in zip(used, views)], fold)
        return Measured(scores, evidence)

    def signals_of(self, measured: Measured, present: Tensor) -> Signals:
        """How unusual each modality looks among those present `[n, modality]`; pairs count that have both."""
        scores, evidence = measured
        excesses = [density.excess(score) for density, score in zip(self.densities, scores)]
        deviations = torch.stack(
            [density.deviations(score)[:, :SHARED] for density, score in zip(self.densities, scores)], dim=1
        )
        excess = torch.stack(excesses, dim=1)
        alone = soundness(excess) * present
        shown = present.to(alone)
        if evidence is None:
            return Signals(alone, excess * shown, deviations * shown[..., None], torch.zeros_like(alone))
        evidence = evidence * self.pairs.complete(present)
        return Signals(
            revise(alone, evidence, CAP) * present,
            excess * shown,
            deviations * shown[..., None],
            self.pairs.total(evidence, len(self.scores)),
        )

    def forget_held_out(self) -> None:
        """Free what was learned without each fold."""
        self._fold_scores = {}
        self.pairs.forget_held_out()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fold_scores": {}}


class OpinionReliability(nn.Module):
    """ρ of every modality from its opinions alone: whether their size, certainty and entropy are usual.

    Without inputs only overconfident experts can be found; contradictions are handled by the posterior.
    """

    densities: Sequence[ScoreDensity]

    def __init__(self, modalities: int):
        super().__init__()
        self.densities = nn.ModuleList(ScoreDensity(OPINION_SCORES) for _ in range(modalities))  # type: ignore[assignment]

    def fit(self, opinions: np.ndarray, present: np.ndarray) -> np.ndarray:
        """Learn from out-of-fold logits `[n, modality, class]` of sound samples; returns their ρ `[n, modality]`."""
        buffer = next(self.buffers())
        self.to("cpu", torch.float64)
        logits = torch.from_numpy(np.asarray(opinions, dtype=np.float64))
        scores = opinion_scores(logits)
        for m, density in enumerate(self.densities):
            if present[:, m].any():
                density.fit(scores[:, m].numpy()[present[:, m]])
        rho = self(logits, torch.from_numpy(present)).numpy()
        self.to(buffer)
        return rho

    def forward(self, opinions: Tensor, present: Tensor) -> Tensor:
        """ρ `[n, modality]` from logits `[n, modality, class]`; exactly 0 where missing."""
        return bounded(self.signals(opinions, present).sound) * present

    def signals(self, opinions: Tensor, present: Tensor) -> Signals:
        """How unusual each opinion looks by itself; the agreement is 0. Shapes as in `forward`."""
        scores = opinion_scores(opinions).unbind(dim=1)
        excess = torch.stack([density.excess(score) for density, score in zip(self.densities, scores)], dim=1)
        deviations = torch.stack([density.deviations(score) for density, score in zip(self.densities, scores)], dim=1)
        shown = present.to(excess)
        return Signals(
            soundness(excess) * present, excess * shown, deviations * shown[..., None], torch.zeros_like(excess)
        )
