"""`etmc`: `tmc` with one more witness, a pseudo-view that sees the features of all modalities side by side."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.settings import whole_number
from consilience.methods import Prediction, Spec, Step, register, weighted_mean
from consilience.methods.fusion.concat import Concatenation
from consilience.methods.opinions.evidence import Evidence, dempster, log_dirichlet
from consilience.methods.opinions.tmc import Tmc


@register(
    "etmc",
    paper="Han et al. 2022, Trusted Multi-View Classification with Dynamic Evidential Fusion",
    equation="1 + e_k / K = (1 + e_0k / K) Π_m (1 + e_mk / K)",
)
class Etmc(Tmc):
    """Trusted multi-view classification with a pseudo-view of all features, of size `width`, as one more opinion.

    The rule is associative: the pseudo-view's opinion e_0 joins what the modalities agreed on. Missing modalities are
    zeros among its features; where all are missing it is vacuous. It has no weight, being no modality.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        width: int = 256,
        dropout: float = 0.1,
        annealing: int = 50,
        evidence: Evidence = "softplus",
        expert_loss: float = 1.0,
    ):
        super().__init__(spec, annealing=annealing, evidence=evidence, expert_loss=expert_loss)
        self.fusion = Concatenation(
            sum(encoder.width for encoder in self.encoders.values()), whole_number("width", width), dropout
        )
        self.head = nn.Linear(self.fusion.width, spec.task.outputs)

    def forward(self, batch: Batch) -> Prediction:
        """Join the modalities' opinions, then the pseudo-view's, which `extra["pseudo-view"]` keeps as ln α."""
        of_modalities = super().forward(batch)
        assert of_modalities.features is not None
        joint = self.fusion(of_modalities.features, batch)
        heard = batch.present.any(dim=1, keepdim=True)
        pseudo = log_dirichlet(self.head(joint), self.evidence).masked_fill(~heard, 0)
        output = dempster(torch.stack([of_modalities.output, pseudo], dim=1))
        return replace(of_modalities, output=output, joint=joint, extra={"pseudo-view": pseudo})

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The losses of `tmc`, and the pseudo-view's own."""
        losses = super().objective(prediction, batch, step)
        if self.expert_loss:
            own = self.opinion_losses(prediction.extra["pseudo-view"], batch, step)
            losses["pseudo-view"] = self.expert_loss * weighted_mean(own, batch.weight)
        return losses
