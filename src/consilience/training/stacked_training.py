"""Many models of one method trained at once: their weights are stacked, and each is trained on data of its own.

A small network leaves most of a machine idle. Stacked by `torch.func`, thirty of them cost little more than a few, and
since the optimizer works element by element, each learns what it would have learned alone, except for what dropout and
the like draw at random. Running statistics are stacked like weights.

Why this is not `TrainingRun`: there Lightning Fabric wraps a module that owns its weights, calls it, and scales and
clips its gradients; here no module owns the stacked weights, clipping and early stopping are per model, and a model
that has ended leaves the stack. Shared with it are the settings, the order of samples, the steps of an epoch, optimizer
and learning rate, validation figures, early stopping, averaging, and the rows of the log.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.func import stack_module_state

from consilience.core.batches import Batch
from consilience.core.errors import InputError, TrainingError
from consilience.core.seeding import let_others_by
from consilience.methods import Method, Prediction, Step, task_losses
from consilience.training.augment_values import EpochNoise
from consilience.training.batch_loader import CHANGED_BYTES
from consilience.training.batch_plans import BatchPlan
from consilience.training.devices import epoch_seed
from consilience.training.modality_dropout import hide_some
from consilience.training.optimizers import LearningRate, build_optimizer
from consilience.training.stacked_augment import StackedAugmenter
from consilience.training.stacked_data import Trials, plan_own_orders, plan_shared_order
from consilience.training.stacked_mlp import Objective
from consilience.training.stacked_predictions import ROWS, Ask, Weights, ask_trials, evaluate
from consilience.training.training_log import EarlyStopping, Log, figures, per_sample
from consilience.training.training_settings import (
    ALL_PARTS_ALIKE,
    ResolvedSettings,
    TrainingSettings,
    resolve,
    steps_per_epoch,
)
from consilience.training.trial_optimizer import TrialAdamW, TrialRates
from consilience.training.weight_averaging import update_means

# Settings that stacked training does not have, with the values it accepts.
ACCEPTED: dict[str, tuple[Any, ...]] = {
    "schedule": ("constant", "cosine"),
    "precision": ("32", "bf16", "bf16-mixed"),
    "devices": (1,),
    "nodes": (1,),
    "strategy": ("auto",),
    "balance": (None,),
    **ALL_PARTS_ALIKE,
}

# Returns an epoch's training samples: called with its number, the numbers of the models that still train, and the last.
Renew = Callable[[int, list[int], Trials], Trials]


@dataclass(frozen=True)
class SideBySide:
    """Trained models.

    Attributes:
        method: The method, with weights of no model in particular.
        weights: Weights and running statistics at the lowest validation loss: name → `[trial, *shape]`.
        losses: That loss `[trial]`.
        epochs: After how many epochs it was reached `[trial]`.
        logs: Each model's log; its times are its share of the whole.
    """

    method: Method
    weights: Mapping[str, Tensor]
    losses: Tensor
    epochs: Tensor
    logs: list[Log] = field(default_factory=list)

    def measure(self, data: Trials) -> Tensor:
        """Return each model's mean task loss on its own data: `[trial]`."""
        losses = evaluate(self.method, self.weights, data, _task_loss)
        return torch.stack(losses).sum(dim=0) / data.samples

    def trained(self, trial: int) -> Method:
        """Return the method with the weights of one model."""
        method = copy.deepcopy(self.method)
        method.load_state_dict({name: weight[trial] for name, weight in self.weights.items()})
        return method


def train_side_by_side(
    methods: Sequence[Method],
    train: Trials,
    validation: Trials,
    settings: TrainingSettings | None = None,
    *,
    seeds: Sequence[int] | None = None,
    rows: int = ROWS,
    augmenter: StackedAugmenter | None = None,
    rates: TrialRates | None = None,
    renew: Renew | None = None,
    keep_lost: bool = False,
) -> SideBySide:
    """Train methods that are built alike, each on its own trial; keep each at its lowest validation loss.

    Args:
        methods: One for each trial. They are not changed.
        train: Training samples.
        validation: Validation samples.
        settings: How to train. Those in `ACCEPTED` are restricted; the device is that of the samples.
        seeds: One for each trial, which then sees its samples in the order in which `Trainer` orders them. None: one
            order for all trials, drawn from `settings.seed`, and a learning rate that is constant within an epoch.
        rows: Samples of each trial that are evaluated at once.
        augmenter: What corrupts the training samples; required if `settings.augment` is set.
        rates: Learning rate and weight decay of each trial, with the optimizer AdamW; those of the settings are then
            ignored. None: those of the settings for all.
        renew: Gives the training samples of each epoch, equally many in each. None: those of `train` in all epochs.
        keep_lost: Whether a trial whose validation loss was never finite is kept, with an infinite loss and the weights
            that it started with.

    Raises:
        InputError: If methods, trials and seeds do not match, or a setting is not supported.
        TrainingError: If the validation loss of a model was never finite.
    """
    settings = resolve(settings or TrainingSettings(), train.samples)
    check_trials(methods, train, validation, settings, seeds, rates)
    if settings.augment is not None and augmenter is None:
        raise InputError("side by side: augment needs an augmenter, StackedAugmenter.of(augment, sets, preparations)")
    stack = Stack(methods, train, validation, settings, augmenter, rates)
    in_epoch = steps_per_epoch(train.samples, settings.batch_size, settings.accumulate)
    classification = methods[0].task.classification
    stopping = EarlyStopping.of(settings, in_epoch, models=len(methods), classification=classification)
    rate = LearningRate.of(settings, settings.epochs, 1 if seeds is None else in_epoch)
    shared = torch.Generator().manual_seed(settings.seed)
    logs = [Log(finished=True) for _ in methods]
    best = {name: weight.detach().clone() for name, weight in stack.weights.items()}
    for epoch in range(settings.epochs):
        started = time.perf_counter()
        going = stack.going.tolist()
        if renew is not None:
            stack.train = renew(epoch, going, stack.train)
        plans: Iterable[BatchPlan]
        own = [settings.seed + trial for trial in going] if seeds is None else [seeds[trial] for trial in going]
        if seeds is None:
            plans = plan_shared_order(stack.train, settings.batch_size, shared)
        else:
            plans = plan_own_orders(stack.train, settings.batch_size, settings.accumulate, own, epoch)
        noise = EpochNoise([epoch_seed(seed, 0, epoch) for seed in own])
        terms = stack.train_epoch(plans, epoch, rate, noise, by_epoch=seeds is None)
        weights = stack.averaged()
        rows_now = stack.validate(weights, rows)
        improved = [
            stopping.improves(row["validation_loss"], epoch, trial) for trial, row in zip(going, rows_now, strict=True)
        ]
        better = torch.tensor(improved, device=stack.going.device)
        for name, weight in weights.items():
            best[name][stack.going[better]] = weight.detach()[better]
        values = {name: value.tolist() for name, value in terms.items()}
        seconds = (time.perf_counter() - started) / len(going)
        for place, (trial, row) in enumerate(zip(going, rows_now)):
            losses = {name: value[place] for name, value in values.items()}
            where = {"phase": "fit", "epoch": epoch, "steps": stack.steps}
            logs[trial].rows.append({**where, **losses, **row, "seconds": seconds})
        still = [not stopping.ended(trial) for trial in going]
        if not any(still):
            break
        if not all(still):
            stack.keep(torch.tensor(still, device=stack.going.device))
    lost = [trial for trial, epoch in enumerate(stopping.best_epoch) if epoch is None]
    if lost and not keep_lost:
        raise TrainingError(f"side by side: the loss of trials {lost} was never finite; lower lr, now {settings.lr:g}")
    for trial, log in enumerate(logs):
        log.take_best(stopping.best_epoch[trial], in_epoch)
    losses_at_best = torch.tensor(stopping.best, device=train.y.device)
    epochs = torch.tensor([(log.best_epoch or 0) + 1 for log in logs], device=train.y.device)
    return SideBySide(stack.method.eval(), best, losses_at_best, epochs, logs)


def check_trials(
    methods: Sequence[Method],
    train: Trials,
    validation: Trials,
    settings: TrainingSettings,
    seeds: Sequence[int] | None,
    rates: TrialRates | None = None,
) -> None:
    """Raise an error for settings that stacked training does not have, and for trials that do not match the methods."""
    if reason := settings.outside(ACCEPTED):
        raise InputError(f"side by side: {reason}")
    if not methods or not len(methods) == len(train) == len(validation):
        raise InputError(
            f"side by side: one method for each trial, got {len(methods)} methods, data of {len(train)} trials to "
            f"train on and of {len(validation)} to validate on"
        )
    if seeds is not None and len(seeds) != len(methods):
        raise InputError(f"side by side: one seed for each of {len(methods)} trials, got {len(seeds)}")
    if rates is not None and len(rates) != len(methods):
        raise InputError(f"side by side: one learning rate for each of {len(methods)} trials, got {len(rates)}")
    if seeds is None and settings.accumulate > 1:
        raise InputError("side by side: accumulate needs a seed for each trial")


class Stack:
    """The models that still train: stacked weights and statistics, their data and the optimizer.

    `going` has the number of each model, in the order of the stack.
    """

    def __init__(
        self,
        methods: Sequence[Method],
        train: Trials,
        validation: Trials,
        settings: ResolvedSettings,
        augmenter: StackedAugmenter | None = None,
        rates: TrialRates | None = None,
    ):
        device = train.y.device
        self.objective: Objective | None = None  # a faster way to the objective than `torch.func`, if there is one
        self.train, self.validation, self.settings, self.augmenter = train, validation, settings, augmenter
        self.method = copy.deepcopy(methods[0]).to(device).train()
        learned, buffers = stack_module_state(list(methods))
        self.learned = {name: weight.detach().to(device).requires_grad_() for name, weight in learned.items()}
        self.statistics = {name: buffer.detach().to(device) for name, buffer in buffers.items()}
        self.going = torch.arange(len(methods), device=device)
        self.optimizer = build_optimizer(settings, self.learned.values())
        if rates is not None:
            self.optimizer = TrialAdamW(self.learned.values(), rates, settings.lr)
        self.steps = 0
        self.means: Weights = {}
        if settings.average is not None:
            saved = self.method.state_dict().keys()
            self.means = {
                name: weight.detach().to(torch.promote_types(weight.dtype, torch.float32), copy=True)
                for name, weight in self.weights.items()
                if name in saved and weight.is_floating_point()
            }

    @property
    def weights(self) -> Weights:
        """Weights and running statistics by name: `[trial, *shape]`."""
        return self.learned | self.statistics

    def train_epoch(
        self, plans: Iterable[BatchPlan], epoch: int, rate: LearningRate, noise: EpochNoise, by_epoch: bool
    ) -> dict[str, Tensor]:
        """Train on all batches of an epoch; return the mean of each loss term, `[trial]`."""
        settings = self.settings
        step = Step(epoch=epoch, epochs=settings.epochs)
        terms: dict[str, Tensor] = {}
        rate.set(self.optimizer)
        for plan, batch in self._batches(plans, noise):
            let_others_by()
            if settings.modality_dropout:
                batch = batch.hiding(lambda present: hide_some(present, settings.modality_dropout))
            if rate.moves:
                rate.set(self.optimizer)
            losses = self._losses(batch, step)
            total = torch.stack(list(losses.values()))
            # No weight is in the losses of two trials.
            (total if isinstance(plan.share, float) and plan.share == 1 else total * plan.share).sum().backward()
            if plan.ends_step:
                self._step()
                rate.step += not by_epoch
            terms = {name: terms.get(name, 0) + plan.of_epoch * value.detach() for name, value in losses.items()}
        rate.step += by_epoch
        return terms

    def _batches(self, plans: Iterable[BatchPlan], noise: EpochNoise) -> Iterator[tuple[BatchPlan, Trials]]:
        """Yield each plan with its batch; several small batches are corrupted at once, in few calls."""
        device, augmenter = self.going.device, self.augmenter
        if augmenter is None:
            for plan in plans:
                yield plan, self.train.rows(plan.rows.to(device, non_blocking=True))
            return
        for group in _grouped(plans, self._rows_at_once()):
            rows = torch.cat([plan.rows for plan in group], dim=-1).to(device, non_blocking=True)
            corrupted = augmenter.apply(noise, self.train.rows(rows), rows, self.train)
            start = 0
            for plan in group:
                stop = start + plan.rows.shape[-1]
                yield plan, corrupted if len(group) == 1 else corrupted.part(start, stop)
                start = stop

    def _rows_at_once(self) -> int:
        """Samples of each trial that are corrupted at once."""
        size = sum(value[0, 0].numel() * value.element_size() for value in self.train.values.values())
        most = CHANGED_BYTES if self.going.device.type == "cpu" else 16 * CHANGED_BYTES
        return most // max(1, len(self.train) * size)

    def _losses(self, batch: Trials, step: Step) -> dict[str, Tensor]:
        """The terms of every trial's objective, `[trial]`."""
        if self.objective is not None:
            return self.objective(self.weights, batch)
        asking: Ask = lambda method, *rest: method.objective(*rest, step)  # noqa: E731
        return ask_trials(self.method, asking, self.weights, batch, self.settings.precision)

    def _step(self) -> None:
        if self.settings.clip is not None:
            _clip([weight.grad for weight in self.learned.values() if weight.grad is not None], self.settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.settings.average is not None:
            current = [self.weights[name].detach() for name in self.means]
            update_means(list(self.means.values()), current, self.settings.average, self.steps)
        self.steps += 1

    def averaged(self) -> Weights:
        """Return the weights to validate and keep: their average over the steps, if the settings say so."""
        weights = self.weights
        for name, mean in self.means.items():
            own = weights[name]
            weights[name] = (mean if name in self.learned else torch.where(mean.isfinite(), mean, own)).to(own.dtype)
        return weights

    def validate(self, weights: Weights, rows: int) -> list[dict[str, float]]:
        """Return the validation figures of each model."""
        pieces = evaluate(self.method, weights, self.validation, per_sample, self.settings.precision, rows)
        return [figures(self.method, trial) for trial in torch.cat(pieces, dim=2).cpu()]

    def keep(self, still: Tensor) -> None:
        """Take models that have ended out of the stack, and out of what the optimizer remembers."""
        self.going, self.train, self.validation = self.going[still], self.train.only(still), self.validation.only(still)
        self.augmenter = None if self.augmenter is None else self.augmenter.only(still)
        self.statistics = {name: buffer[still] for name, buffer in self.statistics.items()}
        self.means = {name: mean[still] for name, mean in self.means.items()}
        if isinstance(self.optimizer, TrialAdamW):
            self.optimizer.keep(still)
        for weight in self.learned.values():
            memory = self.optimizer.state[weight]
            for name, value in memory.items():
                if isinstance(value, Tensor) and value.shape == weight.shape:
                    memory[name] = value[still]
            weight.grad = None
            weight.data = weight.data[still]


def _grouped(plans: Iterable[BatchPlan], at_once: int) -> Iterator[list[BatchPlan]]:
    """Consecutive plans of together at most this many samples, but at least one plan."""
    group: list[BatchPlan] = []
    samples = 0
    for plan in plans:
        if group and samples + plan.rows.shape[-1] > at_once:
            yield group
            group, samples = [], 0
        group.append(plan)
        samples += plan.rows.shape[-1]
    if group:
        yield group


def _clip(gradients: Sequence[Tensor], largest: float) -> None:
    """Shorten every model's gradient to this norm, as `torch.nn.utils.clip_grad_norm_` does for one."""
    norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
    factors = (largest / (norms + 1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(factors.view(-1, *[1] * (gradient.ndim - 1)))


def _task_loss(method: Method, prediction: Prediction, batch: Batch) -> Tensor:
    return task_losses(method.task, prediction.output, batch).sum()
