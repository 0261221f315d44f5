"""Token ids: which of them are real, and their learned vectors."""

from __future__ import annotations

from torch import Tensor, nn

from consilience.core.errors import InputError
from consilience.core.samples import Modality
from consilience.encoders.encoder import length_mask


def token_mask(ids: Tensor, lengths: Tensor | None) -> Tensor:
    """True where a token is real: within its row's length, and not the padding id 0: `[batch, time]`.

    >>> import torch
    >>> token_mask(torch.tensor([[5, 0, 7, 9]]), torch.tensor([3])).tolist()
    [[True, False, True, False]]
    """
    return length_mask(lengths, ids) & (ids != 0)


def token_vectors(modality: Modality, width: int) -> nn.Embedding:
    """A learned vector for each token id: `[batch, time]` → `[batch, time, width]`; id 0 is a vector of zeros."""
    if modality.vocabulary is None:
        raise InputError(
            f"modality {modality.describe()} does not say how many different token ids there are: "
            "set its vocabulary to the largest id + 1"
        )
    return nn.Embedding(modality.vocabulary, width, padding_idx=0)
