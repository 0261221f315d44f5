"""pandas and polars DataFrames: columns by name or glob, text, missing cells, and the names at predict."""

import datetime
import json
import warnings

import numpy as np
import pandas
import polars
import pytest
from sklearn.model_selection import cross_val_score

from consilience import MultimodalVAE, load, load_data
from consilience.core.errors import InputError, TableWarning

HEADER = ["mfcc_0", "mfcc_1", "mfcc_2", "pitch", "loudness"]
NAMES = {"image": "mfcc_*", "audio": ["pitch", "loudness"]}


@pytest.fixture(params=["pandas", "polars"])
def frame(request, toy):
    """A function that makes a DataFrame of the toy table, with more columns on request."""
    library = {"pandas": pandas, "polars": polars}[request.param]
    return lambda **more: library.DataFrame(dict(zip(HEADER, toy.table.T)) | more)


@pytest.mark.parametrize(
    "columns",
    [
        NAMES,
        {"image": slice(0, 3), "audio": slice(3, None)},
        {"image": [0, 1, 2], "audio": (-2, -1)},
        {"image": np.array([True, True, True, False, False]), "audio": range(3, 5)},
        {"image": ["mfcc_[01]", "mfcc_2"], "audio": np.array(["pitch", "loudness"])},
    ],
    ids=["globs and names", "slices", "positions", "mask and range", "several globs"],
)
def test_columns_by_any_means_give_the_same_model(toy, classifier, frame, columns):
    expected = classifier().fit(toy.X, toy.y).predict_proba(toy.X)
    model = classifier(columns=columns).fit(frame(), toy.y)
    np.testing.assert_array_equal(model.predict_proba(frame()), expected)
    assert model.feature_names_in_.tolist() == HEADER
    assert model.n_features_in_ == 5


def test_the_targets_may_be_a_column(toy, classifier, frame):
    table = frame(label=np.array(["no", "yes"])[toy.y])
    assert classifier(columns=NAMES).fit(table, table["label"]).classes_.tolist() == ["no", "yes"]


def test_columns_are_found_by_name_at_predict(toy, classifier, frame):
    model = classifier(columns=NAMES, epochs=1).fit(frame(), toy.y)
    expected = model.predict_proba(frame())
    np.testing.assert_array_equal(model.predict_proba(frame()[HEADER[::-1]]), expected)
    np.testing.assert_array_equal(model.predict_proba(frame(extra=toy.number)), expected)
    with pytest.warns(UserWarning, match="valid feature names"):
        np.testing.assert_array_equal(model.predict_proba(toy.table), expected)
    with pytest.warns(UserWarning, match="valid feature names"):  # a table without names goes by position
        np.testing.assert_array_equal(model.predict_proba(pandas.DataFrame(toy.table)), expected)


def test_without_columns_the_names_must_be_those_of_fitting(toy, classifier, frame):
    model = classifier(epochs=1).fit(frame(), toy.y)
    with pytest.raises(ValueError, match="same order"):
        model.predict(frame()[HEADER[::-1]])
    with pytest.raises(ValueError, match="unseen at fit time"):
        model.predict(frame(extra=toy.number))


def test_a_model_of_an_array_reads_a_frame_by_position(toy, classifier, frame, columns):
    model = classifier(columns=columns, epochs=1).fit(toy.table, toy.y)
    with pytest.warns(UserWarning, match="fitted without feature names"):
        np.testing.assert_array_equal(model.predict_proba(frame()), model.predict_proba(toy.table))


def test_a_failed_sensor_may_lack_its_columns(toy, classifier, frame):
    model = classifier(columns=NAMES, epochs=1).fit(frame(patient=["p"] * 80), toy.y)
    with pytest.warns(UserWarning, match="no columns of 'image': missing for every sample"):
        alone = model.predict_proba(frame()[["pitch", "loudness"]])
    np.testing.assert_array_equal(alone, model.predict_proba({"audio": toy.X["audio"]}))
    np.testing.assert_array_equal(model.predict(frame()), model.predict(toy.X))  # without a column out of use
    for part, message in (
        (HEADER[1:], "lacks columns that training read: 'mfcc_0' of modality 'image'"),
        (["patient"], "has none of the columns that training read"),
    ):
        with pytest.raises(InputError, match=message):
            model.predict(frame(patient=["p"] * 80)[part])


def test_columns_out_of_use_may_hold_anything(toy, classifier, frame):
    table = frame(patient=[f"p{row}" for row in range(80)], comment=[None] * 80)
    model = classifier(columns=NAMES).fit(table, toy.y)
    np.testing.assert_array_equal(model.predict_proba(table), classifier().fit(toy.X, toy.y).predict_proba(toy.X))


def test_a_column_of_text_is_a_modality(toy, classifier, frame):
    words = np.array(["a dull day", "such a bright day"])[toy.y].tolist()
    model = classifier(columns={"sound": "mfcc_*", "words": "review"}).fit(frame(review=words), toy.y)
    assert model.score(frame(review=words), toy.y) > 0.95
    assert model.model_.preparation.raw["words"].kind == "text"
    silent = frame(review=[None] * 80)
    np.testing.assert_array_equal(model.predict(silent), model.predict({"sound": toy.X["image"]}))


def test_few_words_that_are_read_as_text_are_told(toy, classifier, frame):
    colours = np.array(["red", "green"])[toy.y].tolist()
    columns = {"sound": "mfcc_*", "look": "colour"}
    with pytest.warns(TableWarning, match=r"'colour' of modality 'look' is read as text, but has only 2 .*'category'"):
        classifier(columns=columns).fit(frame(colour=colours), toy.y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TableWarning)
        classifier(columns=columns, kinds={"look": "text"}).fit(frame(colour=colours), toy.y)
        model = classifier(columns=columns, kinds={"colour": "category"}).fit(frame(colour=colours), toy.y)
    assert model.model_.preparation.raw["look"].kind == "vector"
    with pytest.warns(TableWarning, match="'purple'"):
        model.predict(frame(colour=["purple", *colours[1:]]))


PLACES = {"image": "mfcc_*", "place": ["pitch", "city", "flat"]}


def places(toy):
    """Columns of strings and booleans, of which the city says the class."""
    return {"city": np.where(toy.y == 1, "Bonn", "Köln").tolist(), "flat": (np.arange(80) % 2 == 0).tolist()}


def test_strings_are_encoded_as_those_of_a_file(tmp_path, toy, classifier, frame):
    table = frame(**places(toy))
    model = classifier(columns=PLACES).fit(table, toy.y)
    polars.DataFrame({**dict(zip(HEADER, toy.table.T)), **places(toy), "y": toy.y}).write_csv(tmp_path / "t.csv")
    data = load_data(tmp_path / "t.csv", target="y", modalities=PLACES)
    assert model.encodings_["place"].features == data.extra["columns"]["place"]
    read = data.samples.replaced({name: data.samples[name].astype(np.float64) for name in data.samples.names})
    np.testing.assert_allclose(model.predict_proba(table), model.predict_proba(read), atol=1e-6)
    assert model.score(table, toy.y) == 1.0


def test_encodings_are_saved_with_the_model(tmp_path, toy, classifier, frame):
    table = frame(**places(toy))
    model = classifier(columns=PLACES, epochs=2).fit(table, toy.y)
    again = load(model.save(tmp_path / "model"))
    expected = model.predict_proba(table)
    for new in (table, table[[*HEADER, "flat", "city"][::-1]], frame(**places(toy), more=[None] * 80)):
        np.testing.assert_array_equal(again.predict_proba(new), expected)
    saved = json.loads((tmp_path / "model" / "model.json").read_text())["extra"]["encodings"]
    assert saved[1]["categories"] == [{"column": "city", "values": ["Bonn", "Köln"]}]
    with pytest.raises(InputError, match="lacks columns that training read: 'city' of modality 'place'"):
        again.predict(frame(flat=places(toy)["flat"]))
    with pytest.raises(InputError, match=r"fitted on a DataFrame with columns of strings \('city'\)"):
        again.predict(toy.table)
    with pytest.warns(UserWarning, match="column 'city' of modality 'place' holds 'Ulm' in row 0"):
        again.predict(frame(**places(toy) | {"city": ["Ulm", *places(toy)["city"][1:]]}))


def test_models_of_0_1_have_no_encodings_and_find_their_columns(toy, classifier, frame):
    words = np.array(["a dull day", "such a bright day"])[toy.y].tolist()
    model = classifier(columns={"sound": "mfcc_*", "words": "review"}, epochs=2).fit(frame(review=words), toy.y)
    expected = model.predict_proba(frame(review=words))
    del model.encodings_
    for new in (frame(review=words), frame(review=words)[["review", *HEADER[::-1]]]):
        np.testing.assert_array_equal(model.predict_proba(new), expected)


def test_fitting_again_forgets_the_columns_of_the_first_fit(toy, classifier, frame):
    model = classifier(columns=PLACES, epochs=1).fit(frame(**places(toy)), toy.y)
    again = model.set_params(columns={"image": slice(0, 3), "place": slice(3, 5)}).fit(toy.table, toy.y)
    assert len(again.predict(toy.table)) == 80


def test_encodings_of_a_latent_model_are_saved(tmp_path, toy, frame):
    table = frame(**places(toy))
    model = MultimodalVAE(latent=2, epochs=1, columns=PLACES, device="cpu").fit(table)
    again = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.transform(table[table.columns[::-1]]), model.transform(table))


def test_a_single_column_of_strings_may_be_categories(toy, classifier, frame):
    table = frame(city=places(toy)["city"])
    model = classifier(columns={"image": "mfcc_*", "city": "city"}, kinds={"city": "vector"}).fit(table, toy.y)
    assert model.model_.preparation.raw["city"].shape == (2,)
    assert model.score(table, toy.y) == 1.0


def test_single_empty_cells_and_dates_are_refused_by_column(toy, classifier, frame):
    gap = [None, *places(toy)["city"][1:]]
    with pytest.raises(InputError, match="'place' has empty cells in part of row 0, the first in column 'city'"):
        classifier(columns=PLACES, fill="none").fit(frame(**places(toy) | {"city": gap}), toy.y)
    with pytest.raises(InputError, match="modality 'a': column 'day' holds times such as '2020-01-01'"):
        classifier(columns={"a": ["day"]}).fit(frame(day=[datetime.date(2020, 1, 1)] * 80), toy.y)


def test_tokens_stay_whole_numbers(toy, classifier, frame):
    table = frame(**{f"word_{place}": np.arange(80) % 5 + place for place in range(3)})
    model = classifier(columns={"words": "word_*", "audio": NAMES["audio"]}, kinds={"words": "tokens"}, epochs=1)
    assert model.fit(table, toy.y).model_.preparation.raw["words"].kind == "tokens"
    assert len(model.predict(table)) == 80


def test_cross_validation_of_strings(toy, classifier, frame):
    scores = cross_val_score(classifier(columns=PLACES), frame(**places(toy)), toy.y, cv=2)
    assert scores.min() > 0.9


def test_booleans_whole_numbers_and_empty_cells(toy, classifier, frame):
    pitch = toy.table[:, 3].tolist()
    pitch[5] = None
    columns = {"flags": ["male", "children"], "pitch": "pitch"}
    table = frame(male=toy.y.astype(bool), children=np.arange(80) % 3).__class__(
        {"male": toy.y.astype(bool), "children": np.arange(80) % 3, "pitch": pitch}
    )
    model = classifier(columns=columns).fit(table, toy.y)
    assert model.score(table, toy.y) == 1.0
    present = np.ones((80, 2), dtype=bool)
    present[5, 1] = False
    np.testing.assert_array_equal(model.predict_proba(table), model.predict_proba(table, present))


def test_numbered_columns_of_pandas_are_positions(toy, classifier):
    table = pandas.DataFrame(toy.table)
    model = classifier(columns={"image": [0, 1, 2], "audio": [3, 4]}).fit(table, toy.y)
    assert not hasattr(model, "feature_names_in_")
    np.testing.assert_array_equal(model.predict_proba(table), classifier().fit(toy.X, toy.y).predict_proba(toy.X))


def test_modalities_may_be_columns_of_a_table(toy, classifier, frame):
    table = frame()
    X = {"image": table[HEADER[:3]], "audio": table[HEADER[3:]]}
    np.testing.assert_array_equal(
        classifier().fit(X, toy.y).predict_proba(X), classifier().fit(toy.X, toy.y).predict_proba(toy.X)
    )


def test_a_model_of_a_table_also_reads_its_modalities_by_name(toy, classifier, columns):
    model = classifier(columns=columns).fit(toy.table, toy.y)
    np.testing.assert_array_equal(model.predict_proba(toy.X), model.predict_proba(toy.table))
    np.testing.assert_array_equal(model.predict_proba(toy.samples()), model.predict_proba(toy.table))


def test_without_columns_a_table_is_one_modality(toy, classifier):
    model = classifier().fit(toy.table, toy.y)
    assert model.modalities_ == ("x",)
    assert model.score(toy.table.tolist(), toy.y) > 0.85
