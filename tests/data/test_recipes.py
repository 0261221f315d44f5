import json

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from consilience.core.errors import InputError, MissingDataError, SavedModelError, TableWarning
from consilience.core.samples import Samples
from consilience.data import DataSet, load_data, read_with_recipe
from consilience.data.files import table_reading
from consilience.data.splits import draw_split

N = 60
MODALITIES = {"place": ["TS1", "colour", "sick"], "audio": "mfcc_*", "review": "review"}
OPTIONS = {"target": "label", "modalities": MODALITIES, "kinds": {"review": "text"}, "split": "split"}


def table():
    """Numbers, booleans, categories and sentences; the split puts the first 40 rows into train."""
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "label": np.array(["a", "07"])[np.arange(N) % 2],
            "mfcc_0": rng.normal(size=N),
            "mfcc_1": rng.integers(0, 9, size=N),
            "TS1": rng.normal(size=N),
            "colour": np.array(["3", "red", "blue"])[np.arange(N) % 3],
            "sick": np.arange(N) % 2 == 0,
            "review": [f"{n:03}" for n in range(N)],
            "split": np.repeat(["train", "validation", "test"], [40, 10, 10]),
        }
    )


def write(frame, path):
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    else:
        frame.write_csv(path, separator="\t" if path.suffix == ".tsv" else ",")
    return path


def through_json(recipe):
    """As it comes back from a file, whatever became of the order of keys."""
    return json.loads(json.dumps(recipe, allow_nan=False, sort_keys=True))


def assert_same(given, expected):
    assert given.names == expected.names
    assert given.modalities == expected.modalities
    assert np.array_equal(given.present, expected.present)
    for name in expected.names:
        assert given[name].dtype == expected[name].dtype
        there = expected.present_in(name)
        assert np.array_equal(given[name][there], expected[name][there])
    assert given.lengths.keys() == expected.lengths.keys()
    assert all(np.array_equal(given.lengths[name], expected.lengths[name]) for name in expected.lengths)
    assert np.array_equal(given.y, expected.y)


@pytest.fixture
def trained(tmp_path):
    data = load_data(write(table(), tmp_path / "train.csv"), **OPTIONS, fill="none")
    recipe = through_json(data.recipe())

    def read(frame, name="new.csv"):
        return read_with_recipe(recipe, write(frame, tmp_path / name))

    return data, read


COLUMNS = {
    "whole": st.integers(-5, 5) | st.sampled_from([2**53 + 1, -(2**60)]),
    "part": st.floats(-1e3, 1e3, width=32) | st.integers(-3, 3).map(float),
    "truth": st.booleans(),
    "word": st.sampled_from(["1", "2", "red", "NA", "true", "a,b", 'say "hi"', " 3"]),
    "line": st.sampled_from(["12", "ninety", "1e5", "", "NaN", "zwölf"]),
}
GROUPS = {"numbers": ["whole", "part"], "mixed": ["truth", "word"], "line": "line"}


@st.composite
def tables(draw):
    """A table of 12 rows, with gaps where they can be filled (not in all train rows), and some rows in any order."""
    fill = draw(st.sampled_from(["none", "indicator", "median", "mean", "zero"]))
    columns = {name: draw(st.lists(cells, min_size=12, max_size=12)) for name, cells in COLUMNS.items()}
    if fill == "none":  # among numbers, NA is a gap
        columns["word"] = [word.replace("NA", "blue") for word in columns["word"]]
    for group in GROUPS.values():  # rows that lack a modality
        for row in draw(st.sets(st.integers(0, 11), max_size=3)):
            for name in [group] if isinstance(group, str) else group:
                columns[name][row] = None
    if fill != "none":
        for name in columns:
            for row in draw(st.sets(st.integers(0, 11), max_size=2)):
                columns[name][row] = None
    # A single string among numbers is refused as a mistake.
    assume(sum(word not in (None, "1", "2", "NA") for word in columns["word"]) != 1)
    labels = draw(st.permutations(["1", "1", "x"] * 4))
    types = {"whole": pl.Int64, "part": pl.Float64, "truth": pl.Boolean, "word": pl.String, "line": pl.String}
    frame = pl.DataFrame({**columns, "y": labels}, schema={**types, "y": pl.String})
    rows = draw(st.lists(st.integers(0, 11), min_size=1, max_size=6))
    return frame, fill, rows, draw(st.permutations(frame.columns))


@pytest.fixture(scope="module")
def _without_trials():
    """Whole files need no trial reading in a process of its own, which takes half a second each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_reading, "try_parquet", lambda *_: None)
        yield


@pytest.mark.usefixtures("_without_trials")
@pytest.mark.filterwarnings("ignore:.*which training did not have")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@settings(max_examples=60, deadline=None)
@given(case=tables())
def test_any_rows_in_any_order_are_encoded_as_in_training(tmp_path_factory, ending, case):
    frame, fill, rows, order = case
    folder = tmp_path_factory.getbasetemp()
    path = write(frame, folder / f"train.{ending}")
    options = {"target": "y", "modalities": GROUPS, "kinds": {"line": "text"}, "fill": fill}
    data = load_data(path, **options)
    for one in (data, data.resplit(3)):
        recipe = through_json(one.recipe())
        assert_same(read_with_recipe(recipe, path), one.samples)
        some = read_with_recipe(recipe, write(frame[rows].select(order), folder / f"new.{ending}"))
        assert_same(some, one.samples[rows])
        unlabelled = read_with_recipe(recipe, write(frame[rows].drop("y"), folder / f"new.{ending}"))
        assert unlabelled.y is None


def test_a_recipe_holds_what_the_train_rows_say(trained):
    recipe = trained[0].recipe()
    assert recipe["data"] == "train"
    assert recipe["target"] == {"name": "label", "type": "string"}
    assert recipe["modalities"] == [
        {
            "name": "place",
            "kind": "vector",
            "shape": [5],
            "numbers": ["TS1", "sick"],
            "fills": None,
            "categories": [{"column": "colour", "values": ["3", "blue", "red"]}],
        },
        {
            "name": "audio",
            "kind": "vector",
            "shape": [2],
            "numbers": ["mfcc_0", "mfcc_1"],
            "fills": None,
            "categories": [],
        },
        {"name": "review", "kind": "text", "shape": [], "column": "review"},
    ]
    recipe["modalities"].clear()
    assert trained[0].recipe()["modalities"]


@pytest.mark.parametrize("name", ["new.csv", "new.tsv", "new.parquet"])
def test_the_format_may_be_another(trained, name):
    data, read = trained
    assert_same(read(table(), name), data.samples)


def test_a_split_column_is_passed_over(trained):
    data, read = trained
    assert_same(read(table().drop("split")), data.samples)
    assert_same(read(table().with_columns(split=pl.lit("whatever"))), data.samples)


def test_strings_stay_strings_though_they_look_like_numbers(trained):
    samples = trained[1](table()[[3, 9]].with_columns(label=pl.lit("07")))  # colour, review and label are all digits
    assert samples["place"][:, 2].tolist() == [1, 1]
    assert samples["review"].tolist() == ["003", "009"]
    assert samples.y.tolist() == ["07", "07"]
    whole = table()[[3, 9]].with_columns(pl.col("colour").cast(pl.Int64), label=pl.lit("07"))
    assert_same(trained[1](whole, "new.parquet"), samples)


def test_whole_numbers_are_read_as_they_were_among_fractional_ones(tmp_path):
    big = 2**60 + 2**36 + 1  # rounds down by way of 64 bits, up without
    frame = table().with_columns(TS1=pl.Series([str(big)] * 2 + ["0.5"] * (N - 2)))
    data = load_data(write(frame, tmp_path / "train.csv"), target="label", modalities={"t": "TS1"})
    new = read_with_recipe(data.recipe(), write(frame[:2], tmp_path / "new.csv"))
    assert np.array_equal(new["t"], data.samples["t"][:2])


def test_a_category_that_training_never_saw_is_all_zeros(trained):
    with pytest.warns(UserWarning, match="column 'colour' of modality 'place' holds 'violet' in row 0, which training"):
        samples = trained[1](table()[:2].with_columns(colour=pl.Series(["violet", "red"])))
    assert samples["place"][:, 2:].tolist() == [[0, 0, 0], [0, 0, 1]]
    assert samples.present.all()


def test_fills_are_those_of_the_train_rows(tmp_path):
    frame = table()
    data = load_data(write(frame, tmp_path / "train.csv"), **OPTIONS, fill="median")
    gap = frame[:3].with_columns(TS1=pl.Series([None, 5.0, "NA"], strict=False), mfcc_1=pl.lit(None))
    samples = read_with_recipe(data.recipe(), write(gap, tmp_path / "new.csv"))
    medians = [np.median(frame[column].to_numpy()[:40].astype(np.float32)) for column in ("TS1", "mfcc_1")]
    assert samples["place"][:, 0].tolist() == [medians[0], 5, medians[0]]
    assert (samples["audio"][:, 1] == medians[1]).all()
    assert np.array_equal(samples["audio"][:, 0], data.samples["audio"][:3, 0])


def test_fills_follow_a_new_split_even_without_a_gap_in_training(tmp_path):
    frame = table()
    data = load_data(
        write(frame, tmp_path / "train.csv"), target="label", modalities={"a": "mfcc_*", "t": "TS1"}, fill="mean"
    )
    gap = write(frame[:2].with_columns(mfcc_0=pl.lit(None)), tmp_path / "new.csv")
    seen = set()
    for one in (data, data.resplit(1), data.resplit(2)):
        expected = frame["mfcc_0"].to_numpy()[one.split == "train"].mean()
        filled = read_with_recipe(one.recipe(), gap)["a"][:, 0]
        assert np.allclose(filled, expected)
        seen.add(filled[0])
    assert len(seen) == 3


def test_columns_that_are_missing(trained):
    data, read = trained
    samples = read(table().drop("mfcc_0", "mfcc_1"))
    assert_same(samples, data.samples.only(["place", "review"]))
    with pytest.raises(
        InputError,
        match=r"new\.csv lacks columns that training read: 'TS1', 'sick' of modality 'place', 'mfcc_1' of modality "
        r"'audio'; near them are 'TS_1', 'mfcc_0'",
    ):
        read(table().rename({"TS1": "TS_1"}).drop("sick", "mfcc_1"))
    with pytest.raises(InputError, match="none of the columns that training read"):
        read(table().select("label"))


@pytest.mark.parametrize("fill", ["none", "median"])
def test_empty_cells_are_advised_where_they_are_filled(tmp_path, fill):
    recipe = load_data(write(table(), tmp_path / "train.csv"), **OPTIONS, fill=fill).recipe()
    with pytest.raises(InputError, match="with values, or" if fill == "none" else "with empty cells where"):
        read_with_recipe(recipe, write(table().drop("mfcc_1", "sick"), tmp_path / "part.csv"))
    followed = write(table().with_columns(mfcc_1=pl.lit(None), sick=pl.lit(None)), tmp_path / "new.csv")
    if fill == "none":
        with pytest.raises(InputError, match=r"train again without fill='none' \(--fill none\)"):
            read_with_recipe(recipe, followed)
    else:
        assert read_with_recipe(recipe, followed).present.all()


def test_rows_without_any_cell_lack_the_modality(trained):
    frame = table()[:4].with_columns(
        *(pl.when(pl.int_range(4) == 2).then(None).otherwise(pl.col(one)).alias(one) for one in ("mfcc_0", "mfcc_1")),
        review=pl.lit(None, dtype=pl.String),
    )
    samples = trained[1](frame)
    assert samples.present_in("audio").tolist() == [True, True, False, True]
    assert not samples.present_in("review").any()


@pytest.mark.parametrize("name", ["new.csv", "new.parquet"])
@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"TS1": ["1.5", "hot", "cold"]}, r"'place': column 'TS1' holds 'hot' \(rows 1, 2\), in training it held num"),
        (
            {"TS1": [1.5, None, 2]},
            r"'place' has empty cells in part of row 1, the first in column 'TS1'.*train again without",
        ),
        ({"TS1": [1.5, float("inf"), 2]}, "'place' contains NaN or infinity in part of row 1"),
    ],
)
def test_bad_cells_are_named(trained, name, cells, message):
    with pytest.raises(InputError, match=message):
        trained[1](table()[:3].with_columns(**{key: pl.Series(value) for key, value in cells.items()}), name)


@pytest.mark.parametrize("name", ["new.csv", "new.parquet"])
def test_targets_that_are_known_in_part_are_ignored(trained, name):
    new = table()[:3].with_columns(label=pl.Series(["a", None, "a"]))
    with pytest.warns(TableWarning, match="target column 'label' is empty in 1 of 3 rows: the targets of all rows are"):
        assert trained[1](new, name).y is None


@pytest.mark.parametrize("change", [pl.col("colour").is_null(), pl.col("TS1").alias("colour")])
def test_strings_that_became_something_else_are_refused(trained, change):
    with pytest.raises(InputError, match=r"column 'colour' holds (Boolean|Float64), in training it held strings"):
        trained[1](table().with_columns(change), "new.parquet")


def test_numbers_that_became_dates_are_refused(trained):
    with pytest.raises(InputError, match="column 'TS1' holds Date, in training it held numbers"):
        trained[1](table().with_columns(TS1=pl.date(2020, 1, 1)), "new.parquet")


def test_booleans_beside_na_are_booleans(trained):
    samples = trained[1](table()[:2].with_columns(sick=pl.Series(["True", "false"]), TS1=pl.Series(["1", "2"])))
    assert samples["place"][:, 1].tolist() == [1, 0]
    frame = table()[:3].with_columns(sick=pl.Series(["true", "NA", "false"]), TS1=pl.Series([1, None, 3]))
    frame = frame.with_columns(colour=pl.Series(["red", None, "red"]))
    samples = trained[1](frame)
    assert samples.present_in("place").tolist() == [True, False, True]
    assert samples["place"][[0, 2], 1].tolist() == [1, 0]


def test_numeric_targets(tmp_path):
    frame = table().with_columns(label=pl.Series(np.arange(N) % 2))
    data = load_data(write(frame, tmp_path / "train.csv"), target="label", modalities={"a": "mfcc_*"})
    recipe = through_json(data.recipe())
    assert data.recipe()["target"] == {"name": "label", "type": "number"}

    def read(labels):
        return read_with_recipe(recipe, write(frame[:2].with_columns(label=pl.Series(labels)), tmp_path / "new.csv")).y

    assert read([1, 0]).tolist() == [1, 0]
    assert read([None, None]) is None
    assert read(["NA", "NA"]) is None
    with pytest.raises(InputError, match=r"target column 'label' holds 'ill' \(row 1\), in training it held numbers"):
        read(["1", "ill"])
    with pytest.warns(TableWarning, match="target column 'label' is empty in 1 of 2 rows"):
        assert read([None, 1]) is None


def test_files_that_do_not_fit(trained, tmp_path):
    recipe = trained[0].recipe()
    np.savez(tmp_path / "new.npz", audio=np.zeros((3, 2)))
    with pytest.raises(InputError, match=r"training read a table, '.*new\.npz' is not one"):
        read_with_recipe(recipe, tmp_path / "new.npz")
    with pytest.raises(MissingDataError, match=r"did you mean 'new\.npz'"):
        read_with_recipe(recipe, tmp_path / "now.npz")
    with pytest.raises(InputError, match="no rows"):
        trained[1](table()[:0])
    with pytest.raises(InputError, match=r"one array per modality \(top_left, .*'train\.csv' is a table"):
        read_with_recipe(load_data("digits").recipe(), tmp_path / "train.csv")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recipe": 2}, "version 2"),
        ({"modalities": None}, "cannot be read: TypeError"),
        ({"modalities": [{"name": "audio"}]}, "cannot be read: KeyError: 'fills'"),
        ({"modalities": [{"name": "a", "numbers": ["x"], "fills": [], "categories": []}]}, "1 columns .* have 0 fills"),
        ({"target": "label"}, "cannot be read: TypeError"),
        ({"format": "arrays", "modalities": [{"name": "a"}]}, "cannot be read: KeyError: 'kind'"),
    ],
)
def test_a_damaged_recipe_is_named(trained, tmp_path, change, message):
    with pytest.raises(SavedModelError, match=message):
        read_with_recipe(trained[0].recipe() | change, tmp_path / "train.csv")
    for foreign in ({}, [], {"kind": "table"}):
        with pytest.raises(SavedModelError, match="not the recipe"):
            read_with_recipe(foreign, tmp_path / "train.csv")


def arrays():
    rng = np.random.default_rng(1)
    gaps = rng.normal(size=(40, 3))
    gaps[::5, 0] = np.nan
    gaps[7] = np.nan
    return {
        "image": rng.normal(size=(40, 6, 6)),
        "motion": rng.normal(size=(40, 5, 2)).astype(np.float32),
        "motion_lengths": np.arange(40) % 6,
        "words": np.array([f"word {n}" for n in range(40)]),
        "ids": rng.integers(0, 9, size=(40, 4)),
        "count": rng.integers(0, 5, size=(40, 2)),
        "height": rng.normal(size=40),
        "gaps": gaps,
        "score": np.arange(40) % 2,
        "split": np.repeat(["train", "test"], [30, 10]),
    }


ARRAY_OPTIONS = {"target": "score", "kinds": {"ids": "tokens", "image": "image"}}


@pytest.mark.parametrize("fill", ["median", "zero"])
def test_npz_and_folder(tmp_path, fill):
    np.savez(tmp_path / "train.npz", **arrays())
    data = load_data(tmp_path / "train.npz", **ARRAY_OPTIONS, fill=fill)
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, values in arrays().items():
        np.save(folder / f"{name}.npy", values)
    np.save(folder / "other.npy", np.zeros(3))  # of no concern
    for one in (data, data.resplit(5)):
        recipe = through_json(one.recipe())
        assert_same(read_with_recipe(recipe, tmp_path / "train.npz"), one.samples)
        on_disk = read_with_recipe(recipe, folder)
        assert on_disk.on_disk
        assert_same(on_disk, one.samples)
    known = arrays()["gaps"][data.split == "train", 0]
    expected = np.nanmedian(known) if fill == "median" else 0
    assert data.recipe()["modalities"][1]["fills"][0] == expected


def test_gaps_in_whole_numbers_of_training_are_filled(tmp_path):
    np.savez(tmp_path / "train.npz", **arrays())
    data = load_data(tmp_path / "train.npz", **ARRAY_OPTIONS, fill="mean")
    np.savez(tmp_path / "new.npz", count=np.array([[1, np.nan], [np.nan, np.nan]]))
    samples = read_with_recipe(data.recipe(), tmp_path / "new.npz")
    assert samples["count"][0, 1] == arrays()["count"][data.split == "train", 1].mean()
    assert samples.present_in("count").tolist() == [True, False]


def test_new_arrays_may_be_fewer_and_longer(tmp_path):
    whole = {name: value for name, value in arrays().items() if name != "gaps"}
    np.savez(tmp_path / "train.npz", **whole)
    recipe = load_data(tmp_path / "train.npz", **ARRAY_OPTIONS).recipe()
    np.savez(tmp_path / "new.npz", motion=np.zeros((3, 9, 2)), odd=np.array([{}], dtype=object))
    samples = read_with_recipe(recipe, tmp_path / "new.npz")
    assert samples.names == ("motion",)
    assert samples.y is None
    assert samples.lengths["motion"].tolist() == [9, 9, 9]
    for new, message in (
        ({"count": np.zeros((3, 5))}, r"training read count \(vector 2\), got count \(vector 5\)"),
        ({"words": np.zeros((3, 5))}, "text must be one string"),
        ({"image": np.zeros((3, 7, 7))}, r"image 1×6×6\), got image \(image 1×7×7"),
        ({"count": np.float64(3)}, "single value"),
        ({"count": np.zeros((3, 2)), "height": np.zeros(4)}, "height has 4"),
        ({"count": np.zeros((3, 2)), "score": np.array([0, np.nan, 1])}, "targets are NaN in row 1"),
        ({"count": np.array([[1, np.nan]])}, "part of row 0"),
        ({"y": np.zeros(3)}, "none of the modalities of training: count, height"),
    ):
        np.savez(tmp_path / "new.npz", **new)
        with pytest.raises(InputError, match=message):
            read_with_recipe(recipe, tmp_path / "new.npz")
    np.savez(tmp_path / "new.npz", count=np.zeros((2, 2)), score=np.full(2, np.nan))
    assert read_with_recipe(recipe, tmp_path / "new.npz").y is None


def test_matlab(tmp_path):
    from scipy.io import savemat

    rng = np.random.default_rng(0)
    content = {
        f"x{view}_{part}": rng.normal(size=(n, 2 + view)) for view in (1, 2) for part, n in (("train", 20), ("test", 8))
    }
    labels = {"gt_train": np.arange(20)[:, None] % 2, "gt_test": np.arange(8)[:, None] % 2}
    savemat(tmp_path / "train.mat", content | labels)
    data = load_data(tmp_path / "train.mat")
    recipe = through_json(data.recipe())
    assert_same(read_with_recipe(recipe, tmp_path / "train.mat"), data.samples)

    def read(**new):
        savemat(tmp_path / "new.mat", new)
        return read_with_recipe(recipe, tmp_path / "new.mat")

    some = read(x1_test=content["x1_test"], x2_test=content["x2_test"])
    assert np.array_equal(some["view2"], data.samples["view2"][20:])
    assert some.y is None
    assert read(x2_train=content["x2_train"], gt_train=labels["gt_train"]).names == ("view2",)
    assert tuple(load_data(tmp_path / "train.mat", modalities=["view2"]).recipe()["modalities"][0]) == (
        "name",
        "kind",
        "shape",
    )
    for new, message in (
        ({"x1_test": content["x1_test"], "x2_train": content["x2_train"]}, "lacks x1_train, x2_test"),
        ({**content, "gt_test": labels["gt_test"]}, "lacks gt_train"),
        ({"x1_test": content["x1_test"], "x2_test": content["x2_train"]}, "8 rows as in x1_test"),
        ({"x1_test": content["x2_test"]}, r"training read view1 \(vector 3\), got view1 \(vector 4\)"),
        ({"a": np.zeros(3)}, "lacks x1_test and holds a"),
    ):
        with pytest.raises(InputError, match=message):
            read(**new)


def test_a_named_set_reads_arrays_of_the_same_names(tmp_path):
    data = load_data("gaussians", n=50, n_classes=2, prior=np.array([0.25, 0.75]), modalities=["m3", "m1"])
    recipe = through_json(data.recipe())
    assert recipe["data"] == "gaussians"
    assert recipe["options"] == {"n": 50, "n_classes": 2, "prior": [0.25, 0.75]}
    assert [one["name"] for one in recipe["modalities"]] == ["m3", "m1"]
    again = load_data(recipe["data"], **recipe["options"])
    assert np.array_equal(again.samples["m1"], data.samples["m1"])
    np.savez(tmp_path / "new.npz", y=data.y, **{name: data.samples[name] for name in data.modalities})
    assert_same(read_with_recipe(recipe, tmp_path / "new.npz"), data.samples)


def test_a_set_made_by_hand_has_a_recipe_too(tmp_path):
    y = np.arange(20) % 2
    samples = Samples.of({"b": np.arange(40.0).reshape(20, 2), "a": np.arange(20.0)}, y)
    data = DataSet("own", samples, "classification", *draw_split(y, "classification"))
    np.savez(tmp_path / "own.npz", **dict(samples), y=y)
    assert_same(read_with_recipe(through_json(data.recipe()), tmp_path / "own.npz"), samples)
