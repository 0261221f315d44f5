"""`tmc`: trusted multi-view classification. Each expert gives evidence, and Dempster's rule joins it."""

from __future__ import annotations

from torch import Tensor

from consilience.core.batches import Batch
from consilience.methods import register
from consilience.methods.opinions.evidence import certainty, dempster
from consilience.methods.opinions.evidential import EvidentialMethod


@register(
    "tmc", paper="Han et al. 2021, Trusted Multi-View Classification", equation="1 + e_k / K = Π_m (1 + e_mk / K)"
)
class Tmc(EvidentialMethod):
    """Experts give evidence, which Dempster's rule joins.

    Each expert's logits are read as evidence for the classes. Evidence makes a Dirichlet distribution over
    probabilities, an opinion that can express "I do not know". Dempster's rule joins the opinions; its product form is
    the same for any number of modalities in any order, and a missing modality has no evidence and changes nothing. The
    weights of a prediction are 1 − u_m, how much of its belief a modality commits.

        e_m = softplus(z_m)         α_m = e_m + 1         b_mk = e_mk / S_m,   u_m = K / S_m,   S_m = Σ_k α_mk
        b_k ∝ Π_m (b_mk + u_m) − Π_m u_m,   u ∝ Π_m u_m         which is         1 + e_k / K = Π_{m∈S} (1 + e_mk / K)
        L = E(α) + expert_loss · Σ_m E(α_m),   E(α) = ψ(S) − ψ(α_y) + min(1, epoch / annealing) · KL(Dir(α̃) ‖ Dir(1))

    α̃ is α without the evidence for the true class. Evidence grows with the logits: over features that grow with noise,
    a corrupted modality has the most evidence, so choose encoders that bound them, as the default for vectors does. The
    published code trains one linear layer a view (`encoders={"NAME": {"name": "mlp", "hidden": []}}`) for 500 epochs
    with Adam, learning rate 0.0003, weight decay 0.00001, batches of 200.

    Args:
        annealing: Epochs over which the divergence in the loss grows to its full weight: 50 in the paper's code for
            small sets, 10 for RGB-D. A shorter run never reaches it; early stopping may return to an epoch before it.
        evidence: The function of the logits: "softplus", "exp" or "relu".
        expert_loss: Weight of the experts' own losses.
    """

    def combine(self, opinions: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """ln α of the joined opinion `[batch, class]`, and 1 − u_m `[batch, modality]`; vacuous opinions have 0."""
        return dempster(opinions), certainty(opinions)
