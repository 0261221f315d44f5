"""`ef-lstm`, `ef-transformer`, `lf-lstm`, `lf-transformer`: early and late fusion of sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.samples import Modality
from consilience.core.settings import Interval, PositiveInt, Rate
from consilience.encoders import Encoded, Encoder, EncoderChoice, Lstm, Transformer
from consilience.methods import Spec, register
from consilience.methods.fusion.concat import Concatenation
from consilience.methods.fusion.parts import StepMethod, Steps, Words, stack_steps
from consilience.methods.heads import total_width

PAPER = "Shankar, Thompson and Fiterau 2022, Progressive Fusion for Multimodal Integration, D.3"
# A norm layer over one number leaves nothing of it.
JointWidth = Annotated[int, Interval(2)]


class StackedSteps(nn.Module):
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


class EarlySequence(StepMethod):
    """Encoders that leave steps as they are; a subclass sets the encoder over the stacked steps as its fusion."""

    reads = ("vector", "sequence", "tokens")

    def __init__(self, spec: Spec, words: int):
        """words: width of word vectors."""
        super().__init__(spec.preferring({name: unencoded(value, words) for name, value in spec.modalities.items()}))
        # The number of time steps does not matter here.
        self.stacked = Modality("all", "sequence", (1, total_width(self.encoders)))


def unencoded(modality: Modality, words: int) -> EncoderChoice:
    """The encoder that leaves a modality as it is; words become vectors."""
    if modality.kind == "tokens":
        return Words(modality, words)
    return Steps(modality) if modality.kind == "sequence" else {"name": "mlp", "hidden": []}


@register("ef-lstm", paper=PAPER, equation="c = LSTM([x_1t, …, x_Mt] for every t), its last state")
class EarlyLstm(EarlySequence):
    """Time steps of all modalities side by side, and one LSTM over them.

    Encoders do nothing unless others are chosen: numbers stay as they are, words become vectors, a vector is repeated
    at every step. Steps are matched from the first on. A sample lasts as long as the longest of its modalities; after
    the end of one, or where it is missing, there are zeros. The LSTM is the fusion: `pro:ef-lstm` feeds its last state
    back into the steps it reads. For sequences that are not aligned in time use `mult` or `lf-lstm`. Images are not
    read, and at least one modality must be a sequence or text.

        c = LSTM([x_1t, …, x_Mt], t = 1, 2, …), its last state         z = P c         L = ℓ(z, y)

    Args:
        hidden: Width of the LSTM's state and of word vectors; 128 in the paper.
        layers: Number of LSTM layers.
        dropout: Dropout rate after every layer.
    """

    size = "hidden"

    def __init__(self, spec: Spec, *, hidden: PositiveInt = 128, layers: PositiveInt = 1, dropout: Rate = 0.1):
        super().__init__(spec, hidden)
        self.fusion = StackedSteps(Lstm(self.stacked, hidden=hidden, layers=layers, dropout=dropout))
        self.head = nn.Linear(hidden, spec.task.outputs)


@register("ef-transformer", paper=PAPER, equation="c = mean over t of T([x_1t, …, x_Mt] for every t)")
class EarlyTransformer(EarlySequence):
    """Time steps of all modalities side by side, and one transformer over them.

    Like `ef-lstm`, with a pre-norm transformer in place of the LSTM; the mean of its parts is the joint representation.

        c = mean over t of T([x_1t, …, x_Mt], t = 1, 2, …)         z = P c         L = ℓ(z, y)

    Args:
        width: Width of the transformer's parts and of word vectors; a multiple of heads.
        heads: Number of attention heads; 3 in the paper.
        layers: Number of layers; 3 in the paper.
        dropout: Dropout rate.
    """

    size = "width"

    def __init__(
        self,
        spec: Spec,
        *,
        width: PositiveInt = 48,
        heads: PositiveInt = 3,
        layers: PositiveInt = 3,
        dropout: Rate = 0.1,
    ):
        super().__init__(spec, width)
        reader = Transformer(self.stacked, width=width, heads=heads, layers=layers, dropout=dropout)
        self.fusion = StackedSteps(reader)
        self.head = nn.Linear(width, spec.task.outputs)


class LateSequence(StepMethod):
    """One encoder for each modality with time steps, and concatenation; a subclass chooses the encoder."""

    def __init__(self, spec: Spec, encoder: Mapping[str, Any], joint: int, dropout: float):
        timed = [name for name, modality in spec.modalities.items() if modality.timed]
        super().__init__(spec.preferring(dict.fromkeys(timed, encoder)))
        self.fusion = Concatenation.over(self.encoders, joint, dropout)
        self.head = nn.Linear(joint, spec.task.outputs)


@register("lf-lstm", paper=PAPER, equation="c = V [LSTM_1(x_1), …, LSTM_M(x_M)], their last states")
class LateLstm(LateSequence):
    """An LSTM for each modality, their last states side by side.

    `concat` with other encoders: modalities with time steps get an LSTM, vectors and images keep their usual encoders,
    and an encoder that the user chose is used. At least one modality must be a sequence or text.

        h_m = LSTM_m(x_m), its last state         c = dropout(ReLU(LayerNorm(V [h_1, …, h_M] + b)))         z = P c

    Args:
        hidden: Width of each LSTM's state and of word vectors; 128 in the paper.
        layers: Number of layers of each LSTM.
        joint: Width of the joint representation.
        dropout: Dropout rate.
    """

    size = "hidden"

    def __init__(
        self,
        spec: Spec,
        *,
        hidden: PositiveInt = 128,
        layers: PositiveInt = 1,
        joint: JointWidth = 128,
        dropout: Rate = 0.1,
    ):
        encoder = {"name": "lstm", "hidden": hidden, "layers": layers, "dropout": dropout}
        super().__init__(spec, encoder, joint, dropout)


@register("lf-transformer", paper=PAPER, equation="c = V [mean over t of T_1(x_1), …, of T_M(x_M)]")
class LateTransformer(LateSequence):
    """A transformer for each modality, the means of their parts side by side.

    Like `lf-lstm`, with a pre-norm transformer for each modality that has time steps; the mean of its parts is read.

        h_m = mean over t of T_m(x_m)         c = dropout(ReLU(LayerNorm(V [h_1, …, h_M] + b)))         z = P c

    Args:
        width: Width of each transformer's parts and of word vectors; a multiple of heads.
        heads: Number of attention heads; 3 in the paper.
        layers: Number of layers; 3 in the paper.
        joint: Width of the joint representation.
        dropout: Dropout rate.
    """

    size = "width"

    def __init__(
        self,
        spec: Spec,
        *,
        width: PositiveInt = 48,
        heads: PositiveInt = 3,
        layers: PositiveInt = 3,
        joint: JointWidth = 128,
        dropout: Rate = 0.1,
    ):
        encoder = {"name": "transformer", "width": width, "heads": heads, "layers": layers, "dropout": dropout}
        super().__init__(spec, encoder, joint, dropout)
