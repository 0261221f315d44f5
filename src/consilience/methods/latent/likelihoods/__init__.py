"""What a decoder's numbers mean: p(x_m | z) by name, with densities, means, draws, and a check that the data fit.

A likelihood is chosen by name or by a mapping with a name and settings:

    gaussian           numbers; decoder gives the mean; one learned scale a modality (scale="feature": one for each
                       feature; a number: fixed, of which 1 makes most latents collapse to the prior)
    laplace            the same with heavier tails
    bernoulli          numbers in [0, 1]; decoder gives logits
    categorical        tokens, or a vector that is one-hot; decoder gives logits of every class
    poisson            counts; decoder gives the logarithm of the rate
    negative-binomial  counts that spread more; decoder gives the logarithm of the mean, a dispersion is learned for
                       every feature
"""

from consilience.methods.latent.likelihoods.categorical import BernoulliLikelihood, CategoricalLikelihood
from consilience.methods.latent.likelihoods.counts import NegativeBinomialLikelihood, PoissonLikelihood
from consilience.methods.latent.likelihoods.likelihood import (
    Likelihood,
    LikelihoodChoice,
    build_likelihood,
    default_likelihood,
    find_likelihood,
    likelihood_names,
    register_likelihood,
)
from consilience.methods.latent.likelihoods.location_scale import GaussianLikelihood, LaplaceLikelihood

__all__ = [
    "BernoulliLikelihood",
    "CategoricalLikelihood",
    "GaussianLikelihood",
    "LaplaceLikelihood",
    "Likelihood",
    "LikelihoodChoice",
    "NegativeBinomialLikelihood",
    "PoissonLikelihood",
    "build_likelihood",
    "default_likelihood",
    "find_likelihood",
    "likelihood_names",
    "register_likelihood",
]
