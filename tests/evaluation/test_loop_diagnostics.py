import numpy as np
import polars as pl
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from consilience.core.errors import InputError, UnsupportedError
from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.evaluation import depth_curve, joining_curve, probe_steps, step_features
from consilience.evaluation.loop_diagnostics import joining_points
from consilience.training import Model, Trainer

SMALL = {"sight": {"name": "mlp", "hidden": [6, 5]}, "sound": {"name": "gru", "hidden": 4}}
TRAINER = Trainer(epochs=2, batch_size=16, device="cpu")


def tiny_set(kind="classification", n=60):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    X = {"sight": rng.normal(size=(n, 3)) + y[:, None], "sound": rng.normal(size=(n, 5, 2)) + y[:, None, None]}
    target = y if kind == "classification" else y + 0.1 * rng.normal(size=n)
    split = np.array(["train", "train", "train", "train", "validation", "test"])[np.arange(n) // 2 % 6]
    present = np.ones((n, 2), dtype=bool)
    present[::7, 1] = False
    return DataSet("tiny", Samples.of(X, target, present=present), kind, split)


@pytest.fixture(scope="module")
def data():
    return tiny_set()


@pytest.fixture(scope="module")
def looped(data):
    model = Model.fit("pro:concat", data.train, settings={"steps": 3, "width": 8}, encoders=SMALL, trainer=TRAINER)
    with torch.no_grad():  # two epochs move a link that starts at zero only a little
        for parameter in model.method.link_parameters():
            parameter += 0.5 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    return model


def test_every_pass_is_a_model_that_stops_there(data, looped):
    passes = step_features(looped, data.test, batch_size=4, device="cpu")
    assert [{name: features.shape for name, features in each.items()} for each in passes] == [
        {"sight": (10, 5), "sound": (10, 4)}
    ] * 3
    batch = looped.preparation.batch(data.test)
    looped.method.eval()
    for stop, features in enumerate(passes, start=1):
        looped.method.steps, full = stop, looped.method.steps
        try:
            made = looped.method(batch).features
        finally:
            looped.method.steps = full
        for name, one in features.items():
            np.testing.assert_allclose(one, made[name].pooled.detach(), atol=1e-5)
    assert not np.allclose(passes[0]["sight"], passes[1]["sight"], atol=1e-3)
    missing = ~data.test.present_in("sound")
    assert missing.any()
    assert (passes[2]["sound"][missing] == 0).all()


def test_a_method_without_a_loop_has_one_pass(data):
    model = Model.fit("concat", data.train, trainer=TRAINER)
    assert len(step_features(model, data.test, device="cpu")) == 1
    late = Model.fit("late", data.train, trainer=TRAINER)
    with pytest.raises(UnsupportedError, match="'late' joins no features"):
        step_features(late, data.test)


def test_a_probe_is_a_logistic_regression_of_standardised_features(data, looped):
    table = probe_steps(looped, data.train, data.test, penalty=2.0, device="cpu")
    assert table.select("modality", "step").rows() == [
        (name, step) for step in (1, 2, 3) for name in ("sight", "sound")
    ]
    train, test = (step_features(looped, samples, device="cpu")[1]["sound"] for samples in (data.train, data.test))
    there, kept = data.train.present_in("sound"), data.test.present_in("sound")
    mean, std = train[there].mean(0), train[there].std(0)
    probe = LogisticRegression(C=0.5).fit((train[there] - mean) / std, data.train.y[there])
    expected = probe.score((test[kept] - mean) / std, data.test.y[kept])
    row = table.row(by_predicate=(pl.col("modality") == "sound") & (pl.col("step") == 2), named=True)
    assert row == {"modality": "sound", "step": 2, "metric": "accuracy", "value": expected, "samples": kept.sum()}


def test_a_probe_of_numbers_is_ridge():
    data = tiny_set("regression")
    model = Model.fit("pro:concat", data.train, encoders=SMALL, task="regression", trainer=TRAINER)
    table = probe_steps(model, data.train, data.test, device="cpu")
    train, test = (step_features(model, samples, device="cpu")[0]["sight"] for samples in (data.train, data.test))
    mean, std = train.mean(0), np.where(train.std(0) > 0, train.std(0), 1)
    probe = Ridge(alpha=1.0).fit((train - mean) / std, data.train.y)
    assert table["metric"][0] == "r2"
    assert table["value"][0] == pytest.approx(probe.score((test - mean) / std, data.test.y), abs=1e-4)


def test_probes_that_cannot_be(data, looped):
    with pytest.raises(InputError, match="penalty must be"):
        probe_steps(looped, data.train, data.test, penalty=0)
    with pytest.raises(InputError, match="modality 'sound'"):
        probe_steps(looped, data.train, data.test.only(["sight"]), device="cpu")


def test_depth_against_models_trained_one_by_one(data):
    table = depth_curve(data, "concat", steps=(1, 3), seeds=[4], settings={"width": 8}, encoders=SMALL, trainer=TRAINER)
    assert table.select("steps", "seed", "metric").rows() == [(1, 4, "accuracy"), (3, 4, "accuracy")]
    split = data.resplit(4)
    trainer = Trainer(epochs=2, batch_size=16, device="cpu", seed=4)
    base = Model.fit("concat", split.train, split.validation, settings={"width": 8}, encoders=SMALL, trainer=trainer)
    decided = base.task.decode(base.predict(split.test, device="cpu").output.numpy())
    assert table["value"][0] == np.mean(decided == split.test.y)
    assert table["parameters"][0] == sum(parameter.numel() for parameter in base.method.parameters())
    assert table["parameters"][1] > table["parameters"][0]
    assert (table.select("epoch_seconds", "prediction_seconds").to_numpy() > 0).all()
    with pytest.raises(InputError, match="nothing to measure"):
        depth_curve(data, steps=())


def test_feedback_joins_at_every_stage_in_turn(data):
    expected = [
        {"sight": "block1", "sound": "layer1"},
        {"sight": "block2", "sound": "end"},
        {"sight": "end", "sound": "end"},
    ]
    assert joining_points(data, "concat", encoders=SMALL) == expected
    assert joining_points(data, "concat", {"mode": "concat"}, SMALL) == [
        {"sight": "block1", "sound": "layer1"},
        {"sight": "block2", "sound": "layer1"},
    ]
    table = joining_curve(data, "concat", seeds=1, encoders=SMALL, trainer=TRAINER)
    assert table.select("position", "stage").rows() == [
        (0, "sight block1, sound layer1"),
        (1, "sight block2, sound end"),
        (2, "end"),
    ]
    chosen = joining_curve(data, into=[None], seeds=1, encoders=SMALL, trainer=TRAINER, metric="nll")
    assert chosen.select("stage", "metric").rows() == [("input", "nll")]
    with pytest.raises(UnsupportedError, match="late"):
        joining_curve(data, "late", seeds=1)
    with pytest.raises(UnsupportedError, match="the encoder of modality 'sight' in method 'ef-lstm' has no layer"):
        joining_curve(data, "ef-lstm", seeds=1, settings={"mode": "concat"})
