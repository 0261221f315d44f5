"""The expert of a table of numbers that pools three: a network, a logistic regression and decision trees.

Which of them is best differs from table to table, and with a few hundred rows a choice between them is often wrong. The
pool weighs their log-probabilities by what held-out samples say; on ten sets it had a lower log-loss than choosing one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from consilience.bayes.learned_buffers import Learned
from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.core.seeding import seeded
from consilience.encoders import Auto, Encoder, EncoderChoice, build_encoder
from consilience.methods import Method, PerModality, Prediction, Spec
from consilience.methods.opinions.tree_expert import training_seconds
from consilience.methods.opinions.unimodal import Unimodal
from consilience.training import Trainer
from consilience.training.augment_batch import Augmenter
from consilience.training.batch_loader import BatchLoader
from consilience.training.lockstep import CrossFit

# How many samples the pull of the weights towards equal ones is worth.
_RIDGE = 3.0
_MOST_WEIGHT = 3.0
_FOLDS = 5
# A member that would take longer is left out: rows × features × classes of a logistic regression, seconds of trees.
_LARGEST_REGRESSION, _LONGEST_TREES = 2e8, 20.0


class Pool(Learned):
    """The weights of a pool of log-probabilities: ln p = Σ_k w_k ln p_k + const; equal before they are fitted.

    Attributes:
        weights: `[member]`.
        losses: Log-loss of each member alone on held-out samples, NaN for one that was left out.
    """

    weights: Tensor
    losses: Tensor

    def __init__(self, members: int):
        super().__init__()
        self.learn(weights=torch.full((members,), 1 / members), losses=torch.full((members,), torch.nan))

    def forward(self, log_p: Sequence[Tensor | None]) -> Tensor:
        """Pool log-probabilities `[n, class]` of each member; None for one whose weight is 0."""
        parts = [weight.to(own) * own for weight, own in zip(self.weights, log_p) if own is not None]
        return functional.log_softmax(torch.stack(parts).sum(dim=0), dim=1)


def fit_pool(log_p: np.ndarray, y: np.ndarray, weight: np.ndarray, ridge: float = _RIDGE) -> np.ndarray:
    """Fit the weights ≥ 0 of a pool by the log-loss on held-out samples; the problem is convex.

    Args:
        log_p: Log-probabilities `[member, n, class]`.
        y: Class indices `[n]`.
        weight: Sample weights `[n]`.
        ridge: Strength of the pull towards equal weights, in samples.

    Returns:
        The weights `[member]`.

    >>> sure = np.log([[[0.9, 0.1], [0.1, 0.9]], [[0.5, 0.5], [0.5, 0.5]]])
    >>> fit_pool(np.repeat(sure, 50, axis=1), np.repeat([0, 1], 50), np.ones(100)).round(1).tolist()
    [3.0, 0.5]
    """
    from scipy.optimize import minimize

    members, n, _ = log_p.shape
    equal = np.full(members, 1 / members)
    share, rows = weight / weight.sum(), np.arange(n)
    own = log_p[:, rows, y]

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logits = np.tensordot(weights, log_p, 1)
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        total = p.sum(axis=1, keepdims=True)
        p /= total
        losses = np.log(total[:, 0]) - logits[rows, y]
        gradient = (share * (np.einsum("nc,knc->kn", p, log_p) - own)).sum(axis=1)
        away = weights - equal
        return float(share @ losses + ridge / n * away @ away), gradient + 2 * ridge / n * away

    found = minimize(loss, equal, jac=True, bounds=[(0, _MOST_WEIGHT)] * members, method="L-BFGS-B")
    return np.asarray(found.x)


class PooledExpert(Unimodal):
    """A network, a logistic regression and extra trees on one vector modality, pooled.

    All are cross-fitted on the same folds. Their weights are fitted to held-out log-probabilities of the samples, and
    of their noisy copies if the training is augmented. A member that would take too long on a large table is left out.

        ln p(c | x) = Σ_k w_k ln p_k(c | x) + const,   w_k ≥ 0
    """

    trains_by_gradients = False

    def __init__(self, spec: Spec, modality: str):
        super(Unimodal, self).__init__(spec)
        auto = build_encoder(spec.modalities[modality], spec.encoders[modality])
        assert isinstance(auto, Auto)
        self.modality, self.spec = modality, spec
        choices: Mapping[str, EncoderChoice] = {
            "network": {"name": "mlp", "hidden": list(auto.hidden), "dropout": auto.dropout},
            "linear": "linear",
            "trees": "trees",
        }
        self.members = PerModality(
            {
                name: Unimodal(replace(spec, encoders={**spec.encoders, modality: choice}), modality)
                for name, choice in choices.items()
            }
        )
        self.pool = Pool(len(self.members))

    @property
    def encoder(self) -> Encoder:  # type: ignore[override]
        """The network's, whose features describe the modality."""
        return self.members["network"].encoder

    def forward(self, batch: Batch) -> Prediction:
        """The pooled opinion, and the features of the network."""
        used = (self.pool.weights > 0).tolist()
        network = self.members["network"](batch)
        log_p: list[Tensor | None] = []
        for counts, (name, member) in zip(used, self.members.items()):
            made = network if name == "network" else member(batch) if counts else None
            log_p.append(None if made is None or not counts else functional.log_softmax(made.output, dim=1))
        return Prediction(self.pool(log_p), features=network.features, joint=network.joint)

    def learn_at_once(self, train: Samples, trainer: Trainer) -> None:
        """Cross-fit the members, since their weights need held-out samples."""
        make = partial(PooledExpert, self.spec, self.modality)
        alone = replace(trainer, logs=[], refit_steps=None)  # steps of a refit are for the runs of its own log
        self.cross_fit(make, train, None, alone, min(_FOLDS, len(train)))

    def cross_fit(
        self, make: Callable[[], Method], train: Samples, validation: Samples | None, trainer: Trainer, folds: int
    ) -> CrossFit | None:
        """Cross-fit every member on the same folds, and fit the weights of the pool."""
        fitted: dict[str, CrossFit] = {}
        for name, member in self.members.items():
            if self._too_large(name, len(train), folds):
                continue
            found = member.cross_fit(_member_of(make, name), train, validation, trainer, folds)
            if found is None:
                return None
            fitted[name] = found
        names = [name for name in self.members.names if name in fitted]
        first = fitted[names[0]]
        log_p = torch.stack([fitted[name].held_out.double().log_softmax(dim=1) for name in names])
        weights = self._fit_weights(
            log_p, {name: fitted[name].methods for name in names}, first.fold_of, train, trainer
        )
        places = [self.members.names.index(name) for name in names]
        whole, losses = np.zeros(len(self.members)), np.full(len(self.members), np.nan)
        whole[places] = weights
        losses[places] = [_mean_loss(own, train, self) for own in log_p]
        self.pool.learn(weights=whole, losses=losses)
        experts = []
        for fold in range(folds):
            with seeded(trainer.seed * folds + fold):
                expert = make()
            assert isinstance(expert, PooledExpert)
            for name in names:
                expert.members.each[expert.members.names.index(name)] = fitted[name].methods[fold]
            expert.pool.learn(weights=whole)
            experts.append(expert.eval())
        pooled = torch.tensordot(torch.from_numpy(weights), log_p, dims=1).log_softmax(dim=1)
        return CrossFit(pooled.float(), experts, first.fold_of, _mean_loss(pooled, train, self))

    def _fit_weights(
        self,
        log_p: Tensor,
        methods: Mapping[str, Sequence[Method]],
        fold_of: np.ndarray,
        train: Samples,
        trainer: Trainer,
    ) -> np.ndarray:
        """The weights from held-out log-probabilities `[member, n, class]`, and from those of noisy copies."""
        assert trainer.preparation is not None
        assert train.y is not None
        y, weight = self.task.encode(train.y), np.ones(len(train)) if train.weight is None else train.weight
        weight = weight * train.present_in(self.modality)
        copies = [log_p]
        loader = BatchLoader(train, trainer.preparation, torch.device("cpu"), resident=True)
        augmenter = Augmenter.of(trainer.augment, loader, self.modality)
        if augmenter is not None:
            assert loader.everything is not None
            noisy = augmenter.in_epoch(trainer.seed)(loader.everything)
            copies.append(torch.stack([_held_out_by(own, noisy, fold_of) for own in methods.values()]))
        if not weight.sum() > 0:
            return np.full(len(log_p), 1 / len(log_p))
        repeated = np.concatenate([part.numpy() for part in copies], axis=1)
        return fit_pool(repeated, np.tile(y, len(copies)), np.tile(weight, len(copies)))

    def _too_large(self, name: str, rows: int, folds: int) -> bool:
        features, classes = int(np.prod(self.modalities[self.modality].shape)), self.task.outputs
        if name == "linear":
            return rows * features * classes > _LARGEST_REGRESSION
        return name == "trees" and (folds + 1) * training_seconds("extra", rows, features, classes) > _LONGEST_TREES


def _member_of(make: Callable[[], Method], name: str) -> Callable[[], Method]:
    """Builds an untrained copy of one member."""

    def build() -> Method:
        expert = make()
        assert isinstance(expert, PooledExpert)
        return expert.members[name]

    return build


@torch.no_grad()
def _held_out_by(methods: Sequence[Method], batch: Batch, fold_of: np.ndarray) -> Tensor:
    """Log-probabilities `[n, class]` of every sample of a batch by the model of its fold."""
    parts, places = [], []
    for fold, method in enumerate(methods):
        rows = torch.from_numpy(np.flatnonzero(fold_of == fold))
        parts.append(method.cpu()(batch.select(rows)).output.double().log_softmax(dim=1))
        places.append(rows)
    return torch.cat(parts)[torch.cat(places).argsort()]


def _mean_loss(log_p: Tensor, train: Samples, expert: Unimodal) -> float:
    assert train.y is not None
    y = torch.from_numpy(expert.task.encode(train.y))
    weight = torch.ones(len(y)) if train.weight is None else torch.from_numpy(train.weight)
    counted = weight * torch.from_numpy(train.present_in(expert.modality))
    losses = -log_p.gather(1, y[:, None])[:, 0]
    return float((losses * counted).sum() / counted.sum().clamp(min=1e-12))
