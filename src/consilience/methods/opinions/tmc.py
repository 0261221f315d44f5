"""`tmc`: trusted multi-view classification. Each expert says how much evidence it has; Dempster's rule joins them."""

from __future__ import annotations

from torch import Tensor

from consilience.core.batches import Batch
from consilience.methods import register
from consilience.methods.opinions.evidence import certainty, dempster
from consilience.methods.opinions.evidential import EvidentialMethod


@register(
    "tmc",
    paper="Han et al. 2021, Trusted Multi-View Classification",
    equation="1 + e_k / K = Π_m (1 + e_mk / K)",
)
class Tmc(EvidentialMethod):
    """Evidence joined by Dempster's rule. weights: each modality's certainty 1 − u_m, which the rule itself acts on."""

    def combine(self, opinions: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """ln α of the joined opinion `[batch, class]`, and 1 − u_m `[batch, modality]`; vacuous opinions have 0."""
        return dempster(opinions), certainty(opinions)
