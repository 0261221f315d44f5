"""`mmtm`: multimodal transfer modules, gates that the modalities exchange between the stages of their encoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.settings import NonNegativeFloat, NonNegativeInt, PositiveFloat
from consilience.encoders import Encoded, Encoder, length_mask, masked_mean
from consilience.methods import ExpertMethod, PerModality, Prediction, Spec, register
from consilience.methods.heads import expert_logits, mean_logits


@register(
    "mmtm",
    paper="Joze et al. 2020, MMTM: Multimodal Transfer Module for CNN Fusion",
    equation="h_m ← 2 σ(W_m ReLU(V [mean h_1, …, mean h_M])) ⊙ h_m between stages; z = mean of z_m",
)
class Mmtm(ExpertMethod):
    """Squeeze and excitation between the stages of the encoders; the mean of the present experts' logits.

    After a stage of every encoder, each modality is squeezed into its mean over positions (or over real time steps). A
    small network over all means gives every modality a gate per feature, between 0 and 2, that its features are
    multiplied by. Encoders with different numbers of stages are aligned at their ends: the last exchange comes after
    every encoder's last stage, the one before it after the stage before, among those that have one. A missing modality
    enters r as zeros.

        r   = ReLU(V [mean h_1, …, mean h_M] + b)          of size 2 Σ d_m / ratio
        h_m ← 2 σ(W_m r + b_m) ⊙ h_m                       between stages
        z   = 1/|S| · Σ_{m∈S} z_m         L = ℓ(z, y) + expert_loss · Σ_m ℓ(z_m, y)

    The paper has two modalities.

    Args:
        ratio: The squeezed representation has 2 Σ d_m / ratio features: 4 in the published code, 8 in the paper's text.
        exchanges: How many exchanges, after the last stages. None: as many as at least two encoders have stages.
        expert_loss: Weight of the experts' own losses; 0 as in the paper.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        ratio: PositiveFloat = 4.0,
        exchanges: NonNegativeInt | None = None,
        expert_loss: NonNegativeFloat = 0.0,
    ):
        super().__init__(spec, expert_loss=expert_loss)
        widths = {name: stage_widths(self.encoders[name], modality) for name, modality in spec.modalities.items()}
        depths = sorted((len(stages) for stages in widths.values()), reverse=True)
        possible = depths[1] if len(depths) > 1 else 0
        # The exchange before the last takes place after each encoder's stage before the last, and so on.
        self.exchanges = nn.ModuleList(
            Exchange({name: stages[-back] for name, stages in widths.items() if len(stages) >= back}, ratio)
            for back in range(possible if exchanges is None else min(exchanges, possible), 0, -1)
        )

    def forward(self, batch: Batch) -> Prediction:
        """Run every encoder up to its next exchange, exchange, and so on; then apply the heads."""
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
        opinions = expert_logits(self.heads, features)
        output, weights = self.combine(opinions, batch)
        return Prediction(output, opinions=opinions, weights=weights, features=features)

    def combine(self, opinions: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The mean of the present experts' logits."""
        return mean_logits(opinions, batch.present)


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
    """An encoder applied to the samples of a batch that have its modality, one stage at a time."""

    def __init__(self, encoder: Encoder, batch: Batch, name: str):
        self.encoder, self.n = encoder, batch.n
        self.rows: Tensor | None = None  # those present, if not all are
        self.missing: Tensor | None = None  # where rows cannot be selected: those to set to zero
        x, lengths = batch[name], batch.lengths.get(name)
        if batch.stacked:
            self.missing = ~batch.present_in(name)
            lengths = None if lengths is None else lengths.clamp(min=1)
        elif name not in batch.complete and not (present := batch.present_in(name)).all():
            self.rows = present.nonzero()[:, 0]
            x, lengths = x[self.rows], None if lengths is None else lengths[self.rows]
        self.todo: list[str] = list(encoder.stages)
        self.hidden: Any = None
        self.mask: Tensor | None = None
        self.empty = not batch.stacked and len(x) == 0
        self.like = next((value for value in encoder.parameters() if value.is_floating_point()), batch.weight)
        if not self.empty:
            self.hidden, self.mask = encoder.start(x, lengths)

    def advance(self, left: int) -> None:
        """Run stages until `left` of them remain."""
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
        """Run the remaining stages; samples without the modality get zeros."""
        self.advance(0)
        if self.empty:
            nothing = self.like.new_zeros(self.n, 1, self.encoder.width)
            return Encoded(nothing[:, 0], nothing, nothing[..., 0].bool())
        encoded = self.encoder.finish(self.hidden, self.mask)
        parts = (None if part is None else self._spread(part) for part in (encoded.sequence, encoded.mask))
        return Encoded(self._spread(encoded.pooled), *parts)

    def _spread(self, part: Tensor) -> Tensor:
        if self.missing is not None:
            missing = self.missing.view(-1, *[1] * (part.ndim - 1))
            return part & ~missing if part.dtype is torch.bool else part.masked_fill(missing, 0)
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
    """The number of features after each stage, found by a dry run."""
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
