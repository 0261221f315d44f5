"""One method with several seeds, trained side by side: as many models as seeds, for little more than one's time.

What comes out is what `Model.fit` gives with each seed, up to rounding and to what dropout draws: the same first
weights, the same order of samples, the same choice of the best epoch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from consilience.core.errors import TrainingError, UnsupportedError
from consilience.core.samples import Samples
from consilience.core.targets import Task, TaskKind
from consilience.encoders import EncoderChoice, own_transforms
from consilience.methods import Method, Spec, build, find
from consilience.preparation import Preparation
from consilience.training.devices import memory_advice, resolve_device
from consilience.training.loop import Log
from consilience.training.memory import kept_memory
from consilience.training.model import Model
from consilience.training.seeding import seeded
from consilience.training.stacked_data import Trials
from consilience.training.stacked_training import PRECISIONS, SideBySide, train_side_by_side
from consilience.training.trainer import Trainer
from consilience.training.trust_check import misplaced_trust, warn_of_misplaced_trust

# What a training has for each seed: samples to learn from, and samples that choose the epoch.
Parts = tuple[Samples, Samples]
# Settings of a trainer that mean the same for stacked weights; the others must be left as they are.
_PASSED = ("epochs", "batch_size", "lr", "optimizer", "weight_decay", "momentum", "patience", "clip", "precision")
_BESIDE = (
    "preparation",
    "device",
    "resident",
    "cuda_graphs",
    "keep_memory",
    "seed",
    "checkpoint_seconds",
    "on_interrupt",
    "verbose",
    "logs",
)


def fit_together(
    name: str,
    parts: Sequence[Parts],
    seeds: Sequence[int],
    *,
    settings: Mapping[str, Any] | None = None,
    encoders: Mapping[str, EncoderChoice] | None = None,
    task: TaskKind | None = None,
    trainer: Trainer | None = None,
) -> list[Model]:
    """`Model.fit` for each of some seeds, all at once on one device.

    parts: for each seed what it learns from and validates on; the same objects where seeds share them, so that these
    lie in memory once · trainer: how to train, its seed aside. A method, samples or settings that need a training of
    their own are refused, with the reason (`reason_alone`).
    """
    trainer = trainer or Trainer()
    reason = reason_alone(name, parts, trainer)
    if reason is not None:
        raise UnsupportedError(f"method {name!r} cannot be trained side by side: {reason}")
    preparations: dict[int, Preparation] = {}
    for train, _ in parts:
        if id(train) not in preparations:
            assert train.y is not None
            learned = Task.of(train.y, task, train.weight)
            preparations[id(train)] = Preparation.fit(train, learned, own_transforms(train.modalities, encoders or {}))
    prepared = [preparations[id(train)] for train, _ in parts]
    methods: list[Method] = []
    for one, seed in zip(prepared, seeds, strict=True):
        with seeded(seed):
            methods.append(build(name, Spec(one.modalities, one.task, dict(encoders or {})), settings))
    device = resolve_device(trainer.device)
    began = time.perf_counter()
    with (
        seeded(seeds[0], device),
        memory_advice(trainer.batch_size, trainer.precision),
        kept_memory(trainer.keep_memory and device.type == "cpu"),
    ):
        made = train_side_by_side(
            methods,
            *(Trials.of([pair[which] for pair in parts], prepared, device) for which in (0, 1)),
            **{setting: getattr(trainer, setting) for setting in _PASSED},
            rows=trainer.evaluation_batch,
            seed=list(seeds),
        )
    seconds = (time.perf_counter() - began) / len(seeds)
    logs = [trial_log(made, trial, seconds) for trial in range(len(seeds))]
    check_finite(name, seeds, logs, trainer.lr)
    models = []
    for trial, (one, log) in enumerate(zip(prepared, logs)):
        model = Model(name, dict(settings or {}), dict(encoders or {}), made.trained(trial), one, [log])
        model.misplaced_trust = misplaced_trust(model, parts[trial][1], device=trainer.device)
        warn_of_misplaced_trust(name, model.misplaced_trust)
        models.append(model)
    return models


def reason_alone(name: str, parts: Sequence[Parts], trainer: Trainer) -> str | None:
    """Why a method is to be trained one seed after another, or None if seeds can be trained side by side."""
    cls, _ = find(name, parts[0][0].modalities)
    if cls.fit is not Method.fit:
        return "its training is more than one run of the loop"
    if cls.keeps_history:
        return "it keeps a history of losses"
    if cls.ignored_worst:
        return "its worst validation samples are not to stop it"
    usual = Trainer()
    for one in fields(Trainer):
        if one.name not in (*_PASSED, *_BESIDE) and getattr(trainer, one.name) != getattr(usual, one.name):
            return f"{one.name} = {getattr(trainer, one.name)!r} is for one training at a time"
    if trainer.precision not in PRECISIONS:
        return f"precision must be {' or '.join(map(repr, PRECISIONS))}, not {trainer.precision!r}"
    sizes = {tuple(map(len, pair)) for pair in parts}
    if len(sizes) > 1:
        return "its seeds have sets of different sizes"
    for samples in (one for pair in parts for one in pair):
        if samples.weight is not None or samples.lengths:
            return "its samples have weights or lengths of their own"
        if not samples.present.all():
            return "some of its samples lack a modality"
    return None


def trial_log(made: SideBySide, trial: int, seconds: float) -> Log:
    """How one trial went, as a training of its own would tell it; times are its share of the whole."""
    rows = []
    for epoch, row in enumerate(made.log):
        if trial in row["trials"]:
            place = row["trials"].index(trial)
            found = {name: float(value[place]) for name, value in row["values"].items()}
            share = row["seconds"] / len(row["trials"])
            rows.append({"phase": "fit", "epoch": epoch, **found, "seconds": share})
    return Log(rows, int(made.epochs[trial]) - 1, finished=True, seconds=seconds)


def check_finite(name: str, seeds: Sequence[int], logs: Sequence[Log], lr: float) -> None:
    """Refuse a training in which a loss broke, as the loop itself would have."""
    for seed, log in zip(seeds, logs):
        for row in log.rows:
            broken = next((one for one, value in row.items() if one != "phase" and not math.isfinite(value)), None)
            if broken is not None:
                raise TrainingError(
                    f"training {name} side by side: with seed {seed} the loss term {broken!r} became {row[broken]} in "
                    f"epoch {row['epoch'] + 1}. Lower lr (now {lr:g})"
                )
