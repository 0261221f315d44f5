"""Factorised representations (MFM): what discriminates, shared by all, and what generates, each modality's own.

Tsai et al. 2019: a shared factor, made from all modalities, predicts the target; together with a modality's own
factor it reconstructs that modality. The own factors carry what is needed to see or hear but not to decide, so that
the shared one need not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.samples import Modality
from consilience.core.settings import number, whole_number
from consilience.encoders import Encoded, length_mask, masked_mean
from consilience.encoders.mlp import dense_block
from consilience.encoders.tokens import token_mask
from consilience.methods import JointMethod, PerModality, Prediction, Spec, Step, register, weighted_mean
from consilience.methods.fusion.concat import Concatenation


@register("mfm", paper="Tsai et al. 2019, Learning Factorized Multimodal Representations", equation="5")
class Factorized(JointMethod):
    """A shared factor for the target, own factors for reconstruction.

    latent: width of every factor. reconstruction, prior: weights of the reconstruction loss and of the distance
    (maximum mean discrepancy) between the factors and a standard normal.

    Vectors and images are reconstructed as they are, sequences by their mean over time, tokens by how often each of
    them occurs: a decoder here is there to shape the factors, not to draw.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        latent: int = 200,
        reconstruction: float = 0.1,
        prior: float = 0.1,
        dropout: float = 0.1,
    ):
        super().__init__(spec)
        latent = whole_number("latent", latent)
        self.fusion = SharedFactor(sum(encoder.width for encoder in self.encoders.values()), latent, dropout)
        self.head = nn.Linear(latent, spec.task.outputs)
        self.own = PerModality({name: nn.Linear(encoder.width, latent) for name, encoder in self.encoders.items()})
        self.decoders = PerModality(
            {
                name: nn.Sequential(dense_block(2 * latent, latent, dropout=dropout), nn.Linear(latent, entries(one)))
                for name, one in spec.modalities.items()
            }
        )
        self.reconstruction, self.prior = number("reconstruction", reconstruction, "≥ 0"), number("prior", prior, "≥ 0")

    def read(self, joint: Tensor, features: Mapping[str, Encoded], batch: Batch) -> Prediction:
        """Read out the shared factor; reconstruct each modality from it and the modality's own."""
        prediction = super().read(joint, features, batch)
        own = {name: project(features[name].pooled) for name, project in self.own.items()}
        decoded = {
            name: decoder(torch.cat([own[name] * batch.present_in(name)[:, None], joint], dim=1))
            for name, decoder in self.decoders.items()
        }
        prediction.extra = {**prediction.extra, "own": own, "reconstruction": decoded}
        return prediction

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The task's loss, the reconstruction of what is present, and the factors' distance from the prior."""
        losses = super().objective(prediction, batch, step)
        decoded = prediction.extra["reconstruction"]
        each = [
            misfit(self.modalities[name], decoded[name], batch, name) * batch.present_in(name) for name in self.names
        ]
        losses["reconstruction"] = self.reconstruction * weighted_mean(torch.stack(each).sum(dim=0), batch.weight)
        if self.prior:
            assert prediction.joint is not None
            own = [discrepancy(factor, batch.present_in(name)) for name, factor in prediction.extra["own"].items()]
            shared = discrepancy(prediction.joint, torch.ones_like(batch.present[:, 0]))
            losses["prior"] = self.prior * torch.stack([*own, shared]).mean()
        return losses


class SharedFactor(Concatenation):
    """Concatenation and a linear layer behind it: `[batch, width]`, of either sign, as the prior is."""

    def __init__(self, inputs: int, width: int, dropout: float):
        super().__init__(inputs, width, dropout)
        self.mix = nn.Sequential(self.mix, nn.Linear(width, width))


def entries(modality: Modality) -> int:
    """How many numbers stand for one sample of a modality in a reconstruction."""
    if modality.kind == "tokens":
        assert modality.vocabulary is not None
        return modality.vocabulary
    return modality.shape[1] if modality.kind == "sequence" else math.prod(modality.shape)


def misfit(modality: Modality, decoded: Tensor, batch: Batch, name: str) -> Tensor:
    """Each sample's reconstruction loss `[batch]`: mean square, or cross entropy of token frequencies per token."""
    x, lengths = batch[name], batch.lengths.get(name)
    if modality.kind == "tokens":
        real = token_mask(x, lengths)
        each = functional.log_softmax(decoded, dim=1).gather(1, x.long() * real)
        return -(each * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
    target = masked_mean(x, length_mask(lengths, x)) if modality.kind == "sequence" else x.flatten(1)
    return (decoded - target).square().mean(dim=1)


def discrepancy(factor: Tensor, present: Tensor) -> Tensor:
    """Squared maximum mean discrepancy of the present rows of `[batch, width]` from as many standard normal draws.

    Gaussian kernel of squared width `width`, as in Wasserstein autoencoders; the biased estimate, never negative.

    >>> _ = torch.manual_seed(0)
    >>> near, far = torch.randn(500, 3), torch.randn(500, 3) + 2
    >>> everyone = torch.ones(500, dtype=torch.bool)
    >>> bool(discrepancy(near, everyone) < 0.02 < 0.3 < discrepancy(far, everyone))
    True
    """
    rows = factor.float()
    drawn = torch.randn_like(rows)
    weight = present.to(rows.dtype) / present.sum().clamp(min=1)
    both, signed = torch.cat([rows, drawn]), torch.cat([weight, -weight])
    # Σᵢⱼ wᵢ wⱼ k(xᵢ, xⱼ) with weights + on the factor and − on the draws: all three sums in one.
    squared = (both.square().sum(1)[:, None] + both.square().sum(1)[None] - 2 * both @ both.T).clamp(min=0)
    return signed @ torch.exp(-squared / (2 * rows.shape[1])) @ signed
