"""Augmentations on the device: the values of a modality that are corrupted, and modalities that go missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from consilience.core.modalities import Modality
from consilience.corruption.augmentation import HOW_FAR, WHETHER, Augmentation, stream
from consilience.corruption.seeded_noise import Noise
from consilience.corruption.tensor_noise import TensorNoise
from consilience.preparation import Preparation
from consilience.preparation.transforms import FARTHEST, Standardise
from consilience.training.standardised_corruption import ON_STANDARDISED, Scale, Standardised, share_of

# Positions `[*index]` of a training set → prepared values of a modality, and their lengths.
Take = Callable[[Tensor], tuple[Tensor, Tensor | None]]


@dataclass(frozen=True)
class Donors:
    """The samples of the training set whose values can replace those of others.

    Attributes:
        count: How many have the modality.
        positions: Their positions, rising `[count]`. None: all samples have it.
        take: Reads them.
    """

    count: int
    positions: Tensor | None
    take: Take

    def other_than(self, index: Tensor, chance: Tensor) -> Tensor:
        """Positions of donors, drawn by `chance` in [0, 1); no sample of `index` that has the modality gets itself."""
        drawn = (chance * (self.count - 1)).long()
        if self.positions is None:
            return drawn + (drawn >= index).long()
        return self.positions[drawn + (drawn >= torch.searchsorted(self.positions, index)).long()]


@dataclass(frozen=True)
class OnDevice:
    """A modality that is augmented on the device.

    Attributes:
        modality: As methods receive it.
        augmentations: In their order.
        scale: Of standardised values; None if no augmentation reads values.
        donors: For `swapped`, else None.
    """

    modality: Modality
    augmentations: Sequence[Augmentation]
    scale: Scale | None = None
    donors: Donors | None = None


class EpochNoise:
    """The random numbers of one epoch.

    Args:
        seeds: The epoch's seed of each trial; one seed for a single training.
    """

    def __init__(self, seeds: Sequence[int]):
        self.seeds = tuple(seeds)
        self._streams: dict[tuple[str, int], TensorNoise] = {}

    def of(self, name: str, place: int, augmentation: Augmentation) -> TensorNoise:
        """The stream of one augmentation of a modality."""
        if (name, place) not in self._streams:
            noises = [stream(seed, name, place, augmentation) for seed in self.seeds]
            self._streams[name, place] = TensorNoise(noises)
        return self._streams[name, place]

    def chance_to_stay(self, names: Sequence[str], index: Tensor) -> Tensor:
        """A uniform number for every modality `[*index, modality]`; of a sample's last ones the largest stays."""
        for name in names:
            if (name, -1) not in self._streams:
                self._streams[name, -1] = TensorNoise([Noise(seed, "augment", name, "stays") for seed in self.seeds])
        return torch.stack([self._streams[name, -1].uniform(index) for name in names], dim=-1)


def runs_on_device(augmentations: Sequence[Augmentation], preparation: Preparation, name: str, resident: bool) -> bool:
    """Whether all augmentations of a modality can be applied to prepared values: those of an order stay together."""
    standardised = type(preparation.transforms[name]) is Standardise
    return all(
        not augmentation.options
        and (
            augmentation.corruption.name == "missing"
            or (augmentation.corruption.name == "swapped" and resident)
            or (augmentation.corruption.name in ON_STANDARDISED and standardised)
        )
        for augmentation in augmentations
    )


def augment_modality(
    plan: OnDevice, values: Tensor, lengths: Tensor | None, present: Tensor, index: Tensor, noise: EpochNoise
) -> tuple[Tensor, Tensor | None, dict[bool, Tensor]]:
    """Apply the augmentations of one modality.

    Args:
        plan: What is applied.
        values: `[*index, *shape]`.
        lengths: `[*index]`, for sequences and tokens.
        present: Which samples have the modality, booleans `[*index]`.
        index: Positions in the training set, `[batch]` or `[trial, batch]`.
        noise: Of the epoch.

    Returns:
        Values, lengths, and which samples go missing: under True even if it is their last modality.
    """
    name, dtype = plan.modality.name, values.dtype
    lost: dict[bool, Tensor] = {}
    for place, augmentation in enumerate(plan.augmentations):
        own = noise.of(name, place, augmentation)
        level = augmentation.levels(own.within(WHETHER).uniform(index), own.within(HOW_FAR).uniform(index)) * present
        corruption = augmentation.corruption.name
        if corruption == "missing":
            gone = own.uniform(index) < share_of(level)
            lost[augmentation.last] = lost[augmentation.last] | gone if augmentation.last in lost else gone
        elif corruption == "swapped":
            assert plan.donors is not None
            hit = own.within("hit").uniform(index) < share_of(level)
            others, their_lengths = plan.donors.take(plan.donors.other_than(index, own.within("donor").uniform(index)))
            values = torch.where(hit.view(*hit.shape, *[1] * (values.ndim - hit.ndim)), others, values)
            if lengths is not None and their_lengths is not None:
                lengths = torch.where(hit, their_lengths, lengths)
        else:
            assert plan.scale is not None
            given = Standardised(plan.modality, values, index, own, plan.scale)
            values = ON_STANDARDISED[corruption](given, level).clamp(-FARTHEST, FARTHEST).to(dtype)
            if lengths is not None:
                beyond = torch.arange(values.shape[index.ndim], device=index.device) >= lengths[..., None]
                values = values.masked_fill(beyond.view(*beyond.shape, *[1] * (values.ndim - beyond.ndim)), 0)
    return values, lengths, lost


def losses_of(
    names: Sequence[str], present: Tensor, lost: Mapping[bool, Mapping[str, Tensor]], index: Tensor, noise: EpochNoise
) -> Tensor:
    """Return which modalities go missing, booleans `[*index, modality]`: never the last one, unless told so.

    Args:
        names: The modalities.
        present: `[*index, modality]`.
        lost: Under True what goes missing even if it is the last modality, under False the rest: name → `[*index]`.
        index: Positions in the training set.
        noise: Of the epoch.
    """
    nothing = torch.zeros_like(present[..., 0])
    firm, soft = (torch.stack([lost[last].get(name, nothing) for name in names], dim=-1) for last in (True, False))
    if not lost[False]:
        return firm
    left = present & ~firm
    none_left = ~(left & ~soft).any(dim=-1, keepdim=True)
    stays = torch.where(left, noise.chance_to_stay(names, index), -1.0).argmax(dim=-1, keepdim=True)
    return firm | (soft & ~torch.zeros_like(soft).scatter(-1, stays, none_left))
