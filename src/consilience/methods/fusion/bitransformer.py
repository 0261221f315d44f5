"""`mmbt`: one transformer over the words of a text and the parts of every other modality (MMBT)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.settings import PositiveInt, Rate
from consilience.encoders import Encoded, Encoder, Pretrained
from consilience.encoders.encoder import token_mask
from consilience.encoders.processors import token_ids
from consilience.encoders.transformer import TransformerLayer, check_heads, sinusoids
from consilience.methods import JointMethod, PerModality, Spec, register
from consilience.methods.fusion.parts import Words, as_parts


@register(
    "mmbt",
    paper="Kiela et al. 2019, Supervised Multimodal Bitransformers for Classifying Images and Text",
    equation="c = T([start; W_1 h_1 + s_1 + p; …; words + s_text + p])_start",
)
class Mmbt(JointMethod):
    """One transformer over the parts of all modalities: image parts before the words of a text.

    The positions of an image's feature map, the steps of a sequence and whole vectors are projected into the space of
    word vectors and put before the words of a text. Each modality is a segment with a learned vector s_m and positions
    p that count from 0. A start vector comes first; its last state is the joint representation. Missing modalities are
    masked.

        c = T([start; W_1 h_1 + s_1 + p; …; words + s_text + p])_start         z = P c         L = ℓ(z, y)

    With a BERT chosen as the encoder of a text, `encoders={"text": {"name": "bert", "freeze": False}}`, that BERT is
    the transformer T, and the start vector begins as its [CLS]. This is the paper's method; it needs a learning rate of
    about 5e-5 for the BERT, and the paper freezes encoders at first: `lr={"text": 5e-5, "rest": 1e-3}, freeze={"text":
    3}` in training. Without one, T is a small pre-norm transformer trained from scratch, with sinusoids for p. Of
    several texts with a BERT, the first one's BERT is T; the others are read as the parts that their encoders give.
    Segment vectors are ours, beside BERT's own, since it has only two.

    Args:
        width: Width of our own transformer, a multiple of heads.
        heads: Attention heads of our own transformer.
        layers: Layers of our own transformer.
        dropout: Dropout rate of our own transformer.
        parts: The most parts read of a modality that is not text; more are averaged with their neighbours.
    """

    size = "width"

    def __init__(
        self,
        spec: Spec,
        *,
        width: PositiveInt = 64,
        heads: PositiveInt = 4,
        layers: PositiveInt = 2,
        dropout: Rate = 0.1,
        parts: PositiveInt = 16,
    ):
        super().__init__(spec)
        encoders: dict[str, Encoder] = dict(self.encoders.items())
        berts = [name for name, encoder in encoders.items() if is_bert(encoder)]
        # Where no encoder was chosen for a text, its word vectors are the transformer's own.
        tokens = [name for name, modality in spec.modalities.items() if modality.kind == "tokens"]
        texts = [name for name in tokens if name not in spec.encoders]
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
        self.width = width
        check_heads(width, heads)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(TransformerLayer(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

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
        """widths: of each modality's parts. limits: the most of each, None for a text. first: the start vector."""
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
        start = self.start.expand(batch.n, 1, -1)
        contents, masks, positions = [start], [start.new_ones(start.shape[:2], dtype=torch.bool)], [0]
        for segment, (name, project) in zip(self.segments, self.project.items()):
            content, mask = as_parts(features[name], batch.present_in(name), self.limits[name])
            contents.append((project(content) + segment).to(start.dtype))
            masks.append(mask)
            positions += range(content.shape[1])
        place = torch.tensor(positions, device=start.device).expand(batch.n, -1)
        return self.host(torch.cat(contents, dim=1), place, torch.cat(masks, dim=1))


class BertWords(Words):
    """A BERT's word vectors; ids are its own plus 1."""

    def __init__(self, vectors: nn.Embedding, width: int):
        Encoder.__init__(self)
        self.width = width
        self.stages = nn.ModuleDict({"embed": vectors})

    def start(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The ids in BERT's numbering, and the mask of what is not padding."""
        mask = token_mask(x, lengths)
        return (token_ids(x) - 1).clamp(min=0), mask


def split_bert(encoder: Encoder) -> tuple[BertHost, BertWords, Tensor]:
    """Split a BERT into the part that reads vectors, its word vectors, and the vector of its start token."""
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
