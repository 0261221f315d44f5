"""One method with several seeds, trained at once: as many models as seeds, in little more than the time of one.

Each is what `Model.fit` gives with its seed, up to rounding and to what dropout draws: the same initial weights, the
same order of samples, the same choice of the best epoch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import nn

from consilience.core.errors import UnsupportedError
from consilience.core.samples import Samples
from consilience.core.seeding import seeded
from consilience.core.targets import Task, TaskKind
from consilience.corruption.augmentation import Augmentation, choose_augmentations
from consilience.encoders import EncoderChoice, own_transforms
from consilience.methods import Method, Spec, build, choose_encoders, find
from consilience.preparation import Preparation
from consilience.training.augment_values import runs_on_device
from consilience.training.devices import resolve_device, training_context
from consilience.training.model import Model, misplaced_trust, warn_of_misplaced_trust
from consilience.training.stacked_augment import StackedAugmenter
from consilience.training.stacked_data import Trials
from consilience.training.stacked_training import ACCEPTED, train_side_by_side
from consilience.training.trainer import Trainer
from consilience.training.training_log import Log, diverged
from consilience.training.training_settings import resolve

# For each seed: training samples and validation samples.
Parts = tuple[Samples, Samples]


def fit_together(
    name: str,
    parts: Sequence[Parts],
    seeds: Sequence[int],
    *,
    settings: Mapping[str, Any] | None = None,
    encoders: Mapping[str, EncoderChoice] | Literal["auto"] | None = None,
    task: TaskKind | None = None,
    trainer: Trainer | None = None,
) -> list[Model]:
    """Do what `Model.fit` does for each of some seeds, all at once on one device.

    Args:
        name: The method.
        parts: For each seed its training and validation samples; pass the same objects where seeds share them, so
            that they are in memory once.
        seeds: The seeds.
        settings: Of the method.
        encoders: Of the modalities, as for `Model.fit`.
        task: Classification or regression. None: as the targets are.
        trainer: How to train; its seed is ignored.

    Returns:
        The trained models, in the order of the seeds.

    Raises:
        UnsupportedError: If the method, its settings or the samples cannot be trained side by side, with the reason.
    """
    trainer = trainer or Trainer()
    if reason := reason_alone(name, parts, trainer):
        raise _refusal(name, reason)
    chosen = choose_augmentations(trainer.augment, parts[0][0].modalities)
    preparations: dict[int, Preparation] = {}
    for samples, _ in parts:
        if id(samples) not in preparations:
            assert samples.y is not None
            transforms = own_transforms(samples.modalities, {} if encoders == "auto" else encoders or {})
            learned = Task.of(samples.y, task, samples.weight)
            preparations[id(samples)] = Preparation.fit(samples, learned, transforms)
    prepared = [preparations[id(samples)] for samples, _ in parts]
    if reason := _unequal_shapes(prepared):
        raise _refusal(name, reason)
    choices = choose_encoders(name, encoders, prepared[0].modalities, prepared[0].task)
    methods: list[Method] = []
    for preparation, seed in zip(prepared, seeds, strict=True):
        with seeded(seed):
            methods.append(build(name, Spec(preparation.modalities, preparation.task, choices), settings))
    if reason := _batch_statistics(methods[0], parts, trainer) or reason_on_host(chosen, parts, prepared):
        raise _refusal(name, reason)
    device = resolve_device(trainer.device)
    began = time.perf_counter()
    how = resolve(trainer, len(parts[0][0]))
    with training_context(how, device, seeds[0]):
        train, validation = (Trials.of([pair[which] for pair in parts], prepared, device) for which in (0, 1))
        try:
            trained = train_side_by_side(
                methods,
                train,
                validation,
                how,
                seeds=seeds,
                rows=how.evaluation_batch,
                augmenter=StackedAugmenter.of(trainer.augment, [pair[0] for pair in parts], prepared, device),
            )
        except RuntimeError as error:
            if "vmap" not in str(error) and "atching rule" not in str(error):
                raise
            raise _refusal(name, f"torch.func cannot stack one of its operations ({error})") from error
    check_finite(name, seeds, trained.logs, how.lr)
    models = []
    for trial, (preparation, log) in enumerate(zip(prepared, trained.logs)):
        log.seconds = (time.perf_counter() - began) / len(seeds)
        model = Model(name, dict(settings or {}), choices, trained.trained(trial), preparation, [log])
        model.misplaced_trust = misplaced_trust(model, parts[trial][1], device=trainer.device)
        warn_of_misplaced_trust(name, model.misplaced_trust)
        models.append(model)
    return models


def reason_alone(name: str, parts: Sequence[Parts], trainer: Trainer) -> str | None:
    """Return why the seeds of a method must be trained one after another, or None if no reason is known.

    What depends on the encoders is known only when the method is built: `fit_together` may still refuse.
    """
    cls, _ = find(name, parts[0][0].modalities)
    if cls.fit is not Method.fit:
        return "its training is more than one run of the loop"
    if not cls.trains_by_gradients:
        return "it is not trained by gradients"
    if cls.keeps_history:
        return "its objective reads a history of losses by sample, which is kept for one model"
    if trainer.callbacks or trainer.checkpoint is not None:
        return "callbacks and checkpoints belong to one model"
    if reason := trainer.outside({**ACCEPTED, "time_limit": (None,)}):
        return reason
    if len({tuple(map(len, pair)) for pair in parts}) > 1:
        return "its seeds have sets of different sizes"
    if any(samples.lengths for pair in parts for samples in pair):
        return "its sequences have lengths, and torch.func cannot stack recurrent encoders"
    return None


def _unequal_shapes(preparations: Sequence[Preparation]) -> str | None:
    """Why models do not stack: training samples decide about columns (of gaps), words and classes."""
    first = preparations[0]
    if any(preparation.modalities != first.modalities for preparation in preparations):
        return "its seeds have modalities of different shapes"
    if any(preparation.task.outputs != first.task.outputs for preparation in preparations):
        return "its seeds have different numbers of classes"
    return None


def _batch_statistics(method: Method, parts: Sequence[Parts], trainer: Trainer) -> str | None:
    """Why missing modalities rule out stacking: an encoder with batch statistics must not see the missing samples."""
    chosen = choose_augmentations(trainer.augment, parts[0][0].modalities)
    for encoded, encoder in getattr(method, "encoders", {"": method}).items():
        modalities = [encoded] if encoded else list(parts[0][0].names)
        hides = any(each.corruption.hides for modality in modalities for each in chosen.get(modality, ()))
        missing = (
            hides
            or trainer.modality_dropout > 0
            or any(
                modality not in samples.names or not samples.present_in(modality).all()
                for pair in parts
                for samples in pair
                for modality in modalities
            )
        )
        if missing and any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in encoder.modules()):
            lacking = f"modality {encoded!r}" if encoded else "a modality"
            return f"some samples lack {lacking}, whose encoder normalises over the samples of a batch"
    return None


def reason_on_host(
    chosen: Mapping[str, Sequence[Augmentation]], parts: Sequence[Parts], preparations: Sequence[Preparation]
) -> str | None:
    """Return why augmentations rule out stacking: those of raw samples, and swaps where some samples have no values."""
    for name, augmentations in chosen.items():
        listed = ", ".join(dict.fromkeys(each.corruption.name for each in augmentations))
        if not all(runs_on_device(augmentations, preparation, name, resident=True) for preparation in preparations):
            return f"the augmentation of modality {name!r} ({listed}) is computed from raw samples"
        swaps = any(each.corruption.name == "swapped" for each in augmentations)
        if swaps and not all(name in samples and samples.present_in(name).all() for samples, _ in parts):
            return f"modality {name!r} is swapped in training, and some samples lack it"
    return None


def _refusal(name: str, reason: str) -> UnsupportedError:
    return UnsupportedError(f"method {name!r} cannot be trained side by side: {reason}")


def check_finite(name: str, seeds: Sequence[int], logs: Sequence[Log], lr: float) -> None:
    """Raise an error if a loss became infinite or NaN, as the loop of one model does."""
    for seed, log in zip(seeds, logs):
        for row in log.rows:
            for term, value in row.items():
                if isinstance(value, float) and not math.isfinite(value):
                    raise diverged(f"{name} side by side", term, value, lr, epoch=row["epoch"], seed=seed)
