"""The base class of encoders, one modality → features in named stages, and the masks of padded input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from consilience.core.errors import InputError
from consilience.core.samples import Kind, Modality, Samples
from consilience.core.settings import DeclaredSettings
from consilience.preparation.transforms import Transform


@dataclass
class Encoded:
    """One modality's features.

    Attributes:
        pooled: `[batch, width]`.
        sequence: `[batch, part, width]` where the modality has parts, else None.
        mask: `[batch, part]`, True where a part is real and not padding.
    """

    pooled: Tensor
    sequence: Tensor | None = None
    mask: Tensor | None = None


class Encoder(DeclaredSettings, nn.Module):
    """One modality → `Encoded`.

    A subclass takes a `Modality` and its settings as keyword-only arguments, and fills `stages` (named, in order) and
    `width`. A forward pass is `start`, every stage by `advance`, then `finish`; methods that exchange information
    between encoders call these three themselves. A stage whose class sets `takes_mask` is called with the mask too.

    Attributes:
        reads: The kinds of modalities that it can read.
        argument: The setting that a choice "name:value" gives.
        files: The settings that name files or folders. A saved model does not read them, unless they are passed again.
        size: The setting, kept as an attribute of that name, that makes the encoder wider.
        gives_features: Whether it has features to train through. One without serves experts that are not trained by
            gradients, in the methods that have such experts.
        expert: The kind of expert that is trained alone with it for a classification, if not a network: "trees",
            "linear" or "pool".
        prepares: Whether it prepares raw values itself, by `sees` and `prepare` with its `settings`.
        stacks: Whether several of them, stacked by `torch.func`, are faster on a CPU than one after another.
        modality_name: The modality that it encodes.
    """

    name: ClassVar[str]
    reads: ClassVar[tuple[Kind, ...]]
    argument: ClassVar[str | None] = None
    files: ClassVar[tuple[str, ...]] = ()
    size: ClassVar[str | None] = None
    gives_features: ClassVar[bool] = True
    expert: ClassVar[str | None] = None
    prepares: ClassVar[bool] = False
    stacks: ClassVar[bool] = False
    modality_name: str = ""
    settings: Mapping[str, Any] = MappingProxyType({})
    width: int
    stages: nn.ModuleDict

    @classmethod
    def sees(cls, modality: Modality, settings: Mapping[str, Any]) -> Modality:
        """The modality that the encoder will be built for, from the raw one; known before there are samples."""
        raise NotImplementedError

    @classmethod
    def prepare(cls, samples: Samples, name: str, settings: Mapping[str, Any]) -> Transform:
        """The transform of raw values into the encoder's input, fitted on training samples."""
        raise NotImplementedError

    def saved(self) -> Any:
        """The value of the setting `rebuilt`, by which an encoder made from files is rebuilt without the files."""
        return None

    def start(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The first stage's input, and the mask `[batch, part]`, True where a part is not padding."""
        return x, None

    def advance(self, stage: str, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Apply one stage."""
        module = self.stages[stage]
        return module(hidden, mask) if getattr(module, "takes_mask", False) else module(hidden)

    def finish(self, hidden: Tensor, mask: Tensor | None) -> Encoded:
        """The last stage's output as features."""
        return Encoded(hidden)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Encoded:
        """Encode x `[batch, *shape]`; lengths `[batch]` for sequences and tokens."""
        hidden, mask = self.start(x, lengths)
        for stage in self.stages:
            hidden = self.advance(stage, hidden, mask)
        return self.finish(hidden, mask)


def length_mask(lengths: Tensor | None, x: Tensor) -> Tensor:
    """True where a time step is real: `[batch, time]`.

    >>> length_mask(torch.tensor([1, 3]), torch.zeros(2, 3, 5)).tolist()
    [[True, False, False], [True, True, True]]
    """
    if lengths is None:
        return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    return torch.arange(x.shape[1], device=x.device) < lengths[:, None]


def token_mask(ids: Tensor, lengths: Tensor | None) -> Tensor:
    """True where a token is real: within its row's length, and not the padding id 0: `[batch, time]`.

    >>> token_mask(torch.tensor([[5, 0, 7, 9]]), torch.tensor([3])).tolist()
    [[True, False, True, False]]
    """
    return length_mask(lengths, ids) & (ids != 0)


def token_vectors(modality: Modality, width: int) -> nn.Embedding:
    """A learned vector for each token id: `[batch, time]` → `[batch, time, width]`; id 0 is a vector of zeros."""
    if modality.vocabulary is None:
        raise InputError(
            f"modality {modality.describe()} does not say how many different token ids there are: "
            "set its vocabulary to the largest id + 1"
        )
    return nn.Embedding(modality.vocabulary, width, padding_idx=0)


def mask_lengths(mask: Tensor) -> Tensor:
    """The position after each row's last real part in a mask `[batch, part]`; 0 if a row has none.

    >>> mask_lengths(torch.tensor([[True, False, True, False], [False, False, False, False]])).tolist()
    [3, 0]
    """
    return (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1)


def blank_padding(x: Tensor, mask: Tensor) -> Tensor:
    """x `[batch, part]` or `[batch, part, feature]` with zeros where mask `[batch, part]` is False.

    Padding may hold NaN, which would spread: 0 × NaN is NaN.
    """
    return x.masked_fill(~mask.view(*mask.shape, *[1] * (x.ndim - 2)), 0)


def masked_mean(sequence: Tensor, mask: Tensor) -> Tensor:
    """The mean over real parts: `[batch, part, width]`, `[batch, part]` → `[batch, width]`; no part gives 0.

    Parts that are not real may hold any finite number.

    >>> masked_mean(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]])).item()
    2.0
    """
    total = torch.einsum("bt,btd->bd", mask.to(sequence.dtype), sequence)
    return total / mask.sum(1, keepdim=True).clamp(min=1)
