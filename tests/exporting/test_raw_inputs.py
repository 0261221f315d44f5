"""Features made in a graph are those that the reader of tables makes."""

import numpy as np
import polars as pl
import pytest
import torch

from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.data.files.calendar_features import Calendar
from consilience.data.files.column_encoding import Encoding
from consilience.data.files.column_reading import Columns as ReadColumns
from consilience.exporting.raw_inputs import (
    EMPTY,
    PADDING,
    UNKNOWN,
    Columns,
    Ids,
    Numbers,
    calendar_features,
    seconds_of,
)
from consilience.preparation import Preparation


@pytest.mark.parametrize("hours", [True, False])
def test_calendar_features_are_those_of_polars(hours):
    rng = np.random.default_rng(0)
    fixed = ["1970-01-01", "2000-02-29", "1900-03-01", "2100-02-28", "2024-12-31T23:59:59", "1899-12-31", "NaT"]
    drawn = rng.integers(-5_000_000_000, 5_000_000_000, 3000).astype("datetime64[s]")
    times = np.concatenate([np.array(fixed, dtype="datetime64[s]"), drawn])
    calendar = Calendar(None, hours)
    expected = calendar.encode(pl.Series(times.astype("datetime64[us]")), "column")
    found = calendar_features(torch.from_numpy(seconds_of(calendar, times)), hours).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("fills", [np.array([5.0, -1.0]), None])
def test_columns_are_encoded_as_in_a_table(fills):
    numbers = np.array([[1, 2], [np.nan, 4], [np.nan, np.nan], [7, np.nan], [np.nan, np.nan]], dtype=np.float32)
    strings = ["b", "a", None, "never seen", "a"]
    codes = np.array([[1], [0], [EMPTY], [UNKNOWN], [0]])
    encoding = Encoding(None, ["x", "y"], fills, {"ward": np.array(["a", "b"], dtype=object)}, flagged=["y", "ward"])
    module = Columns(encoding, torch.float32)
    found = module([torch.from_numpy(numbers), torch.from_numpy(codes)]).numpy()
    if fills is None:  # the reader refuses rows 1, 3 and 4, which are NaN in part
        assert np.isfinite(found[0]).all()
        assert np.isnan(found[2]).all()
        assert np.isnan(found[[1, 3, 4]]).any(axis=1).all()
        return
    read = ReadColumns("m", "vector", ["x", "y"], numbers, {"ward": np.array(strings, dtype=object)})
    np.testing.assert_array_equal(found, encoding.encode(read, "advice"))


def prepared(values, lengths=None, kinds=None):
    samples = Samples.of({"m": values}, y=np.arange(len(values)) % 2, lengths=lengths, kinds=kinds)
    preparation = Preparation.fit(samples, Task.of(samples.y))
    return samples, preparation


def test_numbers_are_standardised_and_rows_judged():
    values = np.random.default_rng(1).normal(3.0, 2.0, (20, 3)).astype(np.float32)
    values[4] = np.nan
    samples, preparation = prepared(values)
    batch = preparation.batch(samples)
    given = values.copy()
    given[5, 1] = np.nan
    x, lengths, present, broken = Numbers(preparation.transforms["m"])(torch.from_numpy(given))
    assert lengths is None
    assert present.tolist() == [row != 4 for row in range(20)]
    assert broken.nonzero().tolist() == [[5]]
    rows = [row for row in range(20) if row not in (4, 5)]
    assert torch.equal(x[rows], batch["m"][rows])


def test_steps_of_nan_at_the_end_are_padding():
    values = np.random.default_rng(2).normal(size=(10, 6, 2)).astype(np.float32)
    lengths = np.array([6, 3, 1, 0, 6, 6, 2, 5, 4, 6])
    samples, preparation = prepared(values, {"m": lengths})
    batch = preparation.batch(samples)
    padded = values.copy()
    padded[np.arange(6) >= lengths[:, None]] = np.nan
    x, found, present, broken = Numbers(preparation.transforms["m"])(torch.from_numpy(padded))
    assert found.tolist() == lengths.tolist()
    assert present.tolist() == (lengths > 0).tolist()
    assert not broken.any()
    assert torch.equal(x, batch["m"])


def test_ids_end_where_the_padding_begins():
    given = torch.tensor([[3, 0, 2], [1, PADDING, PADDING], [PADDING, PADDING, PADDING]])
    ids, lengths, present, _ = Ids(None)(given)
    assert ids.tolist() == [[3, 0, 2], [1, 0, 0], [0, 0, 0]]
    assert lengths.tolist() == [3, 1, 0]
    assert present.tolist() == [True, True, False]
