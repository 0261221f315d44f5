"""Likelihoods p(x_m | z): what a decoder's numbers mean. Densities, means, draws, and a check that the data fit.

A likelihood is chosen by name or by a mapping with a name and settings:

    gaussian           numbers; the decoder gives the mean; one learned scale a modality (scale="feature": one for each
                       feature; a number: fixed, where a scale of 1 makes most latents collapse to the prior)
    laplace            the same with heavier tails
    bernoulli          numbers in [0, 1]; the decoder gives logits
    categorical        tokens, or a vector that is one-hot; the decoder gives logits of every class
    poisson            counts; the decoder gives the logarithm of the rate
    negative-binomial  counts that vary more; the decoder gives the logarithm of the mean, and a dispersion is learned
                       for every feature
"""
