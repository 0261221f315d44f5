"""The trainer: runs the training loop on one device or many, predicts, and cross-fits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from consilience.core.batches import Batch
from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.seeding import seeded
from consilience.core.settings import NonNegativeFloat, PositiveInt, arguments_checked, check_value
from consilience.core.targets import Task
from consilience.corruption.augmentation import choose_augmentations
from consilience.data.folds import held_out_folds
from consilience.methods import Method, Prediction
from consilience.preparation import Preparation
from consilience.training.balancing import check_balance
from consilience.training.batch_loader import BatchLoader
from consilience.training.callbacks import Callback, check_callbacks
from consilience.training.checkpoint import Checkpointing
from consilience.training.devices import INPUT_TYPES, build_fabric, launch, resolve_device, training_context
from consilience.training.logged_shares import LoggedShares
from consilience.training.loggers import Progress
from consilience.training.loop import TrainingRun
from consilience.training.loss_history import LossHistory
from consilience.training.optimizers import Phase
from consilience.training.part_names import check_part_names
from consilience.training.parts import check_trained
from consilience.training.shared_training import train_once
from consilience.training.step_counts import phases_of_steps
from consilience.training.time_limit import Deadline
from consilience.training.training_log import Log, validate
from consilience.training.training_settings import TrainingSettings, resolve
from consilience.training.weight_averaging import WeightAveraging

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from consilience.training.one_device import OneDevice

# What is kept of the `extra` of predictions: `[batch, modality]` and `[batch, target]`.
_KEPT = ("reliability", "variance")


@dataclass
class Trainer(TrainingSettings):
    """Trains methods. It takes every setting of `TrainingSettings` by keyword, and the following.

    Args:
        preparation: How samples become batches.
        checkpoint: Folder to save training to and to resume it from.
        callbacks: Called at fixed points of every run, see `Callback`.
        refit_steps: For each run and phase, in order, how many steps of the optimizer it takes in place of `epochs`, as
            `found_steps` returns them. With them `Model.fit` refits the method, see `Method.refit`.
        stop_by_rows: Whether cross-fitting in lockstep, of samples in groups, is stopped by folds of single samples.
            Whole groups are then held out from models that are trained for as many steps.
        worthwhile: Patience begins anew when the validation loss of a classification has fallen by more than this.
            None: 0.001 if patience is "auto", since separable classes would be learned for ever, else 0.
        deadline: When training has to end. None: it is made from `time_limit`, and its time runs from the first run.
        logs: Logs of the runs so far.

    Example:
        >>> Trainer(epochs=0)
        Traceback (most recent call last):
        consilience.core.errors.InputError: training: epochs must be a whole number ≥ 1 or None, got 0
    """

    preparation: Preparation | None = None
    _: KW_ONLY
    checkpoint: str | Path | None = None
    callbacks: Sequence[Callback] | None = None
    refit_steps: Sequence[Sequence[int]] | None = None
    stop_by_rows: bool = False
    worthwhile: float | None = None
    deadline: Deadline | None = field(default=None, repr=False)
    logs: list[Log] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value("preparation", self.preparation, Preparation | None, "training")
        check_value("checkpoint", self.checkpoint, str | Path | None, "training")
        check_value("worthwhile", self.worthwhile, NonNegativeFloat | None, "training")
        self.callbacks = check_callbacks(self.callbacks)
        check_value("refit_steps", self.refit_steps, list[list[PositiveInt]] | None, "training")
        self._loaders: dict[int, BatchLoader] = {}
        if self.deadline is None and self.time_limit is not None:
            self.deadline = Deadline(self.time_limit)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended a run; later runs are skipped."""
        return any(log.interrupted for log in self.logs)

    def part(self, share: float) -> Trainer:
        """Return a trainer with a share of the time that is left, for one of several runs; itself without a limit."""
        return self if self.deadline is None else replace(self, deadline=self.deadline.start().part(share))

    @arguments_checked
    def run(
        self, module: Method, train: Samples, validation: Samples | None = None, phases: list[Phase] | None = None
    ) -> Log:
        """Train a module in place. torch's global random state is left as it was.

        Args:
            module: The method to train.
            train: Training samples.
            validation: Samples for early stopping; without them every epoch runs and the last weights stay.
            phases: Phases with their own epochs, learning rate and parameters. None: one phase that trains everything.

        Returns:
            The log of the run, which is also added to `logs`.
        """
        if self.interrupted:
            return Log(interrupted=True)
        check_set("training", train, module.needs_targets)
        module.check_samples(train)
        if validation is not None:
            check_set("validation", validation, module.needs_targets)
            module.check_samples(validation)
        choose_augmentations(self.augment, self._prepared().raw)  # refuses what does not fit
        check_part_names(vars(self), self._prepared().raw)
        check_trained(module, vars(self))
        check_balance(self, module)
        if self.deadline is not None:
            self.deadline.start()
        if not module.trains_by_gradients:
            log = learn_at_once(self, module, train, validation)
            self.logs.append(log)
            return log
        log = train_once(self, module, train, validation, partial(self._run, module, train, validation, phases))
        self.logs.append(log)
        return log

    def _run(self, module: Method, train: Samples, validation: Samples | None, phases: list[Phase] | None) -> Log:
        """Run the training loop, in as many processes as the settings ask for."""
        path = None if self.checkpoint is None else Path(self.checkpoint) / f"run-{len(self.logs)}.pt"
        phases = phases or [Phase()]
        if self.refit_steps is not None:
            phases = phases_of_steps(self.refit_steps, len(self.logs), phases, self, len(train))
        parameters = [phase.chosen(module) for phase in phases]
        nameless = [replace(phase, parameters=None) for phase in phases]  # a function may not reach other processes
        fabric = build_fabric(self)
        result = launch(fabric, _work, self, module, train, validation, nameless, parameters, path)
        module.load_state_dict(result["state"])  # no change unless it was trained in another process
        return Log(**result["log"])

    def loader(self, samples: Samples, device: torch.device) -> BatchLoader:
        """Return the batches of a set; it is prepared once, however many runs read it."""
        if id(samples) not in self._loaders:
            dtype = INPUT_TYPES.get(self.precision)
            self._loaders[id(samples)] = BatchLoader(samples, self._prepared(), device, self.resident, dtype)
        return self._loaders[id(samples)]

    def forget(self) -> None:
        """Free the prepared data."""
        self._loaders.clear()

    @arguments_checked
    def predict(self, module: Method, samples: Samples) -> Prediction:
        """Return a trained module's prediction for every sample, on the CPU."""
        device = resolve_device(self.device)
        loader = BatchLoader(samples, self._prepared(), device, self.resident, input_type(module))
        return predict(module.to(device), loader, self.evaluation_batch)

    def as_in(self, log: Log, samples: int) -> Trainer:
        """Return a trainer that trains as a run did, on fewer samples too: in such batches, until its best epoch.

        Args:
            log: Of the run. Without validation there is no best epoch, and the budget stays.
            samples: Number of its training samples, which decided what is left open.
        """
        found = resolve(self, samples)
        # Its epochs are the limit: some of the runs must not have fewer than others.
        rate = self.lr if isinstance(self.lr, Mapping) else found.lr
        same = replace(self, batch_size=found.batch_size, lr=rate, time_limit=None, deadline=None)
        best = len(log.rows) - 1 if log.best_epoch is None and log.out_of_time else log.best_epoch
        return same if best is None else replace(same, epochs=best + 1, steps=None)

    @arguments_checked
    def cross_fit(
        self, make: Callable[[], Method], train: Samples, folds: int = 5
    ) -> tuple[Prediction, list[Method], np.ndarray]:
        """Compute out-of-fold predictions: for every fold, train on the other folds and predict this one.

        Folds are stratified for a classification; where samples have groups or times they hold out whole groups or
        blocks in time, and there must be no more of them than `most_folds`. There is no early stopping, since it would
        use the held-out fold: every fold trains for all `epochs` or `steps`.

        Args:
            make: Builds an untrained module.
            train: Training samples.
            folds: Number of folds.

        Returns:
            The predictions in the order of `train`, the trained modules, and the fold of each sample `[n]`.

        Raises:
            KeyboardInterrupt: After Ctrl-C, also in a prediction; the logs then have a run that was interrupted.
        """
        try:
            return self._cross_fit(make, train, folds)
        except KeyboardInterrupt:
            if not self.interrupted:
                self.logs.append(Log(interrupted=True))
            raise

    def _cross_fit(
        self, make: Callable[[], Method], train: Samples, folds: int
    ) -> tuple[Prediction, list[Method], np.ndarray]:
        fold_of = split_folds(train, self._prepared().task, folds, self.seed)
        parts: list[Prediction] = []
        modules: list[Method] = []
        for fold in range(folds):
            with seeded(self.seed * folds + fold):
                module = make()
            log = self.run(module, train.select(np.flatnonzero(fold_of != fold)))
            if log.interrupted:
                raise KeyboardInterrupt(f"cross-fitting was interrupted in fold {fold + 1} of {folds}")
            parts.append(self.predict(module, train.select(np.flatnonzero(fold_of == fold))))
            modules.append(module)
            self.forget()
        order = np.argsort(np.concatenate([np.flatnonzero(fold_of == fold) for fold in range(folds)]))
        return concatenate(parts, torch.from_numpy(order)), modules, fold_of

    def _prepared(self) -> Preparation:
        if self.preparation is None:
            raise InputError("training: the trainer has no preparation; give Trainer(preparation=Preparation.fit(...))")
        return self.preparation

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaders": {}}


def learn_at_once(trainer: Trainer, module: Method, train: Samples, validation: Samples | None) -> Log:
    """Train a module that needs no training loop, and log its losses as those of one epoch."""
    started = time.monotonic()

    def figures(samples: Samples) -> dict[str, float]:
        # In the module's own type: what is learned at once is not in 16 bits, though the trainer's networks may be.
        loader = BatchLoader(samples, trainer._prepared(), device, trainer.resident, input_type(module))
        return validate(module, module, loader, trainer.evaluation_batch)

    row: dict[str, Any] = {"phase": "fit", "epoch": 0, "steps": 1}
    try:
        module.learn_at_once(train, trainer)
        device = resolve_device(trainer.device)
        module.to(device)
        row["task"] = figures(train)["validation_loss"]
        if validation is not None:
            row |= figures(validation)
    except KeyboardInterrupt:
        if trainer.on_interrupt == "raise":
            raise
        return Log(interrupted=True, seconds=time.monotonic() - started)
    seconds = time.monotonic() - started
    return Log([{**row, "seconds": seconds}], best_epoch=None, finished=True, seconds=seconds)


def _work(
    fabric: Fabric | OneDevice,
    trainer: Trainer,
    module: Method,
    train: Samples,
    validation: Samples | None,
    phases: list[Phase],
    parameters: list[list[str]],
    checkpoint: Path | None,
) -> dict[str, Any]:
    """Train the module in each process, and return plain values and tensors."""
    settings = resolve(trainer, len(train))
    try:
        with training_context(settings, fabric.device, trainer.seed):
            loader = trainer.loader(train, fabric.device)
            held_out = None if validation is None else trainer.loader(validation, fabric.device)
            callbacks = list(_callbacks(trainer, module, len(train), fabric.device, checkpoint))
            run = TrainingRun(
                fabric, settings, module, loader, held_out, callbacks, len(trainer.logs), trainer.deadline
            )
            log = run.run(phases, parameters)
    finally:
        if trainer.precision == "bf16-true":  # predictions and saved weights are in float32
            module.float()
    return {"log": vars(log), "state": module.state_dict()}


def _callbacks(
    trainer: Trainer, module: Method, samples: int, device: torch.device, checkpoint: Path | None
) -> Iterator[Callback]:
    """The callbacks that the settings and the method imply, around the user's own."""
    if module.keeps_history:
        start, window = module.history_start, module.history_length
        yield LossHistory(samples, len(module.names), start=start, window=window, device=device)
    if module.logs_shares:
        yield LoggedShares()
    if trainer.average is not None:
        yield WeightAveraging(trainer.average)
    if trainer.verbose:
        yield Progress(trainer.verbose)
    yield from trainer.callbacks or ()
    if checkpoint is not None:  # last, so that it saves what the others have after an epoch
        yield Checkpointing(checkpoint, trainer.checkpoint_seconds)


def check_set(role: str, samples: Samples, needs_targets: bool = True) -> None:
    """Raise an error for a set that is empty, has no targets, or has only zero weights."""
    if not len(samples):
        raise InputError(f"the {role} set is empty")
    if samples.y is None and needs_targets:
        raise InputError(f"training needs targets: the {role} samples have no y")
    if samples.weight is not None and not samples.weight.sum() > 0:
        raise InputError(f"the sample weights of the {role} set are all zero")


@torch.no_grad()
def predict(module: Method, loader: BatchLoader, batch_size: int) -> Prediction:
    """Return output, opinions, weights and joint representation for every sample of a loader, on the CPU.

    Of `extra` only the reliability of each modality and the variance of each target are kept.
    """
    module.eval()
    return concatenate([predict_batch(module, batch) for batch in loader.in_order(batch_size)])


@torch.no_grad()
def predict_batch(module: Method, batch: Batch) -> Prediction:
    """Return what `predict` returns for one batch; the module must be in evaluation mode."""
    prediction = module(batch)
    values = (prediction.output, prediction.opinions, prediction.weights, prediction.joint)
    output, opinions, weights, joint = (None if value is None else _on_cpu(value) for value in values)
    assert output is not None
    extra = {name: _on_cpu(prediction.extra[name]) for name in _KEPT if name in prediction.extra}
    return Prediction(output, opinions, weights, joint=joint, extra=extra)


def _on_cpu(values: torch.Tensor) -> torch.Tensor:
    """Values on the CPU in at least 32 bits."""
    if values.dtype is torch.float32 and values.device.type == "cpu":
        return values
    return values.to("cpu", torch.promote_types(values.dtype, torch.float32))


def input_type(module: Method) -> torch.dtype | None:
    """Return the dtype of inputs that a trained module needs, or None for float32."""
    doubles = any(parameter.dtype == torch.float64 for parameter in module.parameters())
    return torch.float64 if doubles else None


def concatenate(parts: list[Prediction], order: torch.Tensor | None = None) -> Prediction:
    """Return the predictions of several batches as one, optionally reordered."""

    def joined(name: str) -> Any:
        pieces = [getattr(part, name) for part in parts]
        if any(piece is None for piece in pieces):
            return None
        whole = torch.cat(pieces)
        return whole if order is None else whole[order]

    kept = {name: torch.cat([part.extra[name] for part in parts]) for name in parts[0].extra}
    extra = {name: value if order is None else value[order] for name, value in kept.items()}
    return Prediction(joined("output"), joined("opinions"), joined("weights"), joint=joined("joint"), extra=extra)


def split_folds(samples: Samples, task: Task, folds: int, seed: int) -> np.ndarray:
    """Return each sample's fold `[n]`; the classes of a classification are spread evenly over the folds.

    Samples of a group are in one fold, and samples with times in blocks of successive ones, see `held_out_folds`.
    """
    if not 2 <= folds <= len(samples):
        raise InputError(f"cross-fitting: folds must be between 2 and {len(samples)} (the samples), got {folds}")
    labels = np.zeros(len(samples), dtype=np.int64)
    if task.classification and samples.y is not None:
        labels = task.encode(samples.y)
    return held_out_folds(samples, labels, folds, seed)
