"""`mfas`: fusion layers that read inner stages of the encoders, one level after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.errors import InputError, unknown_name
from consilience.core.settings import PositiveInt, Rate, check_value
from consilience.encoders import Encoded, Encoder
from consilience.methods import JointMethod, Spec, register
from consilience.methods.fusion.mmtm import Stream, stage_widths

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "leaky-relu": nn.LeakyReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}

# One level: modality → the stage it joins with, counted from 1.
Level = Mapping[str, int]


@dataclass
class EncodedStages(Encoded):
    """Features of an encoder and of its stages: stage number from 1 → `[batch, width of the stage]`."""

    stages: Mapping[int, Tensor] = field(default_factory=dict)


@register(
    "mfas",
    paper="Pérez-Rúa et al. 2019, MFAS: Multimodal Fusion Architecture Search",
    equation="h_l = σ(W_l [a_i, v_j, h_{l−1}])",
)
class Mfas(JointMethod):
    """Fusion layers over inner stages of the encoders, each reading the layer before it.

    Each level joins one stage of some of the encoders, as its mean over positions (or real time steps), with the level
    before it. The paper searches for the stages; here they are given. The default has two levels, every encoder's third
    stage from the end and then its second. For the encoders of AV-MNIST, six stages for audio and four for images, this
    is the architecture that was found (Shankar, Thompson and Fiterau 2022, fig. 11): [audio 4, image 2] → [audio 5,
    image 3, f_1]. Of an encoder with two stages both are read, a single stage joins at the second level. Stages after
    the last one read are not built; that one is read as the encoder's features (of a GRU, its last state). A missing
    modality enters as zeros.

        f_l = σ(W_l [s_1(i_l1), …, s_M(i_lM), f_{l−1}] + b_l)      s_m(i) the output of stage i of G_m      z = P f_L

    Args:
        layers: The stages that join at each level, by number from 1 or by name: `[{"audio": 4, "image": "conv2"}, …]`.
            None: the default above.
        width: Width of every level.
        activation: "relu", "leaky-relu", "sigmoid" or "tanh".
        dropout: Dropout rate after every level.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        layers: Sequence[Mapping[str, int | str]] | None = None,
        width: PositiveInt = 64,
        activation: Literal["relu", "leaky-relu", "sigmoid", "tanh"] = "relu",
        dropout: Rate = 0.1,
    ):
        super().__init__(spec)
        stages = {name: list(encoder.stages) for name, encoder in self.encoders.items()}
        self.levels = default_levels(stages) if layers is None else read_levels(layers, stages)
        widths = {}
        for name, encoder in self.encoders.items():
            widths[name] = stage_widths(encoder, spec.modalities[name]) or [encoder.width]
            cut(encoder, max(level.get(name, 0) for level in self.levels), widths[name])
        inputs = [sum(widths[name][stage - 1] for name, stage in level.items()) for level in self.levels]
        self.fusion = Levels(self.levels, inputs, width, activation, dropout)
        self.head = nn.Linear(width, spec.task.outputs)
        self.widths = widths

    def represent(self, batch: Batch) -> dict[str, Encoded]:
        """Each encoder's features, and the mean over positions of each stage that is read."""
        features: dict[str, Encoded] = {}
        for name, encoder in self.encoders.items():
            stream, depth, stages = Stream(encoder, batch, name), max(1, len(encoder.stages)), {}
            for stage in sorted({level[name] for level in self.levels if name in level}):
                if stage < depth:
                    stream.advance(depth - stage)
                    stages[stage] = stream.squeezed(self.widths[name][stage - 1])
            # The last stage is read as the encoder's features, after a final norm for example.
            encoded = stream.finish()
            stages[depth] = encoded.pooled
            features[name] = EncodedStages(encoded.pooled, encoded.sequence, encoded.mask, stages=stages)
        return features


class Levels(nn.Module):
    """h_l = σ(W_l [stages of level l, h_{l−1}] + b_l); returns the last level, `[batch, width]`."""

    def __init__(self, levels: Sequence[Level], inputs: Sequence[int], width: int, activation: str, dropout: float):
        super().__init__()
        self.levels = tuple(levels)
        self.join = nn.ModuleList(
            nn.Sequential(nn.Linear(size + width * bool(level), width), ACTIVATIONS[activation](), nn.Dropout(dropout))
            for level, size in enumerate(inputs)
        )

    def forward(self, features: Mapping[str, EncodedStages], batch: Batch) -> Tensor:
        """Join, level by level."""
        before: list[Tensor] = []
        for level, join in zip(self.levels, self.join):
            inputs = [features[name].stages[stage] for name, stage in level.items()]
            before = [join(torch.cat([*inputs, *before], dim=1))]
        return before[0]


def default_levels(stages: Mapping[str, Sequence[str]]) -> list[Level]:
    """Third and second stage from the end; of an encoder with two stages both, of one with a single stage that one.

    >>> default_levels({"audio": "abcdef", "image": "abcd"})
    [{'audio': 4, 'image': 2}, {'audio': 5, 'image': 3}]
    >>> default_levels({"audio": "ab", "text": "a"})
    [{'audio': 1}, {'audio': 2, 'text': 1}]
    """
    last = {name: max(1, min(len(own), 2), len(own) - 1) for name, own in stages.items()}
    levels = [{name: stage - 1 for name, stage in last.items() if stage > 1}, last]
    return [level for level in levels if level]


def read_levels(layers: Any, stages: Mapping[str, Sequence[str]]) -> list[Level]:
    """Read the setting `layers`: levels with stages as numbers.

    >>> read_levels([{"image": "conv2"}, {"image": 3, "audio": 1}], {"image": ["conv1", "conv2", "conv3"], "audio": []})
    [{'image': 2}, {'image': 3, 'audio': 1}]
    """
    if isinstance(layers, str | Mapping) or not isinstance(layers, Sequence) or not layers:
        raise InputError(f"layers must be a list with a mapping modality → stage for each level, got {layers!r}")
    levels: list[Level] = []
    for given in layers:
        if not isinstance(given, Mapping) or not given:
            raise InputError(f"a level of layers must be a mapping modality → stage, with at least one, got {given!r}")
        for name in given:
            if name not in stages:
                raise unknown_name("modality", name, stages, "It was given in layers")
        levels.append({name: _stage_number(name, stage, stages[name]) for name, stage in given.items()})
    for name in stages:
        if not any(name in level for level in levels):
            raise InputError(f"layers must read every modality at some level, {name!r} is read at none: {layers!r}")
    return levels


def _stage_number(name: str, stage: Any, stages: Sequence[str]) -> int:
    if isinstance(stage, str):
        if stage not in stages:
            raise unknown_name("stage", stage, stages, f"It was given in layers for modality {name!r}")
        return stages.index(stage) + 1
    number, depth = check_value(f"the stage of {name!r} in layers", stage, PositiveInt), max(1, len(stages))
    if number > depth:
        raise InputError(f"layers: the encoder of {name!r} has stages 1 to {depth} ({', '.join(stages)}), got {number}")
    return number


def cut(encoder: Encoder, last: int, widths: Sequence[int]) -> None:
    """Remove the stages after the last one that is read: they would never be trained."""
    for stage in list(encoder.stages)[last:]:
        del encoder.stages[stage]
    encoder.width = widths[last - 1]
