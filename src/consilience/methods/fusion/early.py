"""`early`: the inputs themselves side by side, and one encoder over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.errors import InputError, UnsupportedError
from consilience.core.samples import Modality
from consilience.encoders import EncoderChoice, build_encoder, describe_encoders
from consilience.methods import Method, Prediction, Spec, register


@register("early", equation="z = P G([x_1, …, x_M])")
class Early(Method):
    """The inputs themselves side by side, and one encoder over all of them.

    Images of one size are stacked as channels, sequences of one length step by step; anything else is flattened into
    one vector. The encoder can see relations between raw values that later fusion has lost, and needs the most data to
    find them. Text and tokens are not read, and encoders cannot be chosen per modality.

        z = P G([x_1, …, x_M])         L = ℓ(z, y)

    Args:
        encoder: Encoder of the joined input. None: the default of its kind.
    """

    reads = ("vector", "image", "sequence")
    cross_entropy_alone = True

    def __init__(self, spec: Spec, *, encoder: EncoderChoice = None):
        super().__init__(spec)
        if (reason := against_encoders(spec)) is not None:
            raise UnsupportedError(f"method 'early' cannot be used here: {reason}")
        self.joined = join_shapes(spec.modalities)
        self.encoder = build_encoder(self.joined, encoder)
        self.head = nn.Linear(self.encoder.width, spec.task.outputs)

    @classmethod
    def reason_against(cls, spec: Spec) -> str | None:
        """Its one encoder reads all modalities, so that none can be chosen for a single modality."""
        return super().reason_against(spec) or against_encoders(spec)

    def saved_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The encoder is rebuilt without the files that it was made of."""
        chosen = settings.get("encoder")
        if not isinstance(chosen, str | Mapping):  # none, or a module, which cannot be saved
            return dict(settings)
        name = self.joined.name
        return {**settings, "encoder": describe_encoders({name: chosen}, self)[name]}

    def stacked_input(self, values: Mapping[str, Tensor]) -> Tensor:
        """The modalities side by side."""
        return torch.cat([values[name].flatten(2) for name in self.modalities], dim=2)

    def forward(self, batch: Batch) -> Prediction:
        """Join the inputs, encode once, apply the head."""
        joined, lengths = join_inputs(self.modalities, self.joined, batch)
        encoded = self.encoder(joined, lengths)
        return Prediction(self.head(encoded.pooled), joint=encoded.pooled)


def against_encoders(spec: Spec) -> str | None:
    """Return why the method cannot be used where encoders are chosen per modality, or None where none is."""
    if not any(choice is not None for choice in spec.encoders.values()):
        return None
    return "it has one encoder for all modalities, its setting 'encoder', and can use none chosen per modality"


def join_shapes(modalities: Mapping[str, Modality]) -> Modality:
    """The joined input as a modality.

    >>> join_shapes({"a": Modality("a", "image", (1, 8, 8)), "b": Modality("b", "image", (3, 8, 8))}).shape
    (4, 8, 8)
    """
    shapes = [modality.shape for modality in modalities.values()]
    kinds = {modality.kind for modality in modalities.values()}
    if kinds == {"image"} and len({shape[1:] for shape in shapes}) == 1:
        return Modality("all", "image", (sum(shape[0] for shape in shapes), *shapes[0][1:]))
    if kinds == {"sequence"} and len({shape[0] for shape in shapes}) == 1:
        return Modality("all", "sequence", (shapes[0][0], sum(shape[1] for shape in shapes)))
    return Modality("all", "vector", (sum(prod(shape) for shape in shapes),))


def join_inputs(modalities: Mapping[str, Modality], joined: Modality, batch: Batch) -> tuple[Tensor, Tensor | None]:
    """The batch's inputs as one tensor of the joined shape, and the lengths where it is a sequence."""
    if joined.kind == "image":
        return torch.cat([batch[name] for name in modalities], dim=1), None
    parts = []
    for name, modality in modalities.items():
        x = _pad_time(batch[name], modality) if modality.kind == "sequence" else batch[name]
        parts.append(x if joined.kind == "sequence" else x.flatten(1))
    if joined.kind == "vector":
        return torch.cat(parts, dim=1), None
    # A sample lasts as long as the longest of its modalities; a missing one has length 0.
    lengths = torch.stack([batch.lengths[name] for name in modalities]).amax(dim=0)
    return torch.cat(parts, dim=2), lengths.clamp(min=1)


def _pad_time(x: Tensor, modality: Modality) -> Tensor:
    steps = modality.shape[0]
    if x.shape[1] > steps:
        raise InputError(
            f"method 'early' joins inputs of fixed length: modality {modality.name!r} had {steps} time steps in "
            f"training, got {x.shape[1]}"
        )
    return functional.pad(x, (0, 0, 0, steps - x.shape[1]))
