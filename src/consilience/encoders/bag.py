"""Bag of words: the default for tokens."""

from __future__ import annotations

from torch import Tensor, nn

from consilience.encoders.choice import register_encoder, whole_number
from consilience.encoders.encoder import Encoded, Encoder, blank_padding, masked_mean
from consilience.encoders.mlp import dense_block
from consilience.encoders.tokens import token_mask, token_vectors
from consilience.samples import Modality


@register_encoder("bag")
class Bag(Encoder):
    """The mean of learned word vectors over real tokens → Linear → LayerNorm → ReLU → dropout; the order is ignored.

    The one stage is `embed`; its word vectors are the features' parts. width: of word vectors and features.
    """

    reads = ("tokens",)

    def __init__(self, modality: Modality, *, width: int = 64, dropout: float = 0.1):
        super().__init__()
        self.width = whole_number("width", width, least=2)  # a norm over one number leaves nothing of it
        self.stages = nn.ModuleDict({"embed": token_vectors(modality, self.width)})
        self.block = dense_block(self.width, self.width, dropout=dropout)

    def start(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The ids with 0 for padding, and what is not padding."""
        mask = token_mask(x, lengths)
        return blank_padding(x, mask), mask

    def finish(self, hidden: Tensor, mask: Tensor | None) -> Encoded:
        """The words, and what is made of their mean."""
        assert mask is not None
        return Encoded(self.block(masked_mean(hidden, mask)), hidden, mask)
