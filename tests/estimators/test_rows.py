"""New samples as rows, frames and mappings of frames: by the names of training, in any order, with empty cells."""

import warnings

import numpy as np
import pandas
import polars
import pytest
from sklearn.impute import SimpleImputer

from consilience import FusionClassifier, MultimodalVAE, load, load_data
from consilience.core.errors import InputError, SavedModelError, UnknownNameError
from consilience.estimators.row_inputs import rows_to_frame

pytestmark = pytest.mark.filterwarnings("ignore:.*(are filled|left out)")
PARTS = {"image": ["i0", "i1", "i2"], "audio": ["a0", "a1"]}
NAMES = [*PARTS["image"], *PARTS["audio"]]


@pytest.fixture(params=["pandas", "polars"])
def library(request):
    return {"pandas": pandas, "polars": polars}[request.param].DataFrame


def cells(toy):
    """The toy table with gaps in two columns and a row that lacks the audio; and a column of categories."""
    table = toy.table.copy()
    table[3:60:7, 0] = np.nan
    table[1:50:9, 4] = np.nan
    table[5, 3:] = np.nan
    city = np.where(toy.y == 1, "Bonn", "Köln").tolist()
    city[2] = ""
    return {**{name: column.tolist() for name, column in zip(NAMES, table.T)}, "city": city}


def rows_of(columns, rows):
    return [{name: values[row] for name, values in columns.items()} for row in rows]


def as_mapping(frame, reverse=False):
    step = -1 if reverse else 1
    return {name: frame[columns[::step]] for name, columns in PARTS.items()}


def test_reordered_columns_of_a_frame_in_a_mapping_are_found_by_name(toy, classifier, library):
    frame = library(dict(zip(NAMES, toy.table.T)))
    model = classifier().fit(as_mapping(frame), toy.y)
    expected = model.predict_proba(as_mapping(frame))
    np.testing.assert_array_equal(model.predict_proba(as_mapping(frame, reverse=True)), expected)
    np.testing.assert_array_equal(model.predict_proba(frame[NAMES[::-1]]), expected)
    np.testing.assert_array_equal(model.predict_proba(toy.X), expected)  # an array goes by position
    wrong = model.predict_proba({"image": toy.X["image"][:, ::-1], "audio": toy.X["audio"][:, ::-1]})
    assert not np.allclose(wrong, expected)  # which is what the reordered frame gave before


def test_columns_of_a_frame_in_a_mapping_are_checked(toy, classifier, library):
    frame = library(dict(zip(NAMES, toy.table.T)))
    model = classifier(epochs=1).fit(as_mapping(frame), toy.y)
    lacking = {"image": frame[["i0", "i2"]], "audio": frame[["a0", "a1"]]}
    with pytest.raises(InputError, match="lacks columns that training read: 'i1' of modality 'image'"):
        model.predict(lacking)
    with pytest.raises(InputError, match="none of the columns that training read"):
        model.predict({"image": library({"x": [1.0]})})


def test_a_frame_for_a_model_of_arrays_goes_by_position_and_says_so(toy, classifier, library):
    frame = library(dict(zip(NAMES, toy.table.T)))
    model = classifier(epochs=1).fit(toy.X, toy.y)
    with pytest.warns(UserWarning, match="'image' is a DataFrame, but the model was fitted on an array"):
        found = model.predict_proba(as_mapping(frame))
    np.testing.assert_array_equal(found, model.predict_proba(toy.X))


COLUMNS = {**PARTS, "place": ["city", "i3"]}


def fitted(toy, classifier, library, how):
    """A model fitted on the columns of `COLUMNS` in each of the ways to give them."""
    columns = {**cells(toy), "i3": np.arange(80.0).tolist()}
    frame = library(columns)
    if how == "columns":
        return classifier("late", columns=COLUMNS).fit(frame, toy.y), columns
    if how == "mapping":
        return classifier("late").fit({name: frame[own] for name, own in COLUMNS.items()}, toy.y), columns
    if how == "rows":
        return classifier("late", columns=COLUMNS).fit(rows_of(columns, range(80)), toy.y), columns
    table = library({**columns, "y": toy.y.tolist()})
    data = load_data(table, target="y", modalities=COLUMNS)
    return classifier("late", validation=data.validation).fit(data.train), columns


@pytest.mark.parametrize("how", ["columns", "mapping", "rows", "load_data"])
def test_rows_frames_and_dictionaries_give_the_same(tmp_path, toy, classifier, library, how):
    model, columns = fitted(toy, classifier, library, how)
    again = load(model.save(tmp_path / "model"))
    frame = library(columns)[list(columns)[::-1]]
    expected = model.predict_proba(frame)
    assert expected.shape == (80, 2)
    for one in (model, again):
        np.testing.assert_array_equal(one.predict_proba(frame), expected)
        rows = [0, 1, 2, 3, 5, 10]
        np.testing.assert_allclose(one.predict_proba(rows_of(columns, rows)), expected[rows], atol=1e-6)
        for row in rows:
            alone = rows_of(columns, [row])[0]
            np.testing.assert_allclose(one.predict_proba(alone), expected[[row]], atol=1e-6)
            assert one.predict(alone).tolist() == one.predict(frame)[[row]].tolist()
    some = rows_of(columns, [5, 6])
    np.testing.assert_allclose(model.trust(some), model.trust(frame)[[5, 6]], atol=1e-6)
    found = model.explain(some)
    assert found.present.tolist() == [[True, False, True], [True, True, True]]
    np.testing.assert_allclose(found.probabilities, expected[[5, 6]], atol=1e-6)


def test_rows_are_checked(toy, classifier):
    model, columns = fitted(toy, classifier, pandas.DataFrame, "columns")
    row = rows_of(columns, [4])[0]
    with pytest.raises(InputError, match="lacks columns that training read: 'i1' of modality 'image'; near them are"):
        model.predict({name: cell for name, cell in row.items() if name != "i1"})
    with pytest.raises(InputError, match=r"column 'i1' holds 'hot' .*in training it held numbers"):
        model.predict({**row, "i1": "hot"})
    with pytest.raises(InputError, match=r"column 'city' holds values of different types \(float, str\)"):
        model.predict([row, {**row, "city": 1.5}])
    with pytest.raises(InputError, match="names of columns must be strings, got 1"):
        model.predict([{1: 2.0}])
    with pytest.warns(UserWarning, match=r"holds 'Ulm' in row 0, which training did not have \(1 of 2 cells\)"):
        model.predict([{**row, "city": "Ulm"}, row])
    with pytest.warns(UserWarning, match="no columns of 'audio': missing for every sample"):
        alone = model.predict_proba({name: cell for name, cell in row.items() if not name.startswith("a")})
    without = model.predict_proba({**row, "a0": None, "a1": float("nan")})
    np.testing.assert_allclose(alone, without, atol=1e-7)


@pytest.mark.parametrize("far", [2**63, -(2**64), 10**30])
def test_whole_numbers_beyond_64_bits_are_the_same_in_any_row(far):
    cells = [-1, 7, None, far]
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 3, 0, 1]):
        frame = rows_to_frame([{"id": cells[place]} for place in order])
        assert frame["id"].to_list() == [cells[place] for place in order]
    for order in ([1, 2**127], [2**127, 1], [-(2**127) - 1]):
        with pytest.raises(
            InputError, match=r"column 'id' holds -?17014\d+, a whole number of more than 128 bits: give"
        ):
            rows_to_frame([{"id": cell} for cell in order])


def test_keys_of_rows_have_no_order_where_columns_of_a_frame_do(toy, classifier, library):
    columns = dict(zip(NAMES, toy.table.T.tolist()))
    model = classifier(epochs=1).fit(library(columns), toy.y)
    row = {name: columns[name][3] for name in NAMES[::-1]}
    np.testing.assert_allclose(
        model.predict_proba({**row, "z": 1.0}), model.predict_proba(library(columns))[[3]], atol=1e-6
    )
    with pytest.raises(ValueError, match="same order"):
        model.predict(library(columns)[NAMES[::-1]])
    del row["i0"]
    with pytest.raises(ValueError, match="i0"):
        model.predict(row)


def test_rows_of_a_model_fitted_by_name_have_a_value_for_each_modality(toy, classifier):
    words = np.array(["a dull day", "such a bright day"])[toy.y].tolist()
    model = classifier(epochs=2).fit({**toy.X, "words": words}, toy.y)
    X = {name: values[:3].copy() for name, values in toy.X.items()}
    rows = [{"image": X["image"][row], "audio": X["audio"][row].tolist(), "words": words[row]} for row in range(3)]
    rows[1]["words"], rows[2]["audio"] = "", None
    X["audio"][2] = np.nan
    expected = model.predict_proba({**X, "words": [words[0], None, words[2]]})
    np.testing.assert_allclose(model.predict_proba(rows), expected, atol=1e-6)
    with pytest.raises(UnknownNameError, match="sound"):
        model.predict([{"sound": 1.0, "image": X["image"][0]}])


def test_strings_of_no_characters_in_a_column_of_a_mapping_are_missing(toy, classifier):
    words = np.array(["a dull day", "such a bright day"])[toy.y]
    words[3] = ""
    for library in (pandas, polars):
        X = {"image": toy.X["image"], "words": library.Series(words.tolist())}
        model = classifier(epochs=1).fit(X, toy.y)
        missing = {**X, "words": [None if word == "" else word for word in words.tolist()]}
        np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(missing))
        assert model.explain({name: values[3:4] for name, values in X.items()}).present.tolist() == [[True, False]]


@pytest.mark.parametrize("given", ["frame", "array", "mapping"])
def test_numbers_are_filled_as_scikit_learn_does(toy, classifier, library, given):
    """The same as a model of the arrays that SimpleImputer makes."""
    columns = {name: cells(toy)[name] for name in NAMES}
    table = np.array([*columns.values()]).T
    X = {"frame": library(columns), "array": table, "mapping": as_mapping(library(columns))}[given]
    places = None if given == "mapping" else {"image": slice(0, 3), "audio": slice(3, 5)}
    model = classifier(columns=places, epochs=3).fit(X, toy.y)
    filled = {}
    for name, part in (("image", table[:, :3]), ("audio", table[:, 3:])):
        there = ~np.isnan(part).all(axis=1)
        imputer = SimpleImputer(strategy="median", add_indicator=True).fit(part[there])
        filled[name] = np.full((80, imputer.transform(part[there]).shape[1]), np.nan)
        filled[name][there] = imputer.transform(part[there])
    expected = classifier(epochs=3).fit(filled, toy.y).predict_proba(filled)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-6)


def test_a_gap_in_a_column_without_gaps_in_training_is_its_median(toy, classifier):
    model = classifier(columns={"image": slice(0, 3), "audio": slice(3, 5)}, epochs=2).fit(toy.table, toy.y)
    new, filled = toy.table[:4].copy(), toy.table[:4].copy()
    new[1, 2], filled[1, 2] = np.nan, np.median(toy.table[:, 2])
    np.testing.assert_array_equal(model.predict_proba(new), model.predict_proba(filled))


@pytest.mark.parametrize("library", [pandas.DataFrame, polars.DataFrame, None])
def test_none_refuses_gaps_and_arrays_in_a_mapping_are_never_filled(toy, classifier, library):
    columns = {name: cells(toy)[name] for name in NAMES}
    table = np.array([*columns.values()]).T if library is None else library(columns)
    places = {"image": slice(0, 3), "audio": slice(3, 5)}
    with pytest.raises(
        InputError, match=r"'image' has empty cells in part of|'image' contains NaN or infinity in part"
    ):
        classifier(columns=places, fill="none").fit(table, toy.y)
    with pytest.raises(InputError, match="'image' contains NaN or infinity in part of row"):
        classifier().fit({"image": np.array([*columns.values()]).T[:, :3]}, toy.y)
    with pytest.raises(UnknownNameError, match="fill 'mode'"):
        classifier(columns=places, fill="mode").fit(table, toy.y)


def test_infinity_is_an_error_whatever_fill(toy, classifier):
    table = toy.table.copy()
    table[3, 1] = np.inf
    with pytest.raises(InputError, match="contains NaN or infinity in part of row 3"):
        classifier().fit(table, toy.y)


def test_models_saved_without_fills_refuse_gaps_as_before(tmp_path, toy, classifier):
    places = {"image": slice(0, 3), "audio": slice(3, 5)}
    model = classifier(columns=places, epochs=1).fit(toy.table, toy.y)
    expected = model.predict_proba(toy.table)
    del model.encodings_  # as 0.1 saved them
    again = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(toy.table), expected)
    gap = toy.table[:3].copy()
    gap[0, 0] = np.nan
    with pytest.raises(InputError, match="'image' contains NaN or infinity in part of row 0"):
        again.predict(gap)


def test_times_of_a_frame_are_left_out_or_calendar_features(toy, classifier, library):
    when = pandas.Series(pandas.date_range("2024-01-01", periods=80, freq="7h")).dt.strftime("%Y-%m-%d %H:%M").tolist()
    frame = library({**dict(zip(NAMES, toy.table.T)), "when": when})
    columns = {"image": PARTS["image"], "audio": [*PARTS["audio"], "when"]}
    with pytest.warns(UserWarning, match="column 'when' holds times such as '2024-01-01 00:00'; it is left out"):
        model = classifier(columns=columns, epochs=1).fit(frame, toy.y)
    np.testing.assert_array_equal(model.predict(frame), model.predict(frame[NAMES]))
    for X in (frame, {name: frame[own] for name, own in columns.items()}):
        places = columns if X is frame else None
        model = classifier(columns=places, kinds={"when": "calendar"}, epochs=1).fit(X, toy.y)
        assert model.model_.preparation.raw["audio"].shape == (9,)
        assert len(model.predict(X)) == 80
    with pytest.raises(UnknownNameError, match="unknown modality or column 'wen'"):
        classifier(kinds={"wen": "calendar"}).fit({"audio": frame[columns["audio"]]}, toy.y)


def test_the_recipe_goes_with_the_samples(tmp_path, toy, classifier):
    frame = polars.DataFrame({**cells(toy), "y": toy.y})
    data = load_data(frame, target="y", modalities=COLUMNS | {"place": "city"})
    frame.write_csv(tmp_path / "new.csv")
    model = classifier(epochs=1).fit(data.train)
    assert model.model_.recipe == data.recipe()
    np.testing.assert_allclose(
        model.predict_proba(model.read(tmp_path / "new.csv")), model.predict_proba(frame), atol=1e-6
    )
    part = classifier(epochs=1).fit(data.train.only(["image", "place"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert part.read(tmp_path / "new.csv").names == ("image", "place")
        assert len(part.predict(frame.drop("a0", "a1"))) == 80
    with pytest.raises(SavedModelError, match="not trained from a file"):
        classifier(epochs=1).fit(toy.X, toy.y).read(tmp_path / "new.csv")


def test_a_latent_model_reads_rows_and_files(tmp_path, toy):
    frame = polars.DataFrame(cells(toy))
    data = load_data(frame, modalities=PARTS)
    model = MultimodalVAE(latent=2, epochs=1, device="cpu").fit(data.train)
    frame.write_csv(tmp_path / "new.csv")
    again = load(model.save(tmp_path / "model"))
    expected = model.transform(frame)
    np.testing.assert_allclose(again.transform(again.read(tmp_path / "new.csv")), expected, atol=1e-5)
    np.testing.assert_allclose(again.transform(rows_of(cells(toy), [3, 5])), expected[[3, 5]], atol=1e-5)
    np.testing.assert_allclose(
        again.generate(["audio"], given=frame.drop("a0", "a1"))["audio"],
        model.generate(["audio"], given=data.samples.only(["image"]))["audio"],
        atol=1e-5,
    )
    with pytest.raises(SavedModelError, match="the format of a file is unknown"):
        MultimodalVAE(latent=2, epochs=1, device="cpu").fit(toy.X).read(tmp_path / "new.csv")


def test_validation_may_be_a_frame_in_any_order(toy, library):
    frame = library(cells(toy))
    model = FusionClassifier("concat", columns=PARTS, epochs=2, device="cpu", validation=(frame[NAMES[::-1]], toy.y))
    assert model.fit(frame, toy.y).score(frame, toy.y) > 0.4


def test_the_clock_on_the_wall_counts_however_a_zone_is_written(toy, classifier):
    when = pandas.date_range("2024-03-01", periods=len(toy.y), freq="7h")
    X = pandas.DataFrame(dict(zip(NAMES, toy.table.T))).assign(when=when)
    model = classifier(columns=PARTS | {"when": ["when"]}, kinds={"when": "calendar"}, epochs=1).fit(X, toy.y)
    expected = model.predict_proba(X[:5])
    for zone in ("UTC", "Asia/Tokyo", "+05:00"):
        zoned = X.assign(when=when.tz_localize(zone))[:5]
        strings = zoned.assign(when=zoned["when"].astype(str))
        for same in (zoned, zoned.astype({"when": object}), strings, zoned.to_dict("records")):
            np.testing.assert_array_equal(model.predict_proba(same), expected)
    rows = X[:5].to_dict("records")
    for number, unit in enumerate(("s", "us", "ns")):
        rows[number]["when"] = np.datetime64(rows[number]["when"], unit)
    rows[0]["when"] = rows[0]["when"].item().date()  # its time of day is midnight
    np.testing.assert_array_equal(model.predict_proba(rows), expected)
    mixed = X[:5].astype({"when": object})
    mixed.loc[1, "when"] = mixed.loc[1, "when"].tz_localize("Asia/Tokyo")
    with pytest.raises(InputError, match="column 'when' holds times of different zones"):
        model.predict_proba(mixed)


def test_impute_fills_single_cells_of_frames_and_of_samples(toy):
    frame = polars.DataFrame(cells(toy))
    model = MultimodalVAE(columns=PARTS, latent=2, epochs=1, device="cpu").fit(frame)
    filled = model.impute(frame)
    assert filled.present.all()
    names = model.encodings_["image"].features
    gaps = frame["i0"].is_nan().to_numpy()
    flags = filled.read("image")[:, names.index("i0 is empty")]
    assert np.array_equal(flags == 1, gaps)
    median = np.median(frame["i0"].to_numpy()[~gaps])
    assert not np.isclose(filled.read("image")[gaps, 0], median).any()
    np.testing.assert_allclose(filled.read("image")[~gaps, 0], frame["i0"].to_numpy()[~gaps], rtol=1e-6)
    data = load_data(frame, modalities=PARTS)
    of_table = MultimodalVAE(latent=2, epochs=1, device="cpu").fit(data.train)
    samples = data.samples
    rows = samples.read("image")[:, data.extra["columns"]["image"].index("i0 is empty")] == 1
    assert rows.sum() == gaps.sum()
    changed = of_table.impute(samples).read("image")[:, 0] != samples.read("image")[:, 0]
    assert np.array_equal(changed, rows)
