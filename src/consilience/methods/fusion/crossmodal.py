"""MulT: every modality looks into every other, each pair in both directions, without being aligned in time.

Tsai et al. 2019. In a cross-modal transformer the steps of a target modality are the queries, and the steps of a source
modality the keys and values: what the source says is brought to where the target needs it, whatever their lengths.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.errors import InputError
from consilience.core.samples import Modality
from consilience.core.settings import dropout_rate, whole_number
from consilience.encoders import Encoded, EncoderChoice, mask_lengths
from consilience.encoders.transformer import TransformerLayer, sinusoids
from consilience.methods import JointMethod, PerModality, Spec, register
from consilience.methods.fusion.bitransformer import Words, as_parts
from consilience.methods.fusion.time_steps import Steps


@register(
    "mult",
    paper="Tsai et al. 2019, Multimodal Transformer for Unaligned Multimodal Language Sequences",
    equation="4: Z ← Z + CM(LN(Z), LN(source)), Z ← Z + f(LN(Z))",
)
class Mult(JointMethod):
    """Every modality attends to every other, in cross-modal transformers of `layers` layers with `heads` heads.

    width: of a modality's parts, heads divide it. kernel: how many neighbouring steps of a sequence each of its parts
    is made of. Words become vectors; an image's parts are the positions of its feature map, a vector is one part.
    """

    size = "width"

    def __init__(
        self, spec: Spec, *, width: int = 32, heads: int = 4, layers: int = 2, kernel: int = 3, dropout: float = 0.1
    ):
        width, layers, kernel = (
            whole_number(setting, value)
            for setting, value in (("width", width), ("layers", layers), ("kernel", kernel))
        )
        if width % whole_number("heads", heads):
            raise InputError(f"width must be a multiple of heads, got width {width} and {heads} heads")
        parts = {name: parts_of(one, width, kernel) for name, one in spec.modalities.items()}
        super().__init__(spec.preferring(parts))
        inputs = {name: encoder.width for name, encoder in self.encoders.items()}
        self.fusion = Crossmodal(inputs, width, heads, layers, dropout_rate(dropout))
        self.head = nn.Linear(self.fusion.width, spec.task.outputs)

    @classmethod
    def reason_against(cls, spec: Spec) -> str | None:
        """Attention needs something with more than one part to choose among."""
        if all(modality.kind == "vector" for modality in spec.modalities.values()):
            return "it attends to parts, and vectors have one each: one modality must be a sequence, text or an image"
        return super().reason_against(spec)


def parts_of(modality: Modality, width: int, kernel: int) -> EncoderChoice:
    """The encoder that takes a modality into parts, unless another is chosen."""
    if modality.kind == "tokens":
        return Words(modality, width)
    if modality.kind == "sequence":
        return Steps(modality, width, kernel)
    if modality.kind == "image" and max(modality.shape[1:]) >= 4:
        # The usual encoder goes on until one position is left; two stages fewer leave at least four by four.
        return {"name": "conv", "stages": min(max(1, max(modality.shape[1:]).bit_length() - 3), 6)}
    return None


class Crossmodal(nn.Module):
    """Cross-modal transformers from each modality's others to it, a transformer over what they brought, the last state.

    A single modality attends to itself. width: of the joint representation.
    """

    def __init__(self, inputs: Mapping[str, int], width: int, heads: int, layers: int, dropout: float):
        """inputs: width of each modality's parts."""
        super().__init__()
        self.project = PerModality(
            {name: nn.Identity() if one == width else nn.Linear(one, width) for name, one in inputs.items()}
        )
        others = {name: [other for other in inputs if other != name] or [name] for name in inputs}
        self.streams = PerModality(
            {
                name: PerModality({source: CrossmodalTransformer(width, heads, layers, dropout) for source in sources})
                for name, sources in others.items()
            }
        )
        together = {name: width * len(sources) for name, sources in others.items()}
        self.memories = PerModality({name: Memory(one, heads, layers, dropout) for name, one in together.items()})
        self.width = sum(together.values())
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
            where = sinusoids(content.shape[1], content.shape[2], content.device)
            parts[name] = self.dropout(content + where.to(content.dtype))
        last = []
        for name, streams in self.streams.items():
            brought = [stream(parts[name], parts[source], masks[source]) for source, stream in streams.items()]
            states = self.memories[name](torch.cat(brought, dim=2), masks[name])
            last.append(last_real(states, masks[name]))
        joint = torch.cat(last, dim=1)
        return joint + self.mix(joint)


class CrossmodalTransformer(nn.Module):
    """A target `[batch, target part, width]` looks into a source `[batch, source part, width]`, layer after layer.

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
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, target: Tensor, source: Tensor, mask: Tensor) -> Tensor:
        """Look into the source's real parts, mask `[batch, source part]`; nothing comes from a source without any."""
        heard = self.attend(self.attention_norm(target), self.attention_norm(source), mask)
        target = target + self.dropout(heard * mask.any(1)[:, None, None])
        return target + self.dropout(self.feed_forward(self.forward_norm(target)))

    def attend(self, target: Tensor, source: Tensor, mask: Tensor) -> Tensor:
        """Multi-head attention: softmax(q·k / √d) v in each head, q of the target, k and v of the source."""
        queries, keys, values = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in (self.queries(target), *self.keys_values(source).chunk(2, dim=2))
        )  # each [batch, head, part, width / heads]
        # A row without any real part attends to its padding: a softmax over nothing would be NaN.
        mask = (mask | ~mask.any(1, keepdim=True))[:, None, None, :]
        heard = functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, dropout_p=self.rate if self.training else 0.0
        )
        return self.mix(heard.transpose(1, 2).flatten(2))


class Memory(nn.Module):
    """A transformer over what all sources brought to one modality: `[batch, part, width]` → the same."""

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
    rows = torch.arange(len(sequence), device=sequence.device)
    return sequence[rows, (length - 1).clamp(min=0)].masked_fill(length[:, None] == 0, 0)
