"""The user's own `nn.Module` as an encoder."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from consilience.core.errors import InputError
from consilience.core.samples import Modality
from consilience.encoders.encoder import Encoded, Encoder, blank_padding, length_mask, mask_lengths, masked_mean


class CustomModule(Encoder):
    """The user's own `nn.Module` as an encoder.

    The module is called with the modality's tensor (and `lengths` if its forward has a parameter of that name) and may
    return `[batch, width]`, `[batch, part, width]`, a feature map `[batch, channel, height, width]`, or an `Encoded`.
    Parts and maps are pooled by their mean; if there are as many parts as time steps, they are masked by the lengths.
    The width is found by a dry run.

    >>> CustomModule(nn.Conv2d(1, 8, 3), Modality("image", "image", (1, 28, 28))).width
    8
    """

    name = "foreign"
    reads = ("vector", "image", "sequence", "tokens")

    def __init__(self, module: nn.Module, modality: Modality):
        super().__init__()
        self.stages = nn.ModuleDict({"module": module})
        self._takes_lengths = "lengths" in inspect.signature(module.forward).parameters
        self._timed = modality.kind in ("sequence", "tokens")
        self.width = self._measure(modality)

    def start(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The input as it is, and which time steps are real."""
        return x, length_mask(lengths, x) if self._timed else None

    def advance(self, stage: str, hidden: Tensor, mask: Tensor | None) -> Any:
        """Apply the module; returns a tensor or an `Encoded`."""
        if self._takes_lengths:
            return self.stages[stage](hidden, lengths=None if mask is None else mask_lengths(mask))
        return self.stages[stage](hidden)

    def finish(self, hidden: Any, mask: Tensor | None) -> Encoded:
        """Pool the module's output."""
        if isinstance(hidden, Encoded):
            if hidden.sequence is not None and hidden.mask is None:
                return Encoded(hidden.pooled, hidden.sequence, length_mask(None, hidden.sequence))
            return hidden
        if not isinstance(hidden, Tensor):
            raise InputError(f"an encoder must return a tensor or an Encoded, got {type(hidden).__name__}")
        if hidden.ndim == 2:
            return Encoded(hidden)
        if hidden.ndim == 4:
            hidden, mask = hidden.flatten(2).transpose(1, 2), None
        if hidden.ndim != 3:
            raise InputError(
                "an encoder must return [batch, width], [batch, part, width] or [batch, channel, height, width], "
                f"got {list(hidden.shape)}"
            )
        if mask is None or mask.shape[1] != hidden.shape[1]:  # parts that are not the input's time steps
            mask = length_mask(None, hidden)
        else:
            hidden = blank_padding(hidden, mask)
        return Encoded(masked_mean(hidden, mask), hidden, mask)

    @torch.no_grad()
    def _measure(self, modality: Modality) -> int:
        module = self.stages["module"]
        modes = [(part, part.training) for part in module.modules()]  # a frozen part stays in eval mode
        module.eval()
        device = next(iter(module.parameters()), torch.empty(0)).device
        dtype = torch.int64 if modality.kind == "tokens" else torch.float32
        x = torch.zeros((2, *modality.shape), dtype=dtype, device=device)
        lengths = torch.full((2,), modality.shape[0], device=device) if self._timed else None
        given = f"the encoder {type(module).__name__} given for modality {modality.describe()}"
        try:
            encoded = self(x, lengths)
        except InputError as error:
            raise InputError(f"{given}: {error}") from None
        except Exception as error:
            raise InputError(
                f"{given} failed on a batch of shape {list(x.shape)}: {type(error).__name__}: {error}"
            ) from error
        finally:
            for part, training in modes:
                part.training = training
        pooled, sequence = encoded.pooled, encoded.sequence
        if pooled.ndim != 2 or len(pooled) != len(x) or not pooled.is_floating_point():
            raise InputError(
                f"{given} must return features [batch, width] of floating-point numbers: for a batch of {len(x)} it "
                f"returned {list(pooled.shape)} of {pooled.dtype}"
            )
        width = pooled.shape[1]
        if sequence is not None and (sequence.ndim != 3 or sequence.shape[2] != width):
            raise InputError(
                f"{given} must return a sequence [batch, part, {width}], as wide as its pooled features, got "
                f"{list(sequence.shape)}"
            )
        return width
