"""MMVAE: a mixture of the unimodal posteriors, every modality reconstructed from every one of them.

    (1/n) Σ_{m∈O} E_{z^1…K ~ q_m} log (1/K) Σ_k p(z^k) Π_j p(x_j | z^k) / q(z^k | O),   q(z | O) = (1/n) Σ_m q_m(z)

(Shi et al. 2019, eq. 3 with stratified sampling; gradients by plain reparametrisation.)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.settings import whole_number
from consilience.methods.latent.diagonal_gaussian import Gaussian
from consilience.methods.latent.objectives.objective import Noise, Objective, register_objective

if TYPE_CHECKING:
    from consilience.methods.latent.latent_model import LatentModel

_PAPER = "Shi et al. 2019, Variational Mixture-of-Experts Autoencoders for Multi-Modal Deep Generative Models"


@register_objective("mmvae", paper=_PAPER)
class Mmvae(Objective):
    """particles: K, how many draws of each posterior make the bound tighter; beyond 1 there is no divergence apart from
    the reconstruction that β could weigh.
    """

    subset_encoders = ("poe",)
    prior_expert = False
    whole_terms = ("reconstruction", "bound")

    def __init__(self, *, particles: int = 1):
        self.particles = whole_number("particles", particles)

    def default_encoder(self, modalities: int) -> str:
        """Of which only single experts are used."""
        return "poe"

    def reason_against(self, modalities: int, annealed: bool) -> str | None:
        """β needs a divergence to weigh."""
        if annealed and self.particles > 1:
            return f"with particles={self.particles} its bound has no divergence to weigh: leave beta 1 and warmup 0"
        return None

    def terms(self, model: LatentModel, batch: Batch, noise: Noise = None) -> dict[str, Tensor]:
        """ "reconstruction" and "prior" (a draw's log q − log p) for one particle, one "bound" for several."""
        q = unimodal(model, batch)
        generator = noise if isinstance(noise, torch.Generator) else None
        if isinstance(noise, Tensor):
            z = q.draw(noise.expand(self.particles, *q.mean.shape))
        else:
            z = q.draw(generator, samples=self.particles)
        there = batch.present.to(z.dtype)
        share = there / there.sum(1, keepdim=True).clamp(min=1)  # of each posterior in the mixture
        # A sample without any modality counts nothing, but log 0 times nothing is not a number.
        posterior = mixture_density(q, z, torch.where(batch.present.any(1, keepdim=True), share, 1.0))
        prior = Gaussian.standard(model.latent, like=z).log_density(z)
        rebuilt = z.new_zeros(posterior.shape)
        for name, weight in zip(model.names, model.weights):
            density = model.log_densities(model.decode(z, [name]), batch)[name]
            rebuilt = rebuilt + weight * density
        share = share.T
        if self.particles == 1:
            return {
                "reconstruction": -(share * rebuilt[0]).sum(0),
                "prior": (share * (posterior - prior)[0]).sum(0),
            }
        bound = (rebuilt + prior - posterior).logsumexp(0) - math.log(self.particles)
        return {"bound": -(share * bound).sum(0)}

    def posterior(self, model: LatentModel, batch: Batch, subset: Tensor) -> Gaussian:
        """The Gaussian of the same mean and variance as the mixture of the subset's posteriors."""
        return match_moments(unimodal(model, batch), subset)


def unimodal(model: LatentModel, batch: Batch) -> Gaussian:
    """q_m of every modality: `[modality, batch, latent]`."""
    return model.encode(batch, torch.eye(len(model.names), dtype=torch.bool, device=batch.device))


def mixture_density(q: Gaussian, z: Tensor, share: Tensor) -> Tensor:
    """log Σ_m share_m q_m(z): q `[modality, batch, latent]`, z `[…, batch, latent]`, share `[batch, modality]` → `[…,
    batch]`.
    """
    each = torch.stack([q[m].log_density(z) for m in range(len(q.mean))])
    log_share = share.T.log()  # −∞ for what is not in the mixture
    return (each + log_share.view(len(q.mean), *[1] * (z.ndim - 2), -1)).logsumexp(0)


def match_moments(q: Gaussian, subset: Tensor) -> Gaussian:
    """The Gaussian with mean and variance of the equal mixture of q `[modality, batch, latent]` over a subset
    `[batch, modality]`; the prior where it is empty.
    """
    count = subset.sum(1)[:, None]
    share = (subset.to(q.mean.dtype) / count.clamp(min=1)).T[..., None]
    mean = (share * q.mean).sum(0)
    variance = (share * (q.variance + (q.mean - mean).square())).sum(0)
    return Gaussian(mean, torch.where(count > 0, variance, 1).log())
