"""Late fusion of sequences: an LSTM or a transformer for each modality, and what they say at the end side by side.

What is no sequence (a vector, an image) keeps its usual encoder; so does a modality that one was chosen for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from consilience.core.settings import whole_number
from consilience.methods import JointMethod, Spec, register
from consilience.methods.fusion.concat import Concatenation
from consilience.methods.fusion.early_sequence import PAPER
from consilience.methods.fusion.time_steps import without_steps


class LateSequence(JointMethod):
    """One encoder for each modality with time steps, and concatenation; a subclass says which encoder."""

    def __init__(self, spec: Spec, encoder: Mapping[str, Any], joint: int, dropout: float):
        timed = [name for name, modality in spec.modalities.items() if modality.timed]
        super().__init__(spec.preferring(dict.fromkeys(timed, encoder)))
        inputs = sum(one.width for one in self.encoders.values())
        self.fusion = Concatenation(inputs, whole_number("joint", joint, least=2), dropout)
        self.head = nn.Linear(joint, spec.task.outputs)

    @classmethod
    def reason_against(cls, spec: Spec) -> str | None:
        """It needs something with time steps; without, it would be `concat` under another name."""
        return super().reason_against(spec) or without_steps(spec.modalities)


@register("lf-lstm", paper=PAPER, equation="c = V [LSTM_1(x_1), …, LSTM_M(x_M)], their last states")
class LateLstm(LateSequence):
    """An LSTM for each modality, their last states side by side.

    hidden: width of each state, and of word vectors. joint: of the joint representation.
    """

    size = "hidden"

    def __init__(self, spec: Spec, *, hidden: int = 128, layers: int = 1, joint: int = 128, dropout: float = 0.1):
        encoder = {"name": "lstm", "hidden": hidden, "layers": layers, "dropout": dropout}
        super().__init__(spec, encoder, joint, dropout)


@register("lf-transformer", paper=PAPER, equation="c = V [mean over t of T_1(x_1), …, of T_M(x_M)]")
class LateTransformer(LateSequence):
    """A transformer for each modality, the means of their parts side by side.

    width: of each transformer's parts, and of word vectors; heads divide it. joint: of the joint representation.
    """

    size = "width"

    def __init__(
        self,
        spec: Spec,
        *,
        width: int = 48,
        heads: int = 3,
        layers: int = 3,
        joint: int = 128,
        dropout: float = 0.1,
    ):
        encoder = {"name": "transformer", "width": width, "heads": heads, "layers": layers, "dropout": dropout}
        super().__init__(spec, encoder, joint, dropout)
