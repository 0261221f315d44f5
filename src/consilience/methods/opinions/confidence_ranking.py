"""Teaching weights their order: of two samples, the one that has been harder for an expert is to weigh less.

Zhang et al. 2023, *Provable Dynamic Fusion for Low-Quality Multimodal Data*, eq. 15–17, in three forms.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def reference_form(gap: Tensor, harder: Tensor) -> Tensor:
    """max(0, s·Δw − |Δκ|), s = sign Δκ, as the published code has it: a wrong order is forgiven up to |Δκ|.

    gap: Δw = w_i − w_j · harder: Δκ = κ_i − κ_j, any shape, the same as the result's.

    >>> reference_form(torch.tensor([0.5, -0.5]), torch.tensor([0.25, 0.25])).tolist()
    [0.25, 0.0]
    """
    return (harder.sign() * (gap - harder)).relu()


def paper_form(gap: Tensor, harder: Tensor) -> Tensor:
    """max(0, sign(Δw)·Δκ + |Δw|), eq. 16: a wrong order is drawn together, a right one kept within |Δκ|.

    >>> paper_form(torch.tensor([0.5, -0.5]), torch.tensor([0.25, 0.25])).tolist()
    [0.75, 0.25]
    """
    return (gap.detach().sign() * (gap + harder)).relu()  # a sign has no slope, and none is to be computed


def margin_form(gap: Tensor, harder: Tensor) -> Tensor:
    """max(0, s·Δw + |Δκ|), s = sign Δκ: the only form that drives weights apart, by |Δκ| at least.

    >>> margin_form(torch.tensor([0.5, -0.125]), torch.tensor([0.25, 0.25])).tolist()
    [0.75, 0.125]
    """
    return (harder.sign() * (gap + harder)).relu()


RANKINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "reference": reference_form,
    "paper": paper_form,
    "margin": margin_form,
}


def ranking_loss(form: str, weights: Tensor, hardness: Tensor, known: Tensor, weight: Tensor) -> Tensor:
    """One of the forms over the pairs (i, i + 1) of a batch, the last with the first: mean over pairs, summed over
    modalities.

    weights, hardness: `[batch, modality]`, w and κ · known: `[batch, modality]` booleans; a pair counts where both are
    known · weight: `[batch]` of the samples, a pair's is the smaller of the two.

    >>> w, kappa = torch.tensor([[0.5], [0.0]]), torch.tensor([[0.25], [0.0]])
    >>> ranking_loss("margin", w, kappa, torch.ones(2, 1, dtype=torch.bool), torch.ones(2)).item()
    0.75
    """
    losses = RANKINGS[form](_to_next(weights), _to_next(hardness))
    counted = known * weight[:, None]
    counted = torch.minimum(counted, counted.roll(-1, dims=0))
    # Each pair's share in its modality's mean first: what needs no gradient stays out of the backward pass.
    share = counted / counted.sum(dim=0).clamp(min=torch.finfo(counted.dtype).tiny)
    return (losses * share).sum()


def _to_next(values: Tensor) -> Tensor:
    """The difference between each row and the next, the last and the first."""
    return values - values.roll(-1, dims=0)
