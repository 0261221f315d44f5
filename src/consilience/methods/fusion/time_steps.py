"""Time steps before anything has summarised them: what methods read that join modalities step by step."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.samples import Modality
from consilience.encoders import Encoded, Encoder, blank_padding, length_mask, masked_mean


class Steps(Encoder):
    """A sequence step by step: as it is, or, given a width, each step with its neighbours projected to that width.

    kernel: how many neighbouring steps a projected one is made of, itself among them.
    """

    name = "steps"
    reads = ("sequence",)

    def __init__(self, modality: Modality, width: int | None = None, kernel: int = 1):
        super().__init__()
        features = modality.shape[1]
        self.width = features if width is None else width
        self.stages = nn.ModuleDict({} if width is None else {"project": Windows(features, width, kernel)})

    def start(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The input with zeros for padding, and what is not padding."""
        mask = length_mask(lengths, x)
        return x if lengths is None else blank_padding(x, mask), mask

    def finish(self, hidden: Tensor, mask: Tensor | None) -> Encoded:
        """The steps and their mean."""
        assert mask is not None
        hidden = blank_padding(hidden, mask)
        return Encoded(masked_mean(hidden, mask), hidden, mask)


class Windows(nn.Module):
    """A convolution over time, `[batch, time, features]` → `[batch, time, width]`: neighbours side by side, projected.

    Written with a `Linear`, so that a context joins once at each step, and nothing of it comes in from padding.
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
    or where it is missing (present: `[batch, modality]`), there are zeros. What has no steps stands beside every step.

    >>> long = Encoded(torch.ones(1, 1), torch.ones(1, 3, 1), torch.tensor([[True, True, False]]))
    >>> stacked, mask = stack_steps({"long": long, "still": Encoded(torch.full((1, 1), 5.0))}, torch.ones(1, 2).bool())
    >>> stacked.tolist(), mask.tolist()
    ([[[1.0, 5.0], [1.0, 5.0], [0.0, 0.0]]], [[True, True, False]])
    """
    steps = max((one.sequence.shape[1] for one in features.values() if one.sequence is not None), default=1)
    parts, masks = [], []
    for (_, one), there in zip(features.items(), present.T):
        if one.sequence is None or one.mask is None:
            parts.append(one.pooled[:, None].expand(-1, steps, -1))
            mask = there[:, None]  # alone it lasts one step
        else:
            mask = one.mask & there[:, None]
            parts.append(functional.pad(blank_padding(one.sequence, mask), (0, 0, 0, steps - mask.shape[1])))
        masks.append(functional.pad(mask, (0, steps - mask.shape[1])))
    together = torch.stack(masks).any(0)
    return blank_padding(torch.cat(parts, dim=2), together), together


def without_steps(modalities: Mapping[str, Modality]) -> str | None:
    """Why a method that runs over time cannot serve these modalities: none of them has time steps."""
    if any(modality.timed for modality in modalities.values()):
        return None
    return f"it reads time steps: one of {', '.join(modalities)} must be a sequence, tokens or text"
