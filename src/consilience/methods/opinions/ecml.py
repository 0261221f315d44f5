"""`ecml`: evidential conflictive multi-view learning. Evidence is averaged, and conflict between experts costs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.settings import NonNegativeFloat, PositiveInt
from consilience.methods import Prediction, Spec, Step, register, weighted_mean
from consilience.methods.opinions.evidence import Evidence, average_evidence, certainty
from consilience.methods.opinions.evidential import EvidentialMethod


@register("ecml", paper="Xu et al. 2024, Reliable Conflictive Multi-View Learning", equation="e = 1/|S| Σ_{m∈S} e_m")
class Ecml(EvidentialMethod):
    """Evidence joined by its mean over the present modalities, with a loss on conflict between confident experts.

    Experts give evidence as in `tmc`. The mean claims no certainty that no expert has: conflicting experts leave doubt,
    where Dempster's rule would take sides. The conflict is each expert's mean conflict with the others, summed over
    experts as in the published code: |S| times the mean over pairs. The weights of a prediction are the w_m.

        e = 1/|S| · Σ_{m∈S} e_m         p = (e + 1) / Σ_k (e_k + 1) = Σ_m w_m p_m,   w_m = S_m / Σ_n S_n
        c_ab = ½ Σ_k |p_ak − p_bk| · (1 − u_a)(1 − u_b)
        L = evidential losses as for `tmc` + conflict · 1/(|S| − 1) · Σ_a Σ_{b≠a} c_ab

    The published code averages two views at a time, in sequence, so that the last counts half and the result depends on
    their order; here all count alike. It also divides the evidential losses by the number of views plus one, which
    gives conflict more weight.

    Args:
        annealing: Epochs over which the divergence in the loss grows to its full weight, as for `tmc`.
        conflict: Weight γ of the loss on conflict.
        evidence: The function of the logits: "softplus", "exp" or "relu".
        expert_loss: Weight of the experts' own losses.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        annealing: PositiveInt = 50,
        conflict: NonNegativeFloat = 1.0,
        evidence: Evidence = "softplus",
        expert_loss: NonNegativeFloat = 1.0,
    ):
        super().__init__(spec, annealing=annealing, evidence=evidence, expert_loss=expert_loss)
        self.conflict = conflict

    def combine(self, opinions: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """ln α of the mean evidence `[batch, class]`, and each modality's share of all evidence `[batch, modality]`."""
        return average_evidence(opinions, batch.present), evidence_share(opinions, batch.present)

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The evidential losses, and the experts' conflict."""
        assert prediction.opinions is not None
        losses = super().objective(prediction, batch, step)
        if self.conflict:
            conflict = conflict_of_views(prediction.opinions, batch.present)
            losses["conflict"] = self.conflict * weighted_mean(conflict, batch.weight)
        return losses


def evidence_share(log_alpha: Tensor, present: Tensor) -> Tensor:
    """S_m / Σ_n S_n over what is present, 0 where missing: `[..., modality, class]` → `[..., modality]`.

    >>> evidence_share(torch.tensor([[[5.0, 1.0], [1.0, 1.0]]]).log(), torch.tensor([[True, True]]))
    tensor([[0.7500, 0.2500]])
    """
    log_total = torch.logsumexp(log_alpha, dim=-1).masked_fill(~present, -math.inf)
    # Where nothing is present softmax would be NaN.
    any_present = present.any(dim=-1, keepdim=True)
    return torch.where(any_present, log_total, torch.zeros_like(log_total)).softmax(dim=-1) * present


def conflict_of_views(log_alpha: Tensor, present: Tensor) -> Tensor:
    """How much the present opinions conflict: `[..., modality, class]`, `[..., modality]` → `[...]`; no pair gives 0.

    Two opinions conflict as far as their probabilities differ and both are certain,
    c_ab = ½ Σ_k |p_ak − p_bk| · (1 − u_a)(1 − u_b); each opinion's mean conflict with the others is summed over them,
    as in the published code. That is |S| times the mean over pairs.

    >>> opposed = torch.tensor([[[9.0, 1.0], [1.0, 9.0]]]).log()  # ½(.8 + .8) · .8 · .8, once for each
    >>> conflict_of_views(opposed, torch.tensor([[True, True]]))
    tensor([1.0240])
    """
    probability = log_alpha.softmax(dim=-1)
    apart = torch.cdist(probability, probability, p=1.0) / 2
    certain = certainty(log_alpha) * present
    conflict = apart * certain[..., :, None] * certain[..., None, :]
    others = (present.sum(dim=-1) - 1).clamp(min=1)
    return conflict.sum(dim=(-2, -1)) / others
