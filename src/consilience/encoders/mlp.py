"""Multi-layer perceptron, the default for vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from consilience.core.errors import InputError
from consilience.core.samples import Kind, Modality
from consilience.core.settings import PositiveInt, Rate
from consilience.encoders.choice import register_encoder
from consilience.encoders.encoder import Encoder, blank_padding, length_mask


@register_encoder("mlp")
class Mlp(Encoder):
    """Blocks of Linear → LayerNorm → ReLU → dropout, stages `block1`, `block2`, …

    Images are flattened. Sequences are flattened with zeros for padding, up to the modality's number of time steps:
    shorter ones are padded, longer ones are an error, and the position in time matters.

    Args:
        modality: A vector, an image or a sequence.
        hidden: Width of each block; the last is the encoder's width. Without blocks ([]) the features are the
            flattened input, and a linear head on them is a linear model.
        dropout: Dropout rate after every block.
        normalise: Whether blocks have a norm layer, which bounds the features. Without it they grow with the input's
            norm, so that confidence measured from logits (energy, evidence) *rises* with the noise: a corrupted
            modality is trusted most.
    """

    reads: ClassVar[tuple[Kind, ...]] = ("vector", "image", "sequence")
    size = "hidden"
    stacks = True

    def __init__(
        self,
        modality: Modality,
        *,
        hidden: PositiveInt | Sequence[PositiveInt] = (128, 64),
        dropout: Rate = 0.1,
        normalise: bool = True,
    ):
        super().__init__()
        widths = [hidden] if isinstance(hidden, int) else list(hidden)
        if normalise and 1 in widths:  # a norm over one number leaves nothing of it
            raise InputError(f"hidden must be whole numbers ≥ 2 with normalise=True, got {hidden!r}")
        self.hidden = tuple(widths)
        self.modality_name = modality.name
        self.steps = modality.shape[0] if modality.kind == "sequence" else None
        self.stages = nn.ModuleDict()
        previous = math.prod(modality.shape)
        for number, width in enumerate(widths, start=1):
            self.stages[f"block{number}"] = dense_block(previous, width, dropout=dropout, normalise=normalise)
            previous = width
        self.width = previous

    def start(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The input flattened: `[batch, feature]`."""
        if self.steps is not None:
            if x.shape[1] > self.steps:
                raise InputError(
                    f"modality {self.modality_name!r} has sequences of {x.shape[1]} time steps, its mlp was built "
                    f"for at most {self.steps}: cut them, or choose an encoder for any length (gru, lstm, transformer)"
                )
            if lengths is not None:
                x = blank_padding(x, length_mask(lengths, x))
            x = functional.pad(x, (0, 0, 0, self.steps - x.shape[1]))
        return x.flatten(1), None


def dense_block(inputs: int, outputs: int, *, dropout: float = 0.0, normalise: bool = True) -> nn.Sequential:
    """Linear → LayerNorm → ReLU → dropout: `[…, inputs]` → `[…, outputs]`."""
    norm = [nn.LayerNorm(outputs)] if normalise else []
    return nn.Sequential(nn.Linear(inputs, outputs), *norm, nn.ReLU(), nn.Dropout(dropout))
