import json
import pickle

import numpy as np
import pytest

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.data import DataSet, load_data
from consilience.data.splits import draw_split


def small(y, task="classification", split=None, **more):
    y = np.asarray(y)
    samples = Samples.of({"a": np.arange(2.0 * len(y)).reshape(-1, 2)}, y)
    return DataSet("small", samples, task, draw_split(y, task).parts if split is None else np.array(split), **more)


def test_parts_cover_the_set_once_and_keep_their_numbers():
    data = load_data("digits")
    rows = np.concatenate([data.train.index, data.validation.index, data.test.index])
    assert sorted(rows) == list(range(len(data)))
    assert (data.test["top_left"] == data.samples["top_left"][data.test.index]).all()
    assert (data.test.y == data.y[data.test.index]).all()


def test_resplit_draws_parts_of_the_same_size_and_keeps_the_numbers():
    data = load_data("digits")
    other = data.resplit(5)
    assert other.sizes == data.sizes
    assert (other.split != data.split).any()
    assert (other.resplit(5).split == other.split).all()
    assert (other.samples.index == data.samples.index).all()


def test_resplit_keeps_an_official_test_part():
    y = np.arange(60) % 3
    words = np.array(["train"] * 30 + ["validation"] * 10 + ["test"] * 20)
    drawn = small(y, split=words, official_split=True, drawn_validation=True)
    assert (drawn.resplit(1).split[40:] == "test").all()
    assert drawn.resplit(1).sizes == drawn.sizes
    assert (drawn.resplit(1).split != words).any()
    given = small(y, split=words, official_split=True, drawn_validation=False)
    assert (given.resplit(1).split == words).all()


def test_describe_counts_what_is_there():
    y = np.array(["x", "y"] * 20)
    values = np.ones((40, 2))
    values[:10] = np.nan
    data = DataSet(
        "gaps", Samples.of({"a": values, "b": np.ones(40)}, y), "classification", draw_split(y, "classification").parts
    )
    described = json.loads(json.dumps(data.describe()))
    assert described["modalities"] == [
        {"name": "a", "kind": "vector", "shape": [2], "missing": 0.25},
        {"name": "b", "kind": "vector", "shape": [1], "missing": 0.0},
    ]
    assert described["classes"][0] == {"class": "x", "samples": 20, "share": 0.5}
    assert sum(described["split"].values()) == 40
    numbers = small(np.linspace(0, 1, 30), "regression").describe()["targets"][0]
    assert numbers["min"] == 0
    assert numbers["max"] == 1
    assert numbers["mean"] == pytest.approx(0.5)


def test_a_set_survives_pickling():
    data = load_data("gaussians", n=50)
    copy = pickle.loads(pickle.dumps(data))
    assert (copy.split == data.split).all()
    assert np.allclose(copy.extra["truth"].log_posterior(copy.test), data.extra["truth"].log_posterior(data.test))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: small([0, 1], split=["train", "test"]), "none of them for validation"),
        (lambda: small([0] * 20), "at least two classes"),
        (lambda: small([0, 1, 0, 2], split=["train", "train", "validation", "test"]), r"class 2 \(row 3\)"),
        (lambda: small([0, 1, 0, 1], split=["train", "train", "validation"]), "4 samples, its split 3 rows"),
        (lambda: small([0.5, np.nan, 1, 2], "regression"), r"NaN or infinity \(row 1\)"),
        (lambda: small([0.5, 0.25, 1, 2]), "continuous"),
    ],
)
def test_unusable_sets_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
