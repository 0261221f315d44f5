"""The expert of a table of numbers that is a logistic regression; its penalty is chosen by the held-out loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from consilience.core.samples import Samples
from consilience.core.seeding import seeded
from consilience.methods import Method
from consilience.methods.opinions.tree_expert import training_table
from consilience.methods.opinions.unimodal import Unimodal
from consilience.training import Trainer
from consilience.training.lockstep import CrossFit
from consilience.training.trainer import split_folds

# Inverse strengths of the penalty, as scikit-learn's C; weights of standardised values rarely want a weaker one.
STRENGTHS = (0.001, 0.01, 0.1, 1.0)
_FOLDS = 5
_ITERATIONS = 300


class LinearExpert(Unimodal):
    """A logistic regression on the standardised values of one vector modality.

    The penalty with the lowest log-loss on held-out samples is chosen. Training settings other than the seed and the
    augmentation, of which the samples are noisy copies, have no effect.

        z = W x + b         L = Σ_i ℓ(z_i, y_i) + ‖W‖² / 2C
    """

    trains_by_gradients = False
    strength: float | None = None

    def learn_at_once(self, train: Samples, trainer: Trainer) -> None:
        """Choose the penalty, unless it is known, and solve."""
        if self.strength is None:
            folds = min(_FOLDS, len(train))
            fold_of = split_folds(train, self.task, folds, trainer.seed)
            parts = [train.select(np.flatnonzero(fold_of != fold)) for fold in range(folds)]
            found = [path_of_solutions(part, self.modality, trainer, self.task.outputs) for part in parts]
            self.strength = STRENGTHS[int(np.argmin(self._held_out_losses(train, trainer, fold_of, found)))]
        self._take(*path_of_solutions(train, self.modality, trainer, self.task.outputs, up_to=self.strength)[-1])

    def cross_fit(
        self, make: Callable[[], Method], train: Samples, validation: Samples | None, trainer: Trainer, folds: int
    ) -> CrossFit | None:
        """Solve for every penalty without each fold, choose the penalty, and solve with all samples."""
        fold_of = split_folds(train, self.task, folds, trainer.seed)
        parts = [train.select(np.flatnonzero(fold_of != fold)) for fold in range(folds)]
        found = [path_of_solutions(part, self.modality, trainer, self.task.outputs) for part in parts]
        losses = self._held_out_losses(train, trainer, fold_of, found)
        best = int(np.argmin(losses))
        self.strength = STRENGTHS[best]
        if trainer.run(self, train).interrupted:
            return None
        experts = []
        for fold in range(folds):
            with seeded(trainer.seed * folds + fold):
                expert = make()
            assert isinstance(expert, LinearExpert)
            expert._take(*found[fold][best])
            experts.append(expert.eval())
        held_out = _apply(_values(train, self.modality, trainer), fold_of, [path[best] for path in found])
        return CrossFit(held_out, experts, fold_of, float(losses[best]))

    def _held_out_losses(
        self,
        train: Samples,
        trainer: Trainer,
        fold_of: np.ndarray,
        found: Sequence[Sequence[tuple[np.ndarray, np.ndarray]]],
    ) -> np.ndarray:
        """The mean log-loss of held-out samples for every penalty."""
        assert train.y is not None
        x, y = _values(train, self.modality, trainer), torch.from_numpy(self.task.encode(train.y))
        weight = np.ones(len(train)) if train.weight is None else train.weight
        there = torch.from_numpy(weight * train.present_in(self.modality)) if self.modality in train else None
        counted = there if there is not None and there.sum() > 0 else torch.from_numpy(weight)
        losses = []
        for number in range(len(STRENGTHS)):
            logits = _apply(x, fold_of, [path[number] for path in found])
            own = functional.cross_entropy(logits.double(), y, reduction="none")
            losses.append(float((own * counted).sum() / counted.sum()))
        return np.array(losses)

    def _take(self, weight: np.ndarray, bias: np.ndarray) -> None:
        with torch.no_grad():
            self.head.weight.copy_(torch.from_numpy(weight))
            self.head.bias.copy_(torch.from_numpy(bias))


def path_of_solutions(
    train: Samples, modality: str, trainer: Trainer, classes: int, up_to: float | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Solve a logistic regression for every strength, from the strongest penalty on, each from the solution before.

    Args:
        train: Training samples.
        modality: The modality.
        trainer: With the preparation, and noise where training is augmented.
        classes: Number of classes.
        up_to: The last strength to solve for. None: all.

    Returns:
        For each strength W `[class, feature]` and b `[class]`. A class that no sample has gets the log-odds of one
        sample among all.
    """
    from sklearn.linear_model import LogisticRegression

    x, y, weight = training_table(train, modality, trainer)
    used = weight > 0
    x, y, weight = x[used].astype(np.float64), y[used], weight[used]
    seen, counts = np.unique(y, return_counts=True)
    unseen = np.log(1 / (len(y) + 1))
    strengths = [strength for strength in STRENGTHS if up_to is None or strength <= up_to]
    if len(seen) < 2:
        bias = np.full(classes, unseen)
        bias[seen] = 0.0
        return [(np.zeros((classes, x.shape[1])), bias)] * len(strengths)
    solver = LogisticRegression(max_iter=_ITERATIONS, warm_start=True)
    weight = weight * len(y) / weight.sum()
    path = []
    for strength in strengths:
        _solve(solver.set_params(C=strength), x, y, weight)
        coefficients, intercept = solver.coef_, solver.intercept_
        if len(seen) == 2:
            coefficients, intercept = (
                np.stack([-coefficients[0], coefficients[0]]) / 2,
                np.array([-1, 1]) * intercept / 2,
            )
        weights, bias = np.zeros((classes, x.shape[1])), np.full(classes, unseen)
        weights[seen], bias[seen] = coefficients, intercept - intercept.max() + np.log(counts.max() / len(y))
        path.append((weights, bias))
    return path


def _solve(solver: object, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> None:
    """Solve as far as the iterations go: a weak penalty on separable classes has no finite goal worth waiting for."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solver.fit(x, y, sample_weight=weight)  # type: ignore[attr-defined]


def _values(train: Samples, modality: str, trainer: Trainer) -> Tensor:
    assert trainer.preparation is not None
    return trainer.preparation.batch(train)[modality].flatten(1)


def _apply(x: Tensor, fold_of: np.ndarray, solutions: Sequence[tuple[np.ndarray, np.ndarray]]) -> Tensor:
    """The logits `[n, class]` of every sample by the solution of its fold."""
    logits = torch.zeros(len(x), len(solutions[0][1]))
    for fold, (weight, bias) in enumerate(solutions):
        rows = torch.from_numpy(np.flatnonzero(fold_of == fold))
        logits[rows] = (x[rows].double() @ torch.from_numpy(weight).T + torch.from_numpy(bias)).float()
    return logits
