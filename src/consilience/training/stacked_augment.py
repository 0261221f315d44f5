"""Training with corruptions for many models at once: each trial gets the noise that it would get alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from consilience.core.samples import Samples
from consilience.corruption.augmentation import Augment, choose_augmentations
from consilience.preparation import Preparation
from consilience.preparation.transforms import Standardise
from consilience.training.augment_batch import check_donors
from consilience.training.augment_values import Donors, EpochNoise, OnDevice, augment_modality, losses_of
from consilience.training.stacked_data import Trials
from consilience.training.standardised_corruption import Scale


class StackedAugmenter:
    """Corrupts the training samples of several trials.

    Args:
        plans: Name → what is applied on the device, with the scales of all trials.
    """

    def __init__(self, plans: Mapping[str, OnDevice]):
        self.plans = dict(plans)

    @classmethod
    def of(
        cls,
        augment: Augment | None,
        sets: Sequence[Samples],
        preparations: Sequence[Preparation],
        device: torch.device | str = "cpu",
    ) -> StackedAugmenter | None:
        """The augmenter of trials with these sets, or None if nothing is corrupted."""
        chosen = choose_augmentations(augment, preparations[0].raw)
        for samples in sets:
            check_donors(chosen, samples)
        plans = {}
        for name, augmentations in chosen.items():
            transforms = [preparation.transforms[name] for preparation in preparations]
            scales = [Scale.of(each, torch.device(device)) for each in transforms if type(each) is Standardise]
            plans[name] = OnDevice(transforms[0].output, augmentations, Scale.stack(scales) if scales else None)
        return cls(plans) if plans else None

    def only(self, trials: Tensor) -> StackedAugmenter:
        """The same for some trials, given as booleans `[trial]`."""
        return StackedAugmenter(
            {
                name: replace(plan, scale=None if plan.scale is None else plan.scale.only(trials))
                for name, plan in self.plans.items()
            }
        )

    def apply(self, noise: EpochNoise, batch: Trials, rows: Tensor, train: Trials) -> Trials:
        """Return the batch corrupted.

        Args:
            noise: Of the epoch, with a seed for each trial.
            batch: The samples `rows` of every trial.
            rows: `[k]`, or `[trial, k]`.
            train: All training samples.
        """
        index = rows.expand(len(train), -1)
        everywhere = torch.ones(index.shape, dtype=torch.bool, device=index.device)
        values = dict(batch.values)
        lost: dict[bool, dict[str, Tensor]] = {False: {}, True: {}}
        names = tuple(values)
        for name, plan in self.plans.items():
            here = everywhere if batch.present is None else batch.present[..., names.index(name)]
            donors = Donors(train.samples, None, partial(_take, train, name))
            own = replace(plan, donors=donors)
            values[name], _, gone = augment_modality(own, values[name], None, here, index, noise)
            for last, which in gone.items():
                lost[last][name] = which
        changed = replace(batch, values=values)
        hidden = {*lost[False], *lost[True]}
        if not hidden:
            return changed
        after = changed.hiding(lambda present: losses_of(names, present, lost, index, noise))
        return replace(after, complete=(batch.complete or frozenset()) - hidden)


def _take(train: Trials, name: str, rows: Tensor) -> tuple[Tensor, None]:
    return train.modality(name, rows), None
