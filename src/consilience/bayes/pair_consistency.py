"""Do two modalities show the same object? A check for swapped modalities, which look sound one by one.

Canonical directions of a pair are learned from the training samples. The Gaussian pointwise mutual information along
them separates matched from permuted pairs, and a logistic fit of the two makes it evidence. The evidence of all pairs
is combined by a sum over all sets of sound modalities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.bayes.anomaly_scores import FEATURE_RESOLUTION, whitening
from consilience.bayes.learned_buffers import Learned

# fold → every modality's features [n, feature] from experts fitted without that fold; None: from experts fitted on all.
Views = Callable[[int | None], Sequence[np.ndarray]]
_Canonical = tuple[np.ndarray, np.ndarray]  # a pair's canonical variables, out-of-fold: [n, direction] twice

DIRECTIONS = 20
# The sum is over 2^modalities sets: with more modalities there is no pair check.
MAX_MODALITIES = 10
_MIN_SAMPLES = 20  # that have both modalities of a pair
_CLIP = 4.0  # of canonical variables; larger ones are found by the anomaly scores
_MAX_CORRELATION = 0.99
_STRENGTHS = np.concatenate([[0.0], np.geomspace(0.05, 1.0, 14)])
_TINY = 1e-12
# Below these a canonical variable, whose usual size is 1, and the spread of the information are rounding errors.
_LEAST_SIZE = 1e-2
_LEAST_INFORMATION = 1e-4


def pointwise_information(u: Tensor, v: Tensor, correlation: Tensor) -> Tensor:
    """log p(u, v)/(p(u) p(v)) of standard normals with these correlations, summed: `[n, k]`, `[n, k]`, `[k]` → `[n]`.

    >>> pointwise_information(torch.tensor([[1.0]]), torch.tensor([[1.0]]), torch.tensor([0.0])).item()
    0.0
    """
    square = correlation.square()
    quadratic = (square * (u.square() + v.square()) - 2 * correlation * u * v) / (2 * (1 - square))
    return (-0.5 * torch.log1p(-square) - quadratic).sum(dim=-1)


def canonical_directions(x: np.ndarray, y: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` most correlated directions of two centred sets `[n, p]`, `[n, q]`: `[p, count]`, `[q, count]`.

    The singular vectors of the whitened cross-covariance (Hotelling, Relations between two sets of variates), the
    whitening by Ledoit and Wolf's covariance, which also works with more features than samples.
    """
    left, right = (whitening(side, FEATURE_RESOLUTION**2 * np.square(side).mean(), centred=True) for side in (x, y))
    u, _, vt = np.linalg.svd((x @ left).T @ (y @ right), full_matrices=False)
    return left @ u[:, :count], right @ vt[:count].T


def combine_flags(rho: Tensor, evidence: Tensor) -> Tensor:
    """P(modality m is sound | all pairs) `[n, modality]`, summed exactly over all 2^M sets of sound modalities.

    P(s) ∝ Π_m ρ_m^{s_m} (1−ρ_m)^{1−s_m} · Π_{a<b} exp(s_a s_b · evidence_ab): only two sound modalities can show the
    same object.

    Args:
        rho: P(sound) from each modality alone, `[n, modality]`.
        evidence: Log-likelihood ratio of "same object" to "not", `[n, pair]`, in the order of `itertools.combinations`.

    >>> combine_flags(torch.tensor([[0.5, 0.5]]), torch.tensor([[3.0]]).log())
    tensor([[0.6667, 0.6667]])
    """
    modalities = range(rho.shape[1])
    flags = torch.tensor(list(product((0.0, 1.0), repeat=len(modalities))), dtype=rho.dtype, device=rho.device)
    both = flags[:, [a for a, _ in combinations(modalities, 2)]] * flags[:, [b for _, b in combinations(modalities, 2)]]
    sound = rho.clamp(_TINY, 1 - torch.finfo(rho.dtype).eps)
    joint = sound.log() @ flags.T + (-sound).log1p() @ (1 - flags).T + evidence @ both.T
    return torch.softmax(joint, dim=1) @ flags


def revise(sound: Tensor, evidence: Tensor, cap: float) -> Tensor:
    """Update P(sound) `[n, modality]` of each modality alone by the pairs' evidence `[n, pair]`.

    The evidence of a pair counts as far as both modalities look sound by themselves: what two broken ones have in
    common is chance. The prior of a modality is at most `cap`, because no evidence could move a prior of 1; without
    evidence the result is unchanged all the same.

    >>> revise(torch.tensor([[1.0, 0.5]]), torch.zeros(1, 1), cap=0.9).tolist()
    [[1.0, 0.5]]
    """
    a, b = zip(*combinations(range(sound.shape[1]), 2))
    counted = evidence * sound[:, a] * sound[:, b]
    return (combine_flags(cap * sound, counted) / cap).clamp(max=1)


class PairCheck(Learned):
    """Evidence of every pair of modalities that they show the same object; 0 before `fit`.

    Args:
        sizes: The number of features of each modality.
        directions: The most canonical directions of a pair.
    """

    slope: Tensor
    offset: Tensor
    strength: Tensor

    def __init__(self, sizes: Sequence[int], directions: int = DIRECTIONS):
        super().__init__()
        self.pairs = list(combinations(range(len(sizes)), 2)) if len(sizes) <= MAX_MODALITIES else []
        self._fold_directions: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # by fold and pair, see `fit`
        for number, (a, b) in enumerate(self.pairs):
            k = min(directions, sizes[a], sizes[b])
            self._keep(number, torch.zeros(sizes[a], k), torch.zeros(sizes[b], k), torch.zeros(k))
        self.learn(slope=torch.zeros(len(self.pairs)), offset=torch.zeros(len(self.pairs)), strength=torch.tensor(1.0))

    def fit(
        self, views: Views, present: np.ndarray, fold_of: np.ndarray, seed: int = 0, *, sound: np.ndarray | None = None
    ) -> np.ndarray:
        """Learn from sound samples and return the out-of-fold evidence of all, `[n, pair]`.

        A pair that fewer than 20 samples have gets no evidence. The directions learned without each fold are kept for
        `evidence`, until `forget_held_out`.

        Args:
            views: Of centred features.
            present: `[n, modality]`.
            fold_of: Each sample's fold `[n]`.
            seed: Of the permutations.
            sound: The samples to learn from, a mask `[n]`. None: all.
        """
        random = np.random.default_rng(seed)
        self.forget_held_out()
        learned = np.ones(len(present), dtype=bool) if sound is None else sound
        donors = _draw_donors(present & learned[:, None], fold_of, random)
        final, folds = views(None), {int(fold): views(int(fold)) for fold in np.unique(fold_of)}
        canonical: list[_Canonical | None] = []
        slope, offset = np.zeros(len(self.pairs)), np.zeros(len(self.pairs))
        for number, (a, b) in enumerate(self.pairs):
            both = present[:, a] & present[:, b] & learned
            if both.sum() < _MIN_SAMPLES:
                canonical.append(None)
                continue
            count = getattr(self, f"correlation{number}").numel()
            u, v = np.zeros((2, len(present), count))
            directions = {}
            for fold, seen in folds.items():
                inside, held = both & (fold_of != fold), fold_of == fold
                left, right = directions[fold] = canonical_directions(seen[a][inside], seen[b][inside], count)
                u[held], v[held] = seen[a][held] @ left, seen[b][held] @ right
            # After shrunk whitening variances are not 1.
            u_size, v_size = (np.sqrt(np.square(side[both]).mean(axis=0)).clip(min=_LEAST_SIZE) for side in (u, v))
            u, v = u / u_size, v / v_size
            for fold, (left, right) in directions.items():
                self._fold_directions[fold, number] = torch.from_numpy(left / u_size), torch.from_numpy(right / v_size)
            left, right = canonical_directions(final[a][both], final[b][both], count)
            correlation = (u[both] * v[both]).mean(axis=0).clip(0, _MAX_CORRELATION)
            self._keep(number, left / u_size, right / v_size, correlation)
            matched, permuted = (
                self._information(number, torch.from_numpy(u[both]), torch.from_numpy(other[both])).numpy()
                for other in (v, v[donors[:, b]])
            )
            slope[number], offset[number] = _logistic(matched, permuted)
            canonical.append((u, v))
        self.learn(slope=slope, offset=offset)
        own = np.repeat(np.arange(len(present))[:, None], present.shape[1], axis=1)
        kept = present & (random.random(present.shape) < 0.5)
        exchanged = self._evidence_of(canonical, np.where(kept, own, donors), present)
        strength = fit_strength(exchanged[learned], kept[learned], present[learned])
        self.learn(strength=strength)
        return strength * self._evidence_of(canonical, own, present)

    def forward(self, views: Sequence[Tensor], present: Tensor) -> Tensor:
        """Evidence `[n, pair]` from every modality's centred features `[n, feature]`; 0 where one is missing."""
        return self.evidence(views) * self.complete(present)

    def evidence(self, views: Sequence[Tensor], fold: int | None = None) -> Tensor:
        """Evidence `[n, pair]` if all modalities are present, with directions learned without a fold, or from all."""
        evidence = []
        for number, (a, b) in enumerate(self.pairs):
            whole = getattr(self, f"left{number}"), getattr(self, f"right{number}")
            # A fold in which no sample was learned from has no directions of its own: the others are without it too.
            left, right = whole if fold is None else self._fold_directions.get((fold, number), whole)
            evidence.append(self._pair_evidence(number, views[a] @ left.to(views[a]), views[b] @ right.to(views[b])))
        return self.strength.to(evidence[0]) * torch.stack(evidence, dim=1)

    def complete(self, present: Tensor) -> Tensor:
        """Which pairs have both modalities, `[n, pair]`, from `[n, modality]`."""
        a, b = zip(*self.pairs)
        return present[:, a] & present[:, b]

    def forget_held_out(self) -> None:
        """Free the directions of the folds."""
        self._fold_directions = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fold_directions": {}}

    def total(self, evidence: Tensor, modalities: int) -> Tensor:
        """The evidence `[n, pair]` of all pairs of each modality, summed: `[n, modality]`."""
        members = torch.zeros(len(self.pairs), modalities, dtype=evidence.dtype, device=evidence.device)
        for number, pair in enumerate(self.pairs):
            members[number, list(pair)] = 1
        return evidence @ members

    def _keep(self, number: int, left: np.ndarray | Tensor, right: np.ndarray | Tensor, r: np.ndarray | Tensor) -> None:
        self.learn(**{f"left{number}": left, f"right{number}": right, f"correlation{number}": r})

    def _pair_evidence(self, number: int, u: Tensor, v: Tensor) -> Tensor:
        return self.slope[number].to(u) * self._information(number, u, v) + self.offset[number].to(u)

    def _information(self, number: int, u: Tensor, v: Tensor) -> Tensor:
        correlation = getattr(self, f"correlation{number}").to(u)
        return pointwise_information(u.clamp(-_CLIP, _CLIP), v.clamp(-_CLIP, _CLIP), correlation)

    def _evidence_of(
        self, canonical: Sequence[_Canonical | None], shown: np.ndarray, present: np.ndarray
    ) -> np.ndarray:
        """Evidence `[n, pair]` at strength 1, with each modality taken from row `shown` `[n, modality]`."""
        evidence = np.zeros((len(present), len(self.pairs)))
        for number, (a, b) in enumerate(self.pairs):
            if (pair := canonical[number]) is not None:
                u, v = torch.from_numpy(pair[0][shown[:, a]]), torch.from_numpy(pair[1][shown[:, b]])
                evidence[:, number] = self._pair_evidence(number, u, v).numpy() * (present[:, a] & present[:, b])
        return evidence


def fit_strength(evidence: np.ndarray, kept: np.ndarray, present: np.ndarray) -> float:
    """Fit the factor on the pairs' evidence, which is partly counted twice because pairs share modalities.

    Args:
        evidence: `[n, pair]` of samples half of whose modalities were exchanged for another sample's.
        kept, present: `[n, modality]`.

    Returns:
        The factor that best predicts which modalities were kept.
    """
    prior = torch.from_numpy(np.where(present, 0.5, 0.0))
    merit = []
    for strength in _STRENGTHS:
        sound = combine_flags(prior, torch.from_numpy(strength * evidence)).numpy().clip(_TINY, 1 - _TINY)
        merit.append(np.where(kept, np.log(sound), np.log1p(-sound))[present].sum())
    return float(_STRENGTHS[int(np.argmax(merit))])


def _draw_donors(present: np.ndarray, fold_of: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """For each sample and modality another sample of the same fold that has it, `[n, modality]` rows."""
    donors = np.repeat(np.arange(len(present))[:, None], present.shape[1], axis=1)
    for fold in np.unique(fold_of):
        for m in range(present.shape[1]):
            rows = random.permutation(np.flatnonzero(present[:, m] & (fold_of == fold)))
            donors[rows, m] = np.roll(rows, 1)
    return donors


def _logistic(matched: np.ndarray, permuted: np.ndarray) -> tuple[float, float]:
    """Slope and offset of the log-odds that a pair with this information is matched; 0 if uninformative."""
    from sklearn.linear_model import LogisticRegression

    x = np.concatenate([matched, permuted])[:, None]
    size = float(x.std())
    if size < _LEAST_INFORMATION:  # rounding errors
        return 0.0, 0.0
    fitted = LogisticRegression(C=100.0).fit(x / size, np.repeat([1, 0], [len(matched), len(permuted)]))
    slope = float(fitted.coef_[0, 0]) / size
    return (slope, float(fitted.intercept_[0])) if slope > 0 else (0.0, 0.0)
