"""MMVAE: a mixture of the unimodal posteriors, every modality reconstructed from every one of them.

    (1/n) Σ_{m∈O} E_{z^1…K ~ q_m} log (1/K) Σ_k p(z^k) Π_j p(x_j | z^k) / q(z^k | O),   q(z | O) = (1/n) Σ_m q_m(z)

(Shi et al. 2019, eq. 3 with stratified sampling; gradients by plain reparametrisation.)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.settings import PositiveInt
from consilience.methods.latent.diagonal_gaussian import Gaussian
from consilience.methods.latent.objectives.objective import Noise, Objective, register_objective

if TYPE_CHECKING:
    from consilience.methods.latent.latent_model import LatentModel

_PAPER = "Shi et al. 2019, Variational Mixture-of-Experts Autoencoders for Multi-Modal Deep Generative Models"


@register_objective("mmvae", paper=_PAPER)
class Mmvae(Objective):
    """The importance-weighted bound of a mixture of experts.

    With more than one particle the bound has no divergence apart from the reconstruction that β could weigh.
    """

    subset_encoders = ("poe",)
    prior_expert = False
    unscaled_terms = ("reconstruction", "bound")

    def __init__(self, *, particles: Annotated[PositiveInt, "K, the number of draws from each posterior"] = 1):
        self.particles = particles

    def reason_against(self, modalities: int, annealed: bool) -> str | None:
        """With several particles there is no divergence for β to weigh."""
        if annealed and self.particles > 1:
            return f"with particles={self.particles} its bound has no divergence to weigh: leave beta 1 and warmup 0"
        return None

    def terms(self, model: LatentModel, batch: Batch, noise: Noise = None) -> dict[str, Tensor]:
        """Return "reconstruction" and "prior" (log q − log p of a draw) for one particle, "bound" for several."""
        q = unimodal(model, batch)
        generator = noise if isinstance(noise, torch.Generator) else None
        if isinstance(noise, Tensor):
            z = q.draw(noise.expand(self.particles, *q.mean.shape))
        else:
            z = q.draw(generator, samples=self.particles)
        there = batch.present.to(z.dtype)
        share = there / there.sum(1, keepdim=True).clamp(min=1)  # of each posterior in the mixture
        # A sample without any modality has weight 0, but 0 · log 0 is not a number.
        posterior = mixture_density(q, z, torch.where(batch.present.any(1, keepdim=True), share, 1.0))
        prior = Gaussian.standard(model.latent, like=z).log_density(z)
        log_likelihood = z.new_zeros(posterior.shape)
        for name, weight in zip(model.names, model.weights):
            density = model.log_densities(model.decode(z, [name]), batch)[name]
            log_likelihood = log_likelihood + weight * density
        share = share.T
        if self.particles == 1:
            return {
                "reconstruction": -(share * log_likelihood[0]).sum(0),
                "prior": (share * (posterior - prior)[0]).sum(0),
            }
        bound = (log_likelihood + prior - posterior).logsumexp(0) - math.log(self.particles)
        return {"bound": -(share * bound).sum(0)}

    def posterior(self, model: LatentModel, batch: Batch, subset: Tensor) -> Gaussian:
        """Return the Gaussian with the mean and variance of the mixture of the subset's posteriors."""
        return match_moments(unimodal(model, batch), subset)


def unimodal(model: LatentModel, batch: Batch) -> Gaussian:
    """Return q_m of every modality: `[modality, batch, latent]`."""
    return model.encode(batch, torch.eye(len(model.names), dtype=torch.bool, device=batch.device))


def mixture_density(q: Gaussian, z: Tensor, share: Tensor) -> Tensor:
    """log Σ_m share_m q_m(z): q `[modality, batch, latent]`, z `[…, batch, latent]`, share `[batch, modality]`."""
    each = torch.stack([q[m].log_density(z) for m in range(len(q.mean))])
    log_share = share.T.log()  # −∞ for a modality that is not in the mixture
    return (each + log_share.view(len(q.mean), *[1] * (z.ndim - 2), -1)).logsumexp(0)


def match_moments(q: Gaussian, subset: Tensor) -> Gaussian:
    """Return the Gaussian with the moments of an equal mixture of q `[modality, batch, latent]` over each subset.

    It is the prior where a subset, of `[batch, modality]`, is empty.
    """
    count = subset.sum(1)[:, None]
    share = (subset.to(q.mean.dtype) / count.clamp(min=1)).T[..., None]
    mean = (share * q.mean).sum(0)
    variance = (share * (q.variance + (q.mean - mean).square())).sum(0)
    return Gaussian(mean, torch.where(count > 0, variance, 1).log())
