"""pandas and polars DataFrames: columns by name or glob, text, missing cells, and the names at predict."""

import numpy as np
import pandas
import polars
import pytest

from consilience.core.errors import InputError

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


def test_names_are_checked_at_predict(toy, classifier, frame):
    model = classifier(columns=NAMES, epochs=1).fit(frame(), toy.y)
    with pytest.raises(ValueError, match="same order"):
        model.predict(frame()[HEADER[::-1]])
    with pytest.raises(ValueError, match="unseen at fit time"):
        model.predict(frame(extra=toy.number))
    with pytest.warns(UserWarning, match="valid feature names"):
        np.testing.assert_array_equal(model.predict(toy.table), model.predict(frame()))


def test_a_failed_sensor_may_lack_its_columns(toy, classifier, frame):
    model = classifier(columns=NAMES, epochs=1).fit(frame(patient=["p"] * 80), toy.y)
    with pytest.warns(UserWarning, match="no columns of 'image': missing for every sample"):
        alone = model.predict_proba(frame()[["pitch", "loudness"]])
    np.testing.assert_array_equal(alone, model.predict_proba({"audio": toy.X["audio"]}))
    np.testing.assert_array_equal(model.predict(frame()), model.predict(toy.X))  # without a column out of use
    for part in (HEADER[1:], ["patient"]):
        with pytest.raises(ValueError, match="now missing"):
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


def test_text_among_numbers_is_refused_by_column(toy, classifier, frame):
    with pytest.raises(InputError, match="modality 'a': column 'city' does not hold numbers"):
        classifier(columns={"a": ["pitch", "city"]}).fit(frame(city=["Bonn", "Köln"] * 40), toy.y)


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
