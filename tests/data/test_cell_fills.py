"""Single empty cells: filled as scikit-learn's SimpleImputer does, said once, and the same for new rows."""

import json
import warnings

import numpy as np
import pandas
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer

from consilience.core.errors import InputError, SavedModelError
from consilience.data import load_data, read_with_recipe

# Where this matters, the warnings are recorded.
pytestmark = pytest.mark.filterwarnings("ignore:.*(are filled|left out|did not have)")
N = 80
NAMES = ["TS1", "TS2", "TS3"]


def cells(rng, share=0.2):
    """Numbers of three sensors: the first two have gaps, the third has none, and rows 0 and 7 have no cell at all."""
    values = rng.normal(size=(N, 3)).astype(np.float32)
    values[:, :2][rng.random((N, 2)) < share] = np.nan
    values[[0, 7]] = np.nan
    return values


def table(values):
    frame = pl.DataFrame(values, schema=NAMES).fill_nan(None)
    return frame.with_columns(
        label=pl.Series(np.arange(N) % 2), split=pl.Series(np.repeat(["train", "validation", "test"], [50, 15, 15]))
    )


def load(frame, **options):
    return load_data(frame, target="label", modalities={"temp": "TS*"}, split="split", **options)


@pytest.fixture
def values():
    return cells(np.random.default_rng(0))


def expected(values, strategy, indicator):
    """What SimpleImputer makes of the rows that have a cell; the others are missing."""
    present = ~np.isnan(values).all(axis=1)
    train = present & (np.arange(N) < 50)
    imputer = SimpleImputer(strategy=strategy, add_indicator=indicator, fill_value=0).fit(values[train])
    return present, imputer.transform(values[present])


@pytest.mark.parametrize(
    ("fill", "strategy"), [(None, "median"), ("median", "median"), ("mean", "mean"), ("zero", "constant")]
)
def test_cells_are_filled_as_scikit_learn_does(values, fill, strategy):
    data = load(table(values), fill=fill)
    present, filled = expected(values, strategy, fill is None)
    assert np.array_equal(data.samples.present_in("temp"), present)
    np.testing.assert_allclose(data.samples["temp"][present], filled, rtol=1e-6)
    features = [*NAMES, "TS1 is empty", "TS2 is empty"] if fill is None else NAMES
    assert data.extra["columns"]["temp"] == features


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.05, 0.6))
def test_any_gaps_are_filled_as_scikit_learn_does(seed, share):
    values = cells(np.random.default_rng(seed), share)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = load(table(values))
    present, filled = expected(values, "median", True)
    np.testing.assert_allclose(data.samples["temp"][present], filled, rtol=1e-6)


def test_it_is_said_once_with_the_number_of_cells(values):
    gaps = np.isnan(values)
    gaps[gaps.all(axis=1)] = False
    with pytest.warns(UserWarning, match="filled") as said:
        data = load(table(values))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data.resplit(1)
        read_with_recipe(data.recipe(), table(values)[10:20])
    assert len(said) == 1
    text = str(said[0].message)
    assert text.startswith(
        f"the DataFrame: single empty cells are filled, {gaps.sum()} of modality 'temp' (columns 'TS1', 'TS2')."
    )
    assert "fill='none' (--fill none) refuses such rows" in text


@pytest.mark.parametrize("fill", ["median", "zero", "indicator"])
def test_nothing_is_said_of_what_was_asked_for_or_of_full_tables(values, fill):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(table(values), fill=fill)
        load(table(np.nan_to_num(values)))


def test_a_table_without_gaps_has_the_values_of_before(values):
    full = np.nan_to_num(values)
    default, none = load(table(full)), load(table(full), fill="none")
    assert np.array_equal(default.samples["temp"], none.samples["temp"])
    assert default.extra["columns"] == none.extra["columns"]


def test_none_refuses_single_cells_and_takes_rows_without_any(values):
    with pytest.raises(
        InputError, match=r"'temp' has empty cells in part of row.*leave fill='none' \(--fill none\) out"
    ):
        load(table(values), fill="none")
    whole = np.where(np.isnan(values).any(axis=1, keepdims=True), np.nan, values)
    assert not load(table(whole), fill="none").samples.present_in("temp")[0]


def test_new_rows_are_filled_as_in_training(values):
    data = load(table(values))
    recipe = json.loads(json.dumps(data.recipe()))
    new = table(values)[[3, 40]].with_columns(TS1=pl.Series([None, 1.5]), TS3=pl.Series([None, 2.5]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        samples = read_with_recipe(recipe, new.drop("label", "split"))
    medians = np.nanmedian(values[:50], axis=0)
    first = samples["temp"][0]
    # The third column had no gap in training, so it has no feature for gaps.
    assert samples["temp"].shape == (2, 5)
    np.testing.assert_allclose(first[[0, 2]], medians[[0, 2]], rtol=1e-6)
    assert first[3] == 1
    assert samples["temp"][1, [0, 2, 3]].tolist() == [1.5, 2.5, 0]


def test_fills_and_indicators_follow_the_split():
    values = np.arange(2.0 * N).reshape(N, 2) ** 2
    values[3, 0] = np.nan
    frame = pl.DataFrame(values, schema=["a", "b"]).fill_nan(None).with_columns(label=pl.Series(np.arange(N) % 2))
    data = load_data(frame, target="label", modalities={"m": ["a", "b"]})
    seen = set()
    for seed in range(12):
        drawn = data.resplit(seed)
        train = drawn.split == "train"
        assert ("a is empty" in drawn.extra["columns"]["m"]) == train[3]
        assert drawn.samples["m"][3, 0] == np.float32(np.nanmedian(values[train, 0]))
        seen.add(bool(train[3]))
    assert seen == {True, False}


def test_an_empty_category_has_a_feature_too():
    colours = ["red", "", None, "blue"] * 20
    frame = pl.DataFrame({"colour": colours, "TS1": np.arange(80.0), "label": np.arange(80) % 2})
    data = load_data(frame, target="label", modalities={"m": ["colour", "TS1"]})
    assert data.extra["columns"]["m"] == ["TS1", "colour=blue", "colour=red", "colour is empty"]
    assert data.samples["m"][:4, 1:].tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize("kind", ["polars", "pandas", "csv"])
def test_a_string_of_no_characters_is_empty(tmp_path, kind):
    rows = {"word": ["a", "", "b", ""] * 10, "note": ["well", "", "ill", "so so"] * 10, "y": ["u", "v"] * 20}
    frame = {"polars": pl.DataFrame, "pandas": pandas.DataFrame, "csv": lambda given: tmp_path / "t.csv"}[kind](rows)
    if kind == "csv":
        lines = [f'"{word}","{note}",{y}' for word, note, y in zip(*rows.values())]
        frame.write_text("\n".join(["word,note,y", *lines]))
    data = load_data(frame, target="y", modalities={"word": "word", "note": "note"}, kinds={"note": "text"})
    assert data.extra["columns"]["word"] == ["word=a", "word=b"]
    assert data.samples.present[:4].tolist() == [[True, True], [False, False], [True, True], [False, True]]


def test_an_empty_target_is_an_error_even_as_a_string_of_no_characters():
    frame = pl.DataFrame({"a": np.arange(4.0), "y": ["u", "", "v", "u"]})
    with pytest.raises(InputError, match="target column 'y' is empty in row 1"):
        load_data(frame, target="y", modalities={"a": "a"})


def test_a_column_that_is_empty_in_every_train_row_is_left_out(values):
    values[:50, 2] = np.nan
    frame = table(values).with_columns(colour=pl.Series([None] * 50 + ["red"] * 30))
    with pytest.warns(UserWarning, match="columns 'TS3', 'colour' are empty in every train row, and left out"):
        data = load_data(frame, target="label", modalities={"m": ["TS*", "colour"]}, split="split")
    assert data.extra["columns"]["m"] == ["TS1", "TS2", "TS1 is empty", "TS2 is empty"]
    again = read_with_recipe(data.recipe(), frame)
    np.testing.assert_array_equal(again["m"], data.samples["m"])
    with pytest.raises(InputError, match=r"column 'colour' is empty in every train row\. Leave the modality out"):
        load_data(frame, target="label", modalities={"m": "TS*", "colour": "colour"}, split="split")


def test_unseen_categories_of_validation_and_test_rows_are_counted():
    colours = ["red", "blue"] * 25 + ["green"] * 4 + ["red"] * 26
    frame = table(np.zeros((N, 3))).with_columns(colour=pl.Series(colours))
    with pytest.warns(
        UserWarning, match=r"holds 'green' in rows 50, 51, 52, 53, which the train rows did not .*\(4 of 80"
    ):
        load_data(frame, target="label", modalities={"c": "colour"}, split="split")


def test_recipes_of_before_are_read_as_before():
    """As 0.1 and the first releases of 0.2 wrote them: without the columns that have a feature for gaps."""
    entry = {
        "name": "m", "kind": "vector", "shape": [3], "numbers": ["a", "b"], "fills": [0.5, None],
        "categories": [{"column": "c", "values": ["x"]}],
    }  # fmt: skip
    recipe = {"recipe": 1, "data": "t", "format": "table", "target": {"name": "y", "type": "number"}}
    new = pl.DataFrame({"b": [1.0, 2.0], "c": ["x", None], "a": [None, 4.0]})
    assert read_with_recipe(recipe | {"modalities": [entry]}, new)["m"].tolist() == [[0.5, 1, 1], [4, 2, 0]]
    with pytest.raises(InputError, match="train again without fill='none'"):
        read_with_recipe(recipe | {"modalities": [entry | {"fills": None}]}, new)


def test_a_damaged_recipe_of_indicators_is_named(values):
    recipe = load(table(values)).recipe()
    recipe["modalities"][0]["flagged"] = ["TS9"]
    with pytest.raises(SavedModelError, match="columns 'TS9' are flagged, and not read"):
        read_with_recipe(recipe, table(values))


def test_arrays_are_filled_on_request(tmp_path, values):
    np.savez(tmp_path / "a.npz", temp=values, y=np.arange(N) % 2, split=np.repeat(["train", "test"], [60, 20]))
    with pytest.raises(InputError, match="contains NaN or infinity in part of"):
        load_data(tmp_path / "a.npz")
    data = load_data(tmp_path / "a.npz", fill="indicator")
    train = data.split == "train"
    present = ~np.isnan(values).all(axis=1)
    imputer = SimpleImputer(strategy="median", add_indicator=True).fit(values[present & train])
    np.testing.assert_allclose(data.samples["temp"][present], imputer.transform(values[present]), rtol=1e-6)
    again = read_with_recipe(json.loads(json.dumps(data.recipe())), tmp_path / "a.npz")
    np.testing.assert_array_equal(again["temp"], data.samples["temp"])
    assert np.array_equal(again.present, data.samples.present)


@pytest.mark.parametrize("flagged", [[999], [-1], ["x"], [[0]], [0.5], [True], [0, 0], 0, None, "0", {"0": 1}])
def test_damaged_indicators_of_arrays_are_named(tmp_path, values, flagged):
    np.savez(tmp_path / "a.npz", temp=values, y=np.arange(N) % 2)
    recipe = load_data(tmp_path / "a.npz", fill="indicator").recipe()
    recipe["modalities"][0]["flagged"] = flagged
    with pytest.raises(SavedModelError, match="flagged must be different whole numbers from 0 to 2"):
        read_with_recipe(recipe, tmp_path / "a.npz")
