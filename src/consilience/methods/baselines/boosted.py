"""`boosted`: gradient-boosted trees on all columns side by side, what is usually best on a table."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from torch import nn

from consilience.core.batches import Batch
from consilience.core.samples import Modality, Samples
from consilience.core.settings import Interval, NonNegativeFloat, PositiveInt
from consilience.encoders import Trees
from consilience.methods import Prediction, Spec, register
from consilience.methods.baselines.joined_columns import ColumnBaseline, join_columns, training_columns
from consilience.methods.opinions.tree_ensembles import TreeEnsemble, send_missing
from consilience.methods.opinions.tree_expert import TreeOpinion, boosting_arguments, on_one_thread
from consilience.training import Trainer


@register("boosted")
class Boosted(ColumnBaseline):
    """Gradient-boosted trees (scikit-learn's `HistGradientBoosting`) on the columns of all modalities side by side.

    The values of a missing modality are NaN, and every split has learned which way they go. The other defaults are
    scikit-learn's too. Of the training settings only the seed and the augmentation have an effect.

        p(c | x) = (1 − ε) softmax(F(x))_c + ε π_c         ε = 1 / (n + 1), π the class shares of n training samples

    Args:
        trees: Rounds of one tree, or of one for each class.
        leaves: Most leaves of a tree.
        leaf: Least number of training samples in a leaf.
        rate: Learning rate of boosting.
        l2: Regularisation of the leaves' values.
        features: Share of the columns among which a split is chosen.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        trees: Annotated[int, Interval(1, 10_000)] = 100,
        leaves: Annotated[int, Interval(2, 1024)] = 31,
        leaf: PositiveInt = 20,
        rate: Annotated[float, Interval(0, 1, above=True)] = 0.1,
        l2: NonNegativeFloat = 0.0,
        features: Annotated[float, Interval(0, 1, above=True)] = 1.0,
    ):
        super().__init__(spec)
        whole = Modality("columns", "vector", (self.columns,))
        self.boosting = Trees(
            whole, kind="boosted", trees=trees, leaves=leaves, leaf=leaf, rate=rate, l2=l2, features=features
        )
        if spec.task.classification:
            self.opinion = TreeOpinion(self.columns, spec.task.outputs, missing=True)
        else:
            self.targets = nn.ModuleList([TreeEnsemble(2 * self.columns, 1) for _ in range(spec.task.outputs)])

    def forward(self, batch: Batch) -> Prediction:
        """The log-probabilities, or numbers, of the trees."""
        x, _ = join_columns(batch, self.names, missing=torch.nan)
        if self.task.classification:
            output = self.opinion(x)
        else:
            x = send_missing(x)
            output = torch.cat([trees(x) for trees in self.targets], dim=1)
        return Prediction(output.to(torch.promote_types(x.dtype, torch.float32)))

    def learn_at_once(self, train: Samples, trainer: Trainer) -> None:
        """Fit the trees."""
        x, _, y, weight = training_columns(train, self.names, trainer, missing=np.nan)
        if self.task.classification:
            self.opinion.fit(x, y, weight, self.boosting, trainer.seed)
            return
        for target, numbers in zip(self.targets, y.T):
            assert isinstance(target, TreeEnsemble)
            target.read(self._fit_regressor(x, numbers, weight, trainer.seed), missing=True)

    def _fit_regressor(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray, seed: int) -> object:
        from sklearn.ensemble import HistGradientBoostingRegressor

        model = HistGradientBoostingRegressor(**boosting_arguments(self.boosting, seed))
        return on_one_thread(model.fit, x, y, sample_weight=weight)
