import datetime
import pickle

import numpy as np
import pandas
import polars as pl
import pytest

from consilience.core.errors import InputError, UnknownNameError, UnsupportedError
from consilience.data import load_data
from consilience.data.files.table_reading import is_frame

N = 60
MODALITIES = {"audio": "mfcc_*", "temp": ["TS1", "TS2*"]}


def table():
    rng = np.random.default_rng(0)
    numbers = {name: rng.normal(size=N).round(3) for name in ("mfcc_0", "mfcc_1", "TS1", "TS2a", "TS2b")}
    return pl.DataFrame(
        {
            **numbers,
            "colour": np.array(["red", "green", "blue"])[np.arange(N) % 3],
            "review": [f"this is number {n}" for n in range(N)],
            "sick": np.arange(N) % 2 == 0,
            "split": np.repeat(["train", "validation", "test"], [40, 10, 10]),
            "label": np.array(["a", "b"])[np.arange(N) % 2],
        }
    )


@pytest.fixture(params=["csv", "tsv", "csv.gz", "parquet", "polars", "pandas"])
def save(request, tmp_path):
    """A function that makes a table of a polars frame: a file, or a DataFrame."""

    def write(frame):
        if request.param == "polars":
            return frame
        if request.param == "pandas":
            return pandas.DataFrame(frame.to_dict(as_series=False))
        path = tmp_path / f"set.{request.param}"
        if request.param == "parquet":
            frame.write_parquet(path)
        elif request.param == "csv.gz":
            import gzip

            path.write_bytes(gzip.compress(frame.write_csv().encode()))
        else:
            frame.write_csv(path, separator="\t" if request.param == "tsv" else ",")
        return path

    return write


@pytest.fixture
def save_csv(tmp_path):
    def write(frame):
        frame.write_csv(tmp_path / "set.csv")
        return tmp_path / "set.csv"

    return write


def with_cells(frame, **cells):
    """The table with some cells changed: column={row: value}."""
    for column, changes in cells.items():
        values = frame[column].to_list()
        for row, value in changes.items():
            values[row] = value
        frame = frame.with_columns(pl.Series(column, values, strict=False))
    return frame


def test_globs_choose_columns(save):
    frame = table()
    path = save(frame)
    data = load_data(path, target="label", modalities=MODALITIES)
    assert data.name == ("table" if is_frame(path) else "set")
    assert data.extra["columns"] == {"audio": ["mfcc_0", "mfcc_1"], "temp": ["TS1", "TS2a", "TS2b"]}
    assert np.allclose(data.samples["temp"], frame.select("TS1", "TS2a", "TS2b").to_numpy())
    assert data.y.tolist() == frame["label"].to_list()
    assert data.sizes == {"train": 42, "validation": 9, "test": 9}
    assert data.task == "classification"
    assert not data.official_split


def test_a_split_column_is_official(save):
    data = load_data(save(table()), target="label", modalities=MODALITIES, split="split")
    assert data.official_split
    assert not data.drawn_validation
    assert data.split.tolist() == table()["split"].to_list()


def test_target_and_split_never_enter_a_modality(save):
    data = load_data(save(table().drop("review")), target="label", modalities={"all": "*"}, split="split")
    assert not {"label", "split"} & {name.split("=")[0] for name in data.extra["columns"]["all"]}
    with pytest.raises(InputError, match="names column 'label'"):
        load_data(save(table()), target="label", modalities={"all": ["label"]})
    with pytest.raises(InputError, match="matches only 'label'"):
        load_data(save(table()), target="label", modalities={"all": "lab*"})


def test_categories_are_one_hot_and_booleans_numbers(save):
    frame = table()
    data = load_data(save(frame), target="label", modalities={"m": ["colour", "sick", "TS1"]}, split="split")
    assert data.extra["columns"]["m"] == ["sick", "TS1", "colour=blue", "colour=green", "colour=red"]
    expected = np.stack([frame["colour"] == one for one in ("blue", "green", "red")], axis=1)
    assert (data.samples["m"][:, 2:] == expected).all()
    assert (data.samples["m"][:, 0] == frame["sick"].to_numpy()).all()


def test_a_category_that_train_never_saw_is_all_zeros(save):
    frame = with_cells(table(), colour={55: "violet"})
    data = load_data(save(frame), target="label", modalities={"m": ["colour"]}, split="split")
    assert data.extra["columns"]["m"] == ["colour=blue", "colour=green", "colour=red"]
    assert not data.samples["m"][55].any()
    assert data.samples.present_in("m")[55]


def test_categories_follow_a_new_split(save):
    frame = with_cells(table(), colour={55: "violet"})
    data = load_data(save(frame), target="label", modalities={"m": ["colour"]})
    for seed in range(5):
        one = data.resplit(seed)
        assert ("colour=violet" in one.extra["columns"]["m"]) == (one.split[55] == "train")
    assert {data.resplit(seed).split[55] == "train" for seed in range(30)} == {True, False}
    copy = pickle.loads(pickle.dumps(data)).resplit(3)
    assert np.array_equal(copy.samples["m"], data.resplit(3).samples["m"])


def test_text_is_declared_or_guessed(save):
    frame = with_cells(table(), review={3: None})
    path = save(frame)
    data = load_data(path, target="label", modalities={"review": "review", "t": "TS1"}, kinds={"review": "text"})
    assert data.modalities["review"].kind == "text"
    assert data.samples["review"][4] == "this is number 4"
    assert not data.samples.present_in("review")[3]
    # Too many different ones for categories, of several words each.
    guessed = load_data(path, target="label", modalities={"review": "review"})
    assert guessed.samples["review"].tolist() == data.samples["review"].tolist()
    words = save(frame.with_columns(pl.Series("review", [f"word{n}" for n in range(N)])))
    with pytest.raises(InputError, match="too many for categories"):
        load_data(words, target="label", modalities={"review": "review"})


def test_text_that_looks_like_numbers_stays_text(save_csv):
    frame = table().with_columns(pl.Series("review", [f"{n:03}" for n in range(N)]))
    data = load_data(save_csv(frame), target="label", modalities={"r": "review"}, kinds={"r": "text"})
    assert data.samples["r"][7] == "007"


def test_empty_rows_are_missing_and_gaps_an_error(save):
    frame = with_cells(table(), mfcc_0={2: None, 5: None}, mfcc_1={2: None})
    path = save(frame)
    with pytest.raises(InputError, match=r"'audio' has empty cells in part of row 5, the first in column 'mfcc_0'"):
        load_data(path, target="label", modalities=MODALITIES, fill="none")
    data = load_data(path, target="label", modalities=MODALITIES, fill="median")
    assert np.flatnonzero(~data.samples.present_in("audio")).tolist() == [2]
    assert data.samples.present_in("temp").all()


@pytest.mark.parametrize(("fill", "expected"), [("median", np.nanmedian), ("mean", np.nanmean), ("zero", lambda x: 0)])
def test_fill_is_fitted_on_train_rows_only(save, fill, expected):
    frame = with_cells(table(), TS1={1: None, 45: None, 59: None, 58: 1000.0})
    data = load_data(save(frame), target="label", modalities=MODALITIES, split="split", fill=fill)
    train = frame["TS1"].cast(pl.Float64).to_numpy()[:40]
    assert np.allclose(data.samples["temp"][[1, 45, 59], 0], expected(train))


def test_a_row_with_only_a_category_is_there(save):
    frame = with_cells(table(), TS1={1: None}, colour={2: None, 3: None})
    frame = with_cells(frame, TS1={3: None})
    with pytest.raises(InputError, match="part of rows 1, 2"):
        load_data(save(frame), target="label", modalities={"m": ["TS1", "colour"]}, fill="none")
    data = load_data(save(frame), target="label", modalities={"m": ["TS1", "colour"]}, fill="zero")
    assert data.samples.present_in("m")[[1, 2, 3]].tolist() == [True, True, False]
    assert data.samples["m"][1, 0] == 0
    assert not data.samples["m"][2, 1:].any()


def test_na_counts_as_empty_among_numbers_only(save_csv):
    frame = table().with_columns(
        pl.Series("TS1", ["NA" if n == 4 else str(n / 2) for n in range(N)]),
        pl.Series("colour", ["NA" if n % 2 else "EU" for n in range(N)]),
    )
    data = load_data(save_csv(frame), target="label", modalities={"n": "TS1", "c": "colour"})
    assert np.flatnonzero(~data.samples.present_in("n")).tolist() == [4]
    assert data.extra["columns"]["c"] == ["colour=EU", "colour=NA"]


def test_task_is_inferred_or_given(save):
    path = save(table().with_columns(age=pl.Series(np.arange(N))))
    assert load_data(path, target="TS1", modalities={"a": "mfcc_*"}).task == "regression"
    assert load_data(path, target="sick", modalities={"a": "mfcc_*"}).task == "classification"
    assert load_data(path, target="age", modalities={"a": "mfcc_*"}, task="regression").task == "regression"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"modalities": None}, InputError, "needs modalities="),
        ({"modalities": ["mfcc_0"]}, InputError, "needs modalities="),
        ({"target": "labl"}, UnknownNameError, "target column 'labl': did you mean 'label'"),
        ({"split": "label"}, InputError, "both the target and the split"),
        ({"split": "splitt"}, UnknownNameError, "split column 'splitt': did you mean 'split'"),
        ({"modalities": {"a": "mfc_*"}}, UnknownNameError, "'mfc_\\*' matches no column; near it are .*'mfcc_0'"),
        (
            {"modalities": {"a": "mfcc_*", "b": ["*_1"]}},
            InputError,
            "column 'mfcc_1' belongs to modality 'a' and to 'b'",
        ),
        ({"modalities": {"a": []}}, InputError, "must name columns"),
        ({"kinds": {"video": "text"}}, UnknownNameError, "modality 'video'"),
        ({"kinds": {"audio": "image"}}, UnsupportedError, "must be one column of paths"),
        ({"kinds": {"audio": "text"}}, InputError, "must be one column"),
        ({"fill": "mode"}, UnknownNameError, "fill 'mode'"),
        ({"task": "classification", "target": "TS1", "modalities": {"a": "mfcc_*"}}, InputError, "continuous"),
        ({"modalities": {"a": "mfcc_*"}, "target": "review"}, InputError, "none of them|class"),
    ],
)
def test_bad_arguments_are_named(save, arguments, error, message):
    with pytest.raises(error, match=message):
        load_data(save(table()), **({"target": "label", "modalities": MODALITIES} | arguments))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"label": {3: None, 8: None}}, r"target column 'label' is empty in rows 3, 8"),
        ({"split": dict.fromkeys(range(50, 60), "train")}, "no test rows"),
        ({"split": {4: None}}, r"split column 'split' holds an empty cell \(row 4\)"),
        ({"label": dict.fromkeys(range(N), "a")}, "two classes"),
        ({"label": {59: "c"}}, r"class 'c' \(row 59\)"),
        ({"mfcc_0": {3: float("inf")}}, "'audio' contains NaN or infinity in part of row 3"),
    ],
)
def test_bad_cells_are_named(save, cells, message):
    with pytest.raises(InputError, match=message):
        load_data(save(with_cells(table(), **cells)), target="label", modalities=MODALITIES, split="split")


def test_a_column_that_train_lacks_cannot_be_filled(save):
    frame = with_cells(table(), TS1=dict.fromkeys(range(40)), colour=dict.fromkeys(range(40)))
    with pytest.raises(InputError, match="column 'TS1' is empty in every train row"):
        load_data(save(frame), target="label", modalities=MODALITIES, split="split", fill="mean")
    with pytest.raises(InputError, match="column 'colour' is empty in every train row"):
        load_data(save(frame), target="label", modalities={"c": "colour"}, split="split", fill="zero")


def test_a_modality_of_dates_alone_is_refused(tmp_path):
    frame = table().with_columns(day=pl.Series([datetime.date(2020, 1, 1)] * N))
    frame.write_parquet(tmp_path / "set.parquet")
    with pytest.raises(InputError, match=r"column 'day' holds times such as '2020-01-01'\. For calendar features"):
        load_data(tmp_path / "set.parquet", target="label", modalities={"d": "day"})


def test_columns_with_brackets_are_found_by_name(save_csv):
    data = load_data(save_csv(table().rename({"TS1": "x[0]"})), target="label", modalities={"x": "x[0]"})
    assert data.extra["columns"]["x"] == ["x[0]"]


def test_broken_files(tmp_path):
    unreadable, row = " cannot be read as a table", r": row 1 \(counted from 0\) has 3 cells, the header has 2"
    for name, content, said in (
        ("a.parquet", b"PAR1 not really", unreadable),
        ("a.csv", b"", unreadable),
        ("b.csv", b"a,label\n1,2\n3,4,5\n", row),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=name + said):
            load_data(tmp_path / name, target="label", modalities={"a": "a"})
    (tmp_path / "c.csv").write_text("a,label\n")
    with pytest.raises(InputError, match="no rows"):
        load_data(tmp_path / "c.csv", target="label", modalities={"a": "a"})


def test_thousands_of_columns(tmp_path):
    values = np.random.default_rng(0).normal(size=(20, 5000)).astype(np.float32)
    frame = pl.DataFrame(values, schema=[f"gene_{n}" for n in range(5000)]).with_columns(outcome=pl.Series([0, 1] * 10))
    frame.write_parquet(tmp_path / "wide.parquet")
    data = load_data(tmp_path / "wide.parquet", target="outcome", modalities={"genes": "gene_*"})
    assert (data.samples["genes"] == values).all()
    with pytest.raises(UnknownNameError, match="did you mean 'outcome'"):
        load_data(tmp_path / "wide.parquet", target="outcom", modalities={"genes": "gene_*"})


@pytest.mark.parametrize("word", ["ERR", "hot"])
def test_a_stray_word_among_numbers_makes_no_categories(tmp_path, word):
    rows = "".join(f"{word if row == 7 else row},{row % 2}\n" for row in range(60))
    (tmp_path / "t.csv").write_text("TS1,fault\n" + rows)
    with pytest.raises(InputError, match=rf"column 'TS1' holds numbers but for '{word}' in row 7"):
        load_data(tmp_path / "t.csv", target="fault", modalities={"temp": "TS*"})
