"""What the targets of a table or an array are taken for, and sets without any."""

import datetime
import warnings

import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_diabetes, load_digits
from sklearn.utils.multiclass import type_of_target

from consilience import FusionClassifier, MultimodalVAE
from consilience.core.errors import InputError, TableWarning
from consilience.core.targets import guess_task
from consilience.data import DataSet, load_data, read_with_recipe

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("y", "task", "said"),
    [
        (load_diabetes().target, "regression", True),  # whole numbers from 25 to 346 of 442 patients
        (load_digits().target, "classification", False),
        (np.arange(18), "classification", False),  # a class a row, as few as there are
        (np.arange(60), "regression", True),
        (np.repeat(np.arange(102), 90), "classification", True),  # Caltech-101
        (RNG.integers(18, 90, 5000), "classification", True),  # ages; said, since it is the wrong guess
        (RNG.integers(0, 5000, 90_000), "regression", True),  # prices
        (RNG.integers(0, 2000, 400_000), "regression", True),  # more than 1000 values
        (RNG.integers(0, 60, 500).astype(float), "regression", True),  # as pandas has them beside a gap
        (RNG.integers(0, 60, 500).astype(str), "classification", False),
        (RNG.integers(0, 2, 500).astype(bool), "classification", False),
        (RNG.normal(size=500), "regression", False),
    ],
    ids=lambda value: f"{len(set(value.tolist()))} values" if isinstance(value, np.ndarray) else "",
)
def test_whole_numbers_of_many_values_are_amounts_and_the_guess_is_said(y, task, said):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert guess_task(y, "target column 'y'") == task
    assert bool(caught) == said
    for warning in caught:
        other = {"classification": "regression", "regression": "classification"}[task]
        assert f"target column 'y' holds {len(np.unique(y))} different whole numbers" in str(warning.message)
        assert f"task='{other}' (--task {other}) if they are not" in str(warning.message)


def test_what_scikit_learn_calls_continuous_is_a_regression():
    for y in (RNG.normal(size=50), RNG.integers(0, 3, 50), np.array(["a", "b"] * 25), np.array([1.0, 2.0] * 25)):
        assert (guess_task(y, "y") == "regression") == (type_of_target(y) == "continuous")


def table(y):
    return pl.DataFrame({"a": np.arange(len(y)) * 1.0, "b": np.arange(len(y)) * 2.0, "y": y})


@pytest.mark.parametrize("kind", ["frame", "npz"])
def test_the_guess_may_be_changed(tmp_path, kind):
    y = np.arange(200) // 4
    source = table(y)
    if kind == "npz":
        source = tmp_path / "t.npz"
        np.savez(source, a=np.arange(200.0)[:, None], y=y)
    options = {"target": "y", "modalities": {"a": "a"}} if kind == "frame" else {}
    with pytest.warns(UserWarning, match="50 different whole numbers in 200 rows, which are taken for amounts"):
        assert load_data(source, **options).task == "regression"
    with warnings.catch_warnings():
        warnings.simplefilter("error", TableWarning)
        assert load_data(source, **options, task="classification").task == "classification"
        assert load_data(source, **options, task="regression").task == "regression"


TIMES = [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=7 * row) for row in range(20)]


@pytest.mark.parametrize("y", [TIMES, [time.date() for time in TIMES], [f"{time:%d.%m.%Y %H:%M}" for time in TIMES]])
@pytest.mark.parametrize("ending", ["csv", "parquet", None])
def test_times_are_no_targets(tmp_path, y, ending):
    frame = source = table(y)
    if ending is not None:
        source = tmp_path / f"t.{ending}"
        frame.write_parquet(source) if ending == "parquet" else frame.write_csv(source)
    with pytest.raises(InputError, match=r"'y' holds times such as .*Add a column of what is to be predicted, such as"):
        load_data(source, target="y", modalities={"a": "a"})


def test_strings_of_times_may_be_names_of_classes():
    frame = table(["2024-01-01", "2024-02-01"] * 10)
    data = load_data(frame, target="y", modalities={"a": "a"}, task="classification")
    assert data.classes.tolist() == ["2024-01-01", "2024-02-01"]
    assert read_with_recipe(data.recipe(), frame).y.tolist() == frame["y"].to_list()
    with pytest.raises(InputError, match=r"task='classification' \(--task classification\) takes the strings as names"):
        load_data(frame, target="y", modalities={"a": "a"})


def test_times_are_refused_by_estimators_too():
    y = np.array(["2024-01-01", "2024-01-02"] * 10, dtype="datetime64[D]")
    with pytest.raises(InputError, match="in place of a time, predict a number such as the days"):
        FusionClassifier().fit({"a": np.arange(20.0)[:, None]}, y)


@pytest.fixture
def unlabelled():
    return load_data(table(np.arange(40) % 2).with_columns(other=pl.lit(1)), modalities={"a": "a", "b": "b"})


def test_a_table_without_a_target(unlabelled):
    assert repr(unlabelled).endswith("2 modalities, no targets")
    assert unlabelled.sizes == {"train": 28, "validation": 6, "test": 6}
    assert unlabelled.task is None
    assert unlabelled.classes is None
    assert unlabelled.train.y is None
    assert unlabelled.describe()["task"] is None
    assert unlabelled.recipe()["target"]["name"] is None
    assert read_with_recipe(unlabelled.recipe(), table(np.arange(3))).y is None
    assert (unlabelled.resplit(1).split != unlabelled.split).any()


def test_whatever_needs_a_target_asks_for_it(unlabelled):
    message = r"without targets.*name the column to predict with target= \(--target\); of no modality are 'y', 'other'"
    with pytest.raises(InputError, match=message):
        _ = unlabelled.y
    with pytest.raises(InputError, match="requires y to be passed"):
        FusionClassifier().fit(unlabelled.train)
    with pytest.raises(InputError, match="a task but no targets"):
        DataSet("t", unlabelled.samples, "regression", unlabelled.split)


def test_a_latent_model_learns_from_it(unlabelled):
    model = MultimodalVAE(latent=2, epochs=1, device="cpu", validation=unlabelled.validation).fit(unlabelled.train)
    assert model.transform(unlabelled.test).shape == (6, 2)


def test_a_split_column_serves_without_a_target():
    parts = np.repeat(["train", "test"], [30, 10])
    data = load_data(table(np.arange(40)).with_columns(part=pl.Series(parts)), modalities={"a": "a"}, split="part")
    assert data.sizes["test"] == 10
    assert data.resplit(1).sizes == data.sizes
