"""Corruptions of standardised values on the device: what each does to raw values, seen after standardisation.

A raw value x is z = (x − mean)/std here, so that Gaussian noise of `level` standard deviations is z + level·ε, and a
raw zero is −mean/std. Random numbers are those that the corruption of raw samples draws: both give the same values up
to rounding. At level 0 a sample does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from consilience.core.modalities import Modality
from consilience.corruption.tensor_noise import TensorNoise
from consilience.preparation.transforms import Standardise


@dataclass(frozen=True)
class Scale:
    """Raw numbers in standardised units; each broadcasts over values `[batch, *shape]` or `[trial, batch, *shape]`.

    Attributes:
        zero: A raw 0.
        low, high: Minimum and maximum in training.
        varies: 1 where a feature varies in training, 0 where it is constant.
    """

    zero: Tensor
    low: Tensor
    high: Tensor
    varies: Tensor

    @classmethod
    def of(cls, transform: Standardise, device: torch.device, dtype: torch.dtype = torch.float32) -> Scale:
        """The scale of one modality, in float32 or float64."""
        around = (-1, 1, 1) if transform.output.kind == "image" else (-1,)
        scale = torch.where(transform.std > 0, transform.std, 1.0)
        raw = (torch.zeros_like(scale), transform.low, transform.high)
        zero, low, high = [((value - transform.mean) / scale).to(device, dtype).view(around) for value in raw]
        return cls(zero, low, high, (transform.std > 0).to(device, dtype).view(around))

    @classmethod
    def stack(cls, scales: Sequence[Scale]) -> Scale:
        """The scales of several trials."""
        names = ("zero", "low", "high", "varies")
        return cls(*(torch.stack([getattr(scale, name) for scale in scales])[:, None] for name in names))

    def only(self, trials: Tensor) -> Scale:
        """The scales of some trials, given as booleans `[trial]`."""
        return Scale(self.zero[trials], self.low[trials], self.high[trials], self.varies[trials])


@dataclass(frozen=True)
class Standardised:
    """Standardised values of one modality that a corruption changes.

    Attributes:
        modality: Its kind and shape.
        values: `[batch, *shape]` or `[trial, batch, *shape]`.
        index: Positions of the samples in the training set, `[batch]` or `[trial, batch]`.
        noise: The random numbers of the corruption.
        scale: Raw numbers in these units.
    """

    modality: Modality
    values: Tensor
    index: Tensor
    noise: TensorNoise
    scale: Scale

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample; a batch of sequences may have more or fewer steps than the modality."""
        return tuple(self.values.shape[self.index.ndim :])

    def across(self, level: Tensor) -> Tensor:
        """A level of each sample in a shape that broadcasts over the values."""
        return level.view(*level.shape, *[1] * len(self.shape))


def gaussian(given: Standardised, level: Tensor) -> Tensor:
    """z + level·ε; a constant feature is not changed."""
    size = given.across(level.to(given.scale.varies.dtype)) * given.scale.varies
    return given.values + size * given.noise.normal(given.index, given.shape)


def scaled(given: Standardised, level: Tensor) -> Tensor:
    """x·(1 + level)."""
    return given.values + given.across(level.to(given.scale.zero.dtype)) * (given.values - given.scale.zero)


def blank(given: Standardised, level: Tensor) -> Tensor:
    """x·(1 − level/10)."""
    return given.values - given.across(share_of(level).to(given.scale.zero.dtype)) * (given.values - given.scale.zero)


def drop(given: Standardised, level: Tensor) -> Tensor:
    """An entry becomes a raw 0 with probability level/10."""
    lost = given.noise.uniform(given.index, given.shape) < given.across(share_of(level))
    return torch.where(lost, given.scale.zero.to(given.values.dtype), given.values)


def salt_and_pepper(given: Standardised, level: Tensor) -> Tensor:
    """An entry, or a whole pixel, becomes the minimum or maximum with probability level/100."""
    entries = (1, *given.shape[1:]) if given.modality.kind == "image" else given.shape
    jumps = given.noise.uniform(given.index, entries) < given.across((level / 100).clamp(max=1))
    salt = given.noise.within("salt").uniform(given.index, entries) < 0.5
    extreme = torch.where(salt, given.scale.low, given.scale.high)
    return torch.where(jumps, extreme.to(given.values.dtype), given.values)


def share_of(level: Tensor) -> Tensor:
    """The share of a level: 0 at level 0, 1 at level 10 and above."""
    return (level / 10).clamp(max=1)


# Corruption → the same on standardised values. Others are applied to raw samples.
ON_STANDARDISED: dict[str, Callable[[Standardised, Tensor], Tensor]] = {
    "gaussian": gaussian,
    "scaled": scaled,
    "blank": blank,
    "drop": drop,
    "salt-and-pepper": salt_and_pepper,
}
