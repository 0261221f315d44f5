"""`compiled()` gives the model's numbers, whatever is missing."""

import numpy as np
import pytest

import consilience as cs
from consilience.core.errors import InputError, UnsupportedError


@pytest.fixture(scope="module")
def digits():
    return cs.load_data("digits")


@pytest.mark.parametrize("method", ["concat", "bayes"])
def test_the_same_numbers(digits, method):
    model = cs.FusionClassifier(method, epochs=1, device="cpu", calibration=None).fit(digits.train[:80])
    quick = model.compiled()
    rows = {name: digits.test[name][:9].astype(np.float32) for name in digits.test.names}
    holes = {name: values.copy() for name, values in rows.items()}
    for place, values in enumerate(holes.values()):
        values[place] = np.nan
    for given in (rows, holes, {name: holes[name] for name in list(holes)[1:]}, {n: v[:1] for n, v in rows.items()}):
        assert (quick.predict_proba(given) == model.predict_proba(given)).all()
        assert (quick.predict(given) == model.predict(given)).all()
        if method == "bayes":
            assert (quick.trust(given) == model.trust(given)).all()


def test_what_it_does_not_serve(digits):
    texts = cs.load_data("captions", n=60)
    model = cs.FusionClassifier("late", epochs=1, device="cpu", calibration=None).fit(texts.train)
    with pytest.raises(UnsupportedError, match="is no vector or image of numbers"):
        model.compiled()
    joined = cs.FusionClassifier("concat", epochs=1, device="cpu", calibration=None).fit(digits.train[:60])
    with pytest.raises(UnsupportedError, match="no trust"):
        joined.compiled().trust({digits.test.names[0]: digits.test[digits.test.names[0]][:1]})


def model_and_rows(digits, value, precision="32"):
    """A model, and five rows with one missing modality and one unusual cell; the name of the modality that has it."""
    settings = {"epochs": 1, "device": "cpu", "calibration": None, "precision": precision}
    model = cs.FusionClassifier("concat", **settings).fit(digits.train[:80])
    rows = {one: digits.test[one][:5].astype(np.float64) for one in digits.test.names}
    first, name = digits.test.names[:2]
    rows[first][3] = np.nan
    rows[name][2, 1] = value
    return model, rows, name


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e300, -1e45])
def test_a_cell_that_the_model_refuses_is_refused_with_the_same_error(digits, value):
    model, rows, name = model_and_rows(digits, value)
    with pytest.raises(InputError, match=name) as of_model:
        model.predict_proba(rows)
    with pytest.raises(InputError) as refused:
        model.compiled().predict_proba(rows)
    assert str(refused.value) == str(of_model.value)


@pytest.mark.parametrize(("value", "precision"), [(1e12, "32"), (-1e25, "32"), (1e45, "64"), (1e300, "64")])
def test_a_cell_that_the_model_clips_is_clipped(digits, value, precision):
    model, rows, _ = model_and_rows(digits, value, precision)
    np.testing.assert_array_equal(model.compiled().predict_proba(rows), model.predict_proba(rows))


def test_a_row_that_is_all_infinite_is_no_missing_one(digits):
    model = cs.FusionClassifier("concat", epochs=1, device="cpu", calibration=None).fit(digits.train[:80])
    rows = {one: digits.test[one][:3].astype(np.float32) for one in digits.test.names}
    rows[digits.test.names[0]][1] = np.inf
    with pytest.raises(InputError, match=r"NaN or infinity in part of row 1\."):
        model.compiled().predict_proba(rows)


@pytest.fixture(scope="module")
def readings():
    """Two vectors of numbers, and what `late` and `tmc` learn from them."""
    rng = np.random.default_rng(0)
    X = {"current": rng.normal(size=(60, 16)), "vibration": rng.normal(size=(60, 4))}
    settings = {"epochs": 1, "device": "cpu", "calibration": None}
    models = [cs.FusionClassifier(method, **settings).fit(X, np.arange(60) % 2) for method in ("late", "tmc")]
    return {name: values[:2] for name, values in X.items()}, [model.compiled() for model in models]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"vibratoin": np.ones((2, 4))}, "unknown modality 'vibratoin': did you mean 'vibration'"),
        ({"current": np.ones((2, 1))}, r"compiled: modality 'current' needs the shape \[n, 16\], got \[2, 1\]"),
        ({"current": np.ones(16)}, r"needs the shape \[n, 16\], got \[16\]"),
        ({"current": np.float64(1)}, r"needs the shape \[n, 16\], got \[\]"),
        ({"current": np.ones((1, 16))}, "different numbers of rows: 'current' 1, 'vibration' 2"),
        ({"current": np.full((2, 16), "a")}, "'current' must hold numbers of at most 64 bits, got <U1"),
        ({"current": np.ones((2, 16), dtype=complex)}, "must hold numbers of at most 64 bits, got complex128"),
        ({"current": [[1.0] * 16, [1.0]]}, "compiled: modality 'current': .*ValueError"),
        ({"current": None, "vibration": None}, "no modality is given: give at least one of current, vibration"),
        ({"current": np.ones((0, 16)), "vibration": np.ones((0, 4))}, "there are no samples"),
    ],
)
def test_what_does_not_fit_the_model_is_refused_in_one_line(readings, change, says):
    rows, models = readings
    for model in models:
        for ask in (model.predict, model.predict_proba, model.trust):
            with pytest.raises(InputError, match=says) as refused:
                ask({**rows, **change})
            assert "\n" not in str(refused.value)


def test_only_a_mapping_that_has_a_modality_is_read(readings):
    rows, [model, _] = readings
    with pytest.raises(InputError, match="no modality is given"):
        model.predict_proba({})
    for given in (cs.Samples.of(rows), rows["current"], [rows]):
        with pytest.raises(InputError, match=f"give a mapping modality → array .* got a {type(given).__name__}"):
            model.predict_proba(given)


def test_lists_whole_numbers_and_none_are_read(readings):
    model = readings[1][0]
    whole = np.arange(8).reshape(2, 4)
    alone = model.predict_proba({"vibration": whole.astype(float)})
    assert (model.predict_proba({"vibration": whole.tolist(), "current": None}) == alone).all()
    assert (model.predict_proba({"vibration": whole.astype(np.uint8)}) == alone).all()
