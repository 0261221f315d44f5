"""Cross-fitting in lockstep: the models of all folds and one of all samples, trained at once, step by step.

At intervals each fold's model is judged on the samples that it does not learn from, and the losses of all folds are
pooled: every training sample takes part in the decision when to stop, and none has to be set aside for it. A validation
set of fifty samples stops training by chance; five folds of the same set judge with all of it. The model of all samples
ends after the same number of steps as the others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.errors import UnsupportedError
from consilience.core.samples import Samples
from consilience.core.seeding import seeded
from consilience.corruption.augmentation import choose_augmentations
from consilience.encoders import Encoder
from consilience.methods import Method, Prediction
from consilience.training.augment_values import EpochNoise
from consilience.training.batch_plans import BatchPlan
from consilience.training.devices import epoch_seed, resolve_device, training_context
from consilience.training.lockstep_data import endless_batches, held_out_trials, repeat
from consilience.training.loggers import Progress
from consilience.training.optimizers import LearningRate
from consilience.training.shared_dropout import share_dropout
from consilience.training.shared_training import once
from consilience.training.stacked_augment import StackedAugmenter
from consilience.training.stacked_mlp import batched_objective
from consilience.training.stacked_predictions import evaluate
from consilience.training.stacked_seeds import reason_on_host
from consilience.training.stacked_training import ACCEPTED, Stack
from consilience.training.trainer import Trainer, check_set, split_folds
from consilience.training.training_log import Log, check_weights, diverged, mean_without_worst
from consilience.training.training_settings import STEPS, ResolvedSettings, default_batch, resolve, steps_per_epoch

# With patience "auto" training stops when the lowest loss lies so many times as many steps back as it took to reach it,
# and so many more; chosen on the training rows of ten sets (docs/defaults.md).
_LONGER, _MORE_STEPS = 0.6, 100
# A loss that falls by less than this share does not count there: some fall a little for thousands of steps.
_WORTHWHILE = 0.005
# What the settings are where the user leaves them open: averaged weights of a fast training are as good as those of a
# slow one, in less than half the steps. The learning rate is for the optimizers of the family of Adam.
_SMALLEST_BATCH, _RATE, _AVERAGE = 32, 3e-3, 0.99
_FAST = ("adam", "adamw")
# The losses are looked at about twice an epoch, but neither more often nor more seldom than so many steps.
_SELDOM, _OFTEN = 50, 10
_SHOWN = 100  # steps between two lines of progress


@dataclass(frozen=True)
class CrossFit:
    """Models trained by cross-fitting.

    Attributes:
        held_out: What the model of each sample's fold, which did not learn from it, returns for it: `[n, output]`.
        methods: The models of the folds.
        fold_of: Each sample's fold `[n]`.
        loss: Mean loss of the held-out samples, NaN where it was not measured.
    """

    held_out: Tensor
    methods: Sequence[Method]
    fold_of: np.ndarray
    loss: float


def cross_fit_in_lockstep(
    method: Method, make: Callable[[], Method], train: Samples, trainer: Trainer, folds: int = 5
) -> CrossFit | None:
    """Train a method on all samples and, in lockstep with it, a copy for each fold on the other folds.

    The log of the training is added to the trainer's logs: one row for each time that the losses were looked at.

    Args:
        method: Trained in place.
        make: Builds an untrained copy.
        train: Training samples. An expert of one modality learns from those that have it.
        trainer: How to train.
        folds: Number of folds.

    Returns:
        The models of the folds and the held-out outputs; None if Ctrl-C ended the training, with the best weights so
        far in the method.

    Raises:
        UnsupportedError: If these models cannot be trained as a stack, with the reason.
        InputError: If there are fewer samples than folds.
    """
    if trainer.interrupted:
        return None
    check_set("training", train)
    if reason := reason_alone(method, train, trainer):
        raise UnsupportedError(f"cross-fitting {type(method).__name__} in lockstep: {reason}")
    assert trainer.preparation is not None
    methods = []
    for fold in range(folds):
        with seeded(trainer.seed * folds + fold):
            methods.append(make())
    stacked, by_rows = [*methods, method], trainer.stop_by_rows and train.group is not None
    fold_of = split_folds(train, trainer.preparation.task, folds, trainer.seed)
    if by_rows:
        alone = train.ordered_by(None, None)
        fold_of_row = split_folds(alone, trainer.preparation.task, folds, trainer.seed)
        learned = _train_once(stacked, alone, trainer.part(0.5), fold_of_row)
        if learned.log.finished:
            same = replace(trainer, steps=max(1, learned.log.best_step or 0), epochs=None, patience=None)
            learned = _train_once(stacked, train, same, fold_of, fixed=True)
    else:
        learned = _train_once(stacked, train, trainer, fold_of)
    trainer.logs.append(deepcopy(learned.log))
    for number, each in enumerate(stacked):
        each.load_state_dict({name: weight[number] for name, weight in learned.weights.items()})
        each.eval()
    check_weights(method, resolve(_filled_in(trainer, len(train)), len(train)).lr)
    if not learned.log.finished:
        return None
    return CrossFit(learned.held_out, methods, fold_of, learned.loss)


def cross_fit_as_in(
    log: Log, make: Callable[[], Method], train: Samples, trainer: Trainer, folds: int
) -> CrossFit | None:
    """Train a copy for each fold on the other folds, one after another, as a model of all samples was trained.

    Args:
        log: Of that training; each copy is trained until its best epoch.
        make: Builds an untrained copy.
        train: Training samples.
        trainer: How to train.
        folds: Number of folds.

    Returns:
        The copies and their held-out outputs; None if Ctrl-C ended this or that training.
    """
    if trainer.interrupted:
        return None
    try:
        held_out, copies, fold_of = trainer.as_in(log, len(train)).cross_fit(make, train, folds)
    except KeyboardInterrupt:
        if trainer.on_interrupt == "raise":
            raise
        return None
    return CrossFit(held_out.output, copies, fold_of, math.nan)


@dataclass(frozen=True)
class _Learned:
    """What is left of a training: the best weights `[model, …]`, held-out outputs and their loss, and the log."""

    weights: Mapping[str, Tensor]
    held_out: Tensor
    loss: float
    log: Log


def _train_once(
    stacked: Sequence[Method], train: Samples, trainer: Trainer, fold_of: np.ndarray, *, fixed: bool = False
) -> _Learned:
    """`_train_stack`, or what was learned by the same training before."""
    train_all = partial(_train_stack, stacked, train, trainer, fold_of, fixed)
    if not stacked[-1].common_expert:
        return train_all()
    described = ["in lockstep", stacked, train, fold_of, trainer.preparation, trainer.settings(), fixed]
    return once(described, train_all, lambda learned: learned.log.whole)


def _train_stack(
    stacked: Sequence[Method], train: Samples, trainer: Trainer, fold_of: np.ndarray, fixed: bool
) -> _Learned:
    """Train the models of all folds, and last the one of all samples, which stay as they are.

    fixed: whether all steps are taken and the last weights stay.
    """
    device = resolve_device(trainer.device)
    settings = resolve(_filled_in(trainer, len(train)), len(train))
    with training_context(settings, device, trainer.seed):
        run = _Lockstep(stacked, train, trainer, settings, fold_of, device, fixed)
        try:
            run.train()
        except RuntimeError as error:
            if "vmap" not in str(error) and "atching rule" not in str(error):
                raise
            raise UnsupportedError(
                f"torch.func cannot stack an operation of {type(stacked[-1]).__name__}: {error}"
            ) from error
    return _Learned(run.best_weights, run.held_out, run.best, run.log)


def _filled_in(trainer: Trainer, samples: int) -> Trainer:
    """The trainer with the settings that lockstep has of its own where they are open."""
    open_rate = trainer.lr is None and trainer.optimizer in _FAST
    return replace(
        trainer,
        batch_size=trainer.batch_size or default_batch(samples, _SMALLEST_BATCH),
        lr=_RATE if open_rate else trainer.lr,
        average=_AVERAGE if open_rate and trainer.average is None else trainer.average,
    )


def reason_alone(method: Method, train: Samples, trainer: Trainer) -> str | None:
    """Return why a method and its copies must be trained one after another, or None if they can be stacked."""
    if not method.trains_by_gradients:
        return "it is not trained by gradients"
    if reason := trainer.outside(ACCEPTED):
        return reason
    if trainer.callbacks or trainer.checkpoint is not None:
        return "callbacks and checkpoints belong to one model"
    if trainer.accumulate > 1:
        return "accumulate must be 1"
    if method.keeps_history:
        return "its objective reads a history of losses by sample"
    encoders = [part for part in method.modules() if isinstance(part, Encoder)]
    if not all(encoder.stacks for encoder in encoders):
        return "an encoder is not faster in a stack than alone"
    if train.on_disk:
        return "the samples are on disk"
    if any(name in train.lengths for name in _reads(method)):
        return "its sequences have lengths"
    if any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in method.modules()):
        return "it has statistics of batches"
    assert trainer.preparation is not None
    chosen = choose_augmentations(trainer.augment, trainer.preparation.raw)
    own = {name: each for name, each in chosen.items() if name in _reads(method)}
    return reason_on_host(own, [(train, train)], [trainer.preparation])


def _reads(method: Method) -> tuple[str, ...]:
    """The modalities that a method reads: an expert has one."""
    own = getattr(method, "modality", None)
    return method.names if own is None else (own,)


class _Lockstep:
    """One training: a stack of models, the last of which learns from all samples."""

    def __init__(
        self,
        methods: Sequence[Method],
        train: Samples,
        trainer: Trainer,
        settings: ResolvedSettings,
        fold_of: np.ndarray,
        device: torch.device,
        fixed: bool,
    ):
        assert trainer.preparation is not None
        self.trainer, self.settings, self.fixed = trainer, settings, fixed
        self.method, self.folds, self.samples = methods[-1], len(methods) - 1, len(train)
        reads = _reads(self.method)
        batch = trainer.preparation.batch(train.only([name for name in train.names if name in reads])).to(device)
        self.data = repeat(batch, reads, len(methods))
        there = train.present_among(reads).any(axis=1)
        weight = np.ones(self.samples) if train.weight is None else train.weight
        if (there & (weight > 0)).any():  # else no sample has what is read
            weight = weight * there
        self.weight = torch.from_numpy(weight)
        rows = np.flatnonzero(weight)
        self.rows = [rows[fold_of[rows] != fold] for fold in range(self.folds)] + [rows]
        self.rows = [own if len(own) else rows for own in self.rows]  # a fold may hold all samples with the modality
        self.held = [np.flatnonzero(fold_of == fold) for fold in range(self.folds)]
        self.judged = held_out_trials(self.data, self.held)
        self.batch_size = min(settings.batch_size, *(len(own) for own in self.rows))
        self.in_epoch = steps_per_epoch(len(rows), self.batch_size)
        augmenter = StackedAugmenter.of(
            trainer.augment, [train] * len(methods), [trainer.preparation] * len(methods), device
        )
        if augmenter is not None:
            augmenter = StackedAugmenter({name: plan for name, plan in augmenter.plans.items() if name in reads})
        self.stack = Stack(methods, self.data, self.data, settings, augmenter)
        share_dropout(self.stack.method, trainer.seed)
        if settings.precision == "32":
            self.stack.objective = batched_objective(self.stack.method)
        self.log, self.best, self.best_step = Log(), math.inf, 0
        self.clearly_best, self.clear_step = math.inf, 0  # of the last fall that was worthwhile
        self.best_weights = {name: weight.detach().clone() for name, weight in self.stack.weights.items()}
        self.held_out = torch.zeros(0)

    def train(self) -> None:
        """Train until the pooled loss has not fallen for long enough, or until Ctrl-C."""
        settings, started = self.settings, time.perf_counter()
        deadline = None if self.trainer.deadline is None else self.trainer.deadline.start()
        budget = self.trainer.steps or STEPS
        if self.trainer.epochs is not None:
            budget = self.trainer.epochs * self.in_epoch
        every = min(max(self.in_epoch // 2, _OFTEN), _SELDOM, budget)
        rate = LearningRate.of(settings, math.ceil(budget / self.in_epoch), self.in_epoch)
        batches = [
            endless_batches(rows, self.batch_size, self.trainer.seed, trial) for trial, rows in enumerate(self.rows)
        ]
        progress = Progress(self.trainer.verbose) if self.trainer.verbose else None
        title = f"expert of {self.method.modality!r}" if hasattr(self.method, "modality") else "all modalities"
        try:
            if progress is not None:
                progress.begin(title, budget)
            for block in range(math.ceil(budget / every)):
                began = time.perf_counter()
                steps = min(every, budget - block * every)
                terms = self._train_steps(batches, steps, rate)
                judged = self._judge(block, rate.step)
                row = {"phase": "fit", "epoch": block, "steps": rate.step, **terms, "validation_loss": judged}
                self.log.rows.append({**row, "seconds": time.perf_counter() - began})
                if progress is not None and (rate.step % _SHOWN < steps or rate.step == budget):
                    progress.show(title, "step", rate.step, budget, self.log.rows[-1])
                if self._ends(rate.step):
                    break
                if rate.step < budget and deadline is not None and deadline.passed():
                    self.log.out_of_time = True
                    break
            self.log.finished = True
        except KeyboardInterrupt:
            if self.trainer.on_interrupt == "raise":
                raise
            self.log.interrupted = True
        finally:
            if progress is not None:
                progress.end()
        self.log.seconds = time.perf_counter() - started

    def _train_steps(self, batches: Sequence[Iterator[np.ndarray]], steps: int, rate: LearningRate) -> dict[str, float]:
        """Train for some steps; return the mean of each loss term of the model of all samples."""
        totals: dict[str, Tensor] = {}
        epoch, left = 0, steps
        while left:
            epoch, done = divmod(rate.step, self.in_epoch)
            count = min(left, self.in_epoch - done)  # within an epoch the noise of a sample stays the same
            rows = torch.from_numpy(np.stack([[next(own) for own in batches] for _ in range(count)]))
            noise = EpochNoise(
                [epoch_seed(self.trainer.seed * len(batches) + trial, 0, epoch) for trial in range(len(batches))]
            )
            plans = [BatchPlan(chosen, 1.0, 1.0, ends_step=True) for chosen in rows]
            terms = self.stack.train_epoch(plans, epoch, rate, noise, by_epoch=False)
            totals = {name: totals.get(name, 0) + value[-1] for name, value in terms.items()}
            left -= count
        means = {name: float(value) / steps for name, value in totals.items()}
        for name, value in means.items():
            if not math.isfinite(value):
                raise diverged(type(self.method).__name__, name, value, self.settings.lr, epoch=epoch)
        return means

    def _judge(self, block: int, step: int) -> float:
        """Return the pooled loss of all held-out samples; keep weights and outputs if it is the lowest so far."""
        weights = self.stack.averaged()
        own = {name: weight[: self.folds] for name, weight in weights.items()}
        pieces = evaluate(self.method, own, self.judged, _loss_and_output, self.settings.precision)
        losses, outputs = (torch.cat(parts, dim=1).float().cpu() for parts in zip(*pieces))
        pooled, output = losses.new_zeros(self.samples), outputs.new_zeros(self.samples, outputs.shape[2])
        for fold, held in enumerate(self.held):
            pooled[held], output[held] = losses[fold, : len(held)], outputs[fold, : len(held)]
        loss = mean_without_worst(pooled.double(), self.weight.double(), self.method.ignored_worst)
        if not math.isfinite(loss):
            raise diverged(type(self.method).__name__, "validation_loss", loss, self.settings.lr, epoch=block)
        if loss < self.clearly_best * (1 - _WORTHWHILE):
            self.clearly_best, self.clear_step = loss, step
        if loss < self.best or self.fixed:
            self.best, self.best_step = loss, step
            self.best_weights = {name: weight.detach().clone() for name, weight in weights.items()}
            self.held_out = output
            self.log.best_epoch, self.log.best_step = block, step
        return loss

    def _ends(self, step: int) -> bool:
        """Whether the lowest loss lies so far back that training stops."""
        if self.trainer.patience is None:
            return False
        if self.trainer.patience == "auto":
            return step >= max(self.settings.least_steps, (1 + _LONGER) * self.clear_step + _MORE_STEPS)
        waited = step - self.best_step
        return step >= self.settings.least_steps and waited >= self.trainer.patience * self.in_epoch


def _loss_and_output(method: Method, prediction: Prediction, batch: Batch) -> tuple[Tensor, Tensor]:
    return method.validation_losses(prediction, batch), prediction.output
