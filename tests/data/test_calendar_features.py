"""Times and identifiers are left out with a sentence; on request times become calendar features, as pandas has them."""

import datetime
import json
import warnings

import numpy as np
import pandas
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.core.errors import InputError, SavedModelError, UnknownNameError
from consilience.data import load_data, read_with_recipe
from consilience.data.files.calendar_features import find_calendar, find_layout

N = 60
TIMES = pandas.Series(pandas.date_range("2023-11-05 03:20", periods=N, freq="31h"))


def table(when):
    """A frame with a column of times, one of identifiers and one of numbers."""
    return pl.DataFrame(
        {"when": when, "id": [f"p{n}" for n in range(N)], "a": np.arange(N) * 1.0, "y": np.arange(N) % 2}
    )


def typed():
    return table(TIMES.dt.to_pydatetime().tolist() if hasattr(TIMES.dt, "to_pydatetime") else TIMES.tolist())


def load(frame, **options):
    return load_data(frame, target="y", modalities={"m": ["when", "id", "a"]}, **options)


LAYOUTS = ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%d.%m.%Y %H:%M", "%m/%d/%Y", "%Y/%m/%d", "%Y-%m-%d %H:%M:%S.%f"]


@pytest.mark.parametrize("layout", [None, *LAYOUTS])
@pytest.mark.parametrize("kind", ["polars", "pandas", "csv"])
def test_times_and_identifiers_are_left_out_with_a_sentence(tmp_path, layout, kind):
    frame = typed() if layout is None else table(TIMES.dt.strftime(layout).tolist())
    if kind == "pandas":
        frame = pandas.DataFrame(frame.to_dict(as_series=False))
    if kind == "csv":
        frame.write_csv(tmp_path / "t.csv")
        frame = tmp_path / "t.csv"
    with pytest.warns(UserWarning, match="left out") as said:
        data = load(frame)
    assert len(said) == 1
    text = str(said[0].message)
    assert "column 'id' holds 60 different strings in 60 rows, too many for categories" in text
    assert "column 'when' holds times such as" in text
    assert "kinds={'when': 'calendar'} (--kind when=calendar)" in text
    assert data.extra["columns"]["m"] == ["a"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_with_recipe(data.recipe(), frame)["m"].shape == (N, 1)


def of_pandas(times, hours):
    """The features of a pandas column of times."""
    day = (times.dt.hour + times.dt.minute / 60 + times.dt.second / 3600) / 24
    parts = [(times.dt.day_of_year - 1) / 365.25, times.dt.day_of_week / 7, *([day] if hours else [])]
    return np.stack([times.dt.year, *(wave(2 * np.pi * part) for part in parts for wave in (np.sin, np.cos))], axis=1)


@pytest.mark.parametrize("layout", [None, *LAYOUTS])
def test_calendar_features_are_those_of_pandas(layout):
    frame = typed() if layout is None else table(TIMES.dt.strftime(layout).tolist())
    hours = layout is None or "%H" in layout
    with pytest.warns(UserWarning, match="column 'id' holds"):
        data = load(frame, kinds={"when": "calendar"})
    times = TIMES if layout is None or "%S" in layout else TIMES.dt.floor("min" if hours else "D")
    np.testing.assert_allclose(data.samples["m"][:, 1:], of_pandas(times, hours), atol=2e-6)
    names = [f"{part} {wave}" for part in ("day of year", "weekday", "hour")[: 2 + hours] for wave in ("sin", "cos")]
    assert data.extra["columns"]["m"] == ["a", "when year", *(f"when {name}" for name in names)]
    recipe = json.loads(json.dumps(data.recipe()))
    assert np.array_equal(read_with_recipe(recipe, frame[5:9])["m"], data.samples["m"][5:9])


@pytest.mark.filterwarnings("ignore:.*left out")
def test_new_rows_may_spell_times_otherwise_if_training_had_times(tmp_path):
    data = load(typed(), kinds={"when": "calendar"})
    strings = table(TIMES.dt.strftime("%d/%m/%Y %H:%M").tolist())
    strings.write_csv(tmp_path / "new.csv")
    np.testing.assert_array_equal(read_with_recipe(data.recipe(), tmp_path / "new.csv")["m"], data.samples["m"])


@pytest.mark.filterwarnings("ignore:.*left out")
def test_times_of_another_spelling_are_refused():
    data = load(table(TIMES.dt.strftime("%d.%m.%Y").tolist()), kinds={"when": "calendar"})
    new = table([*["31.12.2024"] * (N - 1), "12/31/2024"])
    with pytest.raises(InputError, match=r"'12/31/2024' \(row 59\), in training it held times written as %d\.%m\.%Y"):
        read_with_recipe(data.recipe(), new)
    with pytest.raises(InputError, match="column 'when' holds Int64, in training it held times"):
        read_with_recipe(data.recipe(), new.with_columns(when=pl.lit(3).cast(pl.Int64)))
    recipe = json.loads(json.dumps(data.recipe()))
    recipe["modalities"][0]["calendars"][0]["layout"] = "%c"
    with pytest.raises(SavedModelError, match="times are written as '%c'"):
        read_with_recipe(recipe, new)


AMBIGUOUS = [f"{1 + n % 12:02}{{0}}{1 + n * 5 % 12:02}{{0}}2024" for n in range(N - 2)]


@pytest.mark.filterwarnings("ignore:.*left out")
@pytest.mark.parametrize("mark", ["/", "-"])
@pytest.mark.parametrize("hour", ["", " 08:30"])
def test_dates_that_may_be_day_first_or_month_first_are_no_calendar(tmp_path, mark, hour):
    cells = [f"{cell.format(mark)}{hour}" for cell in AMBIGUOUS]
    ambiguous = table([*cells, None, ""])
    told = rf"column 'when' holds dates such as '02{mark}06{mark}2024.*day first or month first: write dates as 2024-05"
    ambiguous.write_csv(tmp_path / "t.csv")
    for source in (ambiguous, tmp_path / "t.csv"):
        with pytest.raises(InputError, match=told):
            load(source, kinds={"when": "calendar"})
        assert load(source).extra["columns"]["m"] == ["a"]
    clear = load(table([*cells, None, f"31{mark}01{mark}2024{hour}"]), kinds={"when": "calendar"})
    assert read_with_recipe(clear.recipe(), ambiguous)["m"].shape[0] == N
    with pytest.raises(InputError, match=told):
        read_with_recipe(load(typed(), kinds={"when": "calendar"}).recipe(), ambiguous)


@pytest.mark.filterwarnings("ignore:.*left out")
@pytest.mark.parametrize("cells", [["03/03/2024", "07/07/2023"], ["03.11.2024", "04.12.2024"]])
def test_dates_that_mean_one_day_only_are_a_calendar(cells):
    assert "when year" in load(table(cells * (N // 2)), kinds={"when": "calendar"}).extra["columns"]["m"]


@pytest.mark.filterwarnings("ignore:.*left out")
def test_an_empty_time_is_a_gap():
    whole = load(typed(), kinds={"when": "calendar"})
    frame = typed().with_columns(when=pl.when(pl.int_range(N) % 10 == 3).then(None).otherwise(pl.col("when")))
    with pytest.warns(UserWarning, match=r"6 of modality 'm' \(column 'when'\)"):
        data = load(frame, kinds={"when": "calendar"})
    assert data.extra["columns"]["m"] == [*whole.extra["columns"]["m"], "when is empty"]
    gap = np.arange(N) % 10 == 3
    assert np.array_equal(data.samples["m"][:, -1], gap)
    np.testing.assert_array_equal(data.samples["m"][~gap, :-1], whole.samples["m"][~gap])
    train = (data.split == "train") & ~gap
    np.testing.assert_allclose(data.samples["m"][3, 1:-1], np.median(whole.samples["m"][train, 1:], axis=0), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*left out")
def test_columns_may_be_categories_though_they_look_like_something_else():
    frame = table(np.array(["2024-01-01", "2024-06-01"])[np.arange(N) % 2].tolist())
    data = load(frame, kinds={"when": "category"})
    assert data.extra["columns"]["m"] == ["a", "when=2024-01-01", "when=2024-06-01"]
    whole = frame.with_columns(a=pl.Series(np.arange(N) % 3))
    assert load(whole, kinds={"a": "category"}).extra["columns"]["m"] == ["a=0", "a=1", "a=2"]
    with_ids = load_data(frame, target="y", modalities={"i": "id"}, kinds={"i": "category"})
    assert len(with_ids.extra["columns"]["i"]) == (with_ids.split == "train").sum()


@pytest.mark.parametrize(
    ("kinds", "error", "message"),
    [
        ({"wen": "calendar"}, UnknownNameError, "unknown modality or column 'wen': did you mean 'when'"),
        ({"a": "calendar"}, InputError, "column 'a' holds '0.0', which is no time"),
        ({"id": "calendar"}, InputError, "column 'id' holds 'p0', which is no time"),
        ({"a": "category"}, InputError, "column 'a' holds Float64; strings and whole numbers may be categories"),
        ({"id": "text"}, InputError, "'id' is a column, which may be calendar or category or number, got 'text'"),
        ({"m": "calendar"}, InputError, "name those of modality 'm', 'when', 'id', 'a'"),
        ({"when": "calender"}, InputError, "calender"),
        ({"id": "number"}, InputError, "column 'id' holds 'p0', which is no number"),
    ],
)
def test_kinds_that_cannot_be(kinds, error, message):
    with pytest.raises(error, match=message):
        load(typed(), kinds=kinds)


SHUFFLED = np.random.default_rng(3).permutation(N) * 7


@pytest.mark.parametrize(
    ("column", "numbers"),
    [
        ("t", np.arange(N)),
        ("row", np.arange(N)[::-1] + 5),
        ("t", np.arange(N).astype(np.uint64) + 2**63),
        *((name, SHUFFLED) for name in ("id", "ID", "patient_id", "patientId", "MachineID", "run id", "index")),
    ],
)
@pytest.mark.parametrize("kind", ["polars", "csv"])
def test_whole_numbers_that_are_identifiers_are_left_out_with_a_sentence(tmp_path, column, numbers, kind):
    frame = pl.DataFrame({column: numbers, "b": np.sin(np.arange(N)), "y": np.arange(N) % 2})
    if kind == "csv":
        frame.write_csv(tmp_path / "t.csv")
        frame = tmp_path / "t.csv"
    given = {"target": "y", "modalities": {"m": "*"}}
    with pytest.warns(UserWarning, match="left out") as said:
        data = load_data(frame, **given)
    text = str(said[0].message)
    assert f"column '{column}' holds a whole number of its own in each of 60 rows; it is left out" in text
    assert text.endswith(f"give kinds={{'{column}': 'number'}} (--kind {column}=number)")
    assert data.extra["columns"]["m"] == ["b"]
    if numbers.dtype != np.uint64:
        kept = load_data(frame, **given, kinds={column: "number"})
        assert kept.samples["m"][:, 0].tolist() == numbers.tolist()


@pytest.mark.parametrize(
    ("column", "numbers"),
    [
        ("a", SHUFFLED),
        ("humid", SHUFFLED),
        ("GRID", SHUFFLED),
        ("body_mass_index", SHUFFLED),
        ("t", np.arange(N) * 2),
        ("t", np.arange(N) * 1.0),
        ("id", SHUFFLED // 14),
        ("id", SHUFFLED / 2),
        ("a", np.where(np.arange(N) == 7, 8, np.arange(N))),
    ],
)
def test_other_numbers_are_read(column, numbers):
    frame = pl.DataFrame({column: numbers, "b": np.sin(np.arange(N)), "y": np.arange(N) % 2})
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*left out")
        assert load_data(frame, target="y", modalities={"m": "*"}).extra["columns"]["m"] == [column, "b"]
        few = load_data(frame[:20].with_columns(id=SHUFFLED[:20]), target="y", modalities={"m": "*"})
        assert "id" in few.extra["columns"]["m"]


def test_identifiers_that_are_all_of_a_modality_are_read():
    frame = pl.DataFrame({"id": SHUFFLED, "t": np.arange(N), "y": np.arange(N) % 2, "when": TIMES})
    assert load_data(frame, target="y", modalities={"m": ["id", "t"]}).extra["columns"]["m"] == ["id", "t"]
    with pytest.warns(UserWarning, match="column 'when' holds times such as .*; it is left out"):
        assert load_data(frame, target="y", modalities={"m": ["t", "when"]}).extra["columns"]["m"] == ["t"]


@given(
    st.lists(st.datetimes(datetime.datetime(1000, 1, 1), datetime.datetime(2100, 1, 1)), min_size=1, max_size=8),
    st.sampled_from(LAYOUTS),
)
def test_any_times_come_back(times, layout):
    written = [f"{time:{layout}}" for time in times]
    calendar = find_calendar(pl.Series("when", [*written, None, ""]))
    assert calendar is not None
    again = [datetime.datetime.strptime(cell.replace("Z", ""), layout.replace("Z", "")) for cell in written]
    years = calendar.encode(pl.Series("when", written), "column")[:, 0]
    assert years.tolist() in ([time.year for time in again], [time.year for time in again])


@pytest.mark.parametrize(
    "cells",
    [["1.5", "2.5"], ["1-2-3"], ["192.168.1.1"], ["2024-13-01"], ["2024-01-01", "soon"], ["555-123-4567"], ["", None]],
    ids=str,
)
def test_other_strings_are_no_times(cells):
    assert find_layout(pl.Series(cells)) is None


def test_few_values_or_few_rows_are_categories():
    frame = pl.DataFrame({"c": [f"c{n % 20}" for n in range(N)], "y": np.arange(N) % 2})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_data(frame, target="y", modalities={"c": "c"}).modalities["c"].shape == (20,)
