"""What a likelihood is: p(x_m | z) of one modality, found by name, checked against the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.errors import InputError, UnsupportedError, name_rows
from consilience.core.registry import Registry
from consilience.core.samples import Kind, Modality, Samples
from consilience.core.settings import DeclaredSettings, check_settings
from consilience.methods.latent.diagonal_gaussian import widened

LikelihoodChoice = str | Mapping[str, Any] | None

LIKELIHOODS: Registry[type[Likelihood]] = Registry("likelihood", group="consilience.likelihoods")


class Likelihood(DeclaredSettings, nn.Module):
    """p(x | z) of one modality: independent over its numbers given what the decoder gave.

    shape: of what the decoder must give for one sample · standardised: whether it speaks about standardised values
    rather than those the user gave · reads: the kinds of modality it is for.
    """

    name: ClassVar[str]
    reads: ClassVar[tuple[Kind, ...]] = ("vector", "image", "sequence")
    standardised: ClassVar[bool] = False

    def __init__(self, modality: Modality):
        super().__init__()
        self.modality = modality
        self.shape: tuple[int, ...] = modality.shape

    @property
    def outputs(self) -> int:
        """How many numbers the decoder must give for one sample."""
        return math.prod(self.shape)

    def seen(self, x: Tensor) -> Tensor:
        """The values as an encoder reads them best."""
        return x

    def log_density(self, decoded: Tensor, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """log p(x | z): decoded `[…, *shape]`, x `[batch, *shape]` that broadcasts against it → `[…]`.

        mask: `[batch, time]`, False where a time step is padding.
        """
        decoded, x = widened(decoded), widened(x) if x.is_floating_point() else x
        if mask is None:
            return self.total(decoded, x)
        steps = x.shape[1]
        if steps > self.shape[0]:
            raise InputError(
                f"modality {self.modality.name!r} has samples of {steps} time steps, its decoder gives "
                f"{self.shape[0]}, the most that training saw: cut them"
            )
        each = self.each(decoded.narrow(-len(self.shape), 0, steps), x)
        return each.masked_fill(~mask, 0).sum(-1)

    def total(self, decoded: Tensor, x: Tensor) -> Tensor:
        """The log-density summed over all numbers of a sample: `[…]`."""
        each = self.each(decoded, x)
        return each.flatten(each.ndim - len(self._parts())).sum(-1)

    def each(self, decoded: Tensor, x: Tensor) -> Tensor:
        """The log-density of every number; of every time step where there are some, summed over its features."""
        each = self.pointwise(decoded, x)
        return each.sum(-1) if self.modality.kind == "sequence" else each

    def pointwise(self, decoded: Tensor, x: Tensor) -> Tensor:
        """The log-density of every number: `[…, *shape]`."""
        raise NotImplementedError

    def mean(self, decoded: Tensor) -> Tensor:
        """E[x | z], in the values that the likelihood speaks about; for tokens the most probable ids."""
        raise NotImplementedError

    def draw(self, decoded: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """x ~ p(x | z)."""
        raise NotImplementedError

    def check(self, samples: Samples, name: str) -> None:
        """Refuse values that this likelihood gives no density, naming the modality and rows."""

    def _parts(self) -> tuple[int, ...]:
        """The dimensions that `each` leaves."""
        return self.shape[:1] if self.modality.timed else self.shape

    def _refuse(self, samples: Samples, name: str, fits: Callable[[np.ndarray], np.ndarray], wanted: str) -> None:
        """Raise if `fits`, of values `[row, …]`, is False for a sample that has the modality."""
        rows = np.flatnonzero(samples.present_in(name))
        values = np.asarray(samples.read(name, rows), dtype=np.float64)
        if not len(rows):
            return
        good = fits(values)
        if name in samples.lengths:
            beyond = np.arange(values.shape[1]) >= samples.lengths[name][rows][:, None]
            good = good | beyond.reshape(beyond.shape + (1,) * (good.ndim - 2))
        bad = ~good.reshape(len(rows), -1).all(axis=1)
        if bad.any():
            value = values[~good][0] if good.shape == values.shape else values[bad][0].sum()
            raise InputError(
                f"modality {name!r} does not fit the likelihood {self.name!r}: {wanted}, got {value:g} "
                f"({name_rows(samples.index[rows[bad]])}). Choose another, likelihoods={{{name!r}: …}}; known: "
                f"{', '.join(likelihood_names())}"
            )


def register_likelihood(name: str) -> Callable[[type[Likelihood]], type[Likelihood]]:
    """Enter a likelihood under a name."""
    return LIKELIHOODS.register(name, name=name)


def likelihood_names() -> list[str]:
    """The names that can be chosen.

    >>> likelihood_names()
    ['bernoulli', 'categorical', 'gaussian', 'laplace', 'negative-binomial', 'poisson']
    """
    return LIKELIHOODS.names()


def find_likelihood(modality: Modality, choice: LikelihoodChoice = None) -> tuple[type[Likelihood], dict[str, Any]]:
    """The class of a chosen likelihood and its settings; without a choice, by kind: categorical for tokens, else
    gaussian.
    """
    if choice is not None and not isinstance(choice, str | Mapping):
        raise InputError(
            f"the likelihood of modality {modality.name!r} must be a name or a mapping with a name and settings, "
            f"got {choice!r}"
        )
    settings = {"name": choice} if isinstance(choice, str) else dict(choice or {})
    name = settings.pop("name", "categorical" if modality.kind in ("tokens", "text") else "gaussian")
    return LIKELIHOODS.find(name, f"It was chosen for modality {modality.name!r}"), settings


def build_likelihood(modality: Modality, choice: LikelihoodChoice = None) -> Likelihood:
    """The likelihood of one modality.

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
    """The likelihood that the values suggest: categorical for tokens and text, bernoulli where all are 0 or 1, else
    gaussian. Counts are for the user to name: whole numbers may as well be measurements.
    """
    if modality.kind in ("tokens", "text"):
        return "categorical"
    rows = np.flatnonzero(samples.present_in(modality.name))
    values = np.asarray(samples.read(modality.name, rows))
    return "bernoulli" if np.isin(values, (0, 1)).all() else "gaussian"


def normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal numbers of the same shape."""
    return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=like.device)


def uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Numbers in [0, 1) of the same shape."""
    return torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device)
