"""`etmc`: `tmc` with one more opinion, of a pseudo-view that reads the features of all modalities side by side."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.settings import NonNegativeFloat, PositiveInt, Rate
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
    """Trusted multi-view classification with a pseudo-view of all features as one more opinion.

    The features of the pseudo-view are those of all modalities, joined as in `concat`, so that it can use what only
    several modalities together show. A missing modality enters it as zeros; where all are missing, its opinion is
    vacuous. It has no weight, because it is not a modality.

        1 + e_k / K = (1 + e_0k / K) · Π_{m∈S} (1 + e_mk / K),   e_0 = softplus(P c + b), c the joint features
        L as for `tmc`, with the pseudo-view's own loss beside the experts'

    Args:
        width: Width of the joint features.
        dropout: Dropout rate after the joint layer.
        annealing: Epochs over which the divergence in the loss grows to its full weight, as for `tmc`.
        evidence: The function of the logits: "softplus", "exp" or "relu".
        expert_loss: Weight of the experts' own losses.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        width: PositiveInt = 256,
        dropout: Rate = 0.1,
        annealing: PositiveInt = 50,
        evidence: Evidence = "softplus",
        expert_loss: NonNegativeFloat = 1.0,
    ):
        super().__init__(spec, annealing=annealing, evidence=evidence, expert_loss=expert_loss)
        self.fusion = Concatenation.over(self.encoders, width, dropout)
        self.head = nn.Linear(self.fusion.width, spec.task.outputs)

    def forward(self, batch: Batch) -> Prediction:
        """Join the modalities' opinions and the pseudo-view's, which is in `extra["pseudo-view"]` as ln α."""
        of_modalities = super().forward(batch)
        assert of_modalities.features is not None
        joint = self.fusion(of_modalities.features, batch)
        any_present = batch.present.any(dim=1, keepdim=True)
        pseudo = log_dirichlet(self.head(joint), self.evidence).masked_fill(~any_present, 0)
        output = dempster(torch.stack([of_modalities.output, pseudo], dim=1))
        return replace(of_modalities, output=output, joint=joint, extra={"pseudo-view": pseudo})

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The losses of `tmc`, and the pseudo-view's own."""
        losses = super().objective(prediction, batch, step)
        if self.expert_loss:
            own = self.opinion_losses(prediction.extra["pseudo-view"], batch, step)
            losses["pseudo-view"] = self.expert_loss * weighted_mean(own, batch.weight)
        return losses
