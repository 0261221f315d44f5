"""`bayes`: experts trained alone, and Bayes' rule over their opinions, with the dependence between them learned."""

from __future__ import annotations

import numpy as np
import torch

from consilience.bayes.bayes_rule import BayesRule, Calibration
from consilience.bayes.kappa import Kappa
from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.core.settings import whole_number
from consilience.methods import Prediction, Spec, register
from consilience.methods.opinions.unimodal import SeparateExperts
from consilience.training import Trainer


@register(
    "bayes", paper="Jørgensen, Tětková, Hansen 2024, Image classification with symbolic hints using limited resources"
)
class Bayes(SeparateExperts):
    """Bayes' theorem over the experts' opinions: each calibrated, their dependence κ estimated out-of-fold.

    P(c | x) ∝ κ · Π_j P(c | x_j) / π^(N−1).

    kappa: "gaussian", "copula" or "none" · calibration: "temperature", "robust", "bias" or None (see `BayesRule`) ·
    folds: of the cross-fitting by which these are learned. weights are those of the experts' calibrated evidence, which
    depend on who is present and not on what is said; 0 where missing.
    """

    tasks = ("classification",)

    def __init__(
        self, spec: Spec, *, kappa: Kappa = "gaussian", calibration: Calibration | None = "temperature", folds: int = 3
    ):
        super().__init__(spec)
        self.folds = whole_number("folds", folds, least=2)
        self.rule = BayesRule(len(self.names), spec.task.outputs, kappa=kappa, calibration=calibration)

    def forward(self, batch: Batch) -> Prediction:
        """Hear every expert, then apply the rule."""
        opinions = torch.stack([expert(batch).output for expert in self.experts.values()], dim=1)
        output = self.rule(opinions, batch.present).to(torch.promote_types(opinions.dtype, torch.float32))
        weights = self.rule.expert_weights(batch.present).to(output.dtype)
        return Prediction(output, opinions=opinions, weights=weights)

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Train each expert, cross-fit it for as many epochs as it took, and learn the rule from those opinions.

        An interruption leaves the experts trained so far, and the theorem with κ = 1.
        """
        heard = [said for said, _, _ in self.cross_fit(train, validation, trainer, self.folds)]
        if len(heard) < len(self.names):
            return
        assert train.y is not None
        rows = np.arange(len(train)) if train.weight is None else np.flatnonzero(train.weight)
        present = np.stack([train.present_in(name) for name in self.names], axis=1)
        self.rule.fit(
            np.stack(heard, axis=1)[rows],
            self.task.encode(train.y)[rows],
            present[rows],
            weight=None if train.weight is None else train.weight[rows],
        )
