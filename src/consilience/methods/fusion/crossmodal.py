"""`mult`: cross-modal transformers (MulT). Every modality attends to every other, without alignment in time."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.samples import Modality
from consilience.core.settings import PositiveInt, Rate
from consilience.encoders import Encoded, EncoderChoice, mask_lengths
from consilience.encoders.transformer import TransformerLayer, attention, check_heads, feed_forward, sinusoids
from consilience.methods import JointMethod, PerModality, Spec, register
from consilience.methods.fusion.parts import Steps, Words, as_parts


@register(
    "mult",
    paper="Tsai et al. 2019, Multimodal Transformer for Unaligned Multimodal Language Sequences",
    equation="4: Z ← Z + CM(LN(Z), LN(source)), Z ← Z + f(LN(Z))",
)
class Mult(JointMethod):
    """Every modality attends to every other in cross-modal transformers, without being aligned in time.

    In a cross-modal transformer n → m the parts of the target m are the queries, and the parts of the source n, as they
    came in, are the keys and values of all layers. The results of all sources are put side by side and read by a
    transformer of the target's own, whose last real state represents the target. Parts are the steps of a sequence,
    the word vectors of a text, the positions of an image's feature map, or a whole vector; an encoder that the user
    chose gives its own parts. There are M (M − 1) cross-modal transformers. A missing source adds nothing; a missing
    target is zeros. Vectors alone are refused, since each has a single part.

        Z ← Z + CM(LN(Z), LN(X_n)),   Z ← Z + f(LN(Z))         from Z = X_m, `layers` times, for every n ≠ m
        CM(Z, X) = softmax over parts of (Z Q)(X K)ᵀ / √d, times X V, in each head
        g = [last of T_m([Z_1→m; …; Z_M→m]) for every m]       c = g + W_2 ReLU(W_1 g)         z = P c

    The paper uses width 40, 8 heads and 4 layers for affect; width 9, 3 heads and 3 layers suit finance. Residuals are
    of Z itself, as in the published code; eq. 4 prints them of LN(Z).

    Args:
        width: Width of all parts, a multiple of heads.
        heads: Number of attention heads.
        layers: Number of layers of each transformer.
        kernel: How many neighbouring steps of a sequence each of its parts is made of.
        dropout: Dropout rate.
    """

    size = "width"

    def __init__(
        self,
        spec: Spec,
        *,
        width: PositiveInt = 32,
        heads: PositiveInt = 4,
        layers: PositiveInt = 2,
        kernel: PositiveInt = 3,
        dropout: Rate = 0.1,
    ):
        check_heads(width, heads)
        parts = {name: parts_of(modality, width, kernel) for name, modality in spec.modalities.items()}
        super().__init__(spec.preferring(parts))
        inputs = {name: encoder.width for name, encoder in self.encoders.items()}
        self.fusion = Crossmodal(inputs, width, heads, layers, dropout)
        self.head = nn.Linear(self.fusion.width, spec.task.outputs)

    @classmethod
    def reason_against(cls, spec: Spec) -> str | None:
        """Attention needs a modality with more than one part."""
        if all(modality.kind == "vector" for modality in spec.modalities.values()):
            return "it attends to parts, and vectors have one each: one modality must be a sequence, text or an image"
        return super().reason_against(spec)


def parts_of(modality: Modality, width: int, kernel: int) -> EncoderChoice:
    """The default encoder of a modality: one that gives parts."""
    if modality.kind == "tokens":
        return Words(modality, width)
    if modality.kind == "sequence":
        return Steps(modality, width, kernel)
    if modality.kind == "image" and max(modality.shape[1:]) >= 4:
        # The usual encoder goes on until one position is left; two stages fewer leave at least four by four.
        return {"name": "conv", "stages": min(max(1, max(modality.shape[1:]).bit_length() - 3), 6)}
    return None


class Crossmodal(nn.Module):
    """The fusion: cross-modal transformers for every pair, a transformer for every target, their last states.

    A single modality attends to itself.
    """

    def __init__(self, inputs: Mapping[str, int], width: int, heads: int, layers: int, dropout: float):
        """inputs: width of each modality's parts."""
        super().__init__()
        self.project = PerModality(
            {name: nn.Identity() if size == width else nn.Linear(size, width) for name, size in inputs.items()}
        )
        others = {name: [other for other in inputs if other != name] or [name] for name in inputs}
        self.streams = PerModality(
            {
                name: PerModality({source: CrossmodalTransformer(width, heads, layers, dropout) for source in sources})
                for name, sources in others.items()
            }
        )
        widths = {name: width * len(sources) for name, sources in others.items()}
        self.memories = PerModality(
            {name: SelfAttention(size, heads, layers, dropout) for name, size in widths.items()}
        )
        self.width = sum(widths.values())
        self.dropout = nn.Dropout(dropout)
        self.mix = nn.Sequential(
            nn.Linear(self.width, self.width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(self.width, self.width)
        )

    def forward(self, features: Mapping[str, Encoded], batch: Batch) -> Tensor:
        """Join the parts of all modalities: `[batch, width]`."""
        parts, masks = {}, {}
        for name, project in self.project.items():
            sequence, masks[name] = as_parts(features[name], batch.present_in(name), None)
            content = project(sequence)
            positions = sinusoids(content.shape[1], content.shape[2], content.device)
            parts[name] = self.dropout(content + positions.to(content.dtype))
        last = []
        for name, streams in self.streams.items():
            attended = [stream(parts[name], parts[source], masks[source]) for source, stream in streams.items()]
            states = self.memories[name](torch.cat(attended, dim=2), masks[name])
            last.append(last_real(states, masks[name]))
        joint = torch.cat(last, dim=1)
        return joint + self.mix(joint)


class CrossmodalTransformer(nn.Module):
    """A target `[batch, target part, width]` attends to a source `[batch, source part, width]` in every layer.

    Every layer reads the source as it came in.
    """

    def __init__(self, width: int, heads: int, layers: int, dropout: float):
        super().__init__()
        self.layers = nn.ModuleList(CrossmodalLayer(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, target: Tensor, source: Tensor, mask: Tensor) -> Tensor:
        """mask: the source's real parts, `[batch, source part]`."""
        for layer in self.layers:
            target = layer(target, source, mask)
        return self.norm(target)


class CrossmodalLayer(nn.Module):
    """target + attention(norm(target), norm(source)), then target + feed-forward(norm(target))."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.attention_norm = nn.LayerNorm(width)
        self.queries = nn.Linear(width, width)
        self.keys_values = nn.Linear(width, 2 * width)
        self.mix = nn.Linear(width, width)
        self.forward_norm = nn.LayerNorm(width)
        self.feed_forward = feed_forward(width, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, target: Tensor, source: Tensor, mask: Tensor) -> Tensor:
        """Attend to the source's real parts, mask `[batch, source part]`; a source without any adds nothing."""
        attended = self.attend(self.attention_norm(target), self.attention_norm(source), mask)
        target = target + self.dropout(attended * mask.any(1)[:, None, None])
        return target + self.dropout(self.feed_forward(self.forward_norm(target)))

    def attend(self, target: Tensor, source: Tensor, mask: Tensor) -> Tensor:
        """Multi-head attention with queries of the target, keys and values of the source."""
        keys, values = self.keys_values(source).chunk(2, dim=2)
        rate = self.rate if self.training else 0.0
        return self.mix(attention(self.queries(target), keys, values, self.heads, mask, rate))


class SelfAttention(nn.Module):
    """The transformer over what one target has read from all sources: `[batch, part, width]` → the same."""

    def __init__(self, width: int, heads: int, layers: int, dropout: float):
        super().__init__()
        self.layers = nn.ModuleList(TransformerLayer(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """mask: real parts, `[batch, part]`."""
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return self.norm(hidden)


def last_real(sequence: Tensor, mask: Tensor) -> Tensor:
    """Each row's last real part `[batch, width]`, zeros where there is none.

    >>> last_real(torch.tensor([[[1.0], [2.0], [3.0]]] * 2), torch.tensor([[True, True, False], [False] * 3])).tolist()
    [[2.0], [0.0]]
    """
    length = mask_lengths(mask)
    rows = torch.arange(sequence.shape[0], device=sequence.device)
    return sequence[rows, (length - 1).clamp(min=0)].masked_fill(length[:, None] == 0, 0)
