"""MFAS: fusion layers that read inner stages of the encoders, one level after another.

Pérez-Rúa et al. 2019 search for which stages to join; here they are given, by default as in the architecture they
found for audio and images (fig. 11 of Shankar et al. 2022): third and second stage from the end, then the head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.errors import InputError, unknown_name
from consilience.core.settings import dropout_rate, one_of, whole_number
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
class Tapped(Encoded):
    """Features of an encoder, and beside them what its stages gave: number from 1 → `[batch, width of the stage]`."""

    stages: Mapping[int, Tensor] = field(default_factory=dict)


@register(
    "mfas",
    paper="Pérez-Rúa et al. 2019, MFAS: Multimodal Fusion Architecture Search",
    equation="h_l = σ(W_l [a_i, v_j, h_{l−1}])",
)
class Mfas(JointMethod):
    """Fusion layers over inner stages of the encoders, each with the layer before it.

    layers: which stages join at each level, modality → stage (its number from 1, or its name); by default, in two
    levels, every encoder's third stage from the end and then its second, and of shorter encoders what there is.
    Stages that come after all that are read are left out. width: of every level. activation: relu, leaky-relu,
    sigmoid or tanh.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        layers: Sequence[Mapping[str, int | str]] | None = None,
        width: int = 64,
        activation: str = "relu",
        dropout: float = 0.1,
    ):
        super().__init__(spec)
        one_of("activation", activation, ACTIVATIONS)
        stages = {name: list(encoder.stages) for name, encoder in self.encoders.items()}
        self.levels = usual_levels(stages) if layers is None else read_levels(layers, stages)
        widths = {}
        for name, encoder in self.encoders.items():
            widths[name] = stage_widths(encoder, spec.modalities[name]) or [encoder.width]
            cut(encoder, max(level.get(name, 0) for level in self.levels), widths[name])
        inputs = [sum(widths[name][stage - 1] for name, stage in level.items()) for level in self.levels]
        self.fusion = Levels(self.levels, inputs, whole_number("width", width), activation, dropout_rate(dropout))
        self.head = nn.Linear(width, spec.task.outputs)
        self.widths = widths

    def represent(self, batch: Batch) -> dict[str, Encoded]:
        """Each encoder's features, and the mean over positions of what each stage that is read gives."""
        features: dict[str, Encoded] = {}
        for name, encoder in self.encoders.items():
            stream, depth, given = Stream(encoder, batch, name), max(1, len(encoder.stages)), {}
            for stage in sorted({level[name] for level in self.levels if name in level}):
                if stage < depth:
                    stream.advance(depth - stage)
                    given[stage] = stream.squeezed(self.widths[name][stage - 1])
            # The last stage counts as the encoder makes features of it, with a norm or whatever else it ends in.
            ends = stream.finish()
            features[name] = Tapped(ends.pooled, ends.sequence, ends.mask, stages={**given, depth: ends.pooled})
        return features


class Levels(nn.Module):
    """h_l = σ(W_l [stages of level l, h_{l−1}] + b_l), and the last of them: `[batch, width]`.

    What a missing modality would give is zeros.
    """

    def __init__(self, levels: Sequence[Level], inputs: Sequence[int], width: int, activation: str, dropout: float):
        super().__init__()
        self.levels = tuple(levels)
        self.join = nn.ModuleList(
            nn.Sequential(nn.Linear(one + width * bool(number), width), ACTIVATIONS[activation](), nn.Dropout(dropout))
            for number, one in enumerate(inputs)
        )

    def forward(self, features: Mapping[str, Tapped], batch: Batch) -> Tensor:
        """Join, level by level."""
        before: list[Tensor] = []
        for level, join in zip(self.levels, self.join):
            given = [features[name].stages[stage] for name, stage in level.items()]
            before = [join(torch.cat([*given, *before], dim=1))]
        return before[0]


def usual_levels(stages: Mapping[str, Sequence[str]]) -> list[Level]:
    """Third and second stage from the end; of an encoder with two stages both, of one with a single stage that one.

    >>> usual_levels({"audio": "abcdef", "image": "abcd"})
    [{'audio': 4, 'image': 2}, {'audio': 5, 'image': 3}]
    >>> usual_levels({"audio": "ab", "text": "a"})
    [{'audio': 1}, {'audio': 2, 'text': 1}]
    """
    last = {name: max(1, min(len(own), 2), len(own) - 1) for name, own in stages.items()}
    levels = [{name: stage - 1 for name, stage in last.items() if stage > 1}, last]
    return [level for level in levels if level]


def read_levels(layers: Any, stages: Mapping[str, Sequence[str]]) -> list[Level]:
    """Levels as the user gave them, with stages as numbers.

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
    number, depth = whole_number(f"the stage of {name!r} in layers", stage), max(1, len(stages))
    if number > depth:
        raise InputError(f"layers: the encoder of {name!r} has stages 1 to {depth} ({', '.join(stages)}), got {number}")
    return number


def cut(encoder: Encoder, last: int, widths: Sequence[int]) -> None:
    """Leave out the stages after the last that is read: they would never be trained."""
    for stage in list(encoder.stages)[last:]:
        del encoder.stages[stage]
    encoder.width = widths[last - 1]
