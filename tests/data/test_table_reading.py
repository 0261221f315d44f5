"""A CSV, a Parquet file, a polars frame and a pandas frame of the same cells give the same samples."""

import datetime
import decimal
import warnings

import numpy as np
import pandas
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.core.errors import ConsilienceError, InputError
from consilience.data import load_data, read_with_recipe
from consilience.data.files import table_reading
from consilience.data.files.table_reading import read_header, read_table

TYPES = {
    "byte": (pl.UInt8, st.integers(0, 255)),
    "whole": (pl.Int64, st.integers(-9, 9) | st.sampled_from([2**53 + 1, -(2**60)])),
    "single": (pl.Float32, st.floats(-1e3, 1e3, width=32)),
    "double": (pl.Float64, st.floats(-1e3, 1e3) | st.sampled_from([0.1, 1e-300, 3.0])),
    "truth": (pl.Boolean, st.booleans()),
    "word": (pl.String, st.sampled_from(["red", "Köln", "a,b", 'say "hi"', " 3 x", "NA x"])),
    "label": (pl.Categorical, st.sampled_from(["low", "high"])),
    "line": (pl.String, st.sampled_from(["ninety nine", "zwölf", "a, b", "x"])),
}
GROUPS = {
    "numbers": ["byte", "whole", "single", "double"],
    "mixed": ["truth", "word", "label"],
    "line": "line",
}
OPTIONS = {"target": "y", "modalities": GROUPS, "kinds": {"line": "text"}, "split": "split"}


@st.composite
def frames(draw):
    """Twelve rows of every type, some cells empty, and whether to fill them."""
    fill = draw(st.sampled_from([None, "median", "mean", "zero"]))
    columns = {name: draw(st.lists(cells, min_size=12, max_size=12)) for name, (_, cells) in TYPES.items()}
    for group in GROUPS.values():
        rows = draw(st.sets(st.integers(1, 11), max_size=3))
        for name in [group] if isinstance(group, str) else group:
            gaps = rows if fill is None else rows | draw(st.sets(st.integers(1, 11), max_size=2))
            columns[name] = [None if row in gaps else cell for row, cell in enumerate(columns[name])]
    frame = pl.DataFrame(columns, schema={name: kind for name, (kind, _) in TYPES.items()})
    y = draw(st.sampled_from([["a", "b"], [0, 1], [True, False], [0.5, 2.25]])) * 6
    split = ["train", "train", *draw(st.permutations(["train"] * 6 + ["validation", "validation", "test", "test"]))]
    return frame.with_columns(y=pl.Series(y), split=pl.Series(split)), fill


def as_pandas(frame):
    types = {"byte": "UInt8", "whole": "Int64", "single": "float32", "label": "category"}
    return pandas.DataFrame(
        {
            name: pandas.Series(column.to_list(), dtype=types.get(name))
            for name, column in zip(frame.columns, frame.get_columns())
        }
    )


def load_or_error(table, **options):
    try:
        return load_data(table, **options)
    except ConsilienceError as error:
        return str(error)


def assert_same(given, expected):
    if isinstance(expected, str):
        assert given == expected
        return
    assert not isinstance(given, str), given
    assert given.extra == expected.extra
    assert given.task == expected.task
    assert (given.split == expected.split).all()
    assert given.y.tolist() == expected.y.tolist()
    assert given.y.dtype.kind == expected.y.dtype.kind
    assert given.samples.modalities == expected.samples.modalities
    assert np.array_equal(given.samples.present, expected.samples.present)
    for name in expected.modalities:
        assert given.samples[name].dtype == expected.samples[name].dtype
        there = expected.samples.present_in(name)
        assert np.array_equal(given.samples[name][there], expected.samples[name][there])
    recipes = [data.recipe() | {"data": None} for data in (given, expected)]
    assert recipes[0] == recipes[1]


@pytest.fixture(scope="module")
def without_trials():
    """Parquet files of these tests are read without a process for each of hundreds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_reading, "try_parquet", lambda *_: None)
        yield


@settings(max_examples=100, deadline=None)
@given(case=frames())
def test_every_kind_of_table_gives_the_same_samples(tmp_path_factory, without_trials, case):
    frame, fill = case
    folder = tmp_path_factory.getbasetemp()
    frame.write_csv(folder / "table.csv")
    frame.write_parquet(folder / "table.parquet")
    options = OPTIONS | {"fill": fill}
    expected = load_or_error(folder / "table.csv", **options)
    tables = (folder / "table.parquet", frame, as_pandas(frame))
    for table in tables:
        assert_same(load_or_error(table, **options), expected)
    if not isinstance(expected, str):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # categories of the other parts
            for table in (folder / "table.csv", *tables):
                new = read_with_recipe(expected.recipe(), table)
                assert np.array_equal(new["numbers"], expected.samples["numbers"], equal_nan=True)
                assert np.array_equal(new["mixed"], expected.samples["mixed"], equal_nan=True)


def test_a_drawn_split_and_a_new_one_are_the_same():
    n = 40
    frame = pl.DataFrame({"a": np.arange(n) / 7, "c": ["x", "y", "z", "z"] * 10, "y": ["u", "v"] * 20})
    for seed in (0, 3):
        loaded = [
            load_data(table, target="y", modalities={"m": ["a", "c"]}, seed=seed) for table in (frame, as_pandas(frame))
        ]
        assert_same(*loaded)
        assert_same(*(data.resplit(5) for data in loaded))


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (pl.Series([datetime.timedelta(1)] * 6), "Duration"),
        (pl.Series([[1, 2]] * 6), "List"),
        (pl.Series([b"x"] * 6), "Binary"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_types_are_refused_with_the_same_message(tmp_path, cells, kind):
    frame = pl.DataFrame({"a": cells, "y": [0, 1] * 3})
    frame.write_parquet(tmp_path / "table.parquet")
    expected = f"modality 'm': column 'a' holds {kind}; numbers, booleans, strings and dates are allowed"
    for table in (tmp_path / "table.parquet", frame, pandas.DataFrame(frame.to_dict(as_series=False))):
        assert load_or_error(table, target="y", modalities={"m": "a"}) == expected
        refused = load_or_error(table, target="a", modalities={"m": "y"})
        assert refused == f"target column 'a' holds {kind}: use numbers, strings or booleans"


@pytest.mark.parametrize("time", [datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, 12)], ids=str)
def test_times_are_refused_with_the_same_message(tmp_path, time):
    frame = pl.DataFrame({"a": [time] * 6, "y": [0, 1] * 3})
    frame.write_parquet(tmp_path / "table.parquet")
    for table in (tmp_path / "table.parquet", frame, pandas.DataFrame(frame.to_dict(as_series=False))):
        alone = load_or_error(table, target="y", modalities={"m": "a"})
        assert alone.startswith(f"modality 'm': column 'a' holds times such as '{time}'. For calendar features")
        refused = load_or_error(table, target="a", modalities={"m": "y"})
        assert refused.startswith(f"target column 'a' holds times such as '{time}', which are neither classes nor")


@pytest.mark.parametrize(
    ("column", "kind", "cells"),
    [
        (pandas.Series([1, None, 3], dtype="Int16"), pl.Float64, [1, None, 3]),
        (pandas.Series([True, None, False]), pl.Boolean, [True, None, False]),
        (pandas.Series([True, None, False], dtype="boolean"), pl.Boolean, [True, None, False]),
        (pandas.Series(["a", None, "b"]), pl.String, ["a", None, "b"]),
        (pandas.Series(["a", None, "b"], dtype=object), pl.String, ["a", None, "b"]),
        (pandas.Series(["a", None, "b"], dtype="category"), pl.String, ["a", None, "b"]),
        (pandas.Series([3, 1, 3], dtype="category"), pl.Int64, [3, 1, 3]),
        (pandas.Series([1, 2.5, None], dtype=object), pl.Float64, [1, 2.5, None]),
        (pandas.Series([decimal.Decimal("1.5")] * 3), pl.Decimal, [decimal.Decimal("1.5")] * 3),
        (pandas.Series([None] * 3, dtype=object), pl.Null, [None] * 3),
    ],
    ids=str,
)
def test_types_of_pandas(column, kind, cells):
    read = read_table(pandas.DataFrame({"a": column}), ["a"])["a"]
    assert read.dtype == kind
    assert read.fill_nan(None).to_list() == cells if read.dtype.is_float() else read.to_list() == cells


def test_cells_of_different_types_are_refused():
    frame = pandas.DataFrame({"a": [1, "x", 2.5], "y": [0, 1, 0]})
    with pytest.raises(InputError, match=r"column 'a' holds cells of different types \(float, int, str\)"):
        load_data(frame, target="y", modalities={"m": "a"})


def test_columns_without_a_name_are_named_as_those_of_a_csv(tmp_path):
    (tmp_path / "t.csv").write_text("a,,b,\n1,2,3,4\n")
    frame = pandas.DataFrame([[1, 2, 3, 4]], columns=["a", "", "b", ""])
    assert read_header(frame) == read_header(tmp_path / "t.csv")
    last = read_header(frame)[-1]
    assert read_table(frame, [last]).item() == read_table(tmp_path / "t.csv", [last]).item() == 4


def test_what_a_frame_lacks_is_named():
    frame = pl.DataFrame({"a": [1.0, 2.0], "y": [0, 1]})
    with pytest.raises(InputError, match=r"target column 'z'.*It was looked for in the DataFrame"):
        load_data(frame, target="z", modalities={"m": "a"})
    with pytest.raises(InputError, match="the DataFrame has a header but no rows"):
        load_data(frame[:0], target="y", modalities={"m": "a"})
    with pytest.raises(InputError, match=r"option 'n'.*It was given for 'the DataFrame'"):
        load_data(frame, target="y", modalities={"m": "a"}, n=3)


@pytest.mark.parametrize("kind", ["csv", "parquet", "polars", "pandas"])
@pytest.mark.parametrize("name", ["*", "^a.*$"])
def test_names_that_polars_expands_are_refused(tmp_path, kind, name):
    frame = pl.DataFrame({name: [1.0, 2.0], "ab": [5.0, 6.0]})
    path = tmp_path / f"table.{kind}"
    if kind in ("csv", "parquet"):
        getattr(frame, f"write_{kind}")(path)
    table = {"polars": frame, "pandas": as_pandas(frame)}.get(kind, path)
    with pytest.raises(InputError, match="rename this column"):
        read_table(table, [name])
    if kind in ("csv", "parquet"):
        with pytest.raises(InputError, match="rename this column"):
            list(table_reading.number_batches(path, [name], 10))
        with pytest.raises(InputError, match="rename this column"):
            list(table_reading.string_batches(path, name, 10))
    assert read_table(table, ["ab"])["ab"].to_list() == [5.0, 6.0]


def test_parquet_of_equal_values_says_how_it_can_be_read(tmp_path):
    names = [f"c{number}" for number in range(200)]
    frame = pl.DataFrame({name: np.zeros(700_000, dtype=np.int8) for name in names})
    frame.write_parquet(tmp_path / "zeros.parquet", compression="uncompressed")
    with pytest.raises(InputError, match=r"If it is neither, pass polars\.read_parquet\(path\)"):
        read_table(tmp_path / "zeros.parquet", names)
    assert read_table(pl.read_parquet(tmp_path / "zeros.parquet"), names).shape == (700_000, 200)
