"""What the evidential methods share: experts whose logits are read as evidence, and the loss that trains them."""

from __future__ import annotations

from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.settings import NonNegativeFloat, PositiveInt
from consilience.methods import ExpertMethod, Prediction, Spec, Step, encode, weighted_mean
from consilience.methods.heads import expert_logits
from consilience.methods.opinions.evidence import Evidence, evidential_losses, log_dirichlet


class EvidentialMethod(ExpertMethod):
    """Experts that give evidence; a subclass joins it in `combine`.

    Opinions and output are ln α of Dirichlet distributions: their softmax is the expected probability, and the
    uncertainty is u = K / Σ α. A missing modality has the vacuous opinion, zeros.

    Args:
        annealing: Epochs over which the divergence in the loss grows to its full weight, min(1, epoch / annealing);
            a shorter run never reaches it, and 1 means from the start.
        evidence: The function of the logits: "softplus", "exp" or "relu".
        expert_loss: Weight of the experts' own losses.
    """

    tasks = ("classification",)

    def __init__(
        self,
        spec: Spec,
        *,
        annealing: PositiveInt = 50,
        evidence: Evidence = "softplus",
        expert_loss: NonNegativeFloat = 1.0,
    ):
        super().__init__(spec, expert_loss=expert_loss)
        self.annealing = annealing
        self.evidence = evidence

    def forward(self, batch: Batch) -> Prediction:
        """Compute every expert's evidence, then combine."""
        features = {name: encode(encoder, batch, name) for name, encoder in self.encoders.items()}
        logits = expert_logits(self.heads, features)
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
