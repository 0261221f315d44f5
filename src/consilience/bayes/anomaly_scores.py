"""Anomaly scores: numbers that leave their usual range when a modality is broken, learned from sound inputs."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from consilience.bayes.learned_buffers import Learned
from consilience.core.tracing import is_traced
from consilience.preparation.transforms import FARTHEST

NEIGHBOURS = 5
# The size of a fitted `InputScores` does not grow with the training set, nor with the size of an image.
REFERENCES = 2000
COMPONENTS = 256
# The scores that every modality has; wide ones have one more.
SHARED = 4
# The number of scores of an opinion.
OPINION_SCORES = 3
_TINY = 1e-12
# The smallest sizes that scores tell apart: distances as a share of the usual one, and Mahalanobis distances.
_LEAST_DISTANCE, _LEAST_MAHALANOBIS = 1e-3, 1e-2
# Relative differences below these are rounding errors: of standardised inputs, and of features that a network
# computes in 32 bits, which differ by up to 1e-6 with the size of the batch.
INPUT_RESOLUTION, FEATURE_RESOLUTION = 1e-4, 1e-2


class InputScores(Learned):
    """Four anomaly scores of an input, each the logarithm of a size per dimension.

    The norm; the mean distance to the nearest training inputs; the Mahalanobis distances from the training mean and
    from the nearest class mean, with covariances shrunk by Ledoit and Wolf's rule. An input of more than `components`
    features is first reduced to as many principal components, and the residual is a fifth score.

    Args:
        features: The number of features of an input, which must be standardised.
        classes: The number of classes.
        references: The most training inputs that are kept to measure distances from.
        components: The most principal components.
        resolution: The smallest standard deviation of a direction, as a share of the usual one.

    >>> x = np.random.default_rng(0).normal(size=(200, 3))
    >>> scores = InputScores(3, classes=2).double().fit(x, np.arange(200) % 2)
    >>> usual, broken = scores(torch.zeros(1, 3).double()), scores(torch.full((1, 3), 9.0).double())
    >>> bool((broken > usual).all())
    True
    """

    mean: Tensor
    basis: Tensor
    references: Tensor
    whitening: Tensor
    class_whitening: Tensor
    class_means: Tensor

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        references: int = REFERENCES,
        components: int = COMPONENTS,
        resolution: float = INPUT_RESOLUTION,
    ):
        super().__init__()
        self.resolution = resolution
        self.features, self.classes, self.limit = features, classes, references
        self.components = min(features, components)
        width = self.components
        self.learn(
            mean=torch.zeros(features),
            basis=torch.zeros(features, width) if self.reduced else torch.zeros(0, 0),
            references=torch.zeros(NEIGHBOURS, width),
            whitening=torch.eye(width),
            class_whitening=torch.eye(width),
            class_means=torch.zeros(classes, width),
        )

    @property
    def reduced(self) -> bool:
        """Whether inputs are reduced to principal components."""
        return self.components < self.features

    @property
    def count(self) -> int:
        """The number of scores."""
        return SHARED + self.reduced

    def fit(self, x: np.ndarray, y: np.ndarray, seed: int = 0) -> InputScores:
        """Learn from sound inputs `[n, feature]` and their classes `[n]`."""
        x = np.asarray(x, dtype=np.float64)
        mean = x.mean(axis=0)
        basis = _principal(x - mean, self.components) if self.reduced else np.zeros((0, 0))
        reduced = (x - mean) @ basis if self.reduced else x - mean
        means = np.zeros((self.classes, self.components))
        for label in np.unique(y):
            means[label] = reduced[y == label].mean(axis=0)
        # No input is near a class without samples.
        means[np.setdiff1d(np.arange(self.classes), y)] = np.inf
        rows = np.arange(len(x))
        if len(x) > self.limit:
            rows = np.sort(np.random.default_rng(seed).choice(len(x), self.limit, replace=False))
        # Within a class the inputs may not vary at all: the usual size is that over all classes.
        least = self.resolution**2 * reduced.var(axis=0).mean()
        self.learn(
            mean=mean,
            basis=basis,
            references=reduced[rows],
            whitening=whitening(reduced, least),
            class_whitening=whitening(reduced - means[y], least),
            class_means=means,
        )
        return self

    def centre(self, x: Tensor) -> Tensor:
        """Inputs minus the training mean, as principal components where there are many: `[n, component]`."""
        centred = x.clamp(-FARTHEST, FARTHEST) - self.mean.to(x)
        return centred @ self.basis.to(x) if self.reduced else centred

    def _seen_means(self) -> Tensor:
        """The means of the classes that have samples: `[class, component]`."""
        if not is_traced():
            return self.class_means[self.class_means.isfinite().all(dim=1)]
        seen = [all(map(math.isfinite, mean)) for mean in self.known("class_means")]
        return self.class_means.index_select(0, torch.tensor([row for row, there in enumerate(seen) if there]))

    def forward(self, x: Tensor) -> Tensor:
        """Scores `[n, score]` of inputs `[n, feature]`, computed in the type of the inputs."""
        x = x.clamp(-FARTHEST, FARTHEST)
        centred, references = self.centre(x), self.references.to(x)
        size = self.components**0.5
        near = _nearest(centred, references, min(NEIGHBOURS, len(references)))
        class_whitening = self.class_whitening.to(x)
        to_class = _nearest(centred @ class_whitening, self._seen_means().to(x) @ class_whitening, 1)
        sizes = [
            x.norm(dim=1) / self.features**0.5,
            near.mean(dim=1) / size,
            (centred @ self.whitening.to(x)).norm(dim=1) / size,
            to_class[:, 0] / size,
        ]
        if self.reduced:
            residual = (x - self.mean.to(x)).square().sum(dim=1) - centred.square().sum(dim=1)
            sizes.append(residual.clamp(min=0).sqrt() / (self.features - self.components) ** 0.5)
        usual = references.square().mean().sqrt()
        least, mahalanobis = _LEAST_DISTANCE * usual, torch.full_like(usual, _LEAST_MAHALANOBIS)
        floors = torch.stack([least, least, mahalanobis, mahalanobis, least][: self.count])
        return floored(torch.stack(sizes, dim=1), floors.clamp(min=_TINY)).log()


def floored(sizes: Tensor, least: Tensor | float) -> Tensor:
    """Sizes ≥ 0 with those below 2·least raised smoothly: 0 becomes `least`.

    Their logarithm then varies by at most 1/(2·least) times as much as they do. Near 0 it would turn rounding errors
    into scores.

    >>> floored(torch.tensor([0.0, 1.0, 2.0, 5.0]), 1.0).tolist()
    [1.0, 1.25, 2.0, 5.0]
    """
    return torch.where(sizes < 2 * least, least + sizes.square() / (4 * least), sizes)


def opinion_scores(opinions: Tensor) -> Tensor:
    """Three anomaly scores of opinions: `[..., class]` logits → `[..., 3]`.

    Their logsumexp (the energy, 0 for log-probabilities), the logit of the largest probability, and the entropy.

    >>> opinion_scores(torch.tensor([2.0, 2.0]))
    tensor([2.6931, 0.0000, 0.6931])
    """
    log_p = functional.log_softmax(opinions, dim=-1)
    top = log_p.amax(dim=-1)
    rest = torch.log(-torch.expm1(top.clamp(max=-_TINY)))
    entropy = -(log_p.exp() * log_p.clamp(min=-1e4)).sum(dim=-1)
    return torch.stack([torch.logsumexp(opinions, dim=-1), top - rest, entropy], dim=-1)


def _nearest(x: Tensor, references: Tensor, count: int) -> Tensor:
    """Euclidean distances to the nearest references: `[n, feature]`, `[reference, feature]` → `[n, count]`.

    One matrix product finds them, without a tensor `[n, reference, feature]`. It cancels where a distance is small, so
    that the distances are taken from the differences to those that were found.
    """
    squares = references.square().sum(dim=1) - 2 * (x @ references.T)
    found = squares.topk(count, largest=False).indices
    return (x[:, None] - references[found]).norm(dim=2)


def _principal(x: np.ndarray, count: int) -> np.ndarray:
    """The first principal directions of centred inputs `[n, feature]`, as `[feature, count]`; zeros beyond n."""
    n, features = x.shape
    if n < features:
        values, vectors = np.linalg.eigh(x @ x.T)
        kept = np.argsort(values)[::-1][:count]
        kept = kept[values[kept] > values[-1] * 1e-10]
        directions = x.T @ (vectors[:, kept] / np.sqrt(values[kept]))
    else:
        directions = np.linalg.eigh(x.T @ x)[1][:, ::-1][:, :count]
    return np.pad(directions, ((0, 0), (0, count - directions.shape[1])))


def whitening(x: np.ndarray, least: float, *, centred: bool = False) -> np.ndarray:
    """W `[feature, feature]` with W Wᵀ the Ledoit–Wolf precision: ‖xW‖ is the Mahalanobis size of x.

    least: the smallest variance of a direction.
    """
    from sklearn.covariance import ledoit_wolf

    values, vectors = np.linalg.eigh(ledoit_wolf(x, assume_centered=centred)[0])
    return vectors / np.sqrt(np.maximum(values, max(least, values[-1] * 1e-8 + _TINY)))
