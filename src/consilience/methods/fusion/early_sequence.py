"""Early fusion of sequences: the modalities' time steps side by side, and one LSTM or transformer over them.

Encoders do nothing unless others are chosen: numbers stay as they are, words become vectors. The recurrent network or
the transformer is the fusion, and a loop around it (`pro:ef-lstm`) feeds its state back into the steps it reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.samples import Modality
from consilience.core.settings import whole_number
from consilience.encoders import Encoded, Encoder, EncoderChoice, Lstm, Transformer
from consilience.methods import JointMethod, Spec, register
from consilience.methods.fusion.bitransformer import Words
from consilience.methods.fusion.time_steps import Steps, stack_steps, without_steps

PAPER = "Shankar, Thompson and Fiterau 2022, Progressive Fusion for Multimodal Integration, D.3"


class Stack(nn.Module):
    """[x_1t, …, x_Mt] at every step t, and one encoder over time: its pooled features, `[batch, width]`."""

    def __init__(self, reader: Encoder):
        super().__init__()
        self.reader = reader

    def forward(self, features: Mapping[str, Encoded], batch: Batch) -> Tensor:
        """Join the steps of all modalities."""
        hidden, mask = stack_steps(features, batch.present)
        for stage in self.reader.stages:
            hidden = self.reader.advance(stage, hidden, mask)
        return self.reader.finish(hidden, mask).pooled


class EarlySequence(JointMethod):
    """Encoders that leave steps as they are; a subclass says what runs over the stack of them."""

    reads = ("vector", "sequence", "tokens")

    def __init__(self, spec: Spec, words: int):
        """words: width of word vectors."""
        super().__init__(spec.preferring({name: unencoded(one, words) for name, one in spec.modalities.items()}))
        stacked = sum(encoder.width for encoder in self.encoders.values())
        # How long sequences are, no reader asks.
        self.stacked = Modality("all", "sequence", (1, stacked))

    @classmethod
    def reason_against(cls, spec: Spec) -> str | None:
        """It needs something with time steps."""
        return super().reason_against(spec) or without_steps(spec.modalities)


def unencoded(modality: Modality, words: int) -> EncoderChoice:
    """What leaves a modality as it is: words become vectors, anything else stays."""
    if modality.kind == "tokens":
        return Words(modality, words)
    return Steps(modality) if modality.kind == "sequence" else {"name": "mlp", "hidden": []}


@register("ef-lstm", paper=PAPER, equation="c = LSTM([x_1t, …, x_Mt] for every t), its last state")
class EarlyLstm(EarlySequence):
    """Time steps side by side, one LSTM over them. hidden: width of its state, and of word vectors."""

    size = "hidden"

    def __init__(self, spec: Spec, *, hidden: int = 128, layers: int = 1, dropout: float = 0.1):
        super().__init__(spec, whole_number("hidden", hidden))
        self.fusion = Stack(Lstm(self.stacked, hidden=hidden, layers=layers, dropout=dropout))
        self.head = nn.Linear(hidden, spec.task.outputs)


@register("ef-transformer", paper=PAPER, equation="c = mean over t of T([x_1t, …, x_Mt] for every t)")
class EarlyTransformer(EarlySequence):
    """Time steps side by side, one transformer over them. width: of its parts, and of word vectors; heads divide it."""

    size = "width"

    def __init__(self, spec: Spec, *, width: int = 48, heads: int = 3, layers: int = 3, dropout: float = 0.1):
        super().__init__(spec, whole_number("width", width))
        self.fusion = Stack(Transformer(self.stacked, width=width, heads=heads, layers=layers, dropout=dropout))
        self.head = nn.Linear(width, spec.task.outputs)
