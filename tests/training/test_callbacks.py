"""Callbacks: when hooks are called, what they find, and what stays with a checkpoint."""

import pickle

import pytest
import torch

from consilience.core.errors import InputError, TrainingError
from consilience.training import Callback, Model, Phase, Trainer, TrainingRun
from consilience.training.callbacks import overridden_hooks
from training.toys import At, Explosive, Straight, Witness, make, make_samples, prepare, same, trainer, weights

SAMPLES, VALIDATION = make_samples(50), make_samples(40, seed=7)
PREPARATION = prepare(SAMPLES)


class Diary(Callback):
    """Notes every hook, with the phase and epoch in which it is called."""

    def __init__(self):
        self.calls = []
        self.rows = []

    def on_train_start(self, run):
        self.calls.append("train start")

    def on_phase_start(self, run):
        self.calls.append(f"{run.phase} start")

    def on_epoch_start(self, run):
        self.calls.append(f"epoch {run.epoch} of {run.epochs} start")

    def on_batch_end(self, run):
        assert set(run.losses) == {"task"}
        assert len(run.batch) <= 16
        self.calls.append("batch")

    def on_step_end(self, run):
        self.calls.append(f"step {run.steps}")

    def on_validation_start(self, run):
        self.calls.append("validation start")

    def on_validation_end(self, run):
        self.calls.append("validation end")

    def on_epoch_end(self, run, row):
        assert run.log.rows[-1] is row
        self.rows.append(row)
        self.calls.append("epoch end")

    def on_phase_end(self, run):
        self.calls.append("phase end")

    def on_train_end(self, run):
        self.calls.append(f"train end, finished {run.log.finished}, interrupted {run.log.interrupted}")


def test_hooks_are_called_in_order():
    diary = Diary()
    phases = [Phase("first", epochs=1), Phase("second", epochs=1)]
    log = trainer(PREPARATION, accumulate=2, callbacks=[diary]).run(
        make(Straight, PREPARATION), SAMPLES, VALIDATION, phases
    )
    epoch = ["epoch 0 of 1 start", "batch", "batch", "step 1", "batch", "batch", "step 2"]
    epoch += ["validation start", "validation end", "epoch end", "phase end"]
    ends = "train end, finished True, interrupted False"
    assert diary.calls == ["train start", "first start", *epoch, "second start", *epoch, ends]
    assert diary.rows == log.rows
    assert {"phase", "epoch", "steps", "task", "validation_loss", "validation_accuracy", "seconds"} == set(
        diary.rows[0]
    )


def test_a_run_says_what_is_trained_and_how():
    seen = []

    class Look(Callback):
        def on_train_start(self, run):
            seen.append((run.method, run.number, run.describe(), run.settings.batch_size))

    Model.fit("best-unimodal", SAMPLES, VALIDATION, trainer=Trainer(epochs=2, device="cpu", callbacks=[Look()]))
    assert [number for _, number, _, _ in seen] == [0, 1]
    method, _, description, batch_size = seen[0]
    assert method == f"unimodal:{SAMPLES.names[0]}"
    assert (description["method"], description["epochs"], description["samples"], batch_size) == (method, 2, 50, 64)
    assert description["parameters"] > 0
    assert (description["lr"], description["batch_size"], description["least_steps"]) == (1e-3, 64, 300)


def test_callbacks_change_no_numbers():
    modules = [make(Straight, PREPARATION, dropout=0.3) for _ in range(2)]
    trainer(PREPARATION).run(modules[0], SAMPLES, VALIDATION)
    trainer(PREPARATION, callbacks=[Diary()]).run(modules[1], SAMPLES, VALIDATION)
    assert same(*map(weights, modules))


def test_hooks_that_are_not_overridden_are_not_called():
    class Nothing(Callback):
        pass

    class Ends(Callback):
        def on_train_end(self, run):
            pass

    hooks = overridden_hooks([Nothing(), Ends()])
    assert [name for name, methods in hooks.items() if methods] == ["on_train_end"]
    assert set(hooks) >= {"observe", "on_step_end", "on_batch_end", "on_epoch_end"}


@pytest.mark.parametrize(("cls", "trap"), [(Straight, At(ValueError("no"), epoch=1)), (Explosive, None)])
def test_a_failed_run_ends_too(cls, trap):
    diary, module = Diary(), make(cls, PREPARATION)
    if trap is not None:
        module.trap = trap
    diary.on_batch_end = lambda run: None  # Explosive has a second term
    with pytest.raises((ValueError, TrainingError)):
        trainer(PREPARATION, callbacks=[diary]).run(module, SAMPLES, VALIDATION)
    assert diary.calls[-2:] == ["phase end", "train end, finished False, interrupted False"]


def test_an_interrupted_run_ends_with_its_best_weights():
    kept = []

    class Keep(Diary):
        def on_train_end(self, run):
            super().on_train_end(run)
            kept.append(weights(run.module))

    callback, module = Keep(), make(Straight, PREPARATION)
    module.trap = At(KeyboardInterrupt(), epoch=2)
    trainer(PREPARATION, callbacks=[callback]).run(module, SAMPLES, VALIDATION)
    assert callback.calls[-1] == "train end, finished False, interrupted True"
    assert same(kept[0], weights(module))


def test_what_a_callback_observes_is_part_of_the_step():
    seen = []

    class Confidence(Callback):
        def observe(self, run, prediction, batch):
            return {"confidence": prediction.output.softmax(1).amax(1).detach()}

        def on_batch_end(self, run):
            seen.append((len(run.batch), run.observed["confidence"].shape))
            assert "confidence" not in run.losses

    log = trainer(PREPARATION, callbacks=[Confidence()], epochs=1).run(make(Straight, PREPARATION), SAMPLES)
    assert [shape for _, shape in seen] == [torch.Size([n]) for n, _ in seen]
    assert set(log.rows[0]) == {"phase", "epoch", "steps", "task", "seconds"}


class Count(Callback):
    """Counts epochs, and keeps the count in checkpoints."""

    def __init__(self):
        self.epochs = torch.zeros(())

    def on_epoch_end(self, run, row):
        self.epochs = self.epochs + 1

    def state(self):
        return {"epochs": self.epochs}

    def restore(self, state):
        self.epochs = state["epochs"]


def test_a_callbacks_state_is_part_of_a_checkpoint(tmp_path):
    settings = {"epochs": 5, "checkpoint": tmp_path, "checkpoint_seconds": 0, "patience": None}
    broken = make(Witness, PREPARATION, 50)
    broken.trap = At(RuntimeError("power cut"), epoch=3)
    with pytest.raises(RuntimeError, match="power cut"):
        trainer(PREPARATION, callbacks=[Count()], **settings).run(broken, SAMPLES)
    counts = [Count(), Count()]
    # Another callback before them, and one more of the same class, change nothing for the one that was saved.
    trainer(PREPARATION, callbacks=[Stateless(), *counts], **settings).run(make(Witness, PREPARATION, 50), SAMPLES)
    assert [count.epochs.item() for count in counts] == [5, 2]


class Stateless(Callback):
    """A callback without a state."""


def test_what_is_no_callback_is_refused():
    with pytest.raises(InputError, match="training: callbacks must be a list of Callback objects, got 'tensorboard'"):
        Trainer(callbacks="tensorboard")
    with pytest.raises(InputError, match="must be a list of Callback objects, got <class"):
        Trainer(callbacks=[Callback])
    assert Trainer(callbacks=None).callbacks == []


def test_a_trainer_with_callbacks_can_be_sent_to_another_process():
    assert isinstance(pickle.loads(pickle.dumps(Trainer(callbacks=[Count()]))).callbacks[0], Count)


def test_a_run_is_what_hooks_receive():
    seen = []

    class Look(Callback):
        def on_step_end(self, run):
            seen.append(type(run))

    trainer(PREPARATION, epochs=1, callbacks=[Look()]).run(make(Straight, PREPARATION), SAMPLES)
    assert set(seen) == {TrainingRun}


class Failing(Diary):
    """Raises an error in one hook, after noting it."""

    def __init__(self, hook):
        super().__init__()
        own = getattr(self, hook)

        def fail(run):
            own(run)
            raise OSError(f"{hook} failed")

        setattr(self, hook, fail)


@pytest.mark.parametrize("hook", ["on_validation_end", "on_phase_end", "on_train_end"])
def test_an_error_in_an_ending_hook_does_not_skip_the_other_callbacks(hook):
    diaries = [Failing(hook), Failing(hook), Diary()]
    with pytest.raises(OSError, match=f"^{hook} failed") as raised:
        trainer(PREPARATION, callbacks=diaries).run(make(Straight, PREPARATION), SAMPLES, VALIDATION)
    assert raised.value.__notes__ == [f"{hook} of Failing failed too: OSError: {hook} failed"]
    ending = {"on_validation_end": "validation end", "on_phase_end": "phase end", "on_train_end": "train end"}[hook]
    assert all([call.startswith(ending) for call in diary.calls].count(True) == 1 for diary in diaries)
    assert diaries[0].calls == diaries[1].calls == diaries[2].calls


@pytest.mark.parametrize("hook", ["on_phase_end", "on_train_end"])
def test_the_error_of_training_itself_is_raised(hook):
    module = make(Straight, PREPARATION)
    module.trap = At(ValueError("no"), epoch=1)
    with pytest.raises(ValueError, match=r"^no\b") as raised:
        trainer(PREPARATION, callbacks=[Failing(hook)]).run(module, SAMPLES, VALIDATION)
    assert raised.value.__notes__ == [f"{hook} of Failing failed too: OSError: {hook} failed"]


def test_an_error_after_an_interruption_is_logged(caplog):
    module = make(Straight, PREPARATION)
    module.trap = At(KeyboardInterrupt(), epoch=2)
    with caplog.at_level("WARNING", logger="consilience"):
        log = trainer(PREPARATION, callbacks=[Failing("on_phase_end")]).run(module, SAMPLES, VALIDATION)
    assert log.interrupted
    assert "on_phase_end of Failing failed too: OSError: on_phase_end failed" in caplog.messages


def test_only_what_was_started_is_ended():
    before, after = Diary(), Diary()
    callbacks = [before, Failing("on_train_start"), after]
    with pytest.raises(OSError, match="on_train_start failed"):
        trainer(PREPARATION, callbacks=callbacks).run(make(Straight, PREPARATION), SAMPLES, VALIDATION)
    assert before.calls == ["train start", "train end, finished False, interrupted False"]
    assert callbacks[1].calls == ["train start"]
    assert after.calls == []


def test_a_validation_that_cannot_start_is_ended():
    diary = Diary()
    with pytest.raises(OSError, match="on_validation_start failed"):
        trainer(PREPARATION, callbacks=[diary, Failing("on_validation_start")]).run(
            make(Straight, PREPARATION), SAMPLES, VALIDATION
        )
    assert diary.calls[-4:-1] == ["validation start", "validation end", "phase end"]


def test_what_is_observed_keeps_no_graph():
    seen = []

    class Output(Callback):
        def observe(self, run, prediction, batch):
            assert prediction.output.requires_grad
            return {"output": prediction.output}

        def on_batch_end(self, run):
            seen.append(run.observed["output"].requires_grad)

    trainer(PREPARATION, callbacks=[Output()], epochs=1).run(make(Straight, PREPARATION), SAMPLES)
    assert set(seen) == {False}


def test_a_method_that_is_no_hook_is_refused():
    class Misspelt(Callback):
        on_disk = True  # no method

        def on_epoch_ends(self, run, row):
            pass

    class Inherits(Misspelt):
        pass

    for cls in (Misspelt, Inherits):
        message = f"unknown hook 'on_epoch_ends': did you mean 'on_epoch_end'.*defined by the callback {cls.__name__}$"
        with pytest.raises(InputError, match=message):
            Trainer(callbacks=[cls()])
