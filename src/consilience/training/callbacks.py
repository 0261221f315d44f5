"""Callbacks: code that runs at fixed points of training.

Loss history, averaged weights, progress and checkpoints are callbacks, and so are loggers such as TensorBoard's. Pass
your own to `Trainer(callbacks=[...])`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.errors import InputError, show, unknown_name
from consilience.methods import Prediction

if TYPE_CHECKING:
    from consilience.training.loop import TrainingRun


class Callback:
    """Base class of callbacks. Override the hooks you need; hooks that are not overridden cost nothing.

    Every hook receives the `TrainingRun`: `run.method` and `run.settings` say what is trained and how, `run.phase`,
    `run.epoch` and `run.steps` where training stands, `run.log` what happened so far. A method may be trained in
    several runs (experts, folds); each calls all hooks from `on_train_start` to `on_train_end`.

    An error in a hook ends training. The `on_…_end` hooks of the run, the phase and the validation are called all the
    same, for every callback; their own errors are added to the first one as notes.

    With several processes only the first one calls hooks, unless `every_process` is True. A callback must then be
    picklable, and what it collects stays in the process that trained.

    Example:
        >>> class PrintLoss(Callback):
        ...     def on_epoch_end(self, run, row):
        ...         print(f"{run.method}, epoch {run.epoch + 1}: {sorted(set(row) - {'seconds'})}")
        >>> from consilience.data import load_data
        >>> from consilience.training import Model, Trainer
        >>> data = load_data("digits")
        >>> trainer = Trainer(epochs=1, callbacks=[PrintLoss()])
        >>> _ = Model.fit("concat", data.train, data.validation, trainer=trainer)
        concat, epoch 1: ['epoch', 'phase', 'steps', 'task', 'validation_accuracy', 'validation_loss']
    """

    every_process: ClassVar[bool] = False

    def on_train_start(self, run: TrainingRun) -> None:
        """Called once before the first phase, with the module on its device."""

    def on_phase_start(self, run: TrainingRun) -> None:
        """Called before the first epoch of a phase; `run.parameters` are trained in it."""

    def on_epoch_start(self, run: TrainingRun) -> None:
        """Called before the first batch of an epoch."""

    def observe(self, run: TrainingRun, prediction: Prediction, batch: Batch) -> dict[str, Tensor]:
        """Return tensors computed from the prediction of a training batch; `on_batch_end` finds them in `run.observed`.

        They are detached there. This hook is part of the step: with `cuda_graphs=True` it is recorded, so it must not
        wait for the device.
        """
        return {}

    def on_batch_end(self, run: TrainingRun) -> None:
        """Called after each batch: `run.batch`, `run.losses` (tensors by name) and `run.observed`."""

    def on_step_end(self, run: TrainingRun) -> None:
        """Called after each step of the optimizer."""

    def on_validation_start(self, run: TrainingRun) -> None:
        """Called before the validation of an epoch."""

    def on_validation_end(self, run: TrainingRun) -> None:
        """Called after the validation, also if it or its start failed. The best weights have been copied by then."""

    def on_epoch_end(self, run: TrainingRun, row: dict[str, Any]) -> None:
        """Called after each epoch with its row of the log: phase, epoch, losses, validation figures, seconds."""

    def on_phase_end(self, run: TrainingRun) -> None:
        """Called after a phase, also if it failed, with the best weights in the module (`run.best_weights`)."""

    def on_train_end(self, run: TrainingRun) -> None:
        """Called once at the end, also if training failed; `run.log.finished` and `run.log.interrupted` say how.

        Not called for a callback whose `on_train_start` was not reached or raised an error.
        """

    def state(self) -> Any:
        """Return what a checkpoint must keep: tensors and plain values. None: nothing."""
        return None

    def restore(self, state: Any) -> None:
        """Continue from what `state` returned. Called after `on_phase_start` of the phase that is resumed."""


_HOOKS = ("observe", *(name for name in vars(Callback) if name.startswith("on_")))


def overridden_hooks(callbacks: Sequence[Callback]) -> dict[str, list[Callable[..., Any]]]:
    """Return hook → the callbacks' own versions of it, in order."""
    return {
        hook: [
            method
            for callback in callbacks
            if getattr(method := getattr(callback, hook), "__func__", None) is not getattr(Callback, hook)
        ]
        for hook in _HOOKS
    }


@contextmanager
def ending_with(callbacks: Sequence[Callback], hook: str, run: TrainingRun) -> Iterator[None]:
    """Call a hook of every callback after a block, also if the block or another callback fails.

    Raises:
        BaseException: The first error, of the block or of a callback; the others are added to it as notes.
    """
    first: BaseException | None = None
    try:
        yield
    except BaseException as error:
        first = error
    for callback in callbacks:
        try:
            getattr(callback, hook)(run)
        except BaseException as error:
            if first is None:
                first = error
            else:
                first.add_note(f"{hook} of {type(callback).__name__} failed too: {type(error).__name__}: {error}")
    if first is not None:
        raise first


def state_of(callbacks: Sequence[Callback]) -> dict[str, Any]:
    """Return the callbacks' states by name."""
    states = {name: callback.state() for name, callback in _by_name(callbacks).items()}
    return {name: state for name, state in states.items() if state is not None}


def restore_callbacks(callbacks: Sequence[Callback], states: dict[str, Any]) -> None:
    """Give each callback the state that was saved for it."""
    for name, callback in _by_name(callbacks).items():
        if name in states:
            callback.restore(states[name])


def check_callbacks(given: Any) -> list[Callback]:
    """Return the callbacks as a list.

    Raises:
        InputError: If one of them is not a `Callback`.
        UnknownNameError: If one has a method `on_…` that is not a hook, and so would never be called.
    """
    callbacks = list(given) if isinstance(given, list | tuple) else [] if given is None else [given]
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise InputError(f"training: callbacks must be a list of Callback objects, got {show(callback)}")
        for name in dir(type(callback)):
            if name.startswith("on_") and name not in _HOOKS and callable(getattr(type(callback), name)):
                raise unknown_name("hook", name, _HOOKS, f"It is defined by the callback {type(callback).__name__}")
    return callbacks


def _by_name(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    """The callbacks by class and number within the class: callbacks of other classes may come and go."""
    named: dict[str, Callback] = {}
    for callback in callbacks:
        kind = type(callback).__name__
        number = sum(name.startswith(f"{kind} ") for name in named)
        named[f"{kind} {number}"] = callback
    return named
