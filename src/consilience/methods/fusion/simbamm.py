"""`simbamm`: a token for each modality, and one small transformer over them. A simple baseline that is hard to beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.settings import PositiveInt, Rate
from consilience.encoders import Encoded
from consilience.encoders.transformer import TransformerLayer, attention, check_heads
from consilience.methods import JointMethod, PerModality, Spec, register
from consilience.methods.fusion.parts import as_parts


@register(
    "simbamm",
    paper="Rheude et al. 2025, Fusion or Confusion? Multimodal Complexity Is Not All You Need",
    equation="c = T([start; W_1 h_1 + s_1; …; W_M h_M + s_M])_start",
)
class Simbamm(JointMethod):
    """Late fusion by a transformer: one token for each modality, a class token, and missing modalities masked.

    Each modality's features are projected to one width and get a learned vector s_m that says which modality it is. A
    transformer lets a learned start token attend to those that are present; its last state is the joint representation.
    In the paper's study, in which all methods are tuned with the same budget, none of 19 methods is reliably better.

        c = T([start; W_1 h_1 + s_1; …; W_M h_M + s_M])_start         z = P c         L = ℓ(z, y)

    With `tokens` above 1, a modality with parts (the steps of a sequence, words, the positions of an image) gives so
    many tokens, each the mean of neighbouring parts; a vector always gives one. The paper tunes width, heads, layers
    and tokens; one layer of width 64 is our choice. The layers are pre-norm, and the last one computes the start token
    only, which changes nothing in the result.

    Args:
        width: Width of the transformer, a multiple of heads.
        heads: Number of attention heads.
        layers: Number of layers.
        dropout: Dropout rate in the transformer, except that the last layer's attention has none.
        tokens: The most tokens of a modality.
    """

    size = "width"

    def __init__(
        self,
        spec: Spec,
        *,
        width: PositiveInt = 64,
        heads: PositiveInt = 4,
        layers: PositiveInt = 1,
        dropout: Rate = 0.1,
        tokens: PositiveInt = 1,
    ):
        super().__init__(spec)
        self.width = width
        widths = {name: encoder.width for name, encoder in self.encoders.items()}
        self.fusion = TokenTransformer(widths, width, heads, layers, dropout, tokens)
        self.head = nn.Linear(width, spec.task.outputs)


class TokenTransformer(nn.Module):
    """A start token and the modalities' tokens through a transformer: the start token's last state `[batch, width]`.

    Args:
        widths: Modality → width of its features.
        width: Of the transformer.
        heads: Number of attention heads.
        layers: Number of layers.
        dropout: Dropout rate.
        tokens: The most tokens of a modality.
    """

    def __init__(self, widths: Mapping[str, int], width: int, heads: int, layers: int, dropout: float, tokens: int):
        super().__init__()
        check_heads(width, heads)
        self.tokens = tokens
        self.start = nn.Parameter(0.02 * torch.randn(width))
        self.modality = nn.Parameter(0.02 * torch.randn(len(widths), width))
        # Without a bias, which the modality's vector is.
        self.project = PerModality({name: nn.Linear(inputs, width, bias=False) for name, inputs in widths.items()})
        self.layers = nn.ModuleList(TransformerLayer(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, features: Mapping[str, Encoded], batch: Batch) -> Tensor:
        """Join the features of the present modalities; where all are missing, the start token attends to itself."""
        start = self.start.expand(batch.n, 1, -1)
        if self.tokens == 1:
            hidden, real = self._one_token_each([one.pooled for one in features.values()]), batch.present
        else:
            contents, reals = [], []
            for kind, (name, one) in zip(self.modality, features.items()):
                parts, real = as_parts(one, batch.present_in(name), self.tokens)
                contents.append(self.project[name](parts) + kind)
                reals.append(real)
            hidden, real = torch.cat(contents, dim=1), torch.cat(reals, dim=1)
        hidden = torch.cat([start.to(hidden.dtype), hidden], dim=1)
        # Attention without a mask is faster; a mask is needed only where something is missing or padding.
        whole = self.tokens == 1 and batch.whole
        mask = None if whole else torch.cat([real.new_ones(real.shape[0], 1), real], dim=1)
        for layer in self.layers[:-1]:
            hidden = layer(hidden, mask)
        return self.norm(first_state(self.layers[-1], hidden, mask))

    def _one_token_each(self, pooled: Sequence[Tensor]) -> Tensor:
        """The projected features of every modality `[batch, modality, width]`, of equal widths in one product."""
        maps = [project.weight for project in self.project.values()]
        if len({one.shape[1] for one in pooled}) > 1:
            projected = torch.stack([one @ weight.T for one, weight in zip(pooled, maps)], dim=1)
        else:
            projected = torch.bmm(torch.stack(list(pooled)), torch.stack(maps).transpose(1, 2)).transpose(0, 1)
        return projected + self.modality


def first_state(layer: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
    """What a `TransformerLayer` returns for the first part alone: `[batch, part, width]` → `[batch, width]`.

    >>> layer, x = TransformerLayer(8, 2, 0.0).eval(), torch.randn(3, 5, 8)
    >>> bool((first_state(layer, x, None) - layer(x)[:, 0]).abs().max() < 1e-5)
    True
    """
    assert isinstance(layer, TransformerLayer)
    width, parts = x.shape[2], layer.attention_norm(x)
    weight, bias = layer.queries_keys_values.weight, layer.queries_keys_values.bias
    queries = functional.linear(parts[:, :1], weight[:width], bias[:width])
    keys, values = functional.linear(parts, weight[width:], bias[width:]).chunk(2, dim=2)
    # Without dropout of the attention's weights, for which torch has no fast attention on a CPU.
    attended = layer.mix(attention(queries, keys, values, layer.heads, mask, 0.0))[:, 0]
    state = x[:, 0] + layer.dropout(attended)
    return state + layer.dropout(layer.feed_forward(layer.forward_norm(state)))
