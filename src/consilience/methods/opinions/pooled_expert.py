"""The expert of a table of numbers that pools three: a network, a logistic regression and decision trees.

Which of them is best differs from table to table, and with a few hundred rows a choice between them is often wrong. The
pool weighs their log-probabilities by what held-out samples say; on ten sets it had a lower log-loss than choosing one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from consilience.bayes.learned_buffers import Learned
from consilience.core.batches import Batch
from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.seeding import seeded
from consilience.data.folds import most_folds
from consilience.encoders import Auto, Encoder, EncoderChoice, build_encoder
from consilience.methods import Method, PerModality, Prediction, Spec
from consilience.methods.opinions.linear_expert import held_out_loss, solving_seconds
from consilience.methods.opinions.tree_expert import training_seconds
from consilience.methods.opinions.unimodal import Unimodal
from consilience.training import Trainer
from consilience.training.augment_batch import Augmenter
from consilience.training.batch_loader import BatchLoader
from consilience.training.lockstep import CrossFit

# Fewer than an expert of trees alone has: the pool needs them less.
_TREES = 100
# How many samples the pull of the weights towards equal ones is worth.
_RIDGE = 3.0
_MOST_WEIGHT = 3.0
_FOLDS = 5
# A member that would take more seconds is left out.
_LONGEST = 20.0
_FOR_NETWORK = 0.6  # of a time limit; the other members take what they take


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
        ridge: Strength of the pull towards equal weights, in samples of positive weight.

    Returns:
        The weights `[member]`.

    >>> sure = np.log([[[0.9, 0.1], [0.1, 0.9]], [[0.5, 0.5], [0.5, 0.5]]])
    >>> fit_pool(np.repeat(sure, 50, axis=1), np.repeat([0, 1], 50), np.ones(100)).round(1).tolist()
    [1.6, 0.5]
    """
    from scipy.optimize import minimize

    members, n, _ = log_p.shape
    equal = np.full(members, 1 / members)
    share, rows, pull = weight / weight.sum(), np.arange(n), ridge / np.count_nonzero(weight)
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
        return float(share @ losses + pull * away @ away), gradient + 2 * pull * away

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
            "trees": {"name": "trees", "trees": _TREES},
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
        network = self.members["network"](batch)  # asked in any case, for its features
        log_p: list[Tensor | None] = []
        for weight, (name, member) in zip(self.pool.known("weights"), self.members.items()):
            made = network if name == "network" else member(batch) if weight > 0 else None
            log_p.append(None if made is None else functional.log_softmax(made.output, dim=1))
        return Prediction(self.pool(log_p), features=network.features, joint=network.joint)

    def learn_at_once(self, train: Samples, trainer: Trainer) -> None:
        """Cross-fit the members, since their weights need held-out samples."""
        make = partial(PooledExpert, self.spec, self.modality)
        if len(train) < 2:
            raise InputError(
                f"encoder 'auto' of modality {self.modality!r}: the members of the expert are weighed by held-out "
                f"samples, which takes at least 2 training samples with the modality, got {len(train)}"
            )
        alone = replace(trainer, logs=[], refit_steps=None)  # steps of a refit are for the runs of its own log
        if self.cross_fit(make, train, None, alone, most_folds(train, min(_FOLDS, len(train)))) is None:
            raise KeyboardInterrupt(f"the cross-fitting of modality {self.modality!r} was interrupted")

    def cross_fit(
        self, make: Callable[[], Method], train: Samples, validation: Samples | None, trainer: Trainer, folds: int
    ) -> CrossFit | None:
        """Cross-fit every member on the same folds, and fit the weights of the pool."""
        fitted: dict[str, CrossFit] = {}
        for name in self.trained_members(len(train), folds):
            within = trainer.part(_FOR_NETWORK) if name == "network" else trainer
            found = self.members[name].cross_fit(member_of(make, name), train, validation, within, folds)
            if found is None:
                return None
            fitted[name] = found
        return self.pool_members(fitted, make, train, trainer)

    def trained_members(self, rows: int, folds: int) -> dict[str, float]:
        """Return about how many seconds each member takes on so many samples, without those that take too long."""
        seconds = {name: (folds + 1) * self._seconds(name, rows) for name in self.members.names}
        return {name: taken for name, taken in seconds.items() if taken <= _LONGEST}

    def pool_members(
        self, fitted: Mapping[str, CrossFit], make: Callable[[], Method], train: Samples, trainer: Trainer
    ) -> CrossFit:
        """Weigh members that were cross-fitted on the same folds; the others have weight 0.

        Args:
            fitted: At least one of the members.
            make: Builds an untrained copy of this expert.
            train: The training samples.
            trainer: How they were trained.

        Returns:
            The pooled experts of the folds and their held-out opinions.
        """
        names = [name for name in self.members.names if name in fitted]
        first = fitted[names[0]]
        log_p = torch.stack([fitted[name].held_out.double().log_softmax(dim=1) for name in names])
        weights = self._fit_weights(
            log_p, {name: fitted[name].methods for name in names}, first.fold_of, train, trainer
        )
        places = [self.members.names.index(name) for name in names]
        whole, losses = np.zeros(len(self.members)), np.full(len(self.members), np.nan)
        whole[places] = weights
        losses[places] = [held_out_loss(self, own, train) for own in log_p]
        self.pool.learn(weights=whole, losses=losses)
        experts, folds = [], len(first.methods)
        for fold in range(folds):
            with seeded(trainer.seed * folds + fold):
                expert = make()
            assert isinstance(expert, PooledExpert)
            for name in names:
                expert.members.each[expert.members.names.index(name)] = fitted[name].methods[fold]
            expert.pool.learn(weights=whole)
            experts.append(expert.eval())
        pooled = torch.tensordot(torch.from_numpy(weights), log_p, dims=1).log_softmax(dim=1)
        return CrossFit(pooled.float(), experts, first.fold_of, held_out_loss(self, pooled, train))

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
        copies, counted = [log_p.numpy()], [weight * train.present_among([self.modality])[:, 0]]
        if trainer.augment is not None:
            dtype = torch.float64 if trainer.precision == "64" else None
            loader = BatchLoader(train, trainer.preparation, torch.device("cpu"), resident=True, dtype=dtype)
            augmenter = Augmenter.of(trainer.augment, loader, self.modality)
            if augmenter is not None:
                assert loader.everything is not None
                noisy = augmenter.in_epoch(trainer.seed)(loader.everything)
                copies.append(np.stack([_held_out_by(own, noisy, fold_of) for own in methods.values()]))
                counted.append(weight * noisy.present_in(self.modality).numpy())
        if not sum(map(np.sum, counted)) > 0:
            return np.full(len(log_p), 1 / len(log_p))
        return fit_pool(np.concatenate(copies, axis=1), np.tile(y, len(copies)), np.concatenate(counted))

    def _seconds(self, name: str, rows: int) -> float:
        """About how long a member learns from so many samples; the network has a budget in steps and always does."""
        sizes = rows, math.prod(self.modalities[self.modality].shape), self.task.outputs
        seconds = {
            "network": 0.0,
            "linear": solving_seconds(*sizes),
            "trees": training_seconds("extra", *sizes, _TREES),
        }
        return seconds[name]


def member_of(make: Callable[[], Method], name: str) -> Callable[[], Method]:
    """Builds an untrained copy of one member."""

    def build() -> Method:
        expert = make()
        assert isinstance(expert, PooledExpert)
        return expert.members[name]

    return build


@torch.no_grad()
def _held_out_by(methods: Sequence[Method], batch: Batch, fold_of: np.ndarray) -> np.ndarray:
    """Log-probabilities `[n, class]` of every sample of a batch by the model of its fold."""
    parts, places = [], []
    for fold, method in enumerate(methods):
        rows = torch.from_numpy(np.flatnonzero(fold_of == fold))
        parts.append(method.cpu()(batch.select(rows)).output.double().log_softmax(dim=1))
        places.append(rows)
    return torch.cat(parts)[torch.cat(places).argsort()].numpy()
