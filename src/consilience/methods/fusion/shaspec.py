"""`shaspec`: features that modalities share and features of their own; shared ones stand in for a missing modality."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.settings import NonNegativeFloat, PositiveInt, Rate
from consilience.encoders import Encoded
from consilience.encoders.mlp import dense_block
from consilience.methods import JointMethod, PerModality, Prediction, Spec, Step, register, weighted_mean


@register(
    "shaspec",
    paper="Wang et al. 2023, Multi-modal Learning with Missing Modality via Shared-Specific Feature Modelling",
    equation="f_m = V [r_m, s_m] + r_m; for a missing n, f_n = mean over S of r_m; z = P [f_1, …, f_M]",
)
class Shaspec(JointMethod):
    """One shared encoder and a specific one for each modality; the shared features replace those of a missing one.

    One loss draws the shared features r of all modalities together, another lets a classifier tell from which modality
    a specific feature s comes. A missing modality is represented by the mean of the present ones' shared features.

        r_m = R(A_m h_m),   s_m = S_m(h_m),   f_m = V [r_m, s_m] + r_m         f_n = 1/|S| · Σ_{m∈S} r_m for n ∉ S
        z = P [f_1, …, f_M]
        L = ℓ(z, y) + alignment · mean over pairs in S of mean |r_i − r_j| + domain · mean over m in S of CE(D(s_m), m)

    h_m are the encoders' features. The shared encoder R is a network of one layer; A_m projects each modality to one
    width, because R must read all of them, whatever their widths; in the paper all modalities are images of one size.
    The published code compares each modality's shared features with the next one's only, here every pair counts; and it
    trains with modalities hidden at random, for which there is `modality_dropout`.

    Args:
        width: Width of the shared and of the specific features.
        dropout: Dropout rate in the shared and the specific encoders.
        alignment: Weight of the loss on shared features that differ: α, 0.1 in the published code.
        domain: Weight of the loss of the classifier of modalities: β, 0.02 in the published code.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        width: PositiveInt = 64,
        dropout: Rate = 0.1,
        alignment: NonNegativeFloat = 0.1,
        domain: NonNegativeFloat = 0.02,
    ):
        super().__init__(spec)
        self.width, self.alignment, self.domain = width, alignment, domain
        widths = {name: encoder.width for name, encoder in self.encoders.items()}
        self.align = PerModality({name: nn.Linear(size, width) for name, size in widths.items()})
        self.specific = PerModality({name: dense_block(size, width, dropout=dropout) for name, size in widths.items()})
        self.shared = dense_block(width, width, dropout=dropout)
        self.which = nn.Linear(width, len(widths))
        self.fusion = SharedSpecific(len(widths), width)
        self.head = nn.Linear(self.fusion.width, spec.task.outputs)

    def represent(self, batch: Batch) -> dict[str, Encoded]:
        """[r_m, s_m] of each modality `[batch, 2 · width]`, zeros where it is missing."""
        features = super().represent(batch)
        aligned = torch.stack([self.align[name](one.pooled) for name, one in features.items()], dim=1)
        specific = torch.stack([self.specific[name](one.pooled) for name, one in features.items()], dim=1)
        both = torch.cat([self.shared(aligned), specific], dim=2) * batch.present[:, :, None]
        return {
            name: Encoded(own, one.sequence, one.mask) for (name, one), own in zip(features.items(), both.unbind(dim=1))
        }

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The task's loss, how far the shared features differ, and how well the specific ones tell their modality."""
        assert prediction.features is not None
        losses = super().objective(prediction, batch, step)
        both = torch.stack([one.pooled for one in prediction.features.values()], dim=1)
        shared, specific = both.split(self.width, dim=2)
        if self.alignment:
            apart = shared_distance(shared, batch.present)
            losses["alignment"] = self.alignment * weighted_mean(apart, batch.weight)
        if self.domain:
            modalities = torch.arange(len(self.names), device=both.device).expand(len(both), -1)
            told = functional.cross_entropy(self.which(specific).transpose(1, 2), modalities, reduction="none")
            mean = weighted_mean(told, batch.present, dim=1)
            losses["domain"] = self.domain * weighted_mean(mean, batch.weight)
        return losses


class SharedSpecific(nn.Module):
    """V [r_m, s_m] + r_m of each modality, the mean of the present r in place of a missing one, side by side."""

    def __init__(self, modalities: int, width: int):
        super().__init__()
        self.width = modalities * width
        self.mix = nn.Linear(2 * width, width)

    def forward(self, features: Mapping[str, Encoded], batch: Batch) -> Tensor:
        """Join the shared and specific features `[batch, 2 · width]` of all modalities."""
        both = torch.stack([one.pooled for one in features.values()], dim=1)
        shared = both[:, :, : both.shape[2] // 2]
        joined = self.mix(both) + shared
        if not batch.whole:
            present = batch.present[:, :, None]
            mean = (shared * present).sum(dim=1, keepdim=True) / present.sum(dim=1, keepdim=True).clamp(min=1)
            joined = torch.where(present, joined, mean.to(joined.dtype))
        return joined.flatten(1)


def shared_distance(shared: Tensor, present: Tensor) -> Tensor:
    """The mean absolute difference over all pairs of present modalities: `[batch, modality, width]` → `[batch]`.

    >>> shared_distance(torch.tensor([[[1.0, 0.0], [0.0, 3.0]]]), torch.ones(1, 2, dtype=torch.bool)).item()
    2.0
    """
    apart = (shared[:, :, None] - shared[:, None]).abs().mean(dim=3)
    there = present.to(apart.dtype)
    pairs = (there[:, :, None] * there[:, None]).triu(diagonal=1)
    return (apart * pairs).sum(dim=(1, 2)) / pairs.sum(dim=(1, 2)).clamp(min=1)
