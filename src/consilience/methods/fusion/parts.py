"""Modalities as parts (words, time steps, positions of a feature map), for methods that read them part by part."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.samples import Modality
from consilience.encoders import Encoded, Encoder, blank_padding, length_mask, masked_mean
from consilience.encoders.encoder import token_mask, token_vectors
from consilience.methods import JointMethod, Spec


class Words(Encoder):
    """The word vectors of a text, one part for each word, and nothing else."""

    name = "words"
    reads = ("tokens",)

    def __init__(self, modality: Modality, width: int):
        super().__init__()
        self.width = width
        self.stages = nn.ModuleDict({"embed": token_vectors(modality, width)})

    def start(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The ids with 0 for padding, and the mask of what is not padding."""
        mask = token_mask(x, lengths)
        return blank_padding(x, mask), mask

    def finish(self, hidden: Tensor, mask: Tensor | None) -> Encoded:
        """The words and their mean."""
        assert mask is not None
        return Encoded(masked_mean(hidden, mask), hidden, mask)


class Steps(Encoder):
    """The time steps of a sequence, one part for each step.

    Args:
        modality: A sequence.
        width: Width that each step is projected to; None leaves the steps as they are.
        kernel: How many neighbouring steps each projected step is made of, itself included.
    """

    name = "steps"
    reads = ("sequence",)

    def __init__(self, modality: Modality, width: int | None = None, kernel: int = 1):
        super().__init__()
        features = modality.shape[1]
        self.width = features if width is None else width
        self.stages = nn.ModuleDict({} if width is None else {"project": Windows(features, width, kernel)})

    def start(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The input with zeros for padding, and the mask of what is not padding."""
        mask = length_mask(lengths, x)
        return x if lengths is None else blank_padding(x, mask), mask

    def finish(self, hidden: Tensor, mask: Tensor | None) -> Encoded:
        """The steps and their mean."""
        assert mask is not None
        hidden = blank_padding(hidden, mask)
        return Encoded(masked_mean(hidden, mask), hidden, mask)


class Windows(nn.Module):
    """A convolution over time, `[batch, time, features]` → `[batch, time, width]`: neighbours side by side, projected.

    Written with a `Linear`, so that feedback joins once at each step and none of it enters through padding.
    """

    def __init__(self, features: int, width: int, kernel: int):
        super().__init__()
        self.kernel = kernel
        self.project = nn.Linear(features * kernel, width)

    def forward(self, x: Tensor) -> Tensor:
        """Steps before the first and after the last are zeros."""
        before = (self.kernel - 1) // 2
        padded = functional.pad(x, (0, 0, before, self.kernel - 1 - before))
        return self.project(padded.unfold(1, self.kernel, 1).flatten(2))


def stack_steps(features: Mapping[str, Encoded], present: Tensor) -> tuple[Tensor, Tensor]:
    """All modalities' steps side by side: `[batch, time, Σ width_m]`, and which are real `[batch, time]`.

    Steps are matched from the first on. A sample lasts as long as the longest of its modalities; after the end of one,
    or where it is missing (present: `[batch, modality]`), there are zeros. A modality without steps is repeated at
    every step.

    >>> long = Encoded(torch.ones(1, 1), torch.ones(1, 3, 1), torch.tensor([[True, True, False]]))
    >>> stacked, mask = stack_steps({"long": long, "still": Encoded(torch.full((1, 1), 5.0))}, torch.ones(1, 2).bool())
    >>> stacked.tolist(), mask.tolist()
    ([[[1.0, 5.0], [1.0, 5.0], [0.0, 0.0]]], [[True, True, False]])
    """
    steps = max((encoded.sequence.shape[1] for encoded in features.values() if encoded.sequence is not None), default=1)
    parts, masks = [], []
    for encoded, rows in zip(features.values(), present.T):
        if encoded.sequence is None or encoded.mask is None:
            parts.append(encoded.pooled[:, None].expand(-1, steps, -1))
            mask = rows[:, None]  # alone it lasts one step
        else:
            mask = encoded.mask & rows[:, None]
            parts.append(functional.pad(blank_padding(encoded.sequence, mask), (0, 0, 0, steps - mask.shape[1])))
        masks.append(functional.pad(mask, (0, steps - mask.shape[1])))
    together = torch.stack(masks).any(0)
    return blank_padding(torch.cat(parts, dim=2), together), together


def as_parts(encoded: Encoded, present: Tensor, limit: int | None) -> tuple[Tensor, Tensor]:
    """A modality's parts `[batch, part, width]` and which are real; a modality without parts is one part.

    Args:
        encoded: The modality's features.
        present: `[batch]`, which samples have the modality.
        limit: The most parts to return; more are averaged with their neighbours. None: all of them.
    """
    if encoded.sequence is None or encoded.mask is None:
        return encoded.pooled[:, None], present[:, None]
    sequence, mask = encoded.sequence, encoded.mask & present[:, None]
    return (sequence, mask) if limit is None or sequence.shape[1] <= limit else average_parts(sequence, mask, limit)


def average_parts(sequence: Tensor, mask: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """At most `limit` parts: neighbours among a row's real parts are averaged, in groups as even as can be.

    >>> parts, mask = average_parts(torch.tensor([[[1.0], [3.0], [5.0], [9.0]]]), torch.ones(1, 4).bool(), 2)
    >>> parts.flatten().tolist()
    [2.0, 7.0]
    """
    order = mask.cumsum(1) - 1  # which of its row's real parts each is
    count = mask.sum(1, keepdim=True)
    group = torch.where(count > limit, order * limit // count.clamp(min=1), order)
    member = (group[:, None] == torch.arange(limit, device=mask.device)[:, None]) & mask[:, None]
    share = member.to(sequence.dtype)
    return share @ sequence / share.sum(2, keepdim=True).clamp(min=1), member.any(2)


class StepMethod(JointMethod):
    """A method that needs at least one modality with time steps."""

    @classmethod
    def reason_against(cls, spec: Spec) -> str | None:
        """Some modality must have words or time steps."""
        reason = super().reason_against(spec)
        if reason is not None or any(modality.timed for modality in spec.modalities.values()):
            return reason
        return f"it reads time steps: one of {', '.join(spec.modalities)} must be a sequence, tokens or text"
