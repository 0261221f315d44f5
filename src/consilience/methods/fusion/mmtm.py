"""MMTM: between the stages of their encoders, modalities tell each other which features to heed.

At every exchange each modality is squeezed into its mean over positions; a small network over all of them gives each
modality a gate per feature, between 0 and 2, that its features are multiplied with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.errors import InputError
from consilience.encoders import Encoded, Encoder, length_mask, masked_mean
from consilience.methods import ExpertMethod, PerModality, Prediction, Spec, equal_weights, register


@register(
    "mmtm",
    paper="Joze et al. 2020, MMTM: Multimodal Transfer Module for CNN Fusion",
    equation="h_m ← 2 σ(W_m ReLU(V [mean h_1, …, mean h_M])) ⊙ h_m between stages; z = mean of z_m",
)
class Mmtm(ExpertMethod):
    """Squeeze and excitation between the stages of the encoders; the mean of the present experts' logits.

    ratio: the squeezed representation has 2 Σ d_m / ratio features. exchanges: after how many of the last stages, by
    default after as many as at least two encoders have. Encoders with different numbers of stages are aligned at the
    end: an exchange takes place among those that have that many. expert_loss: as for `late`, 0 as in the paper.
    """

    def __init__(self, spec: Spec, *, ratio: float = 4.0, exchanges: int | None = None, expert_loss: float = 0.0):
        super().__init__(spec, expert_loss=expert_loss)
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio < float("inf"):
            raise InputError(f"ratio must be a number > 0, got {ratio!r}")
        if exchanges is not None and (isinstance(exchanges, bool) or not isinstance(exchanges, int) or exchanges < 0):
            raise InputError(f"exchanges must be a whole number ≥ 0, or None for all there can be, got {exchanges!r}")
        widths = {name: stage_widths(self.encoders[name], one) for name, one in spec.modalities.items()}
        depths = sorted((len(one) for one in widths.values()), reverse=True)
        possible = depths[1] if len(depths) > 1 else 0
        # The exchange before the last takes place after each encoder's stage before the last, and so on.
        self.exchanges = nn.ModuleList(
            Exchange({name: one[-back] for name, one in widths.items() if len(one) >= back}, ratio)
            for back in range(possible if exchanges is None else min(exchanges, possible), 0, -1)
        )

    def forward(self, batch: Batch) -> Prediction:
        """Every encoder up to its next exchange, the exchange, and so on; then every expert speaks."""
        streams = {name: Stream(encoder, batch, name) for name, encoder in self.encoders.items()}
        for position, exchange in enumerate(self.exchanges):
            assert isinstance(exchange, Exchange)
            left = len(self.exchanges) - 1 - position
            for name in exchange.names:
                streams[name].advance(left)
            means = {name: streams[name].squeezed(width) for name, width in zip(exchange.names, exchange.widths)}
            for name, gate in exchange(means).items():
                streams[name].gate(gate)
        features = {name: stream.finish() for name, stream in streams.items()}
        opinions = torch.stack([head(features[name].pooled) for name, head in self.heads.items()], dim=1)
        output, weights = self.combine(opinions, batch)
        return Prediction(output, opinions=opinions, weights=weights, features=features)

    def combine(self, opinions: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Equal weights over what is present."""
        weights = equal_weights(batch.present, opinions.dtype)
        return torch.einsum("bm,bmc->bc", weights, opinions), weights


class Exchange(nn.Module):
    """Means of all modalities → a gate for each: name → `[batch, width_m]` → name → `[batch, width_m]` in (0, 2)."""

    def __init__(self, widths: Mapping[str, int], ratio: float):
        super().__init__()
        self.names, self.widths = tuple(widths), tuple(widths.values())
        total = sum(self.widths)
        squeezed = max(1, int(2 * total / ratio))
        self.squeeze = nn.Linear(total, squeezed)
        self.excite = PerModality({name: nn.Linear(squeezed, width) for name, width in widths.items()})

    def forward(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Squeeze, ReLU, and 2 × sigmoid for each modality, so that a gate at rest is 1."""
        joint = self.squeeze(torch.cat([means[name] for name in self.names], dim=1)).relu()
        return {name: 2 * torch.sigmoid(excite(joint)) for name, excite in self.excite.items()}


class Stream:
    """One encoder at work on the samples of a batch that have its modality, stopped between stages."""

    def __init__(self, encoder: Encoder, batch: Batch, name: str):
        self.encoder, self.n = encoder, len(batch)
        self.rows: Tensor | None = None  # those present, if not all are
        x, lengths = batch[name], batch.lengths.get(name)
        if name not in batch.complete and not (present := batch.present_in(name)).all():
            self.rows = present.nonzero()[:, 0]
            x, lengths = x[self.rows], None if lengths is None else lengths[self.rows]
        self.todo: list[str] = list(encoder.stages)
        self.hidden: Any = None
        self.mask: Tensor | None = None
        self.empty = len(x) == 0
        self.like = next((one for one in encoder.parameters() if one.is_floating_point()), batch.weight)
        if not self.empty:
            self.hidden, self.mask = encoder.start(x, lengths)

    def advance(self, left: int) -> None:
        """Run stages until so many are left."""
        while len(self.todo) > left:
            stage = self.todo.pop(0)
            if not self.empty:
                self.hidden = self.encoder.advance(stage, self.hidden, self.mask)

    def squeezed(self, width: int) -> Tensor:
        """The mean over positions for every sample of the batch, zeros where the modality is missing."""
        if self.empty:
            return self.like.new_zeros(self.n, width)
        return self._spread(squeeze(self.hidden, self.mask))

    def gate(self, gates: Tensor) -> None:
        """Multiply features `[…, width]` by gates `[batch, width]`."""
        if not self.empty:
            self.hidden = excite(self.hidden, gates if self.rows is None else gates[self.rows])

    def finish(self) -> Encoded:
        """Run what is left; samples without the modality get zeros."""
        self.advance(0)
        if self.empty:
            nothing = self.like.new_zeros(self.n, 1, self.encoder.width)
            return Encoded(nothing[:, 0], nothing, nothing[..., 0].bool())
        made = self.encoder.finish(self.hidden, self.mask)
        parts = (None if one is None else self._spread(one) for one in (made.sequence, made.mask))
        return Encoded(self._spread(made.pooled), *parts)

    def _spread(self, part: Tensor) -> Tensor:
        if self.rows is None:
            return part
        return part.new_zeros(self.n, *part.shape[1:]).index_copy(0, self.rows, part)


def squeeze(hidden: Any, mask: Tensor | None) -> Tensor:
    """The mean over positions: of a vector itself, a map `[batch, channel, height, width]`, or parts under their mask.

    >>> squeeze(torch.tensor([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]]), torch.tensor([[True, True, False]])).tolist()
    [[2.0, 3.0]]
    """
    if isinstance(hidden, Encoded):  # what a module of the user's may return from its one stage
        return hidden.pooled
    if hidden.ndim == 2:
        return hidden
    if hidden.ndim == 3:
        fits = mask is not None and mask.shape == hidden.shape[:2]
        return masked_mean(hidden, mask if fits and mask is not None else length_mask(None, hidden))
    return hidden.flatten(2).mean(dim=2)


def excite(hidden: Any, gate: Tensor) -> Any:
    """Features multiplied by a gate `[batch, width]`, the same at every position."""
    if isinstance(hidden, Encoded):
        sequence = None if hidden.sequence is None else hidden.sequence * gate[:, None]
        return Encoded(hidden.pooled * gate, sequence, hidden.mask)
    if hidden.ndim == 3:
        return hidden * gate[:, None]
    return hidden * gate.view(*gate.shape, *[1] * (hidden.ndim - 2))


@torch.no_grad()
def stage_widths(encoder: Encoder, modality: Any) -> Sequence[int]:
    """How many features each stage gives, found by a dry run."""
    modes = [(part, part.training) for part in encoder.modules()]
    encoder.eval()
    like = next(encoder.parameters(), torch.empty(0))
    kind = torch.int64 if modality.kind == "tokens" else like.dtype
    x = torch.zeros((2, *modality.shape), dtype=kind, device=like.device)
    lengths = torch.full((2,), modality.shape[0], device=like.device) if modality.timed else None
    try:
        hidden, mask = encoder.start(x, lengths)
        widths = []
        for stage in encoder.stages:
            hidden = encoder.advance(stage, hidden, mask)
            widths.append(squeeze(hidden, mask).shape[1])
    finally:
        for part, training in modes:
            part.training = training
    return widths
