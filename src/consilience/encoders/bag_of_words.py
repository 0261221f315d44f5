"""Bag of words, the default for tokens. Word vectors are learned, or start as those of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.errors import InputError, MissingDataError
from consilience.core.samples import Modality
from consilience.core.settings import Interval, PositiveInt, Rate
from consilience.encoders.choice import register_encoder
from consilience.encoders.encoder import Encoded, Encoder, blank_padding, masked_mean, token_mask, token_vectors
from consilience.encoders.foreign_files import check_passed
from consilience.encoders.mlp import dense_block


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
    files = ("vectors",)

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


def read_vectors(path: str | Path, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Read the vectors of these words, line by line, so that the file's size does not matter.

    A word that is not in the file as it is written is replaced by its capitalised or upper-case form, if that is there.

    Returns:
        Vectors `[word, width]` float32, zeros where the file has none, and which words it has `[word]`.
    """
    check_passed("file of word vectors", path)
    path = Path(path)
    if not path.is_file():
        raise MissingDataError(
            f"there is no file of word vectors at {path}: give one in the text format of word2vec or GloVe"
        )
    changed = path.stat()
    return _read_file(path, tuple(words), (changed.st_mtime_ns, changed.st_size))


@lru_cache(maxsize=2)  # a comparison builds the same encoder many times
def _read_file(path: Path, words: tuple[str, ...], changed: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    position = {word: place for place, word in enumerate(words)}
    vectors: np.ndarray | None = None
    found = np.zeros(len(words), dtype=bool)
    exact = np.zeros(len(words), dtype=bool)
    for number, word, numbers in _lines(path):
        if vectors is None:
            vectors = np.zeros((len(words), numbers.count(" ") + 1), dtype=np.float32)
        place = position.get(word)
        if place is None:
            place = position.get(word.lower())
            if place is None or found[place]:
                continue
        elif exact[place]:
            continue
        try:
            vector = np.array(numbers.split(" "), dtype=np.float32)
        except ValueError:
            raise InputError(f"{path}, line {number}: the vector of {word!r} is not made of numbers") from None
        if vector.shape != vectors.shape[1:] or not np.isfinite(vector).all():
            raise InputError(
                f"{path}, line {number}: the vector of {word!r} has {len(vector)} numbers, not {vectors.shape[1]} "
                "finite ones as in the first line"
            )
        vectors[place], found[place], exact[place] = vector, True, words[place] == word
    if vectors is None:
        raise InputError(f"{path} holds no word vectors: each line must be a word and its numbers")
    vectors.flags.writeable = found.flags.writeable = False  # the next caller gets the same arrays
    return vectors, found


def _lines(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line number, word and numbers; word2vec's first line, which only counts words and numbers, is left out."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            word, _, numbers = line.rstrip().partition(" ")
            if number == 1 and word.isdigit() and numbers.isdigit():
                continue
            if numbers:
                yield number, word, numbers
