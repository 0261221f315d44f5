"""Likelihoods of classes: Bernoulli for yes or no, categorical for one of several."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from consilience.core.errors import InputError, name_rows
from consilience.core.samples import Modality, Samples
from consilience.methods.latent.likelihoods.likelihood import Likelihood, register_likelihood, uniform


@register_likelihood("bernoulli")
class BernoulliLikelihood(Likelihood):
    """x ∈ {0, 1} with probability sigmoid(decoded); for grey values in between, the cross entropy."""

    def total(self, decoded: Tensor, x: Tensor) -> Tensor:
        """Return the sum, in one pass over all numbers."""
        each = functional.binary_cross_entropy_with_logits(decoded, x.expand_as(decoded), reduction="none")
        return -each.flatten(decoded.ndim - len(self.shape)).sum(-1)

    def pointwise(self, decoded: Tensor, x: Tensor) -> Tensor:
        """x·decoded − log(1 + e^decoded)."""
        return x * decoded - functional.softplus(decoded)

    def mean(self, decoded: Tensor) -> Tensor:
        """Return the probability of 1."""
        return decoded.sigmoid()

    def draw(self, decoded: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw 0 or 1."""
        return (uniform(decoded, generator) < decoded.sigmoid()).to(decoded.dtype)

    def check(self, samples: Samples, name: str) -> None:
        """Values must lie in [0, 1]."""
        self._check_values(samples, name, lambda values: (values >= 0) & (values <= 1), "values must lie in [0, 1]")


@register_likelihood("categorical")
class CategoricalLikelihood(Likelihood):
    """One class of several: each token of a modality of tokens, or a vector that is one-hot."""

    reads = ("vector", "tokens")

    def __init__(self, modality: Modality):
        super().__init__(modality)
        if modality.kind == "tokens":
            assert modality.vocabulary is not None
            self.shape = (*modality.shape, modality.vocabulary)

    def total(self, decoded: Tensor, x: Tensor) -> Tensor:
        """Return the sum over tokens, or the log-probability of a vector's class."""
        each = self.each(decoded, x)
        return each.sum(-1) if self.modality.kind == "tokens" else each

    def hidden(self, x: Tensor) -> None:
        """Nothing: an empty cell is a class of its own."""
        return

    def each(self, decoded: Tensor, x: Tensor) -> Tensor:
        """log softmax(decoded) of the class that x is."""
        log_probabilities = decoded.log_softmax(-1)
        if self.modality.kind == "tokens":
            ids = x.expand(decoded.shape[:-1])[..., None]
            return log_probabilities.gather(-1, ids)[..., 0]
        return (log_probabilities * x).sum(-1)

    def mean(self, decoded: Tensor) -> Tensor:
        """Return the probabilities of a vector's classes; for tokens the most probable ids."""
        return decoded.argmax(-1) if self.modality.kind == "tokens" else decoded.softmax(-1)

    def mean_over_draws(self, decoded: Tensor) -> Tensor:
        """Return the mean probabilities of a vector's classes; for tokens the ids that are most probable by them."""
        probabilities = decoded.softmax(-1).mean(0)
        return probabilities.argmax(-1) if self.modality.kind == "tokens" else probabilities

    def draw(self, decoded: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw ids, or one-hot vectors."""
        gumbel = -torch.log(-torch.log(uniform(decoded, generator).clamp(1e-20, 1 - 1e-7)))
        ids = (decoded + gumbel).argmax(-1)
        if self.modality.kind == "tokens":
            return ids
        return functional.one_hot(ids, decoded.shape[-1]).to(decoded.dtype)

    def check(self, samples: Samples, name: str) -> None:
        """Ids must be below the size of the training vocabulary; vectors must be one-hot."""
        if self.modality.kind == "vector":
            self._check_values(
                samples,
                name,
                lambda values: (np.isin(values, (0, 1)).all(-1) & (values.sum(-1) == 1))[:, None],
                "a vector must be one-hot, a 1 in the column of its class and zeros elsewhere, summing to 1",
            )
        elif samples.modalities[name].kind == "tokens":  # text becomes known ids by its preparation
            known = self.shape[-1]
            allowed = f"classes must be whole numbers from 0 to {known - 1}, those of the training set"
            values = np.asarray(samples.read(name, np.arange(len(samples))))
            lengths = samples.lengths[name]
            counted = (np.arange(values.shape[1]) < lengths[:, None]) & samples.present_in(name)[:, None]
            bad = ((values >= known) & counted).any(1)
            if bad.any():
                raise InputError(
                    f"modality {name!r} does not fit the likelihood 'categorical': {allowed}, got "
                    f"{np.where(counted, values, 0).max()} ({name_rows(samples.index[bad])})"
                )
