"""The training loop: phases of epochs, batches, validation, early stopping and the best weights."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.seeding import let_others_by, seed_device
from consilience.methods import Method, Step
from consilience.training.augment_batch import Augmenter
from consilience.training.balancing import Balancer
from consilience.training.batch_loader import BatchLoader
from consilience.training.batch_plans import BatchPlan, epoch_means
from consilience.training.callbacks import Callback, ending_with, overridden_hooks, restore_callbacks, state_of
from consilience.training.cuda_graphs import Recorder, Work
from consilience.training.devices import epoch_seed, lay_out
from consilience.training.epoch_order import plan_samples
from consilience.training.freezing import Freezing
from consilience.training.modality_dropout import hide_some
from consilience.training.optimizers import LearningRate, Phase, build_optimizer, restore_optimizer, training_only
from consilience.training.parts import parameter_groups
from consilience.training.recomputing import recomputed
from consilience.training.time_limit import Deadline
from consilience.training.training_log import EarlyStopping, Log, check_weights, diverged, first_broken, validate
from consilience.training.training_settings import ResolvedSettings, steps_per_epoch

logger = logging.getLogger("consilience")
# Before the names of what callbacks observe, to tell them from the terms of the objective.
_OBSERVED = "observed: "
_LAST = "the weights as they are"


class TrainingRun:
    """One run of the loop: a module trained through its phases, in one process of possibly several.

    Callbacks receive it.

    Attributes:
        method: Registered name of the method, such as "concat", or the name of its class.
        number: Number of this run among the runs of its trainer, from 0.
        settings: How to train, with the values that follow the data.
        module: The method that is trained.
        fabric: Lightning Fabric or `OneDevice`, with the device and the number of processes.
        log: One row per epoch so far.
        step: Phase, epoch and loss history as the method's objective receives them.
        steps: Steps of the optimizer so far in this phase.
        parameters: What is trained in this phase.
        batch, losses, observed: During an epoch the last training batch, the terms of its objective (tensors on the
            device), and what callbacks observed of its prediction.
        best_weights: The weights with the lowest validation loss in this phase, or None.
        weights_kept: Which weights a phase without validation ends with, in words.
    """

    def __init__(
        self,
        fabric: Any,
        settings: ResolvedSettings,
        module: Method,
        train: BatchLoader,
        validation: BatchLoader | None,
        callbacks: Sequence[Callback] = (),
        number: int = 0,
        deadline: Deadline | None = None,
    ):
        self.fabric, self.settings, self.module, self.number = fabric, settings, module, number
        self._deadline = deadline
        self.train, self.validation = train, validation
        self.method = module.name or type(module).__name__
        if self.method.endswith(":"):  # a member of a family, such as unimodal:image
            self.method += str(getattr(module, "modality", ""))
        self.callbacks = [callback for callback in callbacks if callback.every_process or fabric.is_global_zero]
        # An expert of one modality, of which the other modalities need not be corrupted.
        self._augmenter = Augmenter.of(settings.augment, train, getattr(module, "modality", None))
        self._balancer = Balancer.of(settings, module)
        self.log = Log()
        self._steps_per_epoch = steps_per_epoch(len(train), settings.batch_size, settings.accumulate)
        self.phases: list[Phase] = []
        self.phase_parameters: list[list[str]] = []  # of each phase, by name
        self.step = Step()
        self.parameters: list[nn.Parameter] = []
        self.batch: Batch | None = None
        self.losses: dict[str, Tensor] = {}
        self.observed: dict[str, Tensor] = {}
        self.best_weights: dict[str, Tensor] | None = None
        self.weights_kept = _LAST
        self._hooks = overridden_hooks(self.callbacks)
        self._started: list[Callback] = []  # those whose `on_train_start` returned
        self._saved: dict[str, Any] | None = None  # the state to resume from
        self._best_of_any_phase: dict[str, Tensor] | None = None
        self._phase_number = 0
        self._model: Any = module  # as Fabric wraps it
        self._forward: Any = module  # as it is called
        self._optimizer: Any = None
        self._rate: LearningRate
        self._freezing: Freezing
        self._stopping: EarlyStopping
        self._stream: torch.cuda.Stream | None = None  # of recorded steps

    @property
    def phase(self) -> str:
        """Name of the phase."""
        return self.step.phase

    @property
    def epoch(self) -> int:
        """Epoch within the phase, from 0."""
        return self.step.epoch

    @property
    def epochs(self) -> int:
        """Largest number of epochs of the phase."""
        return self.step.epochs

    @property
    def steps(self) -> int:
        """Steps of the optimizer so far in this phase."""
        return self._rate.step

    @property
    def title(self) -> str:
        """Class of the method, and the phase if there are several."""
        return type(self.module).__name__ + ("" if len(self.phases) == 1 else f" ({self.phase})")

    @property
    def ends_phase(self) -> bool:
        """Whether this epoch is the last of its phase."""
        return self.epoch + 1 == self.epochs or self._stopping.ended() or self.log.out_of_time

    def describe(self) -> dict[str, Any]:
        """Return what is trained and how, as plain values by name, for loggers."""
        return {
            "method": self.method,
            "samples": len(self.train),
            "parameters": sum(parameter.numel() for parameter in self.module.parameters()),
            **self.settings.settings(),
        }

    def run(self, phases: list[Phase], phase_parameters: list[list[str]]) -> Log:
        """Train through every phase; each ends with its best weights.

        Args:
            phases: The phases in order.
            phase_parameters: For each phase the names of the parameters that it trains.
        """
        started = time.perf_counter()
        self.phases, self.phase_parameters = phases, phase_parameters
        twice = recomputed(self.module, self.settings.gradient_checkpointing)
        with twice, ending_with(self._started, "on_train_end", self):
            try:
                self._train_phases()
                check_weights(self.module, self.settings.lr)
                self.log.finished = not self.log.interrupted
            finally:
                self.log.seconds = time.perf_counter() - started
        return self.log

    def resume(self, state: dict[str, Any]) -> None:
        """Start from what `state` returned; called in `on_train_start`."""
        self._saved = state

    def state(self) -> dict[str, Any]:
        """Return everything that is needed to continue after this epoch."""
        return {
            "phase": self._phase_number,
            "epoch": self.epoch,
            "module": self.module.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "rate": self._rate.state(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "stopping": self._stopping.state(),
            "best_weights": self.best_weights,
            "rows": self.log.rows,
            "out_of_time": self.log.out_of_time,
            "callbacks": state_of(self.callbacks),
            "balance": None if self._balancer is None else self._balancer.state(),
        }

    def _call(self, hook: str, *arguments: Any) -> None:
        for method in self._hooks[hook]:
            method(self, *arguments)

    def _train_phases(self) -> None:
        if self.fabric.device.type == "cuda":
            # A GPU takes the moments of a batch norm channel by channel, and of a few channels it is no faster than a
            # processor, unless a pixel's channels lie side by side.
            lay_out(self.module, torch.channels_last)
        self._model = self.fabric.setup_module(self.module)
        # Where Fabric has nothing to add, its wrapper would only walk through every prediction.
        plain = self.fabric.world_size == 1 and self.settings.precision == "32" and self.settings.strategy == "auto"
        self._forward = self.module if plain else self._model
        try:
            for callback in self.callbacks:
                callback.on_train_start(self)
                self._started.append(callback)
            first = 0
            if self._saved is not None:  # after the setup, which may change the precision
                first, self.log.rows = self._saved["phase"], self._saved["rows"]
                self.log.out_of_time = self._saved.get("out_of_time", False)
                self.module.load_state_dict(self._saved["module"])
                self.fabric.strategy.precision.load_state_dict(self._saved["precision"])
            for number in range(first, len(self.phases)):
                self._train_phase(number)
                self._saved = None
        except KeyboardInterrupt as interrupt:
            if self.settings.on_interrupt == "raise":
                raise
            self._keep_best()
            for failure in getattr(interrupt, "__notes__", ()):  # of callbacks, when the phase ended
                logger.warning("%s", failure)
        finally:
            lay_out(self.module, torch.contiguous_format)

    def _keep_best(self) -> None:
        """End an interrupted run with the best weights so far, also those of an earlier phase."""
        self.log.interrupted = True
        kept = self.weights_kept
        if self._best_of_any_phase is not None:
            self.module.load_state_dict(self._best_of_any_phase)
            kept = f"the best weights so far, of epoch {(self.log.best_epoch or 0) + 1}"
        logger.warning("training of %s was interrupted: keeping %s", type(self.module).__name__, kept)

    def _train_phase(self, number: int) -> None:
        phase, names, settings = self.phases[number], self.phase_parameters[number], self.settings
        epochs = settings.epochs if phase.epochs is None else phase.epochs
        self._phase_number = number
        self._rate = LearningRate.of(settings, epochs, self._steps_per_epoch, phase.lr)
        self.best_weights, self.weights_kept, start = None, _LAST, 0
        self.step = Step(0, epochs, phase.name)
        resumed = 0 if self._saved is None else self._saved["epoch"] + 1  # epochs of this phase
        place = (len(self.log.rows) - resumed) * self._steps_per_epoch, number + 1 == len(self.phases)
        freezing = Freezing(self.module, names, settings, self._steps_per_epoch, *place)
        task = getattr(self.module, "task", None)  # None: of a latent model
        classification = task is not None and task.classification
        self._stopping = EarlyStopping.of(settings, self._steps_per_epoch, freezing.last, classification=classification)
        with training_only(self.module, names) as self.parameters, freezing as self._freezing:
            self._optimizer = self.fabric.setup_optimizers(
                build_optimizer(
                    settings,
                    parameter_groups(self.module, names, settings, phase.lr) or self.parameters,
                    self._rate.base,
                    # A fused update unscales 16-bit gradients itself, too late for clipping.
                    fused=settings.clip is None or not settings.precision.startswith("16"),
                    recorded=settings.cuda_graphs and self.fabric.device.type == "cuda",
                )
            )
            with ending_with(self.callbacks, "on_phase_end", self):
                try:
                    self._call("on_phase_start")
                    if self._saved is not None:
                        start = self._restore(self._saved)
                    for epoch in range(start, epochs):
                        if self._stopping.ended() or (epoch > 0 and self.log.out_of_time):
                            break
                        self.step = Step(epoch, epochs, phase.name)
                        self._run_epoch()
                finally:  # also when it fails: the best weights stay
                    if self.best_weights is not None:
                        self.module.load_state_dict(self.best_weights)

    def _restore(self, saved: dict[str, Any]) -> int:
        """Continue a phase from a saved state; return the epoch to start with."""
        restore_optimizer(self._optimizer, saved["optimizer"])
        self._rate.restore(saved["rate"])
        self._stopping.restore(saved["stopping"])
        if saved["best_weights"] is not None:
            self._take_best(saved["best_weights"])
        restore_callbacks(self.callbacks, saved["callbacks"])
        if self._balancer is not None:
            self._balancer.restore(saved["balance"])
        return saved["epoch"] + 1

    def _run_epoch(self) -> None:
        """Train one epoch, validate, and add a row to the log."""
        started = time.perf_counter()
        self._call("on_epoch_start")
        values = self._train_batches()
        score = sum(values.values()) if self.validation is None else self._validate(values, self.validation)
        self._rate.end_epoch(score)
        place = {"phase": self.phase, "epoch": self.epoch, "steps": self.steps}
        row = {**place, **values, "seconds": time.perf_counter() - started}
        self.log.rows.append(row)
        if self._deadline is not None and self._deadline.passed() and not self.ends_phase:
            self.log.out_of_time = True
        self._call("on_epoch_end", row)

    def _train_batches(self) -> dict[str, float]:
        """Train on all batches of an epoch; return the mean of each loss term."""
        settings, fabric = self.settings, self.fabric
        seed = epoch_seed(settings.seed, self._phase_number, self.epoch)
        drawing = torch.Generator().manual_seed(seed)
        # Every process draws its own dropout, all of them the same order.
        seed_device(seed + fabric.global_rank * 2**40, fabric.device)
        samples, weight, accumulate = self.train.samples, self.train.weight, settings.accumulate
        plans = plan_samples(
            samples, weight, drawing, settings.batch_size, accumulate, fabric.world_size, fabric.global_rank
        )
        self._forward.train()
        self._freezing.at(self.steps)
        self._rate.set(self._optimizer)
        terms: dict[str, dict[int, Tensor]] = {}

        def learn(batch: Batch, position: int = 0) -> dict[str, Tensor]:
            return self._learn(batch, plans[position], position)

        recorder = self._recorder(learn, plans)
        after_batch, after_step = self._hooks["on_batch_end"], self._hooks["on_step_end"]
        change = None if self._augmenter is None else self._augmenter.in_epoch(seed)
        for position, batch in enumerate(self.train.batches([plan.rows for plan in plans], change)):
            let_others_by()
            if settings.modality_dropout:
                batch = batch.hiding(hide_some(batch.present, settings.modality_dropout))
            if self._rate.moves:
                self._rate.set(self._optimizer)
            if self._freezing.changes(self.steps, self.steps):
                self._freezing.at(self.steps)
            losses = learn(batch, position) if recorder is None else recorder(batch)
            if self._hooks["observe"]:
                observed = [name for name in losses if name.startswith(_OBSERVED)]
                self.observed = {name.removeprefix(_OBSERVED): losses.pop(name) for name in observed}
            for name, value in losses.items():
                terms.setdefault(name, {})[position] = value
            self._rate.step += plans[position].ends_step
            self.batch, self.losses = batch, losses
            for call in after_batch:
                call(self)
            if plans[position].ends_step:
                for call in after_step:
                    call(self)
        self.batch = None  # whose memory may be that of the whole epoch
        means, broken = epoch_means(terms, plans, fabric)  # waits for the device
        if broken is not None:
            raise self._diverged(*broken)
        return means

    def _learn(self, batch: Batch, plan: BatchPlan, position: int) -> dict[str, Tensor]:
        """Learn from one batch; return every term of the objective, and what callbacks observe of the prediction."""
        # Where nothing has to wait for it, a loss is checked before its step; elsewhere after the epoch.
        checked = self.fabric.device.type == "cpu" and self.fabric.world_size == 1
        with self.fabric.no_backward_sync(self._model, enabled=not plan.ends_step):
            prediction = self._forward(batch)
            losses = self.module.objective(prediction, batch, self.step)
            if self._balancer is not None:
                losses = self._balancer.losses(prediction, batch, losses)
            loss = torch.stack(list(losses.values())).sum() if len(losses) > 1 else next(iter(losses.values()))
            if checked and not math.isfinite(float(loss.detach())):
                raise self._diverged(*first_broken(losses), position)
            self.fabric.backward(loss if plan.share == 1 else loss * plan.share)
        if self._balancer is not None:
            self._balancer.balance_gradients(prediction, batch)
        found = {name: value.detach() for name, value in losses.items()}
        for observe in self._hooks["observe"]:
            found |= {_OBSERVED + name: value.detach() for name, value in observe(self, prediction, batch).items()}
        if plan.ends_step:
            if self.settings.clip is not None:
                self.fabric.clip_gradients(
                    self._model, self._optimizer, max_norm=self.settings.clip, error_if_nonfinite=False
                )
            self._optimizer.step()
            self._optimizer.zero_grad()
        return found

    def _recorder(self, work: Work, plans: list[BatchPlan]) -> Recorder | None:
        """Return what replays the steps of an epoch, or None where they are not recorded."""
        device, alike = self.fabric.device, all(plan.share == 1 and plan.ends_step for plan in plans)
        if not self.settings.cuda_graphs or device.type != "cuda" or self._rate.moves or not alike:
            return None
        if self._freezing.changes(self.steps + 1, self.steps + len(plans) - 1):  # a replayed step trains what it did
            return None
        self._stream = self._stream or torch.cuda.Stream(device)
        return Recorder(work, type(self.module).__name__, self._stream)

    def _diverged(self, term: str, value: float, batch: int | None = None) -> Exception:
        title = type(self.module).__name__
        return diverged(title, term, value, self.settings.lr, epoch=self.epoch, batch=batch)

    def _validate(self, row: dict[str, float], validation: BatchLoader) -> float:
        """Add the validation figures to an epoch's row and copy the weights if they are the best so far."""
        with ending_with(self.callbacks, "on_validation_end", self):
            self._call("on_validation_start")
            row |= validate(self._forward, self.module, validation, self.settings.evaluation_batch)
            loss = row["validation_loss"]
            if not math.isfinite(loss):
                raise self._diverged("validation_loss", loss)
            if self._stopping.improves(loss, self.epoch):
                self._take_best({name: value.detach().clone() for name, value in self.module.state_dict().items()})
        return loss

    def _take_best(self, weights: dict[str, Tensor]) -> None:
        self.best_weights = self._best_of_any_phase = weights
        self.log.take_best(self._stopping.best_epoch[0], self._steps_per_epoch)
