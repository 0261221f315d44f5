"""group=, time= and folds= of `load_data`: tables, arrays, named sets, and what is refused."""

import datetime
import warnings

import numpy as np
import polars as pl
import pytest

from consilience.core.errors import InputError, SplitWarning, UnknownNameError
from consilience.core.samples import Samples
from consilience.data import DataSet, load_data
from consilience.data.split_rules import SplitRule, split_words

N = 120
DAYS = [
    datetime.date(2024, 1, 1) + datetime.timedelta(days=7 * int(day)) for day in np.random.default_rng(5).permutation(N)
]
PARTS = ["train", "train", "test", "test"] * 30


def frame(**further):
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {"a1": rng.normal(size=N), "a2": rng.normal(size=N), "b": rng.normal(size=N)}
        | {"patient": [f"p{number}" for number in np.arange(N) % 30], "kind": ["x", "y", "x", "z"] * 30}
        | {"label": [0, 1] * 60, "day": DAYS}
        | further
    )


def load(table, **options):
    return load_data(table, target="label", modalities={"a": "a*", "b": "b"}, **options)


@pytest.fixture(params=["frame", "csv", "parquet", "pandas"])
def table(request, tmp_path):
    made = frame()
    if request.param == "frame":
        return made
    if request.param == "pandas":
        return made.to_pandas() if _has_pandas() else pytest.skip("pandas is not installed")
    path = tmp_path / f"ward.{request.param}"
    made.write_csv(path) if request.param == "csv" else made.write_parquet(path)
    return path


def _has_pandas():
    try:
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError:
        return False
    return True


def test_groups_of_a_table(table):
    data = load(table, group="patient", seed=1)
    patients = np.array(frame()["patient"])
    for seed in range(4):
        again = data.resplit(seed)
        assert all(len(set(again.split[patients == each])) == 1 for each in set(patients))
        assert (again.train.group == again.samples.group[again.split == "train"]).all()
    assert (data.resplit(1).split == data.split).all()
    assert data.describe()["split_rule"] == {"group": "patient", "groups": 30}


def test_times_of_a_table(table):
    data = load(table, time="day")
    assert max(np.array(DAYS)[data.split == "validation"]) < min(np.array(DAYS)[data.split == "test"])
    assert data.sizes == {"train": 84, "validation": 18, "test": 18}
    assert (np.argsort(data.samples.time) == np.argsort(DAYS)).all()


@pytest.mark.parametrize("written", ["{:%Y-%m-%d %H:%M:%S}", "{:%Y-%m-%dT%H:%M:%S}", "{:%Y-%m-%d}"])
def test_times_may_be_strings(written):
    days = [datetime.datetime.combine(day, datetime.time(3)) for day in DAYS]
    data = load(frame(day=[written.format(day) for day in days]), time="day")
    assert (np.argsort(data.samples.time) == np.argsort(DAYS)).all()


@pytest.mark.parametrize("written", ["{:%m/%d/%Y}", "{:%m/%d/%Y %H:%M}", "{:%d/%m/%Y}", "{:%d.%m.%Y}", "{:%d-%m-%Y}"])
def test_dates_with_the_year_last_are_ordered_as_dates(written):
    data = load(frame(day=[written.format(day) for day in DAYS]), time="day")
    assert (np.argsort(data.samples.time) == np.argsort(DAYS)).all()


@pytest.mark.parametrize("mark", "/-")
def test_dates_that_may_be_day_first_or_month_first_are_refused(mark):
    days = [f"{1 + row % 12:02}{mark}{1 + row // 12:02}{mark}2024" for row in range(N)]
    with pytest.raises(InputError, match=r"may be day first or month first.*write dates as 2024-05-31"):
        load(frame(day=days), time="day")


def test_dates_of_one_order_either_way_are_read():
    days = [f"05/05/{1900 + row}" for row in range(N)]
    assert load(frame(day=days), time="day").samples.time.tolist() == list(range(N))
    dotted = [f"{1 + row // 12:02}.{1 + row % 12:02}.2024 10:00" for row in range(N)]
    order = np.lexsort([np.arange(N) // 12, np.arange(N) % 12])
    assert (np.argsort(load(frame(day=dotted), time="day").samples.time) == order).all()


@pytest.mark.parametrize("form", ["2024-10-27T0{}:00:00{}", "2024-10-27 0{}:00{}", "27.10.2024 0{}:00{}"])
def test_zones_of_times_are_read_or_refused(form):
    # The clocks went back at 3, so that 02:00+01:00 is an hour after 02:00+02:00, and 01:00+01:00 the same moment.
    cells = [
        form.format(hour, zone) for hour, zone in ((2, "+02:00"), (2, "+01:00"), (1, "+01:00"), (3, "+01:00"))
    ] * 30
    if form.startswith("2024"):
        assert load(frame(day=cells, label=[0, 0, 1, 1] * 30), time="day").samples.time.tolist() == [0, 1, 0, 2] * 30
    else:
        with pytest.raises(InputError, match="is no number and no date"):
            load(frame(day=cells), time="day")


def test_numbers_as_strings_are_ordered_as_numbers(tmp_path):
    data = load(frame(day=[str(number) for number in range(N)]), time="day")
    assert data.samples.time.tolist() == list(range(N))


def test_five_seeds_of_five_folds_test_every_row_once():
    data = load(frame(), folds=5)
    assert (sum((data.resplit(seed).split == "test").astype(int) for seed in range(5)) == 1).all()
    assert data.sizes["test"] == 24
    assert (data.resplit(0).split == data.split).all()


def test_fill_values_are_learned_from_the_train_rows_of_each_fold():
    values = np.where(np.arange(N) % 10 == 0, np.nan, np.arange(N, dtype=float))
    data = load(frame(a1=values), folds=4, group="patient", fill="mean")
    for seed in range(4):
        again = data.resplit(seed)
        known = values[(again.split == "train") & ~np.isnan(values)]
        assert again.samples["a"][0, 0] == pytest.approx(known.mean())
        assert again.samples.group is not None


def test_arrays(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"a": rng.normal(size=(60, 2)), "b": rng.normal(size=(60, 3)), "y": np.arange(60) % 2}
    np.savez(tmp_path / "ward.npz", **arrays, site=np.arange(60) // 6, when=np.arange(60)[::-1])
    data = load_data(tmp_path / "ward.npz", group="site", folds=3, modalities=["a", "b"])
    assert data.describe()["split_rule"] == {"group": "site", "groups": 10, "folds": 3}
    assert "site" not in load_data(tmp_path / "ward.npz", group="site").modalities
    assert (np.flatnonzero(load_data(tmp_path / "ward.npz", time="when").split == "test") < 10).all()
    with pytest.raises(UnknownNameError, match="unknown group 'sites': did you mean 'site'"):
        load_data(tmp_path / "ward.npz", group="sites")


def test_named_sets_take_folds():
    data = load_data("gaussians", n=100, folds=4)
    assert data.sizes["test"] == 25
    assert (sum((data.resplit(seed).split == "test").astype(int) for seed in range(4)) == 1).all()
    with pytest.raises(InputError, match="has its own target, kinds and split: group is for files of your own"):
        load_data("gaussians", group="a")


def test_groups_and_times_travel_with_selected_samples():
    samples = Samples.of({"a": np.zeros((4, 1))}, group=["b", "a", "b", "c"])
    assert samples[[0, 2, 3]].group.tolist() == [1, 1, 2]
    assert samples.only(["a"]).without_targets().group.tolist() == [1, 0, 1, 2]
    assert Samples.of({"a": np.zeros((3, 1))}, time=[0.5, -1, 7])[1:].time.tolist() == [0, 2]


def test_times_of_several_zones_are_in_the_order_of_the_moments(tmp_path):
    times = ["2024-01-01T10:00+05:00", "2024-01-01T06:00Z", "2024-01-01 00:30:00.5-05:00"]  # 05:00, 06:00, 05:30
    assert Samples.of({"a": np.zeros((3, 1))}, time=times).time.tolist() == [0, 2, 1]
    values = np.random.default_rng(0).normal(size=(30, 2))
    np.savez(tmp_path / "ward.npz", a=values, b=-values, y=np.arange(30) % 2, when=np.array(times * 10))
    assert load_data(tmp_path / "ward.npz", time="when").rule.time[:3].tolist() == [0, 2, 1]


def test_groups_that_would_become_equal_or_are_equal():
    zeros = frame(patient=[0.0, -0.0, 1.0, 2.0, 3.0, 4.0] * 20)
    assert load(zeros, group="patient").rule.labels == ["0.0", "1.0", "2.0", "3.0", "4.0"]
    with pytest.raises(InputError, match=r"group column 'patient': 'a.x00' ends in a null character"):
        load(frame(patient=["a", "a\0", "b", "c"] * 30), group="patient")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"group": ["a", None, "b"]}, "groups are empty in row 1"),
        ({"group": ["a", "b"]}, "groups have 2 rows, the samples have 3"),
        ({"time": [1.0, float("nan"), 2.0]}, "times are empty in row 1"),
        ({"time": np.array(["2024-01-01", "NaT", "2024-01-02"], dtype="M8[D]")}, "times are empty in row 1"),
        ({"group": [1, "a", 2]}, "groups must be values of one type"),
        ({"group": [1, 2, 3], "time": [1, 2, 3]}, "groups or times, not both"),
        ({"group": [2**70, 2**70 + 1, 1]}, "groups hold whole numbers that 64-bit floats may merge"),
        ({"group": [2**63 + 1, 2**63, -1]}, "groups hold whole numbers that 64-bit floats may merge"),
        ({"group": ["a", "a\0", "b"]}, "groups: 'a.x00' ends in a null character"),
        ({"time": ["31.12.2023", "01.01.2024", "02.01.2024"]}, r"times: '31.12.2023' \(row 0\) is no time such as"),
        ({"time": ["10", "9", "8"]}, r"times: '10' \(row 0\) is no time"),
        ({"time": ["2024-01-01", "2024-01-02Z", "2024-01-03"]}, "is no time such as"),
        ({"time": ["2024-01-01T00:00", "2024-01-02T00:00Z", "2024-01-03"]}, "some have a zone and others have none"),
        ({"time": [1j, 2, 3]}, "times must be values of one type that have an order, got complex"),
    ],
)
def test_bad_groups_and_times(given, message):
    with pytest.raises(InputError, match=message):
        Samples.of({"a": np.zeros((3, 1))}, **given)


@pytest.mark.parametrize(
    ("further", "options", "message"),
    [
        ({}, {"group": "patients"}, "unknown group column 'patients': did you mean 'patient'"),
        ({}, {"time": "label"}, "column 'label' cannot be the group or the time"),
        ({}, {"group": "patient", "time": "day"}, "a split is by whole groups or by time. Leave one out"),
        ({}, {"folds": 1}, "folds must be a whole number ≥ 2"),
        ({}, {"group": "patient", "folds": 30}, "30 folds by patient need at least 31 groups, there are 30"),
        ({}, {"time": "day", "folds": 130}, "do not make 130 expanding folds"),
        ({"patient": ["", *["p"] * (N - 1)]}, {"group": "patient"}, "group column 'patient' is empty in row 0"),
        ({"patient": [np.nan, *[1.0, 2.0, 3.0] * 39, 4.0, 4.0]}, {"group": "patient"}, "'patient' is empty in row 0"),
        ({"day": [*np.arange(N - 1.0), np.nan]}, {"time": "day"}, "time column 'day' is empty in row 119"),
        (
            {"day": ["soon", *["later"] * (N - 1)]},
            {"time": "day"},
            "time column 'day' holds 'soon', which is no",
        ),
        (
            {"part": PARTS},
            {"split": "part", "folds": 3},
            "leave folds out, or the split",
        ),
        (
            {"part": PARTS},
            {"split": "part", "group": "kind"},
            "has samples of kind 'x' in",
        ),
    ],
)
def test_what_cannot_be_split_is_refused(further, options, message):
    with pytest.raises(InputError, match=message):
        load(frame(**further), **options)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("label", {"group": "patient"}, "names column 'label', which is the target$"),
        ("patient", {"group": "patient"}, "names column 'patient', which is the group$"),
        (["b", "da*"], {"time": "day"}, "'da\\*' matches only 'day', which is the time$"),
        ("[pl]a[bt]*", {"group": "patient"}, "matches only 'patient', 'label', which are the group and the target$"),
        ("part", {"split": "part"}, "names column 'part', which is the split$"),
    ],
)
def test_what_a_column_of_no_modality_is_for_is_named(columns, options, message):
    with pytest.raises(InputError, match=message):
        load_data(frame(part=PARTS), target="label", modalities={"a": "a*", "p": columns}, **options)


def test_the_group_of_a_class_that_is_not_learned_is_named():
    parts = np.repeat(["train", "validation", "test"], [80, 20, 20])
    rule = SplitRule(group=np.arange(N) // 10, column="patient", labels=[f"p{number}" for number in range(12)])
    y = np.where(np.arange(N) >= 105, 2, np.arange(N) % 2)
    with pytest.raises(InputError, match=r"class 2 .* Its samples there are of patient 'p10', patient 'p11': give"):
        DataSet("ward", Samples.of({"a": np.zeros((N, 1))}, y), "classification", parts, rule=rule)


def test_a_class_that_comes_only_late_is_refused_with_the_remedy():
    late = [2 if day > sorted(DAYS)[100] else number % 2 for number, day in enumerate(DAYS)]
    with pytest.raises(InputError, match="By 'day' it comes later than the train rows: drop the rows, or"):
        load(frame(label=late), time="day")


def test_a_group_column_that_is_not_used_earns_one_hint():
    with pytest.warns(SplitWarning, match=r"column 'patient' looks like a group .* \(--group patient\)") as caught:
        load(frame().drop("day"))
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(frame(), group="patient")
        load(frame(part=PARTS), split="part")


def test_a_group_column_that_a_glob_took_into_a_modality_earns_a_hint():
    with pytest.warns(SplitWarning, match="column 'b_patient' looks like a group"):
        load_data(
            frame(b_patient=np.arange(N) % 30).drop("patient", "day"), target="label", modalities={"a": "a*", "b": "b*"}
        )


@pytest.mark.parametrize(
    "cells", [[f"{value / 7:.3f}" for value in range(30)], [None, *range(29)], ["", *map(str, range(29))]]
)
def test_measurements_and_columns_with_empty_cells_are_no_groups(cells, tmp_path):
    table = frame(machine=cells * 4).drop("patient", "day")
    table.write_csv(tmp_path / "mill.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(tmp_path / "mill.csv")
        load(table)


def test_parts_that_lack_a_class_are_named_once():
    labels = ["rare" if number in (3, 4) else "usual" if number % 2 else "common" for number in range(N)]
    with pytest.warns(SplitWarning, match="the (validation|test) part has no sample of class 'rare'") as caught:
        load(frame(label=labels).drop("patient", "day"))
    assert len(caught) == 1


def test_unread_columns_are_no_obstacle(tmp_path):
    """A column that nothing asks for may hold anything."""
    path = tmp_path / "ward.csv"
    table = frame(odd=["1", "two", "", "3,5"] * 30).drop("patient")
    table.write_csv(path)
    assert len(load(path)) == N
    nested = table.with_columns(odd=pl.Series([[1, 2]] * N), raw=pl.Series([b"x"] * N))
    nested.write_parquet(tmp_path / "ward.parquet")
    assert len(load(tmp_path / "ward.parquet")) == len(load(nested)) == N


def test_any_cells_of_an_unread_column_of_a_pandas_frame_are_no_obstacle():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({name: column.to_list() for name, column in frame().to_dict(as_series=True).items()})
    table["odd"] = [1, "two", None, {3}] * 30
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SplitWarning)
        assert len(load(table)) == N


def test_words_of_splits():
    assert split_words(None) == split_words({}) == "drawn anew for every seed"
    assert split_words({"folds": 4}) == "in 4 folds: seed s is tested on fold s mod 4 of repeat s // 4"
    assert split_words({"group": "site", "groups": 9}) == "by whole groups of site (9), drawn anew for every seed"
    assert split_words({"time": "day", "times": 9, "folds": 2}).startswith("by day, in 2 expanding folds: seed s is")
