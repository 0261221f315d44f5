"""A feature far from 0, such as a time in seconds since 1970, teaches as much as the same feature shifted to 0."""

import numpy as np
import pandas
import polars as pl
import pytest
import torch

from consilience import FusionClassifier, FusionRegressor, MultimodalVAE, Samples, compare, corrupt, load, load_data
from consilience.core.errors import InputError
from consilience.core.targets import Task
from consilience.data import read_with_recipe
from consilience.preparation import Preparation
from consilience.training import Model, Trainer
from consilience.training.stacked_seeds import fit_together

SECONDS = 1.7e9
GROUPS = {"clock": ["time"], "other": ["a", "b"]}
QUICK = {"epochs": 20, "lr": 0.01, "batch_size": 32, "device": "cpu"}
pytestmark = pytest.mark.filterwarnings("ignore::consilience.core.errors.TrustWarning")


def made(offset, n=240, seed=0):
    """60 seconds, of which the second half is one class, and noise."""
    rng = np.random.default_rng(seed)
    time = rng.permutation(np.arange(n) % 60)
    return offset + time.astype(np.float64), rng.normal(size=(n, 2)), (time >= 30).astype(int)


def frame_of(offset, **given):
    time, other, y = made(offset, **given)
    return pl.DataFrame({"time": time, "a": other[:, 0], "b": other[:, 1], "y": y})


def arrays_of(offset, convert=np.asarray, **given):
    time, other, y = made(offset, **given)
    return {"clock": convert(time[:, None]), "other": other}, y


def classifier(**given):
    return FusionClassifier("concat", random_state=0, **(QUICK | given))


FORMS = {
    "float64": np.asarray,
    "int64": lambda values: values.astype(np.int64),
    "tensor": torch.from_numpy,
    "list": lambda values: values.tolist(),
}


@pytest.mark.parametrize("form", FORMS)
def test_arrays(form):
    scores = []
    for offset in (0.0, SECONDS, -SECONDS * 1000):
        X, y = arrays_of(offset, FORMS[form])
        scores.append(classifier().fit(X, y).score(*arrays_of(offset, FORMS[form], seed=1)))
    assert scores[0] > 0.95
    assert scores[1:] == scores[:1] * 2


@pytest.mark.parametrize("library", [pl.DataFrame, pandas.DataFrame])
def test_frames(library):
    scores = []
    for offset in (0.0, SECONDS):
        train, test = (library(frame_of(offset, seed=seed).to_dict(as_series=False)) for seed in (0, 1))
        model = classifier(columns=GROUPS).fit(train[["time", "a", "b"]], train["y"].to_numpy())
        scores.append(model.score(test[["time", "a", "b"]], test["y"].to_numpy()))
    assert scores[0] == scores[1] > 0.95


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_tables_on_disk(tmp_path, suffix):
    outputs = []
    for offset in (0.0, SECONDS):
        frame = frame_of(offset)
        path = tmp_path / f"{offset:.0f}.{suffix}"
        frame.write_csv(path) if suffix == "csv" else frame.write_parquet(path)
        data = load_data(path, target="y", modalities=GROUPS)
        assert len(np.unique(data.samples["clock"])) == 60
        model = Model.fit("concat", data.train, data.validation, trainer=Trainer(**QUICK))
        model.recipe = data.recipe()
        outputs.append(model.predict(data.test, device="cpu").output)
        accuracy = np.mean(model.task.decode(outputs[-1].numpy()) == data.test.y)
        assert accuracy > 0.9
        # Rows of a new table are read as those of training, also a single one.
        rows = np.flatnonzero(data.split == "test")
        for count in (1, 7):
            new = frame[rows[:count].tolist()].drop("y")
            new.write_csv(tmp_path / "new.csv") if suffix == "csv" else new.write_parquet(tmp_path / "new.parquet")
            again = model.predict(read_with_recipe(data.recipe(), tmp_path / f"new.{suffix}"), device="cpu").output
            torch.testing.assert_close(again, outputs[-1][:count], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*outputs, rtol=1e-3, atol=1e-3)


def test_comparing_and_training_side_by_side(tmp_path):
    tables = []
    for offset in (0.0, SECONDS):
        path = tmp_path / f"{offset:.0f}.csv"
        frame_of(offset).write_csv(path)
        run = {"seeds": 1, "levels": (1,), "training": QUICK, "verbose": 0, "out": tmp_path / path.stem}
        found = compare(path, ["concat"], target="y", modalities=GROUPS, **run)
        tables.append(found.table("markdown").replace(path.stem, ""))
        data = load_data(path, target="y", modalities=GROUPS)
        models = fit_together("concat", [(data.train, data.validation)] * 2, [0, 1], trainer=Trainer(**QUICK))
        for model in models:
            assert np.mean(model.task.decode(model.predict(data.test).output.numpy()) == data.test.y) > 0.9
    assert tables[0] == tables[1]


def test_saved_and_loaded(tmp_path):
    X, y = arrays_of(SECONDS)
    model = classifier().fit(X, y)
    model.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict_proba(X), model.predict_proba(X))


def test_one_row_is_prepared_as_many_are():
    X, y = arrays_of(SECONDS)
    samples = Samples.of(X, y)
    preparation = Preparation.fit(samples, Task.of(y))
    whole = preparation.batch(samples)["clock"]
    assert len(whole.unique()) == 60
    assert torch.equal(preparation.batch(samples[5])["clock"], whole[5:6])


@pytest.mark.parametrize("kind", ["vector", "sequence", "image"])
def test_every_kind_of_numbers(kind):
    time, _, y = made(SECONDS)
    shape = {"vector": (-1, 1), "sequence": (-1, 1, 1), "image": (-1, 1, 1, 1)}[kind]
    samples = Samples.of({"clock": time.reshape(shape)}, y)
    assert len(Preparation.fit(samples, Task.of(y)).batch(samples)["clock"].unique()) == 60


def test_noise_is_relative_to_the_spread():
    X, _ = arrays_of(SECONDS)
    noisy = corrupt(X, "gaussian", level=1.0, probability=1.0)["clock"] - SECONDS
    near, _ = arrays_of(0.0)
    expected = corrupt(near, "gaussian", level=1.0, probability=1.0)["clock"]
    assert noisy == pytest.approx(expected, abs=1e-5)


def test_what_is_generated_and_filled_in_keeps_its_digits():
    X, _ = arrays_of(SECONDS, FORMS["int64"])
    model = MultimodalVAE(latent=2, epochs=20, device="cpu", random_state=0).fit(X)
    drawn = model.sample(60)["clock"]
    assert len(np.unique(drawn)) > 50
    assert np.abs(drawn - SECONDS - 30).max() < 200
    there = np.arange(len(X["clock"])) % 5 > 0
    filled = model.impute(Samples.of(X, present={"clock": there}))["clock"]
    assert np.array_equal(filled[there], X["clock"][there])
    assert np.abs(filled - SECONDS - 30).max() < 200
    near, _ = arrays_of(0.0)
    assert MultimodalVAE(latent=2, epochs=1, device="cpu").fit(near).sample(3)["clock"].dtype == np.float32


def test_a_target_far_from_zero():
    time, other, _ = made(SECONDS)
    X = {"clock": (time - SECONDS)[:, None], "other": other}
    assert FusionRegressor("concat", **QUICK).fit(X, time).score(X, time) > 0.9


def test_numbers_that_32_bits_hold_stay_small(tmp_path):
    """Large sets of usual numbers take no more memory than they did."""
    frame_of(0.0).write_csv(tmp_path / "near.csv")
    data = load_data(tmp_path / "near.csv", target="y", modalities=GROUPS)
    assert {values.dtype for values in data.samples.values.values()} == {np.dtype(np.float32)}
    assert Samples.of({"clock": np.zeros((3, 1), np.float32)})["clock"].dtype == np.float32


@pytest.mark.parametrize("numbers", [[1e300, 2e300, 3e300], [1e-50, 2e-50, 6e-50]])
def test_numbers_outside_the_range_of_32_bits(tmp_path, numbers):
    pl.DataFrame({"time": numbers * 20, "a": [0.0, 1.0, 2.0] * 20, "y": [0, 1, 1] * 20}).write_csv(tmp_path / "far.csv")
    data = load_data(tmp_path / "far.csv", target="y", modalities={"time": "time", "a": "a"})
    assert sorted(np.unique(data.samples["time"])) == numbers


def test_whole_numbers_that_64_bits_merge(tmp_path):
    """Nanoseconds since 1970 that differ by less than 256 are refused, others are not."""
    nanoseconds = np.arange(60) % 2 + 1_700_000_000_000_000_000
    y = np.arange(60) % 2
    for values in (nanoseconds[:, None], np.stack([nanoseconds, np.arange(60)], axis=1)):
        with pytest.raises(InputError, match=r"'clock'.* merge 1700000000000000000 and the next: subtract an offset"):
            classifier().fit({"clock": values}, y)
    pl.DataFrame({"time": nanoseconds, "y": y}).write_csv(tmp_path / "merged.csv")
    with pytest.raises(InputError, match=r"'time'.* merge 1700000000000000000"):
        load_data(tmp_path / "merged.csv", target="y", modalities={"clock": "time"})
    assert (
        classifier()
        .fit({"clock": (y * 1000 + nanoseconds)[:, None]}, y)
        .score({"clock": (y * 1000 + nanoseconds)[:, None]}, y)
        > 0.9
    )
