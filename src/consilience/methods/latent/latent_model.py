"""The latent model: one latent z for all modalities, an encoder for any subset of them, a decoder for each.

    p(z) Π_m p(x_m | z),   z ~ N(0, 1),   q(z | S) Gaussian for every subset S

What is learned from is an objective (see `objectives`): a sum of reconstructions and divergences over subsets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.errors import InputError, name_rows, unknown_name
from consilience.core.samples import Modality, Samples
from consilience.core.settings import whole_number
from consilience.encoders import default_encoder
from consilience.encoders.encoder import length_mask
from consilience.methods import Method, PerModality, Prediction, Spec, Step, weighted_mean
from consilience.methods.latent.decoders import DecoderChoice, build_decoder
from consilience.methods.latent.diagonal_gaussian import Gaussian
from consilience.methods.latent.likelihoods import Likelihood, LikelihoodChoice, build_likelihood
from consilience.methods.latent.objectives import build_objective
from consilience.methods.latent.subset_encoders import build_subset_encoder
from consilience.training import Trainer


class LatentModel(Method):
    """A variational autoencoder of several modalities.

    spec: the modalities, any task (`Task.none()` where there is nothing to predict) and the encoder of each modality ·
    objective: its name, settings: its keyword-only arguments · latent: the dimensions of z · subset_encoder: "trunk",
    "own", "poe", "set" or "concat", by default what suits the objective · decoders, likelihoods: name → choice, by
    default chosen by kind · weights: name → factor of that modality's log-likelihood, 1 where none is given · beta:
    factor of every divergence, reached linearly over the first `warmup` epochs.

    The batches must be prepared as the likelihoods want them: see `likelihoods.own_transforms`.
    """

    needs_targets = False
    # A density has no floor: one value far from all that training saw, of a feature that hardly varies say, would make
    # every epoch worse than the first, in which the model knows nothing.
    ignored_worst = 0.01

    def __init__(
        self,
        spec: Spec,
        *,
        objective: str = "m2vae",
        settings: Mapping[str, Any] | None = None,
        latent: int = 20,
        subset_encoder: str | None = None,
        decoders: Mapping[str, DecoderChoice] | None = None,
        likelihoods: Mapping[str, LikelihoodChoice] | None = None,
        weights: Mapping[str, float] | None = None,
        beta: float = 1.0,
        warmup: float = 0,
    ):
        super().__init__(spec)
        spec = spec.preferring({name: {"dropout": 0.0} for name in self.names if _drops(spec.modalities[name])})
        for what, given in (("decoders", decoders), ("likelihoods", likelihoods), ("weights", weights)):
            for name in given or {}:
                if name not in spec.modalities:
                    raise unknown_name("modality", name, spec.modalities, f"It was given in {what}")
        self.latent = whole_number("latent", latent)
        self.beta, self.warmup = _at_least_zero("beta", beta), _at_least_zero("warmup", warmup)
        self.weights = tuple(
            _at_least_zero(f"weights[{name!r}]", (weights or {}).get(name, 1.0)) for name in self.names
        )
        self.criterion = build_objective(objective, settings, len(self.names), annealed=beta != 1 or warmup > 0)
        self.subset_encoder = build_subset_encoder(spec, self.latent, self.criterion, subset_encoder)
        self.likelihoods = PerModality(
            {name: build_likelihood(one, (likelihoods or {}).get(name)) for name, one in spec.modalities.items()}
        )
        self.decoders = PerModality(
            {
                name: build_decoder(one, self.likelihoods[name].shape, self.latent, (decoders or {}).get(name))
                for name, one in spec.modalities.items()
            }
        )

    def forward(self, batch: Batch) -> Prediction:
        """The objective's terms for every sample: output is the bound `[batch, 1]`, at full β; extra["terms"] the rest.

        Out of training the noise is the same at every call, so that one epoch can be compared with another.
        """
        generator = None if self.training else torch.Generator(batch.device).manual_seed(0)
        terms = self.criterion.terms(self, batch, generator)
        whole = torch.stack([value * self._factor(name) for name, value in terms.items()]).sum(0)
        return Prediction(-whole[:, None], extra={"terms": terms})

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """Mean negative reconstruction, and every divergence times β."""
        warm = min(1.0, (step.epoch + 1) / self.warmup) if self.warmup else 1.0
        terms = prediction.extra["terms"]
        each = torch.stack(list(terms.values()))
        means = weighted_mean(each, batch.weight.expand_as(each), dim=1)
        return {name: mean * self._factor(name, warm) for name, mean in zip(terms, means.unbind())}

    def validation_losses(self, prediction: Prediction, batch: Batch) -> Tensor:
        """The negative bound `[batch]`."""
        return -prediction.output[:, 0]

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Check that every sample has something and that the values fit their likelihoods, then train."""
        self.check(train, "training")
        if validation is not None:
            self.check(validation, "validation")
        trainer.run(self, train, validation)

    def check(self, samples: Samples, role: str = "given") -> None:
        """Refuse samples without any modality, and values that their likelihood gives no density.

        Rows are named by `samples.index`: part of what the user gave may have been held out.
        """
        empty = np.flatnonzero(~samples.present.any(axis=1))
        if len(empty):
            raise InputError(
                f"the {role} set has samples of which every modality is missing ({name_rows(samples.index[empty])}): "
                "there is nothing to learn from them, drop them"
            )
        for name in samples.names:
            self.likelihoods[name].check(samples, name)

    def posterior(self, batch: Batch, given: Sequence[str] | None = None) -> Gaussian:
        """q(z | what each sample has of the given modalities): `[batch, latent]`; all of them if None.

        Where a sample has none of them it is the prior.
        """
        return self.criterion.posterior(self, batch, self.subset(batch, given))

    def subset(self, batch: Batch, given: Sequence[str] | None = None) -> Tensor:
        """What each sample has of the given modalities: booleans `[batch, modality]`."""
        if given is None:
            return batch.present
        if isinstance(given, str):
            raise InputError(f"given must be a list of modalities, got the string {given!r}: write [{given!r}]")
        for name in given:
            if name not in self.names:
                raise unknown_name("modality", name, self.names)
        wanted = torch.tensor([name in given for name in self.names], device=batch.device)
        return batch.present & wanted

    def encode(self, batch: Batch, subsets: Tensor) -> Gaussian:
        """q(z | S) for subsets `[S, modality]` or `[S, batch, modality]`: `[S, batch, latent]`.

        Only subsets of what a sample has mean anything.
        """
        return self.subset_encoder(self._seen(batch), subsets)

    def decode(self, z: Tensor, names: Sequence[str] | None = None) -> dict[str, Tensor]:
        """z `[…, latent]` → what each modality's likelihood is made from: name → `[…, *shape]`."""
        return {name: self.decoders[name](z) for name in (self.names if names is None else names)}

    def log_densities(self, decoded: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """log p(x_m | z), of decoded `[…, batch, *shape]` against the batch's values: name → `[…, batch]`.

        It is 0 for a sample that does not have the modality, and of the values as prepared.
        """
        densities = {}
        for name, one in decoded.items():
            density = self.likelihoods[name].log_density(one, batch[name], self._mask(batch, name))
            densities[name] = density if name in batch.complete else density.masked_fill(~batch.present_in(name), 0)
        return densities

    def log_density(self, name: str, z: Tensor, batch: Batch, rows: Tensor | None = None) -> Tensor:
        """log p(x_m | z) of one modality: z `[…, batch, latent]`, or with rows `[row, latent]`, one for each row."""
        x, mask = batch[name], self._mask(batch, name)
        if rows is not None:
            x, mask = x.index_select(0, rows), None if mask is None else mask[rows]
        likelihood: Likelihood = self.likelihoods[name]
        return likelihood.log_density(self.decoders[name](z), x, mask)

    def _mask(self, batch: Batch, name: str) -> Tensor | None:
        lengths = batch.lengths.get(name)
        return None if lengths is None else length_mask(lengths, batch[name])

    def _seen(self, batch: Batch) -> Batch:
        """The batch as encoders see it: counts in logarithms."""
        values = {name: self.likelihoods[name].seen(value) for name, value in batch.values.items()}
        if all(value is batch[name] for name, value in values.items()):
            return batch
        return Batch(
            values,
            batch.present,
            index=batch.index,
            weight=batch.weight,
            lengths=batch.lengths,
            y=batch.y,
            complete=batch.complete,
        )

    def _factor(self, term: str, warm: float = 1.0) -> float:
        return 1.0 if term in self.criterion.whole_terms else self.beta * warm


def _drops(modality: Modality) -> bool:
    """Whether the default encoder drops features at random, which a posterior would take for its own uncertainty."""
    return default_encoder(modality) in ("mlp", "gru", "bag")


def _at_least_zero(setting: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= value < math.inf:
        raise InputError(f"{setting} must be a number ≥ 0, got {value!r}")
    return float(value)
