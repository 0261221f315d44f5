"""Fusing witnesses who may be broken: how probable it is that each is sound, and what follows from all of them.

Each modality m of a sample carries a hidden flag: sound, or broken and then independent of the class. With ρ_m the
probability that it is sound, given what is seen of it, summing over the flags gives

    log post(c) = log π_c + g Σ_m [log(ρ_m p_m(c) + (1 − ρ_m) π_c) − log π_c]

so that a broken modality can at most say nothing, however loud it is. The gain g ≤ 1 allows for experts that repeat
one another. ρ is learned from sound training samples alone; what will be broken, and how, is not known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.bayes.anomaly_scores import COMPONENTS, REFERENCES, InputScores, opinion_scores
from consilience.bayes.pair_consistency import PairCheck, Views, revise
from consilience.bayes.score_density import CAP, Density, bounded

_LARGEST_KAPPA = 10.0


def log_mixture(log_p: Tensor, log_prior: Tensor, rho: Tensor) -> Tensor:
    """log(ρ p + (1−ρ) π) − log π, what a modality that may be broken has to add: `[..., modality, class]`.

    log_p: `[..., modality, class]` log-probabilities · log_prior: `[class]` · rho: `[..., modality]`.

    >>> log_mixture(torch.tensor([[0.9, 0.1]]).log(), torch.tensor([0.5, 0.5]).log(), torch.tensor([0.0])).tolist()
    [[0.0, 0.0]]
    """
    sound, broken = rho.log()[..., None], (-rho).log1p()[..., None]
    return torch.logaddexp(sound + log_p - log_prior, broken.expand_as(log_p))


def gain(rho: Tensor, kappa: Tensor | float) -> Tensor:
    """g = 1/(1 + κ·max(0, Σρ − 1)): the more sound witnesses, the more they repeat one another. `[..., m]` → `[...]`.

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

    A modality that contradicts what all of them together conclude loses trust, whatever it looked like.

    >>> p, prior = torch.tensor([[0.99, 0.01], [0.5, 0.5]]).log(), torch.tensor([0.5, 0.5]).log()
    >>> posterior_trust(p, prior, torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]).log())
    tensor([0.0196, 0.5000])
    """
    sound = rho.log()[..., None] + log_p - log_prior - log_mixture(log_p, log_prior, rho)
    return (log_posterior.exp()[..., None, :] * sound.exp()).sum(dim=-1)


def all_sound(log_p: Tensor, log_prior: Tensor, rho: Tensor, present: Tensor) -> Tensor:
    """P(every modality that is present is sound | everything): `[..., modality, class]`, … → `[...]`.

    Π_m ρ_m · Σ_c π_c Π_m p_m(c)/π_c over the same sum with broken modalities allowed for: it takes both that they all
    look sound and that they agree.

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
    """The κ of the gain with the least NLL on out-of-fold opinions.

    log_p: `[n, modality, class]` · log_prior: `[class]` · rho: `[n, modality]`, 0 where missing · y, weight: `[n]`.
    """
    from scipy.optimize import minimize_scalar

    total = log_mixture(*(torch.from_numpy(np.asarray(one, np.float64)) for one in (log_p, log_prior, rho))).sum(dim=1)
    more = np.maximum(rho.sum(axis=1) - 1, 0.0)

    def loss(kappa: float) -> float:
        logits = log_prior + total.numpy() / (1 + kappa * more)[:, None]
        own = logits[np.arange(len(y)), y] - np.logaddexp.reduce(logits, axis=1)
        return float(-(weight * own).sum() / weight.sum())

    found = minimize_scalar(loss, bounds=(0.0, _LARGEST_KAPPA), method="bounded")
    return float(found.x) if found.fun < loss(0.0) else 0.0


class Reliability(nn.Module):
    """ρ of every modality from what is seen of it: its inputs, or features where inputs are no numbers.

    sizes: how many features each modality shows · classes: how many classes · beside: how many scores of other kinds
    are given with each call (an expert's, say) · pairs: whether to look for swapped modalities too.
    """

    scores: Sequence[InputScores]
    densities: Sequence[Density]

    def __init__(
        self,
        sizes: Sequence[int],
        classes: int,
        *,
        beside: int = 0,
        pairs: bool = True,
        references: int = REFERENCES,
        components: int = COMPONENTS,
    ):
        super().__init__()
        scores = [InputScores(size, classes, references=references, components=components) for size in sizes]
        self.scores = nn.ModuleList(scores)  # type: ignore[assignment]
        self.densities = nn.ModuleList(Density(one.count + beside) for one in scores)  # type: ignore[assignment]
        self.pairs = PairCheck([one.components for one in scores] if pairs else [])

    def fit(
        self,
        views: Views,
        y: np.ndarray,
        present: np.ndarray,
        fold_of: np.ndarray,
        beside: Sequence[np.ndarray] | None = None,
    ) -> np.ndarray:
        """Learn from sound samples and return how sound they look themselves, out-of-fold: see `soundness`.

        views: see `Views`; standardised · y: `[n]` class indices · present: `[n, modality]` · fold_of: `[n]` ·
        beside: each modality's other scores `[n, score]`, out-of-fold.
        """
        kept_as = next(self.buffers())
        self.to("cpu", torch.float64)
        n = len(present)
        folds = [int(fold) for fold in np.unique(fold_of)]
        scores = [np.zeros((n, one.count)) for one in self.scores]
        inner: dict[int | None, list[np.ndarray]] = {}
        for fold in (*folds, None):  # what is fitted on all comes last, and stays
            held = np.zeros(n, dtype=bool) if fold is None else fold_of == fold
            seen = [torch.from_numpy(np.asarray(one, dtype=np.float64)) for one in views(fold)]
            for m, one in enumerate(self.scores):
                rows = present[:, m] & ~held
                one.fit(seen[m][rows].numpy(), y[rows])
                scores[m][held] = one(seen[m][held]).numpy()
            inner[fold] = [one.inner(seen[m]).numpy() for m, one in enumerate(self.scores)]
        if beside is not None:
            scores = [np.concatenate(both, axis=1) for both in zip(scores, beside)]
        for m, density in enumerate(self.densities):
            density.fit(scores[m][present[:, m]])
        evidence = None
        if self.pairs.pairs:
            evidence = torch.from_numpy(self.pairs.fit(inner.__getitem__, present, fold_of))
        there = torch.from_numpy(present)
        looks = self._conclude([torch.from_numpy(one) for one in scores], evidence, there).numpy()
        self.to(kept_as)
        return looks

    def forward(self, views: Sequence[Tensor], present: Tensor, beside: Sequence[Tensor] | None = None) -> Tensor:
        """ρ `[n, modality]` between floor and cap, from views `[n, feature]` of each modality; exactly 0 if missing."""
        return bounded(self.soundness(views, present, beside)) * present

    def soundness(self, views: Sequence[Tensor], present: Tensor, beside: Sequence[Tensor] | None = None) -> Tensor:
        """The same before floor and cap, `[n, modality]`: 1 where nothing is out of the usual, 0 where missing."""
        scores = [one(seen) for one, seen in zip(self.scores, views)]
        if beside is not None:
            scores = [torch.cat(both, dim=1) for both in zip(scores, beside)]
        evidence = None
        if self.pairs.pairs:
            evidence = self.pairs([one.inner(seen) for one, seen in zip(self.scores, views)], present)
        return self._conclude(scores, evidence, present)

    def _conclude(self, scores: Sequence[Tensor], evidence: Tensor | None, present: Tensor) -> Tensor:
        sound = torch.stack([one(found) for one, found in zip(self.densities, scores)], dim=1) * present
        return sound if evidence is None else revise(sound, evidence, CAP) * present


class OpinionReliability(nn.Module):
    """ρ of every modality where opinions are all there is: whether they are of the usual size, certainty and entropy.

    What made them cannot be seen, so this finds loud experts only; that experts contradict one another, the posterior
    finds by itself.
    """

    densities: Sequence[Density]

    def __init__(self, modalities: int):
        super().__init__()
        self.densities = nn.ModuleList(Density(3) for _ in range(modalities))  # type: ignore[assignment]

    def fit(self, opinions: np.ndarray, present: np.ndarray) -> np.ndarray:
        """Learn from out-of-fold logits `[n, modality, class]` of sound samples; returns their ρ `[n, modality]`."""
        kept_as = next(self.buffers())
        self.to("cpu", torch.float64)
        logits = torch.from_numpy(np.asarray(opinions, dtype=np.float64))
        scores = opinion_scores(logits)
        for m, one in enumerate(self.densities):
            if present[:, m].any():  # of an expert who was never heard nothing is unusual
                one.fit(scores[:, m].numpy()[present[:, m]])
        rho = self(logits, torch.from_numpy(present)).numpy()
        self.to(kept_as)
        return rho

    def forward(self, opinions: Tensor, present: Tensor) -> Tensor:
        """ρ `[n, modality]` from logits `[n, modality, class]`; exactly 0 where missing."""
        scores = opinion_scores(opinions)
        return bounded(torch.stack([one(scores[:, m]) for m, one in enumerate(self.densities)], dim=1)) * present
