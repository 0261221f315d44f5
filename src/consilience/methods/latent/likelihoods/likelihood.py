"""The base class of likelihoods p(x_m | z), their registry, and the check that the data fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.errors import InputError, UnsupportedError, name_rows
from consilience.core.registry import Registry
from consilience.core.samples import Kind, Modality, Samples
from consilience.core.settings import DeclaredSettings, check_settings
from consilience.methods.latent.diagonal_gaussian import at_least_float32

LikelihoodChoice = str | Mapping[str, Any] | None

LIKELIHOODS: Registry[type[Likelihood]] = Registry(
    "likelihood", packages=["consilience.methods.latent.likelihoods"], group="consilience.likelihoods"
)


class Likelihood(DeclaredSettings, nn.Module):
    """p(x | z) of one modality, independent over its numbers given the decoder's output.

    A subclass takes the modality, and its settings as keyword-only arguments, and defines `pointwise`, `mean`, `draw`
    and, where not all numbers have a density, `check`.

    Attributes:
        reads: The kinds of modality that it is for.
        standardised: Whether x is standardised, rather than as the user gave it.
        shape: The shape of what the decoder must give for a sample.
        gaps: Of a vector, pairs of a feature that is 1 where cells of a table are empty, and the features of these
            cells. They hold fill values there, which have no density.
    """

    name: ClassVar[str]
    reads: ClassVar[tuple[Kind, ...]] = ("vector", "image", "sequence")
    standardised: ClassVar[bool] = False

    def __init__(self, modality: Modality):
        super().__init__()
        self.modality = modality
        self.shape: tuple[int, ...] = modality.shape
        self.gaps: Sequence[tuple[int, Sequence[int]]] = ()

    @property
    def outputs(self) -> int:
        """The number of numbers that the decoder must give for a sample."""
        return math.prod(self.shape)

    def encoder_input(self, x: Tensor) -> Tensor:
        """Return the values as an encoder should read them."""
        return x

    def log_density(self, decoded: Tensor, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """log p(x | z): decoded `[…, *shape]`, x `[batch, *shape]` that broadcasts against it → `[…]`.

        Where mask `[batch, time]` is False a time step is padding.
        """
        decoded, x = at_least_float32(decoded), at_least_float32(x) if x.is_floating_point() else x
        if mask is None:
            hidden = self.hidden(x)
            return self.total(decoded, x) if hidden is None else self.each(decoded, x).masked_fill(hidden, 0).sum(-1)
        steps = x.shape[1]
        if steps > self.shape[0]:
            raise InputError(
                f"modality {self.modality.name!r} has samples of {steps} time steps, its decoder gives "
                f"{self.shape[0]}, the longest of the training set: cut them"
            )
        each = self.each(decoded.narrow(-len(self.shape), 0, steps), x)
        return each.masked_fill(~mask, 0).sum(-1)

    def hidden(self, x: Tensor) -> Tensor | None:
        """Which features of x `[batch, feature]` hold a fill value; None where there are no such features."""
        if not self.gaps:
            return None
        hidden = torch.zeros_like(x, dtype=torch.bool)
        for flag, features in self.gaps:
            # Where flags are standardised, those of known cells are below 0.
            hidden[:, list(features)] = (x[:, flag] > 0)[:, None]
        return hidden

    def hide_cells(self, x: Tensor, share: float) -> Tensor:
        """Return x `[batch, feature]` with a random share of the known cells of a table as if they were empty.

        A decoder is trained on known cells only. Without this, nothing trains it for samples whose cell is empty, which
        the encoder recognises by the flag. What an empty cell looks like is seen in the batch's own empty cells.
        """
        if not self.gaps:
            return x
        hidden = x.clone()
        for flag, features in self.gaps:
            cells = [flag, *features]
            empty = x[:, flag] > 0
            example = (x[:, cells] * empty[:, None]).sum(0) / empty.sum().clamp(min=1)
            chosen = (torch.rand(len(x), device=x.device) < share) & ~empty & empty.any()
            hidden[:, cells] = torch.where(chosen[:, None], example, x[:, cells])
        return hidden

    def total(self, decoded: Tensor, x: Tensor) -> Tensor:
        """Return the log-density summed over all numbers of a sample: `[…]`."""
        each = self.each(decoded, x)
        parts = 1 if self.modality.timed else len(self.shape)
        return each.flatten(each.ndim - parts).sum(-1)

    def each(self, decoded: Tensor, x: Tensor) -> Tensor:
        """Return the log-density of every number, or of every time step of a sequence."""
        each = self.pointwise(decoded, x)
        return each.sum(-1) if self.modality.kind == "sequence" else each

    def pointwise(self, decoded: Tensor, x: Tensor) -> Tensor:
        """Return the log-density of every number: `[…, *shape]`."""
        raise NotImplementedError

    def mean(self, decoded: Tensor) -> Tensor:
        """Return E[x | z]; for tokens the most probable ids."""
        raise NotImplementedError

    def mean_over_draws(self, decoded: Tensor) -> Tensor:
        """Return E[x] over draws of z, the first dimension of what was decoded; for tokens the most probable ids."""
        return self.mean(decoded).mean(0)

    def draw(self, decoded: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw x ~ p(x | z)."""
        raise NotImplementedError

    def check(self, samples: Samples, name: str) -> None:
        """Raise an `InputError` that names the rows if this likelihood has no density for some values of a modality."""

    def _check_values(
        self, samples: Samples, name: str, fits: Callable[[np.ndarray], np.ndarray], allowed: str
    ) -> None:
        """Raise if `fits`, of values `[row, …]`, is False for a sample that has the modality."""
        rows = np.flatnonzero(samples.present_in(name))
        values = np.asarray(samples.read(name, rows), dtype=np.float64)
        if not len(rows):
            return
        good = fits(values)
        if name in samples.lengths:
            padding = np.arange(values.shape[1]) >= samples.lengths[name][rows][:, None]
            good = good | padding.reshape(padding.shape + (1,) * (good.ndim - 2))
        bad = ~good.reshape(len(rows), -1).all(axis=1)
        if bad.any():
            value = values[~good][0] if good.shape == values.shape else values[bad][0].sum()
            raise InputError(
                f"modality {name!r} does not fit the likelihood {self.name!r}: {allowed}, got {value:g} "
                f"({name_rows(samples.index[rows[bad]])}). Choose another, likelihoods={{{name!r}: …}}; known: "
                f"{', '.join(LIKELIHOODS)}"
            )


def register_likelihood(name: str) -> Callable[[type[Likelihood]], type[Likelihood]]:
    """Register a likelihood under a name."""
    return LIKELIHOODS.register(name, name=name)


def find_likelihood(modality: Modality, choice: LikelihoodChoice = None) -> tuple[type[Likelihood], dict[str, Any]]:
    """Return the class and the settings of a choice. The default is categorical for tokens, else gaussian."""
    if choice is not None and not isinstance(choice, str | Mapping):
        raise InputError(
            f"the likelihood of modality {modality.name!r} must be a name or a mapping with a name and settings, "
            f"got {choice!r}"
        )
    settings = {"name": choice} if isinstance(choice, str) else dict(choice or {})
    name = settings.pop("name", "categorical" if modality.kind in ("tokens", "text") else "gaussian")
    return LIKELIHOODS.find(name, f"It was chosen for modality {modality.name!r}"), settings


def build_likelihood(modality: Modality, choice: LikelihoodChoice = None) -> Likelihood:
    """Build the likelihood of a modality.

    >>> build_likelihood(Modality("genes", "vector", (50,)), "poisson").outputs
    50
    """
    cls, settings = find_likelihood(modality, choice)
    settings = check_settings(f"likelihood {cls.name!r} of modality {modality.describe()}", cls, settings)
    if modality.kind not in cls.reads:
        raise UnsupportedError(
            f"likelihood {cls.name!r} is for {', '.join(cls.reads)}, not for modality {modality.describe()}"
        )
    return cls(modality, **settings)


def default_likelihood(modality: Modality, samples: Samples) -> str:
    """Return categorical for tokens and text, bernoulli if all values are 0 or 1, else gaussian.

    Likelihoods of counts are never the default: whole numbers may be measurements.
    """
    if modality.kind in ("tokens", "text"):
        return "categorical"
    rows = np.flatnonzero(samples.present_in(modality.name))
    values = np.asarray(samples.read(modality.name, rows))
    return "bernoulli" if np.isin(values, (0, 1)).all() else "gaussian"


def feature_shape(modality: Modality) -> tuple[int, ...]:
    """Return the shape of one number for each feature of a vector or sequence, or for each channel of an image."""
    sizes = {"vector": modality.shape, "sequence": modality.shape[-1:], "image": (modality.shape[0], 1, 1)}
    return sizes[modality.kind]


def uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw numbers in [0, 1) of the same shape."""
    return torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device)
