"""`mfm`: factorised representations, a shared factor that discriminates and own factors that reconstruct (MFM)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.samples import Modality
from consilience.core.settings import NonNegativeFloat, PositiveInt, Rate
from consilience.encoders import Encoded, length_mask, masked_mean
from consilience.encoders.encoder import token_mask
from consilience.encoders.mlp import dense_block
from consilience.encoders.processors import token_ids
from consilience.methods import JointMethod, PerModality, Prediction, Spec, Step, register, weighted_mean
from consilience.methods.fusion.concat import Concatenation


@register(
    "mfm",
    paper="Tsai et al. 2019, Learning Factorized Multimodal Representations",
    equation="5: L = ℓ(z, y) + reconstruction · Σ_m ‖x̂_m − x_m‖² / D + prior · mean MMD²",
)
class Factorized(JointMethod):
    """A shared factor for the target, own factors for reconstruction.

    The shared factor c is made from all features, by the layer of `concat` and a linear one after it, and predicts the
    target. Together with a modality's own factor it reconstructs that modality, so that the own factors hold what is
    needed to reconstruct but not to decide. Both kinds of factors are drawn to a standard normal by the maximum mean
    discrepancy (MMD). Vectors and images are reconstructed as they are (standardised), sequences by their mean over
    time, tokens by the cross entropy of their frequencies: the decoders shape the factors, they do not generate.

        f_m = W_m h_m         c = W concat(h_1, …, h_M)         x̂_m = D_m [f_m, c]         z = P c
        L   = ℓ(z, y) + reconstruction · Σ_{m∈S} ‖x̂_m − x_m‖²/D + prior · mean MMD²(f_m or c, N(0, I))

    Args:
        latent: Width of every factor.
        reconstruction: Weight of the reconstruction loss.
        prior: Weight of the discrepancy between the factors and a standard normal.
        dropout: Dropout rate.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        latent: PositiveInt = 200,
        reconstruction: NonNegativeFloat = 0.1,
        prior: NonNegativeFloat = 0.1,
        dropout: Rate = 0.1,
    ):
        super().__init__(spec)
        self.fusion = SharedFactor.over(self.encoders, latent, dropout)
        self.head = nn.Linear(latent, spec.task.outputs)
        self.own = PerModality({name: nn.Linear(encoder.width, latent) for name, encoder in self.encoders.items()})
        self.decoders = PerModality(
            {
                name: nn.Sequential(dense_block(2 * latent, latent, dropout=dropout), nn.Linear(latent, entries(seen)))
                for name, seen in spec.modalities.items()
            }
        )
        self.reconstruction, self.prior = reconstruction, prior

    def read(self, joint: Tensor, features: Mapping[str, Encoded], batch: Batch) -> Prediction:
        """Apply the head to the shared factor; reconstruct each modality from it and the modality's own."""
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
        errors = [
            reconstruction_loss(modality, decoded[name], batch) * batch.present_in(name)
            for name, modality in self.modalities.items()
        ]
        losses["reconstruction"] = self.reconstruction * weighted_mean(torch.stack(errors).sum(dim=0), batch.weight)
        if self.prior:
            assert prediction.joint is not None
            own = [discrepancy(factor, batch.present_in(name)) for name, factor in prediction.extra["own"].items()]
            shared = discrepancy(prediction.joint, torch.ones_like(batch.present[:, 0]))
            losses["prior"] = self.prior * torch.stack([*own, shared]).mean()
        return losses


class SharedFactor(Concatenation):
    """Concatenation and a linear layer after it: `[batch, width]`, of either sign, as the prior is."""

    def __init__(self, inputs: int, width: int, dropout: float):
        super().__init__(inputs, width, dropout)
        self.mix = nn.Sequential(self.mix, nn.Linear(width, width))


def entries(modality: Modality) -> int:
    """The number of values in the reconstruction of one sample of a modality."""
    if modality.kind == "tokens":
        assert modality.vocabulary is not None
        return modality.vocabulary
    return modality.shape[1] if modality.kind == "sequence" else math.prod(modality.shape)


def reconstruction_loss(modality: Modality, decoded: Tensor, batch: Batch) -> Tensor:
    """Each sample's reconstruction loss `[batch]`: mean square, or cross entropy of token frequencies per token."""
    x, lengths = batch[modality.name], batch.lengths.get(modality.name)
    if modality.kind == "tokens":
        real = token_mask(x, lengths)
        log_p = functional.log_softmax(decoded, dim=1).gather(1, token_ids(x.long()) * real)
        return -(log_p * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
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
