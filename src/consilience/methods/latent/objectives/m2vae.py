"""M²VAE: the joint log-likelihood split over all subsets of modalities (Korthals 2019).

    L_M(S)  = Σ_{m∈S} E_{q_S} log p(m|z) − KL(q_S ‖ p(z)) − Σ_{m∈S} KL(q_S ‖ q_{S∖m})      (the last sum for |S| ≥ 2)
    L_M²    = Σ_S c(N, |S|) · L_M(S)                 c(N, k) = 1/(k·C(N, k)), the recursion of eq. 83 written out

The *tight* form leaves out KL(q_S ‖ p(z)) for |S| ≥ 2: at exact posteriors it equals log p(x), and the paper's form is
lower by Σ_{|S|≥2} c·KL(q_S ‖ p(z)). With learned posteriors neither is a bound: q_{S∖m} stands for p(z | S∖m).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.methods.latent.objectives.objective import Objective, Plan, factor_type, register_objective
from consilience.methods.latent.subsets import all_subsets, chain, lattice

if TYPE_CHECKING:
    from consilience.methods.latent.latent_model import LatentModel

_PAPER = "Korthals 2019, M²VAE – Derivation of a Multi-Modal Variational Autoencoder Objective"


@register_objective("m2vae", paper=_PAPER)
class M2Vae(Objective):
    """The joint log-likelihood split over subsets.

    A random chain of nested subsets gives an unbiased estimate from N encoders instead of 2^N − 1.
    """

    def __init__(
        self,
        *,
        bound: Annotated[Literal["paper", "tight"], "the form of the bound"] = "paper",
        subsets: Annotated[Literal["all", "chain"], "visit all subsets in a step, or a random chain"] = "all",
        chains: Annotated[
            Literal["sample", "batch"] | None, "a chain for each sample or batch; None: what is faster"
        ] = None,
    ):
        self.tight, self.subsets, self.chains = bound == "tight", subsets, chains

    def reason_against(self, modalities: int, annealed: bool) -> str | None:
        """`all_subsets` raises an error if there are too many modalities for subsets="all"."""
        if self.subsets == "all":
            all_subsets(modalities)
        return None

    def plan(self, model: LatentModel, batch: Batch, generator: torch.Generator | None = None) -> Plan:
        """All subsets of what each sample has, or its chain."""
        if self.subsets == "all":
            return full_plan(batch.present[:1] if batch.whole else batch.present, self.tight)
        shared = (self.chains or model.subset_encoder.chains) == "batch"
        if shared:
            order = torch.rand(len(model.names), generator=generator, device=batch.device).argsort()
            present = batch.present[0] if batch.whole else batch.present
            return chain_plan(present, order.expand(present.shape), self.tight)
        order = torch.rand(batch.present.shape, generator=generator, device=batch.device).argsort(-1)
        return chain_plan(batch.present, order, self.tight)


def full_plan(present: Tensor, tight: bool) -> Plan:
    """Return every subset of what is present, weighted by c(n, k) with n the number of modalities present.

    present is `[batch, modality]`, or `[1, modality]` for all samples.
    """
    subsets, shares, pairs = lattice(present.shape[1], present.device, factor_type(present.device))
    sizes, count = subsets.sum(1), present.sum(1)
    held = (subsets[:, None] <= present).all(-1)
    c = shares[count, sizes[:, None]] * held
    return Plan(
        subsets,
        reconstruction=c[..., None] * subsets[:, None],
        prior=c * (sizes == 1)[:, None] if tight else c,
        pairs=pairs,
        mutual=c[pairs[:, 0]],
    )


def chain_plan(present: Tensor, order: Tensor, tight: bool) -> Plan:
    """Return the nested sets of a permutation; their mean over permutations is the full plan.

    present and order are `[batch, modality]`, or `[modality]` for a batch without missing modalities.

        paper   Σ_k (1/k)·L_J(π_1…k) − Σ_{k≥2} KL(q_{π_1…k} ‖ q_{π_1…k−1})
        tight   Σ_k E_{q_{π_1…k}} log p(π_k | z) − KL(q_{π_1…k} ‖ q_{π_1…k−1}),   q_∅ = p(z)
    """
    nested = chain(present, order=order)
    sets, newest = (steps if steps.ndim == 3 else steps[:, None] for steps in nested)
    size, entered = sets.sum(-1), newest.any(-1)
    if tight:
        reconstruction, prior = newest.float(), (entered & (size == 1)).float()
    else:
        prior = entered.to(factor_type(present.device)) / size.clamp(min=1)
        reconstruction = prior[..., None] * sets
    steps = torch.arange(1, len(sets), device=sets.device)
    return Plan(
        nested.sets,
        reconstruction=reconstruction,
        prior=prior,
        pairs=torch.stack([steps, steps - 1], dim=1),
        mutual=(entered & (size > 1))[1:].float(),
    )
