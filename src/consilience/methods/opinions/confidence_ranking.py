"""Ranking losses on weights: of two samples, the one that an expert found harder should get the lower weight.

Zhang et al. 2023, *Provable Dynamic Fusion for Low-Quality Multimodal Data*, eq. 15–17, in three forms.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def reference_form(gap: Tensor, harder: Tensor) -> Tensor:
    """max(0, s·Δw − |Δκ|), s = sign Δκ, as in the published code: a wrong order costs nothing up to |Δκ|.

    Args:
        gap: Δw = w_i − w_j, of any shape.
        harder: Δκ = κ_i − κ_j, of the same shape.

    >>> reference_form(torch.tensor([0.5, -0.5]), torch.tensor([0.25, 0.25])).tolist()
    [0.25, 0.0]
    """
    return (harder.sign() * (gap - harder)).relu()


def paper_form(gap: Tensor, harder: Tensor) -> Tensor:
    """max(0, sign(Δw)·Δκ + |Δw|), eq. 16: a wrong order is drawn together, a right one kept within |Δκ|.

    >>> paper_form(torch.tensor([0.5, -0.5]), torch.tensor([0.25, 0.25])).tolist()
    [0.75, 0.25]
    """
    return (gap.detach().sign() * (gap + harder)).relu()  # a sign has no gradient


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
    """Sum over modalities of the mean ranking loss over pairs (i, i + 1) of a batch, the last with the first.

    Args:
        form: A name in `RANKINGS`.
        weights: w, `[batch, modality]`.
        hardness: κ, `[batch, modality]`.
        known: Booleans `[batch, modality]`; a pair counts where both are True.
        weight: Sample weights `[batch]`; a pair's is the smaller of the two.

    >>> w, kappa = torch.tensor([[0.5], [0.0]]), torch.tensor([[0.25], [0.0]])
    >>> ranking_loss("margin", w, kappa, torch.ones(2, 1, dtype=torch.bool), torch.ones(2)).item()
    0.75
    """
    return mean_over_pairs(*pair_losses(form, weights, hardness, known, weight))


def pair_losses(form: str, weights: Tensor, hardness: Tensor, known: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of each pair (i, i + 1) and how much the pair counts, both `[batch, modality]`; as `ranking_loss`."""
    losses = RANKINGS[form](_to_next(weights), _to_next(hardness))
    counted = known * weight[:, None]
    return losses, torch.minimum(counted, counted.roll(-1, dims=0))


def mean_over_pairs(losses: Tensor, counted: Tensor) -> Tensor:
    """Sum over modalities of the weighted mean over pairs of what `pair_losses` returns."""
    # The shares are computed first: they need no gradient and stay out of the backward pass.
    share = counted / counted.sum(dim=0).clamp(min=torch.finfo(counted.dtype).tiny)
    return (losses * share).sum()


def active_pairs(losses: Tensor, counted: Tensor) -> Tensor:
    """How many pairs have a loss above 0, and how many count, `[2]`: only the active ones train the weights.

    >>> losses, counted = torch.tensor([[0.5], [0.0], [0.0], [0.7]]), torch.tensor([[1.0], [1.0], [1.0], [0.0]])
    >>> active_pairs(losses, counted).tolist()
    [1.0, 3.0]
    """
    pairs = counted.detach() > 0
    return torch.stack([((losses.detach() > 0) & pairs).sum(), pairs.sum()]).float()


def _to_next(values: Tensor) -> Tensor:
    """The difference between each row and the next, the last and the first."""
    return values - values.roll(-1, dims=0)
