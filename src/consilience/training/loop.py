"""The loop itself: epochs over batches, validation, the best weights kept, checkpoints, several processes."""

from __future__ import annotations

import hashlib
import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.errors import InputError, TrainingError
from consilience.methods import Method, Prediction, Step, expert_losses
from consilience.training.batch_plan import BatchPlan, plan_epoch, steps_per_epoch
from consilience.training.checkpoint import read_checkpoint, write_checkpoint
from consilience.training.cuda_graphs import Recorder, Work
from consilience.training.devices import lay_out
from consilience.training.feed import Feed
from consilience.training.loss_history import LossHistory
from consilience.training.optimizers import Schedule, build_optimizer, restore_optimizer
from consilience.training.phases import Phase, training_only
from consilience.training.progress import Progress, logger
from consilience.training.seeding import epoch_seed, seed_device
from consilience.training.validation import validate
from consilience.training.weight_averaging import WeightAverage

if TYPE_CHECKING:
    from consilience.training.trainer import Trainer

# What the experts' own losses are called among the terms of a step.
_OWN = " experts"


@dataclass
class Log:
    """What happened: one row per epoch (phase, epoch, losses, validation figures, seconds), and how it ended."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int | None = None
    interrupted: bool = False
    finished: bool = False
    seconds: float = 0.0


@dataclass
class Course:
    """How far the early stopping of one phase has come."""

    best: float = math.inf
    best_epoch: int | None = None
    stale: int = 0
    state: dict[str, Tensor] | None = None


class Loop:
    """One training run of one module in one process (of possibly several)."""

    def __init__(
        self,
        fabric: Any,
        trainer: Trainer,
        module: Method,
        train: Feed,
        validation: Feed | None,
        checkpoint: Path | None = None,
    ):
        self.fabric, self.trainer, self.module = fabric, trainer, module
        self.train, self.validation, self.checkpoint = train, validation, checkpoint
        self.log = Log()
        self.history = build_history(module, len(train), fabric.device)
        self._forward: Any = module  # the module as it is called
        self._best: dict[str, Tensor] | None = None  # the best weights of the last phase that had any
        self._average: WeightAverage | None = None  # of this phase's steps, if asked for
        self._saved_at = time.monotonic()
        self._stream: torch.cuda.Stream | None = None  # of recorded steps

    def run(self, phases: list[Phase], chosen: list[list[str]]) -> Log:
        """Train through every phase, each ending with its best weights. chosen: each phase's parameters by name."""
        started = time.perf_counter()
        saved = read_checkpoint(self.checkpoint, self._fingerprint(phases, chosen)) if self.checkpoint else None
        if self.fabric.device.type == "cuda":
            # A GPU takes the moments of a batch norm channel by channel, and of a few channels it is no faster than a
            # processor, unless a pixel's channels lie side by side.
            lay_out(self.module, torch.channels_last)
        model = self.fabric.setup_module(self.module)
        # Where Fabric has nothing to add, its wrapper would only walk through every prediction.
        plain = self.fabric.world_size == 1 and self.trainer.precision == "32" and self.trainer.strategy == "auto"
        self._forward = self.module if plain else model
        first = 0
        if saved is not None:  # after the setup, which may change the precision
            first = saved["phase"]
            self.log.rows = saved["rows"]
            self.module.load_state_dict(saved["module"])
            self.fabric.strategy.precision.load_state_dict(saved["precision"])
            if self.history is not None:
                self.history.restore(saved["history"])
        try:
            for number in range(first, len(phases)):
                self._phase(model, phases, chosen, number, saved if number == first else None)
        except KeyboardInterrupt:
            if self.trainer.on_interrupt == "raise":
                raise
            self._keep()
        finally:
            lay_out(self.module, torch.contiguous_format)
        self._check_weights()
        self.log.finished = not self.log.interrupted
        self.log.seconds = time.perf_counter() - started
        return self.log

    def _keep(self) -> None:
        """End an interrupted run with the best weights so far, also those of an earlier phase."""
        self.log.interrupted = True
        kept = "the weights as they are" if self._average is None else "the average of its steps so far"
        if self._best is not None:
            self.module.load_state_dict(self._best)
            kept = f"the best weights so far, of epoch {(self.log.best_epoch or 0) + 1}"
        logger.warning("training of %s was interrupted: keeping %s", type(self.module).__name__, kept)

    def _phase(
        self, model: Any, phases: list[Phase], chosen: list[list[str]], number: int, saved: dict[str, Any] | None
    ) -> None:
        phase, trainer = phases[number], self.trainer
        epochs = trainer.epochs if phase.epochs is None else phase.epochs
        steps = steps_per_epoch(len(self.train), trainer.batch_size, trainer.accumulate)
        rate = trainer.lr if phase.lr is None else phase.lr
        schedule = Schedule(
            trainer.schedule, round(trainer.warmup * steps), epochs * steps, max(1, (trainer.patience or 10) // 2)
        )
        course, start = Course(), 0
        title = type(self.module).__name__ + ("" if len(phases) == 1 else f" ({phase.name})")
        show = Progress(title, epochs, trainer.verbose if self.fabric.is_global_zero else 0)
        with training_only(self.module, chosen[number]) as parameters:
            optimizer = self.fabric.setup_optimizers(
                build_optimizer(
                    trainer.optimizer,
                    parameters,
                    rate,
                    trainer.weight_decay,
                    trainer.momentum,
                    # A fused update unscales 16-bit gradients itself, too late for clipping.
                    fused=trainer.clip is None or not trainer.precision.startswith("16"),
                    recorded=trainer.cuda_graphs and self.fabric.device.type == "cuda",
                )
            )
            self._average = None
            if trainer.average is not None:
                self._average = WeightAverage(self.module, parameters, trainer.average)
            if saved is not None:
                restore_optimizer(optimizer, saved["optimizer"])
                if self._average is not None:
                    self._average.restore(saved["average"])
                schedule.restore(saved["schedule"])
                start, course = saved["epoch"] + 1, Course(**saved["course"])
                self._note(course)
            try:
                with show:
                    for epoch in range(start, epochs):
                        if trainer.patience is not None and course.stale >= trainer.patience:
                            break
                        began = time.perf_counter()
                        step = Step(epoch, epochs, phase.name, self.history)
                        row = self._epoch(model, optimizer, schedule, step, rate, number)
                        schedule.end_epoch(self._judge(row, course, step))
                        row = {"phase": phase.name, "epoch": epoch, **row, "seconds": time.perf_counter() - began}
                        self.log.rows.append(row)
                        show.epoch(epoch + 1, row)
                        last = epoch + 1 == epochs or course.stale == trainer.patience
                        self._save(phases, chosen, number, epoch, optimizer, schedule, course, last)
            finally:  # also when it fails: what was best is what stays
                if course.state is not None:
                    self.module.load_state_dict(course.state)
                elif self._average is not None:
                    self._average.apply()

    def _epoch(
        self, model: Any, optimizer: Any, schedule: Schedule, step: Step, rate: float, phase: int
    ) -> dict[str, Any]:
        trainer, fabric = self.trainer, self.fabric
        seed = epoch_seed(trainer.seed, phase, step.epoch)
        order = torch.randperm(len(self.train), generator=torch.Generator().manual_seed(seed))
        # Every process draws its own dropout, all of them the same order.
        seed_device(seed + fabric.global_rank * 2**40, fabric.device)
        plans = plan_epoch(
            order, self.train.weight, trainer.batch_size, trainer.accumulate, fabric.world_size, fabric.global_rank
        )
        self._forward.train()
        set_rate(optimizer, rate * schedule.factor())
        terms: dict[str, dict[int, Tensor]] = {}

        def learn(batch: Batch, position: int = 0) -> dict[str, Tensor]:
            return self._learn(model, optimizer, batch, step, plans[position], position)

        recorder = self._recorder(learn, plans, schedule)
        for position, batch in enumerate(self.train.batches([plan.rows for plan in plans])):
            if trainer.modality_dropout:
                batch = batch.hiding(hide_some(batch.present, trainer.modality_dropout))
            if schedule.moves:
                set_rate(optimizer, rate * schedule.factor())
            found = learn(batch, position) if recorder is None else recorder(batch)
            own = found.pop(_OWN, None)
            if self.history is not None and own is not None:
                self.history.record(batch.index, own, batch.present, epoch=step.epoch)
            for name, value in found.items():
                terms.setdefault(name, {})[position] = value
            schedule.step += plans[position].ends_step
            if self._average is not None and plans[position].ends_step:
                self._average.update()
        if self.history is not None:
            self.history.gather(fabric)
        return self._means(terms, plans, step)

    def _learn(
        self, model: Any, optimizer: Any, batch: Batch, step: Step, plan: BatchPlan, position: int
    ) -> dict[str, Tensor]:
        """Learn from one batch: every term of the objective, and for a history the losses of the experts themselves."""
        # Where nothing has to wait for it, a loss is looked at before its step; elsewhere after the epoch.
        watched = self.fabric.device.type == "cpu" and self.fabric.world_size == 1
        with self.fabric.no_backward_sync(model, enabled=not plan.ends_step):
            prediction = self._forward(batch)
            losses = self.module.objective(prediction, batch, step)
            loss = torch.stack(list(losses.values())).sum() if len(losses) > 1 else next(iter(losses.values()))
            if watched and not math.isfinite(float(loss.detach())):
                raise self._diverged(*first_broken(losses), step, position)
            self.fabric.backward(loss if plan.share == 1 else loss * plan.share)
        found = {name: value.detach() for name, value in losses.items()}
        if self.history is not None:
            found[_OWN] = self._experts_losses(prediction, batch)
        if plan.ends_step:
            if self.trainer.clip is not None:
                self.fabric.clip_gradients(model, optimizer, max_norm=self.trainer.clip, error_if_nonfinite=False)
            optimizer.step()
            optimizer.zero_grad()
        return found

    def _experts_losses(self, prediction: Prediction, batch: Batch) -> Tensor:
        if prediction.opinions is None:
            raise InputError(f"{type(self.module).__name__} keeps a loss history but gives no opinions")
        own = prediction.extra.get("expert_losses")
        return expert_losses(self.module.task, prediction.opinions.detach(), batch) if own is None else own.detach()

    def _recorder(self, work: Work, plans: list[BatchPlan], schedule: Schedule) -> Recorder | None:
        """What replays the steps of an epoch, where that was asked for and the steps are all alike."""
        device, alike = self.fabric.device, all(plan.share == 1 and plan.ends_step for plan in plans)
        if not self.trainer.cuda_graphs or device.type != "cuda" or schedule.moves or not alike:
            return None
        self._stream = self._stream or torch.cuda.Stream(device)
        return Recorder(work, type(self.module).__name__, self._stream)

    def _means(self, terms: dict[str, dict[int, Tensor]], plans: list[BatchPlan], step: Step) -> dict[str, Any]:
        """Each loss term's mean over the epoch. Looked at only now: during the epoch nothing waits for the device."""
        means: dict[str, Any] = {}
        broken: dict[str, tuple[int, float]] = {}
        for name, each in terms.items():
            values = torch.stack(list(each.values())).float()
            mean = (values * values.new_tensor([plans[position].of_epoch for position in each])).sum()
            if self.fabric.world_size > 1:
                mean = self.fabric.all_reduce(mean, reduce_op="sum")
            means[name] = float(mean)
            if not math.isfinite(means[name]):
                bad = next((one for one in zip(each, values.tolist()) if not math.isfinite(one[1])), None)
                broken[name] = bad or (len(plans) - 1, means[name])
        if broken:  # once the weights are broken every term follows: the first one is to blame
            name, (position, value) = min(broken.items(), key=lambda one: one[1][0])
            raise self._diverged(name, value, step, position)
        return means

    def _diverged(self, name: str, value: float, step: Step, position: int | None = None) -> TrainingError:
        where = f"epoch {step.epoch + 1}" + ("" if position is None else f" (batch {position + 1})")
        return TrainingError(
            f"training {type(self.module).__name__}: the loss term {name!r} became {value} in {where}. "
            f"Lower lr (now {self.trainer.lr:g}) or set clip=1.0"
        )

    def _check_weights(self) -> None:
        """The last step of all is followed by no loss that would show it."""
        for name, one in self.module.named_parameters():
            if one.requires_grad and not torch.isfinite(one).all():
                raise TrainingError(
                    f"training {type(self.module).__name__}: the weights {name!r} are not finite after the last step. "
                    f"Lower lr (now {self.trainer.lr:g}) or set clip=1.0"
                )

    def _judge(self, row: dict[str, Any], course: Course, step: Step) -> float:
        """Score the epoch on validation and keep the weights if they are the best so far."""
        if self.validation is None:
            return sum(row.values())
        with nullcontext() if self._average is None else self._average.applied():
            row |= validate(self._forward, self.module, self.validation, self.trainer.evaluation_batch)
            score = row["validation_loss"]
            if not math.isfinite(score):
                raise self._diverged("validation_loss", score, step)
            if score < course.best:
                course.best, course.best_epoch, course.stale = score, step.epoch, 0
                course.state = {name: value.detach().clone() for name, value in self.module.state_dict().items()}
                self._note(course)
            else:
                course.stale += 1
        return score

    def _note(self, course: Course) -> None:
        if course.state is not None:
            self._best, self.log.best_epoch = course.state, course.best_epoch

    def _fingerprint(self, phases: list[Phase], chosen: list[list[str]]) -> dict[str, Any]:
        ignored = {"ignored worst": self.module.ignored_worst} if self.module.ignored_worst else {}
        return {
            **self.trainer.settings(),
            **ignored,
            "method": type(self.module).__name__,
            "built as": describe_module(self.module),
            "training samples": self.train.fingerprint(),
            "validation samples": None if self.validation is None else self.validation.fingerprint(),
            "phases": [
                {"name": phase.name, "epochs": phase.epochs, "lr": phase.lr, "parameters": len(names)}
                for phase, names in zip(phases, chosen)
            ],
        }

    def _save(
        self,
        phases: list[Phase],
        chosen: list[list[str]],
        number: int,
        epoch: int,
        optimizer: Any,
        schedule: Schedule,
        course: Course,
        last: bool,
    ) -> None:
        due = last or time.monotonic() - self._saved_at >= self.trainer.checkpoint_seconds
        if self.checkpoint is None or not self.fabric.is_global_zero or not due:
            return
        state = {
            "phase": number,
            "epoch": epoch,
            "module": self.module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "course": vars(course),
            "rows": self.log.rows,
            "history": None if self.history is None else self.history.state(),
            "average": None if self._average is None else self._average.state(),
        }
        write_checkpoint(self.checkpoint, self._fingerprint(phases, chosen), state)
        self._saved_at = time.monotonic()


def build_history(module: Method, samples: int, device: torch.device) -> LossHistory | None:
    """An empty history with the window that the method asks for, or None if it keeps none."""
    if not module.keeps_history:
        return None
    start, length = module.history_start, module.history_length
    return LossHistory(samples, len(module.names), start=start, window=length, device=device)


def first_broken(losses: dict[str, Tensor]) -> tuple[str, float]:
    """The first loss term that is not finite, and its value; their sum where each of them is."""
    values = {name: value.item() for name, value in losses.items()}
    found = next((one for one in values.items() if not math.isfinite(one[1])), None)
    return found or ("sum of " + " + ".join(values), sum(values.values()))


def set_rate(optimizer: Any, rate: float) -> None:
    """Give every parameter of an optimizer this learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def hide_some(present: Tensor, probability: float) -> Tensor:
    """Which modalities to take away, `[batch, modality]`: each with this probability, never all that are there."""
    draw = torch.rand(present.shape, device=present.device)
    spared = torch.where(present, draw, -1.0).argmax(dim=1, keepdim=True)
    return (draw < probability).scatter(1, spared, False)


def describe_module(module: nn.Module) -> str:
    """A short name for how a module is built: every layer, and every plain attribute such as a loss's weight."""
    plain = {
        path: {name: value for name, value in vars(one).items() if isinstance(value, int | float | str | tuple)}
        for path, one in module.named_modules()
    }
    for attributes in plain.values():
        attributes.pop("training", None)
    return hashlib.sha256(f"{module}{plain}".encode()).hexdigest()[:16]
