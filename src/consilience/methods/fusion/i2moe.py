"""`i2moe`: experts for what modalities say uniquely, in common and only together, and a gate that weighs them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.settings import NonNegativeFloat, PositiveInt, Rate
from consilience.encoders import Encoded
from consilience.methods import JointMethod, PerModality, Prediction, Spec, Step, register, weighted_mean
from consilience.methods.heads import total_width

# Of the triplet loss, as in the published code.
_MARGIN = 1.0


@register(
    "i2moe",
    paper="Xin et al. 2025, I2MoE: Interpretable Multimodal Interaction-aware Mixture-of-Experts",
    equation="z = Σ_k w_k F_k(h), w = softmax(G(h)), k over one expert per modality, synergy and redundancy",
)
class I2moe(JointMethod):
    """Experts that read all modalities, each trained for one kind of information, and a gate that weighs them.

    There are M + 2 experts. What an expert does without a modality shows which kind of information it uses, so in
    training each modality in turn is replaced by random numbers. The expert of *uniqueness* of m shall change if m is
    replaced and not if another is; the expert of *synergy* if any is; that of *redundancy* never. The gate's weights
    say how much each kind of information counts for a sample: `prediction.extra["interactions"]`, uniqueness of the
    modalities in order, then synergy, then redundancy.

        z = Σ_k w_k z_k,   z_k = F_k([h_1, …, h_M]),   w = softmax(G([h_1, …, h_M]))
        z_k⁽ⁿ⁾ is z_k with h_n replaced by ε ~ N(0, 1)
        L_m   = mean over n ≠ m of max(0, ‖z_m − z_m⁽ⁿ⁾‖ − ‖z_m − z_m⁽ᵐ⁾‖ + 1)         uniqueness of m
        L_syn = mean over n of cos(z_syn, z_syn⁽ⁿ⁾)         L_red = mean over n of 1 − cos(z_red, z_red⁽ⁿ⁾)
        L     = ℓ(z, y) + interaction · (Σ_m L_m + L_syn + L_red) / (M + 2)

    Only present modalities are replaced, with one draw of ε for a batch; a missing one enters as zeros. For a
    regression the published code compares outputs by squared differences without a bound; here distances replace
    cosines, with the same margin. The experts are networks of one hidden layer; the paper puts any fusion model in
    their place. The names of the experts are intentions: nothing but these losses keeps an expert to its kind of
    information.

    Args:
        width: Width of each expert's hidden layer.
        gate_width: Width of the gate's hidden layer.
        dropout: Dropout rate of what the experts read, and in the gate.
        interaction: Weight of the interaction losses.
    """

    min_modalities = 2

    def __init__(
        self,
        spec: Spec,
        *,
        width: PositiveInt = 16,
        gate_width: PositiveInt = 64,
        dropout: Rate = 0.1,
        interaction: NonNegativeFloat = 0.1,
    ):
        super().__init__(spec)
        self.interaction = interaction
        widths = {name: encoder.width for name, encoder in self.encoders.items()}
        self.fusion = SideBySide()
        self.head = InteractionExperts(widths, width, spec.task.outputs, dropout)
        self.gate = nn.Sequential(
            nn.Linear(total_width(self.encoders), gate_width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(gate_width, len(widths) + 2),
        )

    def read(self, joint: Tensor, features: Mapping[str, Encoded], batch: Batch) -> Prediction:
        """The experts' outputs, weighted by the gate; in training also with each modality replaced."""
        replaced = self.training and self.interaction > 0
        outputs = self.head(joint, replaced)  # [batch, 1 or 1 + modality, expert, output]
        weights = self.gate(joint).softmax(dim=1)
        output = torch.einsum("be,beo->bo", weights, outputs[:, 0])
        extra = {"interactions": weights}
        if replaced:
            extra["replaced"] = outputs
        return Prediction(output, features=features, joint=joint, extra=extra)

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The task's loss, and the interaction losses where modalities were replaced."""
        losses = super().objective(prediction, batch, step)
        if "replaced" in prediction.extra:
            found = interaction_losses(prediction.extra["replaced"], batch.present, self.task.classification)
            losses["interaction"] = self.interaction * weighted_mean(found, batch.weight)
        return losses


class SideBySide(nn.Module):
    """[h_1, …, h_M], zeros for missing modalities: `[batch, Σ width_m]`."""

    def forward(self, features: Mapping[str, Encoded], batch: Batch) -> Tensor:
        """Join pooled features of all modalities."""
        return torch.cat([one.pooled for one in features.values()], dim=1)


class InteractionExperts(nn.Module):
    """M + 2 networks with one hidden layer on the same input, computed at once.

    The first layer is a sum over modalities, so that replacing one of them costs no more than its own product.

    Args:
        widths: Modality → width of its features.
        width: Width of the hidden layers.
        outputs: Width of the output.
        dropout: Dropout rate of the input.
    """

    def __init__(self, widths: Mapping[str, int], width: int, outputs: int, dropout: float):
        super().__init__()
        self.experts, self.width, self.widths = len(widths) + 2, width, tuple(widths.values())
        self.enter = PerModality({name: nn.Linear(size, self.experts * width) for name, size in widths.items()})
        self.leave = nn.Parameter(torch.empty(self.experts, width, outputs).uniform_(-1, 1) / math.sqrt(width))
        self.bias = nn.Parameter(torch.zeros(self.experts, outputs))
        self.dropout = nn.Dropout(dropout)

    def forward(self, joint: Tensor, replaced: bool) -> Tensor:
        """Outputs `[batch, 1, expert, output]`, with `replaced` followed by those with each modality replaced."""
        given = self.dropout(joint)
        if replaced:  # what replaces the modalities is one more row
            given = torch.cat([given, torch.randn_like(joint[:1])])
        own = self._enter(given)  # [modality, batch, expert · width]
        own, other = own[:, : joint.shape[0]], own[:, joint.shape[0] :]
        hidden = own.sum(dim=0, keepdim=True)
        if replaced:
            hidden = torch.cat([hidden, hidden - own + other])
        # Experts first and side by side in memory: what follows, and its gradient, then need no further copies.
        hidden = functional.relu(hidden.view(-1, self.experts, self.width).transpose(0, 1).contiguous())
        outputs = torch.baddbmm(self.bias[:, None], hidden, self.leave)  # [expert, (1 + modality) · batch, output]
        return outputs.unflatten(1, (-1, joint.shape[0])).permute(2, 1, 0, 3)

    def _enter(self, given: Tensor) -> Tensor:
        """Each modality's share of the first layers `[modality, batch, expert · width]`, if of equal widths at once."""
        maps = list(self.enter.values())
        if len(set(self.widths)) > 1:
            return torch.stack([enter(part) for enter, part in zip(maps, given.split(self.widths, dim=1))])
        parts = given.unflatten(1, (len(maps), -1)).transpose(0, 1)
        biases = torch.stack([enter.bias for enter in maps])[:, None]
        return torch.baddbmm(biases, parts, torch.stack([enter.weight for enter in maps]).transpose(1, 2))


def interaction_losses(outputs: Tensor, present: Tensor, by_angle: bool = True) -> Tensor:
    """The mean interaction loss of the experts on each sample `[batch]`.

    Args:
        outputs: `[batch, 1 + modality, expert, output]`: complete, then with each modality replaced; the experts are
            uniqueness of each modality, synergy, redundancy.
        present: `[batch, modality]`; the replacement of a missing modality does not count.
        by_angle: Whether synergy and redundancy are judged by cosines; by distances otherwise.
    """
    outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    count = present.shape[1]
    complete, replaced = outputs[:, :1], outputs[:, 1:]
    # At 0, where an expert ignores a modality altogether, torch takes the slope of the norm to be 0.
    apart = torch.linalg.vector_norm(complete - replaced, dim=3)  # [batch, replaced modality, expert]
    unique = apart[:, :, :count]
    there = present.to(unique.dtype)
    triplets = functional.relu(unique - unique.diagonal(dim1=1, dim2=2)[:, None] + _MARGIN)
    pairs = there[:, :, None] * there[:, None] * (1 - torch.eye(count, device=there.device, dtype=there.dtype))
    uniqueness = ((triplets * pairs).sum(dim=1) / pairs.sum(dim=1).clamp(min=1)).sum(dim=1)
    if by_angle:
        alike = functional.cosine_similarity(complete[:, :, count:], replaced[:, :, count:], dim=3, eps=1e-6)
        both = torch.stack([alike[..., 0], 1 - alike[..., 1]], dim=2)
    else:
        both = torch.stack([functional.relu(_MARGIN - apart[..., count]), apart[..., count + 1]], dim=2)
    means = (both * there[:, :, None]).sum(dim=1) / there.sum(dim=1, keepdim=True).clamp(min=1)
    return (uniqueness + means.sum(dim=1)) / (count + 2)
