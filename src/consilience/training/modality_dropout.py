"""Modality dropout: modalities of training samples are hidden at random."""

from __future__ import annotations

import torch
from torch import Tensor


def hide_some(present: Tensor, probability: float) -> Tensor:
    """Return which modalities to hide, each with this probability, but never all that are present.

    Args:
        present: Booleans `[…, modality]`.
        probability: Of hiding a modality.

    Returns:
        Booleans of the same shape.
    """
    draw = torch.rand(present.shape, device=present.device)
    spared = torch.where(present, draw, -1.0).argmax(dim=-1, keepdim=True)
    return (draw < probability).scatter(-1, spared, False)
