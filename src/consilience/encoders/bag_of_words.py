"""Bag of words, the default for tokens. Word vectors are learned, or start as those of a file."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from consilience.core.errors import InputError
from consilience.core.samples import Modality
from consilience.core.settings import Interval, PositiveInt, Rate
from consilience.encoders.choice import register_encoder
from consilience.encoders.encoder import Encoded, Encoder, blank_padding, masked_mean, token_mask, token_vectors
from consilience.encoders.mlp import dense_block
from consilience.encoders.word_vectors import read_vectors


@register_encoder("bag")
class BagOfWords(Encoder):
    """The mean of word vectors over real tokens → Linear → LayerNorm → ReLU → dropout; the order is ignored.

    The one stage is `embed`; its word vectors are the features' parts.

    Args:
        modality: Tokens.
        width: Width of word vectors and features.
        dropout: Dropout rate.
        vectors: A file of word vectors (word2vec or GloVe, as text) to start from, of any width. Words that are not in
            it start at random, with the file's spread. None: all start at random.
        freeze: Whether word vectors are not trained.
        rebuilt: Set by a saved model in place of the file: the width of its vectors.
    """

    reads = ("tokens",)
    size = "width"
    argument = "vectors"

    def __init__(
        self,
        modality: Modality,
        *,
        width: Annotated[int, Interval(2)] = 64,  # a norm over one number leaves nothing of it
        dropout: Rate = 0.1,
        vectors: str | None = None,
        freeze: bool = False,
        rebuilt: PositiveInt | None = None,
    ):
        super().__init__()
        self.width = width
        if freeze and vectors is None:
            raise InputError("freeze=True needs vectors, a file of them: without a file they start at random")
        if vectors is not None and rebuilt is None:
            embed = vectors_from_file(modality, vectors)
        else:
            embed = token_vectors(modality, self.width if rebuilt is None else rebuilt)
        embed.weight.requires_grad_(not freeze)
        self._from_file = None if vectors is None else embed.embedding_dim
        # Parts are as wide as features. Without a bias, so that padding stays zero.
        same = embed.embedding_dim == self.width
        fitted = embed if same else nn.Sequential(embed, nn.Linear(embed.embedding_dim, self.width, bias=False))
        self.stages = nn.ModuleDict({"embed": fitted})
        self.block = dense_block(self.width, self.width, dropout=dropout)

    def saved(self) -> int | None:
        """The width of the file's vectors, which are among the weights: the file is not needed again."""
        return self._from_file

    def start(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The ids with 0 for padding, and the mask of what is not padding."""
        mask = token_mask(x, lengths)
        return blank_padding(x, mask), mask

    def finish(self, hidden: Tensor, mask: Tensor | None) -> Encoded:
        """The word vectors, and the block applied to their mean."""
        assert mask is not None
        return Encoded(self.block(masked_mean(hidden, mask)), hidden, mask)


def vectors_from_file(modality: Modality, path: str) -> nn.Embedding:
    """Word vectors that start as in a file; id 0, padding, is zeros, id 1, an unknown word, the words' mean."""
    if modality.words is None:
        raise InputError(f"vectors are of words, and {modality.describe()} holds token ids: give the text itself")
    read, found = read_vectors(path, modality.words)
    embed = nn.Embedding(len(modality.words) + 2, read.shape[1], padding_idx=0)
    known = torch.from_numpy(read[found])
    with torch.no_grad():
        embed.weight[2:] *= known.std() if found.sum() > 1 else 1.0
        embed.weight[1] = known.mean(dim=0) if len(known) else 0.0
        embed.weight[2:][torch.from_numpy(found.copy())] = known
    return embed
