"""Experts that know the class shares alone: what stands in for an expert that was not trained."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from consilience.core.samples import Samples
from consilience.core.seeding import seeded
from consilience.methods import Method
from consilience.methods.opinions.pooled_expert import PooledExpert
from consilience.methods.opinions.tree_expert import TreeExpert
from consilience.training import Trainer
from consilience.training.lockstep import CrossFit
from consilience.training.trainer import split_folds


def cross_fit_shares(
    expert: Method, make: Callable[[], Method], train: Samples, trainer: Trainer, folds: int
) -> CrossFit:
    """Make the opinion of an untrained expert, and of its copies, the class shares of what they would learn from.

    Args:
        expert: A `Unimodal` of a classification, changed in place.
        make: Builds an untrained copy.
        train: Training samples.
        trainer: With the seed of the folds.
        folds: Number of folds.

    Returns:
        The copies, and the class shares without each sample's fold as held-out opinions.
    """
    fold_of = split_folds(train, expert.task, folds, trainer.seed)
    shares = [_log_shares(expert, train, fold_of != fold) for fold in range(folds)]
    copies = []
    for fold in range(folds):
        with seeded(trainer.seed * folds + fold):
            copies.append(make())
        _answer(copies[-1], shares[fold])
    _answer(expert, _log_shares(expert, train, np.ones(len(train), dtype=bool)))
    held_out = torch.from_numpy(np.stack(shares)[fold_of]).float()
    return CrossFit(held_out, copies, fold_of, float("nan"))


def _log_shares(expert: Method, train: Samples, used: np.ndarray) -> np.ndarray:
    """ln π `[class]` of the samples used; one sample, spread over all classes, keeps every share above 0."""
    assert train.y is not None
    weight = used * (np.ones(len(train)) if train.weight is None else train.weight)
    counts = np.bincount(expert.task.encode(train.y), weights=weight, minlength=expert.task.outputs)
    return np.log((counts + 1 / len(counts)) / (counts.sum() + 1))


@torch.no_grad()
def _answer(expert: Method, log_shares: np.ndarray) -> None:
    """Let an expert answer with the same log-probabilities `[class]` for every sample."""
    if isinstance(expert, PooledExpert):
        expert.pool.learn(weights=np.array([name == "linear" for name in expert.members.names], dtype=float))
        _answer(expert.members["linear"], log_shares)
    elif isinstance(expert, TreeExpert):
        expert.opinion.learn(log_prior=log_shares)
    else:
        head = expert.head
        assert isinstance(head, torch.nn.Linear)
        head.weight.zero_()
        head.bias.copy_(torch.from_numpy(log_shares))
    expert.eval()
