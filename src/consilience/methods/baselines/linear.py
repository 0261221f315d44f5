"""`linear`: logistic or ridge regression on all columns side by side, the first model that a statistician tries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.data.folds import most_folds
from consilience.methods import Prediction, Spec, register, task_losses
from consilience.methods.baselines.joined_columns import ColumnBaseline, join_columns, training_columns
from consilience.methods.opinions.linear_expert import STRENGTHS, Solution, logistic_path
from consilience.training import Trainer
from consilience.training.trainer import split_folds
from consilience.training.whole_set import whole_batches

_FOLDS = 5
# Penalties of a ridge regression, the strongest first, as scikit-learn's alpha.
ALPHAS = (1000.0, 100.0, 10.0, 1.0, 0.1)


@register("linear", equation="z = W [x_1 | … | x_N | a] + b")
class Linear(ColumnBaseline):
    """Logistic regression (ridge regression for numbers) on the standardised columns of all modalities side by side.

    A missing modality is at its mean, 0, and a column a_m says that it is missing. The penalty with the lowest
    held-out loss (log-loss, or squared error) in five folds of the training samples is chosen. Of the training
    settings only the seed, which draws the folds, and the augmentation have an effect.

        z = W [x_1 | … | x_N | a] + b         L = Σ_i ℓ(z_i, y_i) + λ ‖W‖²

    The encoder `linear` is something else: it makes the expert of one modality a logistic regression.
    """

    # The chosen C of the logistic regression, or alpha of the ridge regression; a loaded model has none.
    strength: float | None = None

    def __init__(self, spec: Spec):
        super().__init__(spec)
        self.head = nn.Linear(self.columns + len(spec.modalities), spec.task.outputs)

    def forward(self, batch: Batch) -> Prediction:
        """The linear function of all columns and of what is missing."""
        return Prediction(self.head(_inputs(batch, self.names)))

    def learn_at_once(self, train: Samples, trainer: Trainer) -> None:
        """Solve for every penalty without each fold, choose the penalty, and solve with all samples."""
        strengths = STRENGTHS if self.task.classification else ALPHAS
        best = 0
        if len(train) > 1:  # else nothing can be held out: the strongest penalty
            fold_of = split_folds(train, self.task, most_folds(train, min(_FOLDS, len(train))), trainer.seed)
            losses = np.zeros(len(strengths))
            for fold in range(fold_of.max() + 1):
                held_out = train.select(np.flatnonzero(fold_of == fold))
                path = self._path(train.select(np.flatnonzero(fold_of != fold)), trainer, len(strengths))
                losses += self._losses(path, held_out, trainer)
            best = int(np.argmin(losses))
        self.strength = strengths[best]
        weights, bias = self._path(train, trainer, best + 1)[-1]
        with torch.no_grad():
            self.head.weight.copy_(torch.from_numpy(weights))
            self.head.bias.copy_(torch.from_numpy(bias))

    def _path(self, train: Samples, trainer: Trainer, count: int) -> list[Solution]:
        """W and b for the first `count` penalties, from the strongest on."""
        values, absent, y, weight = training_columns(train, self.names, trainer, missing=0.0)
        x = np.concatenate([values, absent], axis=1)
        if self.task.classification:
            return logistic_path(x, y, weight, self.task.outputs, count)
        return ridge_path(x, y.astype(np.float64), weight, count)

    def _losses(self, path: list[Solution], held_out: Samples, trainer: Trainer) -> np.ndarray:
        """The summed loss of held-out samples, as they are, for every penalty."""
        [batch] = whole_batches(held_out, replace(trainer, augment=None))
        x = _inputs(batch, self.names).double()
        losses = []
        for weights, bias in path:
            output = x @ torch.from_numpy(weights).T + torch.from_numpy(bias)
            losses.append((task_losses(self.task, output, batch).double() @ batch.weight.double()).item())
        return np.array(losses)


def ridge_path(x: np.ndarray, y: np.ndarray, weight: np.ndarray, count: int = len(ALPHAS)) -> list[Solution]:
    """Solve a ridge regression for the first `count` of `ALPHAS`: W `[target, column]` and b `[target]` for each.

    Args:
        x: Values `[n, column]`.
        y: Numbers `[n, target]`.
        weight: Weights of the samples `[n]`.
        count: Number of penalties.
    """
    from sklearn.linear_model import Ridge

    if not len(x):
        return [(np.zeros((y.shape[1], x.shape[1])), np.zeros(y.shape[1]))] * count
    solved = [Ridge(alpha=alpha).fit(x, y, sample_weight=weight) for alpha in ALPHAS[:count]]
    return [(np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)) for model in solved]


def _inputs(batch: Batch, names: tuple[str, ...]) -> Tensor:
    return torch.cat(join_columns(batch, names, missing=0.0), dim=1)
