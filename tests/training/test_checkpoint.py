"""A run that stops and goes on equals one that never stopped, bit for bit."""

import numpy as np
import pytest
import torch

from consilience.core.errors import InputError, SavedModelError
from consilience.methods.opinions.unimodal import BestUnimodal
from consilience.training import Phase, time_limit
from consilience.training.checkpoint import read_checkpoint, write_checkpoint
from training.toys import At, Straight, Witness, make, make_samples, prepare, same, trainer, weights

SAMPLES, VALIDATION = make_samples(50), make_samples(40, seed=7)
PREPARATION = prepare(SAMPLES)


def timeless(log):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in log.rows]


def phases():
    return [Phase("first", epochs=3, parameters=lambda module: [module.map.weight]), Phase("second", epochs=6, lr=0.02)]


def straight(dropout=0.3):
    return make(Straight, PREPARATION, dropout=dropout)


@pytest.mark.parametrize("validation", [VALIDATION, None])
@pytest.mark.parametrize("chosen", [[Phase(epochs=9)], phases()])
def test_a_run_that_its_time_limit_ended_does_not_go_on(tmp_path, monkeypatch, validation, chosen):
    clock = iter(range(1000))
    monkeypatch.setattr(time_limit, "now", lambda: next(clock))  # a second from one look to the next
    given = {"batch_size": 8, "checkpoint_seconds": 0, "time_limit": 2.5}
    ended = []
    for _ in range(3):
        module = straight()
        log = trainer(PREPARATION, checkpoint=tmp_path, **given).run(module, SAMPLES, validation, chosen)
        ended.append((timeless(log), log.best_epoch, log.out_of_time, weights(module)))
    first, *others = ended
    assert len(first[0]) == (3 if len(chosen) == 1 else 4)
    assert first[2] is True
    for other in others:
        assert other[:3] == first[:3]
        assert same(other[3], first[3])


@pytest.mark.parametrize("where", [("first", 0, 1), ("first", 2, 0), ("second", 0, 0), ("second", 4, 3)])
@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": "plateau", "patience": 4, "lr": 0.5},
        {"schedule": "cosine", "warmup": 1.5, "optimizer": "sgd", "momentum": 0.9, "modality_dropout": 0.3},
        {"augment": ["gaussian:0..1@0.5", "b=missing:10@0.5", "b=structured-drop:0..10"], "average": "mean"},
        {"precision": "64", "accumulate": 2, "clip": 0.5},
        {"precision": "bf16-true"},
        {"average": 0.9, "lr": 0.5},
    ],
    ids=["plateau", "cosine", "augment", "64", "bf16", "average"],
)
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, where, settings):
    settings = {"batch_size": 8, "checkpoint_seconds": 0, **settings}
    whole = straight()
    expected = trainer(PREPARATION, **settings).run(whole, SAMPLES, VALIDATION, phases())
    broken = straight()
    phase, epoch, batch = where
    broken.trap = At(RuntimeError("power cut"), epoch, batch, phase)
    with pytest.raises(RuntimeError, match="power cut"):
        trainer(PREPARATION, checkpoint=tmp_path, **settings).run(broken, SAMPLES, VALIDATION, phases())
    resumed = straight()
    if where != ("first", 0, 1):  # before the first checkpoint there is nothing to go on from
        torch.nn.init.zeros_(resumed.map.weight)
    log = trainer(PREPARATION, checkpoint=tmp_path, **settings).run(resumed, SAMPLES, VALIDATION, phases())
    assert same(weights(resumed), weights(whole))
    assert timeless(log) == timeless(expected)
    assert log.best_epoch == expected.best_epoch
    assert list(tmp_path.iterdir()) == [tmp_path / "run-0.pt"]


def test_the_loss_history_goes_on(tmp_path):
    settings = {"checkpoint_seconds": 0, "epochs": 4, "patience": None}

    def witness():
        return make(Witness, PREPARATION, len(SAMPLES))

    whole, broken, resumed = witness(), witness(), witness()
    trainer(PREPARATION, **settings).run(whole, SAMPLES)
    assert (whole.seen > 0).all()
    broken.trap = At(RuntimeError("power cut"), epoch=2, batch=2)
    with pytest.raises(RuntimeError, match="power cut"):
        trainer(PREPARATION, checkpoint=tmp_path, **settings).run(broken, SAMPLES)
    trainer(PREPARATION, checkpoint=tmp_path, **settings).run(resumed, SAMPLES)
    assert same(weights(resumed), weights(whole))


def test_several_runs_of_a_trainer_have_a_checkpoint_each(tmp_path):
    def fit(checkpoint=None, calls=None):
        method = make(BestUnimodal, PREPARATION)
        if calls is not None:
            for expert in method.experts.values():
                expert.register_forward_hook(lambda *_: calls.append(1) if torch.is_grad_enabled() else None)
        method.fit(SAMPLES, VALIDATION, trainer(PREPARATION, checkpoint=checkpoint))
        return weights(method)

    expected = fit()
    assert same(fit(tmp_path), expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-0.pt", "run-1.pt"]
    calls: list[int] = []
    assert same(fit(tmp_path, calls), expected)
    assert not calls  # what was finished is not trained again, although the last epoch was no 10 seconds ago


def test_numpy_settings_survive(tmp_path):
    settings = {"epochs": np.int64(2), "seed": np.int64(3), "lr": np.float32(0.1), "checkpoint": str(tmp_path)}
    first, second = straight(), straight()
    trainer(PREPARATION, **settings).run(first, SAMPLES)
    trainer(PREPARATION, **settings).run(second, SAMPLES)
    assert same(weights(first), weights(second))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"lr": 0.1}, r"lr was 0\.05, now 0\.1"),
        ({"batch_size": 32, "optimizer": "sgd"}, "batch_size was 16, now 32; optimizer was 'adam', now 'sgd'"),
        ({"seed": 1}, "seed was 0, now 1"),
    ],
)
def test_other_settings_are_named(tmp_path, changed, named):
    trainer(PREPARATION, checkpoint=tmp_path).run(straight(), SAMPLES)
    with pytest.raises(InputError, match=f"was made with other settings: {named}.*delete it to start again"):
        trainer(PREPARATION, checkpoint=tmp_path, **changed).run(straight(), SAMPLES)


def test_other_data_methods_and_phases_are_named(tmp_path):
    run = trainer(PREPARATION, checkpoint=tmp_path)
    run.run(straight(), SAMPLES)
    for module, train, validation, others, named in [
        (straight(), SAMPLES[:40], None, None, "training samples was"),
        (straight(), SAMPLES[::-1], None, None, "training samples was"),
        (straight(), SAMPLES, VALIDATION, None, "validation samples was None, now"),
        (straight(0.9), SAMPLES, None, None, "built as was"),
        (make(Witness, PREPARATION, 50), SAMPLES, None, None, "method was 'Straight', now 'Witness'"),
        (straight(), SAMPLES, None, phases(), "phases was"),
    ]:
        with pytest.raises(InputError, match=named):
            trainer(PREPARATION, checkpoint=tmp_path).run(module, train, validation, others)


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"hello"])
def test_a_truncated_checkpoint_is_a_clear_error(tmp_path, damage):
    trainer(PREPARATION, checkpoint=tmp_path).run(straight(), SAMPLES)
    path = tmp_path / "run-0.pt"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SavedModelError, match=r"run-0\.pt cannot be read .*delete it to start again"):
        trainer(PREPARATION, checkpoint=tmp_path).run(straight(), SAMPLES)


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


def test_a_checkpoint_executes_nothing(tmp_path):
    torch.save({"fingerprint": {}, "state": Bomb()}, tmp_path / "bomb.pt")
    with pytest.raises(SavedModelError, match="cannot be read"):
        read_checkpoint(tmp_path / "bomb.pt", {})


def test_a_crash_while_writing_leaves_the_old_checkpoint(tmp_path):
    path = tmp_path / "folder" / "run.pt"
    write_checkpoint(path, {"lr": 1}, {"epoch": 3})
    with pytest.raises(Exception, match="pickle"):
        write_checkpoint(path, {"lr": 1}, {"epoch": lambda: None})
    assert read_checkpoint(path, {"lr": 1}) == {"epoch": 3}
    assert list(path.parent.iterdir()) == [path]
    assert read_checkpoint(tmp_path / "none.pt", {}) is None
