"""The expert of a table of numbers that is a logistic regression; its penalty is chosen by the held-out loss."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from consilience.core.samples import Samples
from consilience.core.seeding import seeded
from consilience.data.folds import most_folds
from consilience.methods import Method
from consilience.methods.opinions.tree_expert import training_table
from consilience.methods.opinions.unimodal import Unimodal
from consilience.training import Trainer
from consilience.training.lockstep import CrossFit
from consilience.training.shared_training import once
from consilience.training.trainer import split_folds

# Inverse strengths of the penalty, as scikit-learn's C; weights of standardised values rarely want a weaker one.
STRENGTHS = (0.001, 0.01, 0.1, 1.0)
_FOLDS = 5
_ITERATIONS = 300
# W `[class, feature]` and b `[class]`.
Solution = tuple[np.ndarray, np.ndarray]


class LinearExpert(Unimodal):
    """A logistic regression on the standardised values of one vector modality.

    The penalty with the lowest log-loss on held-out samples is chosen. Of the training settings only the seed, the
    precision and the augmentation have an effect; with augmentation it learns from noisy copies of the samples.

        z = W x + b         L = Σ_i ℓ(z_i, y_i) + ‖W‖² / 2C

    Attributes:
        strength: The chosen C; None before it is chosen, and in a loaded model.
    """

    trains_by_gradients = False
    strength: float | None = None
    # While `cross_fit` runs: each sample's fold, and what `learn_at_once` found without each fold.
    _fold_of: np.ndarray | None = None
    _fold_solutions: Sequence[Solution] = ()

    def learn_at_once(self, train: Samples, trainer: Trainer) -> None:
        """Solve for every penalty without each fold, choose the penalty, and solve with all samples."""
        best = 0
        if len(train) > 1:  # else nothing can be held out: the strongest penalty
            fold_of = self._fold_of
            if fold_of is None:
                fold_of = split_folds(train, self.task, most_folds(train, min(_FOLDS, len(train))), trainer.seed)
            parts = [train.select(np.flatnonzero(fold_of != fold)) for fold in range(fold_of.max() + 1)]
            found = [path_of_solutions(part, self.modality, trainer, self.task.outputs) for part in parts]
            best = int(np.argmin(self._held_out_losses(train, trainer, fold_of, found)))
            self._fold_solutions = [path[best] for path in found]
        self.strength = STRENGTHS[best]
        self._take(path_of_solutions(train, self.modality, trainer, self.task.outputs, up_to=best)[-1], trainer)

    def cross_fit(
        self, make: Callable[[], Method], train: Samples, validation: Samples | None, trainer: Trainer, folds: int
    ) -> CrossFit | None:
        """Choose the penalty and solve, with all samples and without each fold."""
        self._fold_of = fold_of = split_folds(train, self.task, folds, trainer.seed)
        try:
            if trainer.run(self, train, validation).interrupted:
                return None
            solutions = self._fold_solutions
        finally:
            self._fold_of, self._fold_solutions = None, ()
        experts = []
        for fold, solution in enumerate(solutions):
            with seeded(trainer.seed * folds + fold):
                expert = make()
            assert isinstance(expert, LinearExpert)
            expert._take(solution, trainer)
            experts.append(expert.eval())
        held_out = _apply(_values(train, self.modality, trainer), fold_of, solutions)
        return CrossFit(held_out, experts, fold_of, held_out_loss(self, held_out, train))

    def _held_out_losses(
        self, train: Samples, trainer: Trainer, fold_of: np.ndarray, found: Sequence[Sequence[Solution]]
    ) -> list[float]:
        """The mean log-loss of held-out samples for every penalty."""
        x = _values(train, self.modality, trainer)
        return [held_out_loss(self, _apply(x, fold_of, solutions), train) for solutions in zip(*found)]

    def _take(self, solution: Solution, trainer: Trainer) -> None:
        if trainer.precision == "64":  # as a network would be
            self.double()
        with torch.no_grad():
            self.head.weight.copy_(torch.from_numpy(solution[0]))
            self.head.bias.copy_(torch.from_numpy(solution[1]))


def held_out_loss(expert: Unimodal, logits: Tensor, train: Samples) -> float:
    """The mean log-loss of logits `[n, class]` on the samples that have the modality, or on all if none has it."""
    assert train.y is not None
    y = torch.from_numpy(expert.task.encode(train.y))
    weight = np.ones(len(train)) if train.weight is None else train.weight
    there = weight * train.present_among([expert.modality])[:, 0]
    losses = functional.cross_entropy(logits.double(), y, reduction="none")
    return float(np.average(losses.numpy(), weights=there if there.any() else weight))


def path_of_solutions(
    train: Samples, modality: str, trainer: Trainer, classes: int, up_to: int = len(STRENGTHS) - 1
) -> list[Solution]:
    """Solve a logistic regression for every strength, from the strongest penalty on, each from the solution before.

    Args:
        train: Training samples.
        modality: The modality.
        trainer: With the preparation, and noise where training is augmented.
        classes: Number of classes.
        up_to: Place of the last of `STRENGTHS` to solve for.

    Returns:
        For each strength W `[class, feature]` and b `[class]`. A class that no sample has gets the log-odds of one
        sample among all.
    """
    return logistic_path(*training_table(train, modality, trainer), classes, up_to + 1)


def logistic_path(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray, classes: int, count: int = len(STRENGTHS)
) -> list[Solution]:
    """Solve a logistic regression for the first `count` of `STRENGTHS`, as `path_of_solutions` does.

    Args:
        x: Values `[n, feature]`.
        y: Classes `[n]`.
        weight: Weights of the samples `[n]`.
        classes: Number of classes.
        count: Number of penalties.
    """
    strengths = STRENGTHS[:count]
    # Methods of a comparison have such regressions in common.
    return once(["linear", x, y, weight, classes, strengths], partial(_solve, x, y, weight, classes, strengths))


def _solve(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray, classes: int, strengths: Sequence[float]
) -> list[Solution]:
    """Solve for each strength, given x `[n, feature]`, classes y `[n]` and weights `[n]`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    used = weight > 0
    x, y, weight = x[used].astype(np.float64), y[used], weight[used]
    seen, counts = np.unique(y, return_counts=True)
    unseen = np.log(1 / (len(y) + 1))
    if len(seen) < 2:
        bias = np.full(classes, unseen)
        bias[seen] = 0.0
        return [(np.zeros((classes, x.shape[1])), bias)] * len(strengths)
    solver = LogisticRegression(max_iter=_ITERATIONS, warm_start=True)
    weight = weight * len(y) / weight.sum()
    path = []
    for strength in strengths:
        with warnings.catch_warnings():
            # A weak penalty on separable classes has no finite goal worth waiting for.
            warnings.simplefilter("ignore", ConvergenceWarning)
            solver.set_params(C=strength).fit(x, y, sample_weight=weight)
        coefficients, intercept = solver.coef_, solver.intercept_
        if len(seen) == 2:
            coefficients = np.concatenate([-coefficients, coefficients]) / 2
            intercept = np.concatenate([-intercept, intercept]) / 2
        weights, bias = np.zeros((classes, x.shape[1])), np.full(classes, unseen)
        weights[seen], bias[seen] = coefficients, intercept - intercept.max() + np.log(counts.max() / len(y))
        path.append((weights, bias))
    return path


def solving_seconds(rows: int, features: int, classes: int) -> float:
    """About how long one core solves for all strengths, to leave out what takes too long.

    The constant was measured on tables of 2 000 to 10 000 rows and 100 to 1 000 features; where classes are hard to
    tell apart it may take ten times as long.

    >>> solving_seconds(1000, 50, 2) < 0.1
    True
    """
    return 3e-8 * rows * features * classes


def _values(train: Samples, modality: str, trainer: Trainer) -> Tensor:
    assert trainer.preparation is not None
    own = train.only([modality]) if modality in train else train
    return trainer.preparation.batch(own)[modality].flatten(1)


def _apply(x: Tensor, fold_of: np.ndarray, solutions: Sequence[Solution]) -> Tensor:
    """The logits `[n, class]` of every sample by the solution of its fold."""
    logits = torch.zeros(len(x), len(solutions[0][1]))
    for fold, (weight, bias) in enumerate(solutions):
        rows = torch.from_numpy(np.flatnonzero(fold_of == fold))
        logits[rows] = (x[rows].double() @ torch.from_numpy(weight).T + torch.from_numpy(bias)).float()
    return logits
