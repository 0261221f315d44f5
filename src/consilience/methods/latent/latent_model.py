"""The latent model: one latent z for all modalities, an encoder for any subset of them, a decoder for each.

    p(z) Π_m p(x_m | z),   z ~ N(0, 1),   q(z | S) Gaussian for every subset S

It learns from an objective (see `objectives`): a sum of reconstructions and divergences over subsets.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.errors import InputError, name_rows, unknown_name
from consilience.core.modalities import Modality
from consilience.core.samples import Samples
from consilience.core.settings import NonNegativeFloat, PositiveInt, check_value
from consilience.encoders import default_encoder
from consilience.encoders.encoder import length_mask
from consilience.methods import Method, PerModality, Prediction, Spec, Step, weighted_mean
from consilience.methods.latent.decoders import DecoderChoice, build_decoder
from consilience.methods.latent.diagonal_gaussian import Gaussian
from consilience.methods.latent.likelihoods.likelihood import Likelihood, LikelihoodChoice, build_likelihood
from consilience.methods.latent.objectives.objective import build_objective
from consilience.methods.latent.subset_encoders import build_subset_encoder
from consilience.training import Trainer

# Default encoders that drop features at random, which a posterior would take for its own uncertainty.
_WITH_DROPOUT = ("mlp", "gru", "bag")

# The share of known cells of a table that encoders do not see in training, of columns with empty cells.
_HIDDEN = 0.2


class LatentModel(Method):
    """A variational autoencoder of several modalities.

    Batches must be prepared as the likelihoods need them: see `unit_conversion.own_transforms`.

    Args:
        spec: The modalities, any task (`Task.none()` if there is nothing to predict) and the encoder of each modality.
    """

    needs_targets = False
    # A log-density has no lower bound: a single value far from the training data would make every epoch look worse than
    # the first, in which the model has learned nothing.
    ignored_worst = 0.01

    def __init__(
        self,
        spec: Spec,
        *,
        objective: Annotated[str, "name of the objective"] = "m2vae",
        settings: Annotated[Mapping[str, Any] | None, "settings of the objective"] = None,
        latent: Annotated[PositiveInt, "dimensions of z"] = 20,
        subset_encoder: Annotated[str | None, "trunk, own, poe, set or concat; None: the objective's default"] = None,
        decoders: Annotated[Mapping[str, DecoderChoice] | None, "modality → choice; the default is by kind"] = None,
        likelihoods: Annotated[
            Mapping[str, LikelihoodChoice] | None, "modality → choice; the default is by kind"
        ] = None,
        weights: Annotated[Mapping[str, float] | None, "modality → factor of its log-likelihood, by default 1"] = None,
        beta: Annotated[NonNegativeFloat, "factor of every divergence"] = 1.0,
        warmup: Annotated[NonNegativeFloat, "epochs over which this factor grows linearly"] = 0,
        gaps: Annotated[
            Mapping[str, Any] | None, "modality → pairs of a flag of empty cells and their features"
        ] = None,
    ):
        super().__init__(spec)
        without_dropout = {
            name: {"dropout": 0.0}
            for name, modality in spec.modalities.items()
            if default_encoder(modality) in _WITH_DROPOUT
        }
        spec = spec.preferring(without_dropout)
        decoders, likelihoods, weights = decoders or {}, likelihoods or {}, weights or {}
        for what, choices in (("decoders", decoders), ("likelihoods", likelihoods), ("weights", weights)):
            for name in choices:
                if name not in spec.modalities:
                    raise unknown_name("modality", name, spec.modalities, f"It was given in {what}")
        self.latent, self.beta, self.warmup = latent, beta, warmup
        self.weights = tuple(
            check_value(f"weights[{name!r}]", weights.get(name, 1.0), NonNegativeFloat) for name in self.names
        )
        self.criterion = build_objective(objective, settings, len(self.names), annealed=beta != 1 or warmup > 0)
        self.subset_encoder = build_subset_encoder(spec, latent, self.criterion, subset_encoder)
        self.likelihoods = PerModality(
            {name: build_likelihood(modality, likelihoods.get(name)) for name, modality in spec.modalities.items()}
        )
        for name, pairs in (gaps or {}).items():
            self.likelihoods[name].gaps = checked_gaps(spec.modalities[name], pairs)
        self.decoders = PerModality(
            {
                name: build_decoder(modality, self.likelihoods[name].shape, latent, decoders.get(name))
                for name, modality in spec.modalities.items()
            }
        )

    def forward(self, batch: Batch) -> Prediction:
        """Compute the objective: output is the bound `[batch, 1]` at full β, extra["terms"] has its terms `[batch]`.

        In evaluation mode the noise is the same in every call, so that epochs can be compared.
        """
        generator = None if self.training else torch.Generator(batch.device).manual_seed(0)
        terms = self.criterion.terms(self, batch, generator)
        whole = torch.stack([value * self._factor(name) for name, value in terms.items()]).sum(0)
        return Prediction(-whole[:, None], extra={"terms": terms})

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """Return the mean of every term; those with a divergence are multiplied by β."""
        warm = min(1.0, (step.epoch + 1) / self.warmup) if self.warmup else 1.0
        terms = prediction.extra["terms"]
        each = torch.stack(list(terms.values()))
        means = weighted_mean(each, batch.weight.expand_as(each), dim=1)
        return {name: mean * self._factor(name, warm) for name, mean in zip(terms, means.unbind())}

    def validation_losses(self, prediction: Prediction, batch: Batch) -> Tensor:
        """Return the negative bound `[batch]`."""
        return -prediction.output[:, 0]

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Check that every sample has a modality and that the values fit their likelihoods, then train."""
        self.check(train, "training")
        if validation is not None:
            self.check(validation, "validation")
        trainer.run(self, train, validation)

    def check(self, samples: Samples, role: str = "given") -> None:
        """Raise an `InputError` for samples without any modality and for values without a density.

        Rows are named by `samples.index`: part of the user's samples may have been held out.
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
        """Return q(z | what each sample has of the given modalities), `[batch, latent]`; None: of all modalities.

        For a sample that has none of them it is the prior.
        """
        return self.criterion.posterior(self, batch, self.subset(batch, given))

    def subset(self, batch: Batch, given: Sequence[str] | None = None) -> Tensor:
        """Return what each sample has of the given modalities: booleans `[batch, modality]`."""
        if given is None:
            return batch.present
        if isinstance(given, str):
            raise InputError(f"given must be a list of modalities, got the string {given!r}: write [{given!r}]")
        for name in given:
            if name not in self.names:
                raise unknown_name("modality", name, self.names)
        return batch.present & torch.tensor([name in given for name in self.names], device=batch.device)

    def encode(self, batch: Batch, subsets: Tensor) -> Gaussian:
        """Return q(z | S) for subsets `[S, modality]` or `[S, batch, modality]`: `[S, batch, latent]`.

        The result is meaningful only for subsets of what a sample has.
        """
        return self.subset_encoder(self._encoder_batch(batch), subsets)

    def encode_set(self, batch: Batch, members: Sequence[int]) -> Gaussian:
        """Return q(z | S) for one set of modalities, by their places, that all samples have: `[batch, latent]`."""
        return self.subset_encoder.encode_set(self._encoder_batch(batch), members)

    def decode(self, z: Tensor, names: Sequence[str] | None = None) -> dict[str, Tensor]:
        """Return what each modality's likelihood is made from at z `[…, latent]`: name → `[…, *shape]`."""
        return {name: self.decoders[name](z) for name in (self.names if names is None else names)}

    def log_densities(self, decoded: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """log p(x_m | z) of the batch's prepared values, from decoded `[…, batch, *shape]`: name → `[…, batch]`.

        It is 0 for a sample that does not have the modality.
        """
        densities = {}
        for name, numbers in decoded.items():
            density = self.likelihoods[name].log_density(numbers, batch[name], self._mask(batch, name))
            densities[name] = density if name in batch.complete else density.masked_fill(~batch.present_in(name), 0)
        return densities

    def log_density(self, name: str, z: Tensor, batch: Batch, rows: Tensor | None = None) -> Tensor:
        """log p(x_m | z) of one modality: z `[…, batch, latent]`, or `[row, latent]` for some rows of the batch."""
        x, mask = batch[name], self._mask(batch, name)
        if rows is not None:
            x, mask = x.index_select(0, rows), None if mask is None else mask[rows]
        likelihood: Likelihood = self.likelihoods[name]
        return likelihood.log_density(self.decoders[name](z), x, mask)

    def _mask(self, batch: Batch, name: str) -> Tensor | None:
        lengths = batch.lengths.get(name)
        return None if lengths is None else length_mask(lengths, batch[name])

    def _encoder_batch(self, batch: Batch) -> Batch:
        """Return the batch as encoders read it: counts in logarithms, in training some cells as if they were empty."""
        values = dict(batch.values)
        if self.training:
            values = {name: self.likelihoods[name].hide_cells(value, _HIDDEN) for name, value in values.items()}
        values = {name: self.likelihoods[name].encoder_input(value) for name, value in values.items()}
        if all(value is batch[name] for name, value in values.items()):
            return batch
        seen = copy.copy(batch)
        seen.values = values
        return seen

    def _factor(self, term: str, warm: float = 1.0) -> float:
        return 1.0 if term in self.criterion.unscaled_terms else self.beta * warm


def checked_gaps(modality: Modality, pairs: Any) -> list[tuple[int, list[int]]]:
    """Pairs of a feature that is 1 where cells are empty, and the features of these cells, as a saved file has them.

    >>> checked_gaps(Modality("labs", "vector", (3,)), [[2, [0, 1]]])
    [(2, [0, 1])]
    """
    read = [(flag, list(features)) for flag, features in pairs]
    places = [place for flag, features in read for place in (flag, *features)]
    whole = all(type(place) is int and 0 <= place < modality.shape[0] for place in places)
    if modality.kind != "vector" or not whole or len(set(places)) < len(places):
        raise InputError(
            f"gaps of modality {modality.describe()} must be pairs of different features, got {pairs!r:.100}"
        )
    return read
