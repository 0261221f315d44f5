"""Transformer encoder for sequences and tokens (Vaswani et al., "Attention is all you need"), pre-norm."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.errors import InputError
from consilience.core.samples import Modality
from consilience.core.settings import PositiveInt, Rate
from consilience.encoders.choice import register_encoder
from consilience.encoders.encoder import (
    Encoded,
    Encoder,
    blank_padding,
    length_mask,
    masked_mean,
    token_mask,
    token_vectors,
)


@register_encoder("transformer")
class Transformer(Encoder):
    """Layers of self-attention over real parts; stages `embed`, `layer1`, `layer2`, …; pooled is the parts' mean.

    Positions are sinusoids, so that a sequence may be longer than any in training. Norm layers come before attention
    and before the feed-forward part (Xiong et al., "On layer normalization in the transformer architecture"), which
    trains without a warm-up.

    Args:
        modality: A sequence or tokens.
        width: Width of the features, a multiple of heads.
        heads: Number of attention heads.
        layers: Number of layers.
        dropout: Dropout rate.
    """

    reads = ("sequence", "tokens")
    size = "width"

    def __init__(
        self,
        modality: Modality,
        *,
        width: PositiveInt = 64,
        heads: PositiveInt = 4,
        layers: PositiveInt = 2,
        dropout: Rate = 0.1,
    ):
        super().__init__()
        self.width = width
        check_heads(width, heads)
        tokens = modality.kind == "tokens"
        content = token_vectors(modality, width) if tokens else nn.Linear(modality.shape[1], width)
        self.stages = nn.ModuleDict({"embed": Embed(content, dropout)})
        for number in range(layers):
            self.stages[f"layer{number + 1}"] = TransformerLayer(width, heads, dropout)
        self.norm = nn.LayerNorm(width)

    def start(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The input with zeros for padding, and the mask of what is not padding."""
        mask = token_mask(x, lengths) if x.ndim == 2 else length_mask(lengths, x)
        return x if lengths is None else blank_padding(x, mask), mask

    def finish(self, hidden: Tensor, mask: Tensor | None) -> Encoded:
        """Normalised parts and their mean."""
        assert mask is not None
        sequence = blank_padding(self.norm(hidden), mask)
        return Encoded(masked_mean(sequence, mask), sequence, mask)


class Embed(nn.Module):
    """Content and position: `[batch, time, feature]` or ids `[batch, time]` → `[batch, time, width]`."""

    def __init__(self, content: nn.Module, dropout: float):
        super().__init__()
        self.content = content
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Add the positions to the content."""
        content = self.content(x)
        return self.dropout(content + sinusoids(content.shape[1], content.shape[2], content.device).to(content.dtype))


class TransformerLayer(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x)): `[batch, time, width]` → the same."""

    takes_mask = True

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.forward_norm = nn.LayerNorm(width)
        self.feed_forward = feed_forward(width, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend to the parts where mask `[batch, time]` is True."""
        x = x + self.dropout(self.attend(self.attention_norm(x), mask))
        return x + self.dropout(self.feed_forward(self.forward_norm(x)))

    def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Multi-head self-attention."""
        queries, keys, values = self.queries_keys_values(x).chunk(3, dim=2)
        return self.mix(attention(queries, keys, values, self.heads, mask, self.rate if self.training else 0.0))


def check_heads(width: int, heads: int) -> None:
    """Raise an InputError unless the number of heads divides the width."""
    if width % heads:
        fitting = ", ".join(str(count) for count in range(1, width + 1) if width % count == 0)
        raise InputError(f"width must be a multiple of heads, got width {width} and {heads} heads: use {fitting}")


def feed_forward(width: int, dropout: float) -> nn.Sequential:
    """The feed-forward part of a layer: `[batch, time, width]` → the same, through four times the width."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(4 * width, width))


def attention(queries: Tensor, keys: Tensor, values: Tensor, heads: int, mask: Tensor | None, dropout: float) -> Tensor:
    """softmax(q·k / √d) v in each head, heads side by side: `[batch, query, width]`.

    Args:
        queries: `[batch, query, width]`.
        keys, values: `[batch, part, width]`.
        heads: Number of heads; divides the width.
        mask: `[batch, part]`, True where a part is real.
        dropout: Dropout rate on the attention weights.
    """
    q, k, v = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in (queries, keys, values))
    if mask is not None:
        # A row without any real part attends to its padding: a softmax over nothing would be NaN.
        mask = (mask | ~mask.any(1, keepdim=True))[:, None, None, :]
    attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    return attended.transpose(1, 2).flatten(2)


def sinusoids(steps: int, width: int, device: torch.device | None = None) -> Tensor:
    """Positions `[time, width]`: sin and cos by turns, wavelengths from 2π to 10 000 · 2π; any width, odd ones too.

    >>> sinusoids(500, 3).shape, sinusoids(500, 3)[0].tolist()
    (torch.Size([500, 3]), [0.0, 1.0, 0.0])
    """
    pairs = (width + 1) // 2
    # In 32 bits, not in the default dtype, which training in another thread may have set.
    rates = torch.exp(torch.arange(pairs, dtype=torch.float32, device=device) * (-2 * math.log(10_000.0) / width))
    angles = torch.arange(steps, device=device)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :width]
