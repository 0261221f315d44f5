"""Training with corruptions: `Augmenter` changes the batches of an epoch.

What is applied has the meaning that it has in `corrupt`: it acts on raw samples, in the units of the training set
(standard deviations, minimum, maximum) that standardisation uses. The usual corruptions of numbers are computed on
standardised values on the device, which gives the same result. Others, those of text, those with options, and those of
encoders that prepare raw values themselves, are computed from the raw samples of a batch, which are then prepared
again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.corruption.augmentation import Augment, Augmentation, augment_samples, choose_augmentations
from consilience.corruption.reference import Reference
from consilience.preparation import Preparation
from consilience.preparation.transforms import Standardise
from consilience.training.augment_values import (
    Donors,
    EpochNoise,
    OnDevice,
    augment_modality,
    losses_of,
    runs_on_device,
)
from consilience.training.batch_loader import BatchLoader
from consilience.training.standardised_corruption import Scale


class Augmenter:
    """Corrupts training samples, differently in every epoch; a sample's noise does not depend on its batch.

    Args:
        chosen: Modality → its augmentations.
        loader: The batches of the training set.
    """

    def __init__(self, chosen: Mapping[str, tuple[Augmentation, ...]], loader: BatchLoader):
        self._loader, self._preparation = loader, loader.preparation
        samples, resident = loader.samples, loader.everything is not None
        check_donors(chosen, samples)
        self._on_device: dict[str, OnDevice] = {}
        self._on_host: dict[str, tuple[Augmentation, ...]] = {}
        for name, augmentations in chosen.items():
            if name not in samples:
                continue
            if runs_on_device(augmentations, self._preparation, name, resident):
                self._on_device[name] = self._plan(name, augmentations)
            else:
                self._on_host[name] = augmentations
        if self._on_host:
            self._samples = positioned(samples.only(tuple(self._on_host)))
            transforms = {name: self._preparation.transforms[name] for name in self._on_host}
            self._host_preparation = Preparation(transforms, self._preparation.raw, self._preparation.task)
            numbers = {name: made for name, made in self._host_preparation.statistics().items() if made.std is not None}
            self._reference = Reference(self._samples, numbers)

    @classmethod
    def of(cls, augment: Augment | None, loader: BatchLoader, reads: str | None = None) -> Augmenter | None:
        """The augmenter of a training set, or None if nothing is corrupted.

        Args:
            augment: As it is given to a trainer.
            loader: The batches of the training set.
            reads: The only modality that is read. Values of the others are not corrupted then; they only go missing.
        """
        chosen = choose_augmentations(augment, loader.preparation.raw)
        if reads is not None:
            hiding = {name for name, own in chosen.items() if any(each.corruption.hides for each in own)}
            chosen = {name: own for name, own in chosen.items() if name in hiding | {reads}}
        return cls(chosen, loader) if chosen else None

    def in_epoch(self, seed: int) -> Callable[[Batch], Batch]:
        """Return the function that corrupts samples in the epoch of this seed."""
        return partial(self._apply, EpochNoise([seed]))

    def _apply(self, noise: EpochNoise, batch: Batch) -> Batch:
        values, lengths = dict(batch.values), dict(batch.lengths)
        lost: dict[bool, dict[str, Tensor]] = {False: {}, True: {}}
        for name, plan in self._on_device.items():
            here = batch.present_in(name)
            changed, length, gone = augment_modality(plan, values[name], lengths.get(name), here, batch.index, noise)
            values[name] = changed
            if length is not None:
                lengths[name] = length
            for last, own in gone.items():
                lost[last][name] = own
        if self._on_host:
            self._apply_on_host(noise.seeds[0], batch, values, lengths, lost)
        changed_batch = Batch(
            values,
            batch.present,
            index=batch.index,
            weight=batch.weight,
            lengths=lengths,
            y=batch.y,
            complete=batch.complete,
            stacked=batch.stacked,
        )
        hidden = {*lost[False], *lost[True]}
        if not hidden:
            return changed_batch
        after = changed_batch.hiding(losses_of(batch.names, batch.present, lost, batch.index, noise))
        after.complete = batch.complete - hidden
        return after

    def _apply_on_host(
        self,
        seed: int,
        batch: Batch,
        values: dict[str, Tensor],
        lengths: dict[str, Tensor],
        lost: dict[bool, dict[str, Tensor]],
    ) -> None:
        """Corrupt the raw samples of a batch, prepare them again, and enter the results."""
        samples = self._samples.select(batch.index.cpu().numpy())
        for name, augmentations in self._on_host.items():
            samples, soft, firm = augment_samples(samples, name, augmentations, seed, self._reference)
            for last, own in ((False, soft), (True, firm)):
                # Whether it hides must be the same for all batches, or a recorded step would not fit.
                if own.any() or any(each.corruption.hides and each.last == last for each in augmentations):
                    lost[last][name] = torch.from_numpy(own).to(batch.device)
        wide = self._loader.dtype == torch.float64
        prepared = self._host_preparation.batch(samples, dtype=torch.float64 if wide else torch.float32)
        for name, value in prepared.values.items():
            before = values[name]
            if name in prepared.lengths:  # texts of a batch are as wide as the longest of them
                value = functional.pad(value, (*[0, 0] * (value.ndim - 2), 0, max(0, before.shape[1] - value.shape[1])))
                lengths[name] = prepared.lengths[name].to(batch.device)
            values[name] = value.to(batch.device, before.dtype)

    def _plan(self, name: str, augmentations: tuple[Augmentation, ...]) -> OnDevice:
        transform, everything = self._preparation.transforms[name], self._loader.everything
        scale, donors = None, None
        if type(transform) is Standardise:
            dtype = torch.float64 if self._loader.dtype == torch.float64 else torch.float32
            scale = Scale.of(transform, self._loader.device, dtype)
        if everything is not None and any(each.corruption.name == "swapped" for each in augmentations):
            present = self._loader.samples.present_in(name)
            positions = None if present.all() else torch.from_numpy(np.flatnonzero(present)).to(self._loader.device)
            donors = Donors(int(present.sum()), positions, partial(_take, everything, name))
        return OnDevice(transform.output, augmentations, scale, donors)


def check_donors(chosen: Mapping[str, tuple[Augmentation, ...]], samples: Samples) -> None:
    """Raise an error if values are to be swapped and fewer than two training samples have the modality."""
    for name, augmentations in chosen.items():
        swapping = any(augmentation.corruption.name == "swapped" for augmentation in augmentations)
        if swapping and name in samples and samples.present_in(name).sum() < 2:
            raise InputError(
                f"augment: modality {name!r} cannot be swapped, since fewer than two training samples have it"
            )


def positioned(samples: Samples) -> Samples:
    """The samples without targets; their index is their position."""
    index = np.arange(len(samples))
    return Samples(samples.modalities, samples.values, samples.present, samples.lengths, None, None, index)


def _take(everything: Batch, name: str, rows: Tensor) -> tuple[Tensor, Tensor | None]:
    length = everything.lengths.get(name)
    return everything[name][rows], None if length is None else length[rows]
