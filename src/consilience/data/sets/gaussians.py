"""`gaussians`: class-conditional Gaussians whose posterior is known, with a given dependence between modalities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Samples
from consilience.core.settings import Interval, NonNegativeFloat, NonNegativeInt, PositiveInt, Rate
from consilience.data.dataset import DataSet
from consilience.data.named_sets import register
from consilience.data.splits import draw_split


@register("gaussians", description="Gaussian modalities whose true posterior is known; a dial for their dependence")
def gaussians(
    *,
    n: Annotated[int, Interval(10)] = 2000,
    n_modalities: PositiveInt = 3,
    n_classes: Annotated[int, Interval(2)] = 3,
    d: PositiveInt = 4,
    dependence: Rate = 0.0,
    separation: NonNegativeFloat = 0.8,
    prior: Sequence[float] | None = None,
    seed: NonNegativeInt = 0,
) -> DataSet:
    """Draw x | c ~ N(μ_c, Σ) for `n_modalities` vectors of `d` features.

    Within a class, feature k of one modality and feature k of any other have correlation `dependence` in [0, 1);
    everything else is independent with variance 1. What is shared is a noise, and the posterior stays linear in the
    features of all modalities together, whatever the dependence. The means are normal with standard deviation
    `separation`. `extra["truth"]` is the `GaussianTruth` the samples were drawn from.
    """
    share = np.full(n_classes, 1 / n_classes) if prior is None else np.asarray(prior, dtype=float)
    if share.shape != (n_classes,) or (share <= 0).any() or not np.isclose(share.sum(), 1):
        raise InputError(f"prior must be {n_classes} positive probabilities that sum to 1, got {prior!r}")
    rng = np.random.default_rng(seed)
    between = (1 - dependence) * np.eye(n_modalities) + dependence
    truth = GaussianTruth(
        names=tuple(f"m{number + 1}" for number in range(n_modalities)),
        means=rng.normal(scale=separation, size=(n_classes, n_modalities, d)),
        covariance=np.kron(between, np.eye(d)),
        prior=share,
    )
    y = rng.choice(n_classes, size=n, p=share)
    y[:n_classes] = np.arange(n_classes)  # so that no class is without a sample
    noise = rng.normal(size=(n, n_modalities * d)) @ np.linalg.cholesky(truth.covariance).T
    x = truth.means[y] + noise.reshape(n, n_modalities, d)
    samples = Samples.of({name: x[:, number] for number, name in enumerate(truth.names)}, y)
    split = draw_split(y, "classification", seed=seed, validation=0.2, test=0.2)
    return DataSet("gaussians", samples, "classification", *split, extra={"truth": truth})


@dataclass(frozen=True, eq=False)
class GaussianTruth:
    """The distribution that the samples were drawn from, and exact results for them.

    Samples are a mapping name → `[n, feature]` or `Samples`; modalities may be missing, also by `present`
    `[n, modality]`.

    Attributes:
        names: Of the modalities.
        means: `[class, modality, feature]`.
        covariance: `[modality·feature, modality·feature]`, the same for every class.
        prior: `[class]`.
    """

    names: tuple[str, ...]
    means: np.ndarray
    covariance: np.ndarray
    prior: np.ndarray

    def log_likelihood(self, X: Mapping[str, np.ndarray] | Samples, present: np.ndarray | None = None) -> np.ndarray:
        """ln p(x | c) of the modalities that are present: `[n, class]`; 0 if none is."""
        x, mask = self._read(X, present)
        result = np.zeros((len(x), len(self.prior)))
        for rows, seen in _patterns(mask):
            result[rows] = self._density(x[rows][:, seen], seen)
        return result

    def log_posterior(self, X: Mapping[str, np.ndarray] | Samples, present: np.ndarray | None = None) -> np.ndarray:
        """ln p(c | x) given the modalities that are present: `[n, class]`; the prior if none is."""
        return _normalise(self.log_likelihood(X, present) + np.log(self.prior))

    def opinions(self, X: Mapping[str, np.ndarray] | Samples, present: np.ndarray | None = None) -> np.ndarray:
        """ln p(c | x_j) given one modality: `[n, modality, class]`; the prior where it is missing."""
        return _normalise(self._own_likelihoods(X, present) + np.log(self.prior))

    def log_kappa(self, X: Mapping[str, np.ndarray] | Samples, present: np.ndarray | None = None) -> np.ndarray:
        """ln κ = ln p(x_1, …, x_N | c) − Σ_j ln p(x_j | c) over the modalities that are present: `[n, class]`."""
        return self.log_likelihood(X, present) - self._own_likelihoods(X, present).sum(axis=1)

    def _own_likelihoods(self, X: Mapping[str, np.ndarray] | Samples, present: np.ndarray | None) -> np.ndarray:
        x, mask = self._read(X, present)
        result = np.zeros((*mask.shape, len(self.prior)))
        for number in range(len(self.names)):
            rows = np.flatnonzero(mask[:, number])
            seen = np.array([number])
            result[rows, number] = self._density(x[rows][:, seen], seen)
        return result

    def _read(self, X: Mapping[str, np.ndarray] | Samples, present: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Values `[n, modality, feature]` and which are present `[n, modality]`."""
        for name in X:
            if name not in self.names:
                raise unknown_name("modality", name, self.names)
        samples = Samples.of(X) if present is None else Samples.of(X, present=present)
        mask = np.zeros((len(samples), len(self.names)), dtype=bool)
        x = np.zeros((len(samples), *self.means.shape[1:]))
        for name in samples.names:
            number = self.names.index(name)
            mask[:, number] = samples.present_in(name)
            x[:, number] = samples.read(name)
        return x, mask

    def _density(self, x: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """Gaussian log-density of some modalities together: `[n, seen, feature]` → `[n, class]`."""
        d = self.means.shape[2]
        features = (seen[:, None] * d + np.arange(d)).ravel()
        lower = np.linalg.cholesky(self.covariance[np.ix_(features, features)])
        away = x.reshape(len(x), 1, len(features)) - self.means[:, seen].reshape(len(self.prior), -1)
        white = away @ np.linalg.inv(lower).T
        log_determinant = 2 * np.log(np.diagonal(lower)).sum()
        return -0.5 * ((white**2).sum(axis=2) + log_determinant + len(features) * np.log(2 * np.pi))


def _patterns(mask: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows in which the same modalities are present, and these modalities."""
    patterns, which = np.unique(mask, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        if pattern.any():
            yield np.flatnonzero(which.ravel() == number), np.flatnonzero(pattern)


def _normalise(scores: np.ndarray) -> np.ndarray:
    return scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)
