"""Experts that are shared by methods, compared with the same methods trained without sharing, bit for bit."""

import threading
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from consilience.core.errors import TrustWarning
from consilience.core.samples import Samples
from consilience.methods.opinions import linear_expert, pooled_expert, tree_expert
from consilience.training import Model, Trainer, lockstep
from consilience.training.shared_training import Kept, _Indescribable, bytes_of, digest, forget_shared, once, sharing

QUICK = {"steps": 30, "least_steps": 10, "device": "cpu", "on_interrupt": "raise"}


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(pooled_expert, "_TREES", 4)
    forget_shared()
    yield
    forget_shared()


def samples_of(kind, n=90):
    random = np.random.default_rng(0)
    y = np.arange(n) % 3
    a = random.normal(size=(n, 4)) + y[:, None]
    b = random.normal(size=(n, 6)) - 0.5 * y[:, None]
    if kind == "sequence":
        b = b.reshape(n, 3, 2)
    target = y if kind != "regression" else a.sum(axis=1) + b[:, 0]
    return Samples.of({"a": a.astype(np.float32), "b": b.astype(np.float32)}, target)


def fit(method, samples, seed=0, encoders="auto", settings=None, **training):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)
        return Model.fit(
            method,
            samples[:60],
            samples[60:80],
            encoders=encoders,
            settings=settings,
            trainer=Trainer(seed=seed, **{**QUICK, **training}),
        )


def rows_of(model):
    return [[{k: v for k, v in row.items() if k != "seconds"} for row in log.rows] for log in model.logs]


def check_equal(first, second, samples):
    before, after = first.method.state_dict(), second.method.state_dict()
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(value.numpy(), after[name].numpy(), err_msg=name)
    predicted, again = (model.predict(samples[80:]) for model in (first, second))
    assert torch.equal(predicted.output, again.output)
    assert repr(rows_of(first)) == repr(rows_of(second))  # as text, since there are NaNs
    assert [(log.best_epoch, log.best_step, log.finished) for log in first.logs] == [
        (log.best_epoch, log.best_step, log.finished) for log in second.logs
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vector", "sequence", "regression"])
def test_every_method_learns_the_same_as_alone_in_any_order(kind):
    samples = samples_of(kind)
    methods = ["best-unimodal", "unimodal:a", "bayes", "bayes-robust", "auto"]
    alone = {method: fit(method, samples) for method in methods}
    found = {}
    for order in (methods, methods[::-1]):
        forget_shared()
        for method in order:
            with sharing("here") as kept:
                model = fit(method, samples)
            check_equal(alone[method], model, samples)
            found[method] = found.get(method, 0) + kept.found
    assert found["auto"] > 0
    assert found["bayes-robust"] > 0
    assert found["best-unimodal"] > 0


# Of each modality a network with its folds; trees, and regressions, of each of five folds and of all samples.
@pytest.mark.slow
@pytest.mark.parametrize(("encoder", "trainings"), [("auto", 2 * (1 + 6 + 6)), ({"name": "mlp", "hidden": [8]}, 2)])
def test_a_second_method_trains_no_expert_again(encoder, trainings, monkeypatch):
    samples = samples_of("vector")
    encoders = dict.fromkeys("ab", encoder)
    with sharing(0):
        first = fit("auto", samples, encoders=encoders)
    for module, place in ((tree_expert, "_grow"), (linear_expert, "_solve"), (lockstep, "_train_stack")):
        monkeypatch.setattr(module, place, lambda *given: pytest.fail("trained again"))
    with sharing(0) as kept:
        second = fit("bayes-robust", samples, encoders=encoders)
    assert kept.found == len(kept) == trainings
    assert kept.saved_seconds > 0
    for name in "ab":
        before, after = (model.method.experts[name].state_dict() for model in (first, second))
        assert all(np.array_equal(before[key], after[key], equal_nan=True) for key in before)


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"lr": 0.01},
        {"steps": 31},
        {"encoders": {"a": {"name": "mlp", "hidden": [9]}, "b": "mlp"}},
        {"settings": {"folds": 4}},
        {"augment": "gaussian:0..0.4"},
    ],
)
def test_what_differs_in_a_setting_is_trained(other):
    samples = samples_of("vector")
    given = {"encoders": {"a": {"name": "mlp", "hidden": [8]}, "b": "mlp"}}
    with sharing(0):
        fit("bayes", samples, **given)
    with sharing(0) as kept:
        fit("bayes", samples, **{**given, **other})
    assert kept.found == 0  # where the encoder of a differs, the expert of b has other initial weights


@pytest.mark.parametrize("encoder", ["auto", "linear", {"name": "mlp", "hidden": [8]}])
def test_nothing_is_shared_within_a_time_limit(encoder):
    """What is found costs no time, so that a model would depend on what was trained before it."""
    samples = samples_of("vector")
    encoders = dict.fromkeys("ab", encoder)
    for method in ("bayes-robust", "auto"):
        with sharing(0) as kept:
            fit(method, samples, encoders=encoders, time_limit=1e6)
        assert (kept.found, len(kept)) == (0, 0)


def test_other_samples_are_another_training():
    samples = samples_of("vector")
    encoders = {"a": "mlp", "b": "mlp"}
    changed = samples.replaced({"a": samples["a"] + np.eye(90, 4, dtype=np.float32)})
    with sharing(0):
        fit("bayes", samples, encoders=encoders)
    with sharing(0) as kept:
        fit("bayes", changed, encoders=encoders)
    assert kept.found == 0


def test_a_shared_model_can_be_changed_without_changing_another():
    samples = samples_of("vector")
    with sharing(0):
        first = fit("bayes", samples)
        with torch.no_grad():
            for parameter in first.method.parameters():
                parameter.fill_(3.0)
            for buffer in first.method.buffers():
                buffer.zero_()
        first.logs[0].rows.clear()
        second = fit("bayes", samples)
    check_equal(fit("bayes", samples), second, samples)


def test_nothing_is_kept_outside_the_block_and_other_scopes_begin_anew():
    calls = []

    def compute():
        calls.append(1)
        return np.zeros(4)

    assert once(["same"], compute) is not once(["same"], compute)
    with sharing("seed 0") as kept:
        first = once(["same"], compute)
        assert once(["same"], compute) is first
        assert (kept.found, kept.bytes, len(kept)) == (1, 32, 1)
    with sharing("seed 0"):
        assert once(["same"], compute) is first
    with sharing("seed 1"):
        assert once(["same"], compute) is not first
    assert len(calls) == 4


def test_threads_share_nothing():
    found = []

    def train():
        with sharing(0) as kept:
            once(["same"], lambda: np.zeros(1))
            found.append(kept.found)

    threads = [threading.Thread(target=train) for _ in range(3)]
    for thread in threads:
        thread.start()
        thread.join()
    assert found == [0, 0, 0]


def test_an_interrupted_or_failed_training_is_not_kept():
    with sharing(0) as kept:
        assert once(["part"], lambda: [1], whole=lambda result: False) == [1]
        with pytest.raises(KeyboardInterrupt):
            once(["whole"], lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        assert len(kept) == 0


def test_memory_is_bounded_and_the_least_recently_used_is_dropped():
    kept = Kept("", most_bytes=100)
    for key in (b"a", b"b", b"a", b"c"):  # 40 bytes each
        kept.once(key, lambda: np.zeros(5), lambda result: True)
    assert (len(kept), kept.bytes, kept.found) == (2, 80, 1)
    kept.once(b"a", lambda: pytest.fail("a was used after b"), lambda result: True)
    kept.once(b"large", lambda: np.zeros(50), lambda result: True)
    assert (len(kept), kept.bytes) == (2, 80)


def test_a_digest_tells_apart_what_computes_other_numbers():
    torch.manual_seed(0)
    linear = nn.Linear(2, 3)
    values = [
        linear,
        nn.Linear(2, 3),
        nn.Sequential(linear),
        nn.Sequential(linear, nn.Dropout(0.1)),
        nn.Sequential(linear, nn.Dropout(0.2)),
        1,
        1.0,
        True,
        "1",
        None,
        [1, 2],
        (1, 2),
        [[1], 2],
        {"a": 1, "b": 2},
        {"b": 2, "a": 1},
        np.zeros(2),
        np.zeros((2, 1)),
        np.zeros(2, dtype=np.float32),
        torch.zeros(2),
        np.array(["a", "b"], dtype=object),
        np.array(["a", "c"], dtype=object),
        np.float64(1),
        samples_of("vector"),
        samples_of("vector")[:50],
        nn.Linear,
    ]
    assert len({digest(value) for value in values}) == len(values)
    assert digest(samples_of("sequence")) == digest(samples_of("sequence"))
    assert digest({3, 1, 2}) == digest({1, 2, 3})


def test_what_cannot_be_described_is_trained_again():
    class Own(nn.Module):
        pass

    hooked = nn.Linear(1, 1)
    hooked.register_forward_hook(lambda *given: None)
    endless: list = []
    endless.append(endless)
    for value in (Own(), hooked, endless, object(), len, threading.Lock()):
        with pytest.raises(_Indescribable):
            digest([value])
        with sharing(0) as kept:
            once([value], lambda: 1)
            assert len(kept) == 0


def test_the_size_of_what_is_kept():
    assert bytes_of((np.zeros(2), {"x": torch.zeros(3, 2)}, "text", 3)) == 16 + 24
