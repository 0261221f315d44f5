"""What the evidential methods share: experts whose logits are evidence, and the loss that they learn from."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.settings import one_of, whole_number
from consilience.methods import ExpertMethod, Prediction, Spec, Step, encode, weighted_mean
from consilience.methods.opinions.dirichlet import evidential_losses
from consilience.methods.opinions.evidence import Evidence, log_dirichlet


class EvidentialMethod(ExpertMethod):
    """Experts that give evidence; a subclass joins it in `combine`.

    Opinions and output are ln α of Dirichlet distributions: their softmax is the expected probability, and the
    uncertainty can be read off them, u = K / Σ α. A missing modality has the vacuous opinion, zeros.

    annealing: epochs over which the divergence in the loss grows to its full weight, min(1, epoch / annealing) with
    epochs counted from 1; a shorter run never reaches it, and 1 means from the start · evidence: "softplus", "exp" or
    "relu" of the logits · expert_loss: weight of the experts' own losses.
    """

    tasks = ("classification",)

    def __init__(self, spec: Spec, *, annealing: int = 50, evidence: Evidence = "softplus", expert_loss: float = 1.0):
        super().__init__(spec, expert_loss=expert_loss)
        self.annealing = whole_number("annealing", annealing)
        self.evidence = one_of("evidence", evidence, get_args(Evidence))

    def forward(self, batch: Batch) -> Prediction:
        """Hear every expert's evidence, then combine."""
        features = {name: encode(encoder, batch, name) for name, encoder in self.encoders.items()}
        logits = torch.stack([head(features[name].pooled) for name, head in self.heads.items()], dim=1)
        opinions = log_dirichlet(logits, self.evidence).masked_fill(~batch.present[:, :, None], 0)
        output, weights = self.combine(opinions, batch)
        return Prediction(output, opinions=opinions, weights=weights, features=features)

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The evidential loss of the joined opinion, and of every expert on the samples that have its modality."""
        assert prediction.opinions is not None
        losses = {"task": weighted_mean(self.opinion_losses(prediction.output, batch, step), batch.weight)}
        if self.expert_loss:
            own = self.opinion_losses(prediction.opinions, batch, step) * batch.present
            losses["experts"] = self.expert_loss * weighted_mean(own.sum(dim=1), batch.weight)
        return losses

    def opinion_losses(self, log_alpha: Tensor, batch: Batch, step: Step) -> Tensor:
        """The evidential loss of opinions `[batch, …, class]` on each sample: `[batch, …]`."""
        assert batch.y is not None
        y = batch.y.view(-1, *[1] * (log_alpha.ndim - 2)).expand(log_alpha.shape[:-1])
        return evidential_losses(log_alpha, y, min(1.0, (step.epoch + 1) / self.annealing))
