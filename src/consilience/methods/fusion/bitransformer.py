"""MMBT: one transformer over the words of a text and the parts of every other modality, side by side.

Written from the paper. Parts of images and of anything else (the positions of a feature map, time steps, or a whole
vector) are projected into the space of word vectors and put before the text, each modality as a segment of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.errors import InputError
from consilience.core.samples import Modality
from consilience.core.settings import dropout_rate, whole_number
from consilience.encoders import Encoded, Encoder, Pretrained, blank_padding, masked_mean
from consilience.encoders.tokens import token_mask, token_vectors
from consilience.encoders.transformer import TransformerLayer, sinusoids
from consilience.methods import JointMethod, PerModality, Spec, register


@register(
    "mmbt",
    paper="Kiela et al. 2019, Supervised Multimodal Bitransformers for Classifying Images and Text",
    equation="c = T([start; W_1 h_1 + s_1 + p; …; words + s_text + p])_start",
)
class Mmbt(JointMethod):
    """One transformer over the parts of all modalities: image parts before the words of a text.

    With a BERT as the encoder of a text, that BERT is the transformer. Otherwise it is one of our own, trained from the
    start: width, heads, layers, dropout are its settings, as for the encoder `transformer`. parts: at most so many
    of a modality that is no text; more are averaged, neighbours together.
    """

    size = "width"

    def __init__(
        self,
        spec: Spec,
        *,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        dropout: float = 0.1,
        parts: int = 16,
    ):
        super().__init__(spec)
        whole_number("parts", parts)
        encoders: dict[str, Encoder] = dict(self.encoders.items())
        berts = [name for name, one in encoders.items() if is_bert(one)]
        # Where no encoder was chosen for a text, its word vectors are the transformer's own.
        texts = [one for one, each in spec.modalities.items() if each.kind == "tokens" and one not in spec.encoders]
        host: Host
        if berts:
            host, encoders[berts[0]], first = split_bert(encoders[berts[0]])
        else:
            host = OwnHost(width, heads, layers, dropout)
            first = 0.02 * torch.randn(host.width)
        encoders |= {name: Words(spec.modalities[name], host.width) for name in texts}
        texts += berts[:1]
        self.encoders = PerModality(encoders)
        # The text comes last, as in the paper.
        order = [name for name in encoders if name not in texts] + [name for name in encoders if name in texts]
        limits = {name: None if name in texts else parts for name in order}
        self.fusion = Bitransformer({name: encoders[name].width for name in order}, limits, host, first)
        self.head = nn.Linear(host.width, spec.task.outputs)


class Host(nn.Module):
    """A transformer that reads vectors `[batch, part, width]` with their positions and a mask, `[batch, part]`."""

    width: int

    def forward(self, content: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """The last layer's state of the first part, `[batch, width]`."""
        raise NotImplementedError


class OwnHost(Host):
    """A transformer of our own, pre-norm, with sinusoids for positions."""

    def __init__(self, width: int, heads: int, layers: int, dropout: float):
        super().__init__()
        self.width, rate = whole_number("width", width), dropout_rate(dropout)
        if self.width % whole_number("heads", heads):
            raise InputError(f"width must be a multiple of heads, got width {width} and {heads} heads")
        self.dropout = nn.Dropout(rate)
        self.layers = nn.ModuleList(
            TransformerLayer(self.width, heads, rate) for _ in range(whole_number("layers", layers))
        )
        self.norm = nn.LayerNorm(self.width)

    def forward(self, content: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """Positions added, every layer, the norm."""
        table = sinusoids(int(content.shape[1]), self.width, content.device).to(content.dtype)
        hidden = self.dropout(content + table[positions])
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return self.norm(hidden[:, 0])


class BertHost(Host):
    """A pretrained BERT without its word vectors, with its own embeddings of positions."""

    def __init__(self, bert: Pretrained):
        super().__init__()
        self.bert, self.width = bert, bert.width

    def forward(self, content: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """BERT on vectors in place of words."""
        embeddings, *layers = self.bert.stages
        hidden = self.bert.stages[embeddings](inputs_embeds=content, position_ids=positions)
        for layer in layers:
            hidden = self.bert.advance(layer, hidden, mask)
        return hidden[:, 0]


class Bitransformer(nn.Module):
    """Segments side by side after a start vector, one transformer over all: its first state, `[batch, width]`.

    Each segment has a learned vector of its own, and positions that count from 0. What is missing is masked.
    """

    def __init__(self, widths: Mapping[str, int], limits: Mapping[str, int | None], host: Host, first: Tensor):
        """widths: of each modality's parts. limits: how many of each, None for a text. first: begins the start."""
        super().__init__()
        self.limits, self.host = dict(limits), host
        self.start = nn.Parameter(first)
        self.project = PerModality(
            {
                name: nn.Identity() if limits[name] is None and width == host.width else nn.Linear(width, host.width)
                for name, width in widths.items()
            }
        )
        self.segments = nn.Parameter(0.02 * torch.randn(len(widths), host.width))

    def forward(self, features: Mapping[str, Encoded], batch: Batch) -> Tensor:
        """Join the parts of all modalities."""
        start = self.start.expand(len(batch), 1, -1)
        contents, masks, positions = [start], [start.new_ones(start.shape[:2], dtype=torch.bool)], [0]
        for segment, (name, project) in zip(self.segments, self.project.items()):
            content, mask = as_parts(features[name], batch.present_in(name), self.limits[name])
            contents.append((project(content) + segment).to(start.dtype))
            masks.append(mask)
            positions += range(content.shape[1])
        where = torch.tensor(positions, device=start.device)
        return self.host(torch.cat(contents, dim=1), where.expand(len(batch), -1), torch.cat(masks, dim=1))


class Words(Encoder):
    """The word vectors of a text and nothing else: what reads them is the transformer."""

    name = "words"
    reads = ("tokens",)

    def __init__(self, modality: Modality, width: int):
        super().__init__()
        self.width = width
        self.stages = nn.ModuleDict({"embed": token_vectors(modality, width)})

    def start(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The ids with 0 for padding, and what is not padding."""
        mask = token_mask(x, lengths)
        return blank_padding(x, mask), mask

    def finish(self, hidden: Tensor, mask: Tensor | None) -> Encoded:
        """The words and their mean."""
        assert mask is not None
        return Encoded(masked_mean(hidden, mask), hidden, mask)


class BertWords(Words):
    """A BERT's word vectors; ids are its own plus 1."""

    def __init__(self, vectors: nn.Embedding, width: int):
        Encoder.__init__(self)
        self.width = width
        self.stages = nn.ModuleDict({"embed": vectors})

    def start(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The ids in BERT's numbering, and what is not padding."""
        mask = token_mask(x, lengths)
        return (x - 1).clamp(min=0), mask


def split_bert(encoder: Encoder) -> tuple[BertHost, BertWords, Tensor]:
    """A BERT taken apart: what reads vectors, its word vectors, and the vector of its own token to start with."""
    assert isinstance(encoder, Pretrained)
    embeddings: Any = encoder.stages["embeddings"]
    words = embeddings.word_embeddings
    embeddings.word_embeddings = nn.Identity()
    first = encoder.first_token
    start = 0.02 * torch.randn(encoder.width) if first is None else words.weight[first].detach().clone()
    return BertHost(encoder), BertWords(words, encoder.width), start


def is_bert(encoder: Encoder) -> bool:
    """Whether an encoder is a BERT that can take vectors in place of words."""
    return isinstance(encoder, Pretrained) and "embeddings" in encoder.stages


def as_parts(encoded: Encoded, present: Tensor, limit: int | None) -> tuple[Tensor, Tensor]:
    """A modality's parts `[batch, part, width]` and which are real; a modality without parts is one part."""
    if encoded.sequence is None or encoded.mask is None:
        return encoded.pooled[:, None], present[:, None]
    sequence, mask = encoded.sequence, encoded.mask & present[:, None]
    return (sequence, mask) if limit is None or sequence.shape[1] <= limit else average_parts(sequence, mask, limit)


def average_parts(sequence: Tensor, mask: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """At most `limit` parts: neighbours among a row's real parts are averaged, in groups as even as can be.

    >>> parts, mask = average_parts(torch.tensor([[[1.0], [3.0], [5.0], [9.0]]]), torch.ones(1, 4).bool(), 2)
    >>> parts.flatten().tolist()
    [2.0, 7.0]
    """
    order = mask.cumsum(1) - 1  # which of its row's real parts each is
    count = mask.sum(1, keepdim=True)
    group = torch.where(count > limit, order * limit // count.clamp(min=1), order)
    member = (group[:, None] == torch.arange(limit, device=mask.device)[:, None]) & mask[:, None]
    share = member.to(sequence.dtype)
    return share @ sequence / share.sum(2, keepdim=True).clamp(min=1), member.any(2)
