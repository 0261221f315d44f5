"""Bad input: one clear sentence that names the thing, and the nearest name where there is one."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from consilience import FusionClassifier, FusionRegressor, Samples
from consilience.core.errors import ConsilienceError, InputError, UnknownNameError, UnsupportedError

N = 40
RNG = np.random.default_rng(0)
IMAGE, AUDIO = RNG.normal(size=(N, 3)), RNG.normal(size=(N, 2))
X = {"image": IMAGE, "audio": AUDIO}
TABLE = np.hstack([IMAGE, AUDIO])
Y = (IMAGE[:, 0] > 0).astype(int)
COLUMNS = {"image": slice(0, 3), "audio": slice(3, 5)}


def changed(values, row, value):
    values = values.copy()
    values[row] = value
    return values


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "conct"}, "unknown method 'conct': did you mean 'concat'"),
        ({"method": "unimodal:imgae"}, "'imgae': did you mean 'image'"),
        (
            {"method": "concat", "settings": {"widht": 8}},
            "unknown setting 'widht': did you mean 'width'.* for method 'concat'",
        ),
        ({"training": {"clipp": 1.0}}, "unknown training setting 'clipp': did you mean 'clip'"),
        ({"encoders": {"image": "mpl"}}, "unknown encoder 'mpl': did you mean 'mlp'.* modality 'image'"),
        ({"encoders": {"image": {"hiden": 8}}}, "unknown setting 'hiden': did you mean 'hidden'"),
        ({"encoders": {"imagee": "mlp"}}, "unknown modality 'imagee': did you mean 'image'"),
        ({"kinds": {"image": "vectr"}}, "unknown kind 'vectr': did you mean 'vector'"),
        ({"kinds": {"imagee": "vector"}}, "unknown modality 'imagee': did you mean 'image'"),
        ({"optimizer": "adm"}, "unknown optimizer 'adm': did you mean 'adam'"),
    ],
    ids=str,
)
def test_unknown_names_suggest_the_nearest(parameters, message):
    with pytest.raises(UnknownNameError, match=message):
        FusionClassifier(**parameters).fit(X, Y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": None}, "method must be the name of a registered method, got None"),
        ({"settings": "wide"}, "settings must be a mapping or None, got 'wide'"),
        ({"lr": 0.1, "training": {"lr": 1}}, "'lr' is given twice"),
        ({"training": {"seed": 1}}, "the seed is the parameter random_state; give random_state=1"),
        ({"method": "concat", "settings": {"width": -3}}, "method 'concat': width must be"),
        ({"lr": -1}, "lr must be a number > 0, .* or None, got -1"),
        ({"epochs": 0}, "epochs must be a whole number ≥ 1 or None, got 0"),
        ({"random_state": -1}, "random_state must be a whole number ≥ 0"),
        ({"validation": 1}, "validation must be a share ≥ 0 and < 1.*got 1"),
        ({"validation": "tenth"}, "validation must be a share.*got 'tenth'"),
        ({"validation": IMAGE}, "validation must be a share.*got ndarray"),
        ({"class_weight": "balancd"}, "class_weight must be 'balanced'"),
        ({"class_weight": {7: 1.0}}, "class_weight names 7, which is not a class"),
    ],
    ids=str,
)
def test_parameters_that_cannot_be(parameters, message):
    with pytest.raises(InputError, match=message):
        FusionClassifier(**{"epochs": 1} | parameters).fit(X, Y)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"image": IMAGE, "audio": AUDIO[:5]}, "image has 40, audio has 5"),
        ({"image": changed(IMAGE, (3, 1), np.nan), "audio": AUDIO}, "modality 'image' .* in part of row 3"),
        ({"image": changed(IMAGE, 3, np.inf), "audio": AUDIO}, "modality 'image' .* row 3"),
        ({"image": IMAGE, "audio": np.ones((N, 2))}, "modality 'audio' is constant"),
        ({"image": IMAGE, "audio": np.full((N, 2), np.nan)}, "modality 'audio' is missing in every training sample"),
        ({"image": IMAGE, "audio": None}, "modality 'audio' is None: leave"),
        ({}, "at least one modality"),
        ({3: IMAGE}, "modality names must be non-empty strings, got 3"),
    ],
    ids=["rows", "nan", "inf", "constant", "all missing", "None", "empty", "name"],
)
def test_modalities_that_cannot_be(given, message):
    with pytest.raises(InputError, match=message):
        FusionClassifier(epochs=1).fit(given, Y)


def test_nan_in_part_of_a_table_names_modality_and_row():
    table = changed(TABLE, (7, 4), np.nan)
    with pytest.raises(InputError, match=r"modality 'audio' .* in part of row 7"):
        FusionClassifier(columns=COLUMNS, epochs=1, fill="none").fit(table, Y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed, but the target y is None"),
        (Y[:5], "targets have 5 rows, the samples have 40"),
        (np.zeros(N, int), "at least two classes .* got one class: 0"),
        (np.eye(2, dtype=int)[Y], "multi-label targets are not supported"),
        ([[1]] + [[1, 2]] * (N - 1), "multi-label targets are not supported"),
        ([{1, 2}] * N, "several labels .* multi-label"),
        (IMAGE[:, 0], "continuous targets for a classifier"),
        (["a", None] * 20, "missing labels"),
        (np.where(Y, np.nan, 1.0), "Input y contains NaN"),
    ],
    ids=["None", "length", "one class", "multi-label", "ragged", "sets", "continuous", "missing", "nan"],
)
@pytest.mark.parametrize("columns", [None, COLUMNS], ids=["mapping", "table"])
def test_labels_that_cannot_be(y, message, columns):
    with pytest.raises(InputError, match=message):
        FusionClassifier(columns=columns, epochs=1).fit(TABLE if columns else X, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.where(Y, np.nan, 1.0), "Input y contains NaN"),
        (["a", "b"] * 20, "targets must be numbers"),
        (np.zeros((N, 2, 2)), r"shape \[n\] or \[n, target\]"),
    ],
    ids=["nan", "text", "three axes"],
)
def test_numbers_that_cannot_be(y, message):
    with pytest.raises(InputError, match=message):
        FusionRegressor(epochs=1).fit(X, y)


UNSEEN = np.where(Y, 7, 0)


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        ((X, UNSEEN), "validation: label 7 .* does not occur in the training targets; the classes are 0, 1"),
        (Samples.of(X, UNSEEN), "validation: label 7"),
        (Samples.of(X), "validation: .* y is None"),
        ((X, Y[:5]), "validation: targets have 5 rows, the samples have 40"),
        (({"imgae": IMAGE}, Y), "unknown modality 'imgae': did you mean 'image'"),
        (({"image": AUDIO, "audio": AUDIO}, Y), r"trained on image \(vector 3\), got image \(vector 2\)"),
    ],
    ids=["class in a pair", "class in samples", "no y", "length", "modality", "shape"],
)
def test_validation_sets_that_cannot_be(validation, message):
    with pytest.raises(InputError, match=message):
        FusionClassifier(validation=validation, epochs=1).fit(X, Y)


@pytest.mark.parametrize(
    ("given", "columns", "message"),
    [
        (X, COLUMNS, "columns= is for one 2-D array or DataFrame; a mapping has the modalities as its keys"),
        (Samples.of(X), COLUMNS, "columns= is for one 2-D array"),
        (TABLE, {"a": slice(9, None)}, "columns of modality 'a': .* selects no column"),
        (TABLE, {"a": [0, 1], "b": [1]}, "column 1 is in two modalities, 'a' and 'b'"),
        (TABLE, {"a": "mfcc_*"}, "are names .* but the table has none: give a DataFrame"),
    ],
    ids=["mapping", "samples", "nothing", "overlap", "names"],
)
def test_columns_that_cannot_be(given, columns, message):
    with pytest.raises(InputError, match=message):
        FusionClassifier(columns=columns, epochs=1).fit(given, Y)


def test_samples_already_know_their_kinds():
    with pytest.raises(InputError, match="Samples have kinds and lengths already"):
        FusionClassifier(kinds={"image": "vector"}).fit(Samples.of(X), Y)


@pytest.mark.parametrize(
    ("estimator", "given", "message"),
    [
        (
            FusionRegressor("late-probs"),
            X,
            "'late-probs' cannot be used here: it serves classification, not regression",
        ),
        (FusionClassifier("align"), {"image": IMAGE}, "'align' cannot be used here: it needs at least 2 modalities"),
    ],
    ids=["task", "modalities"],
)
def test_methods_that_do_not_serve(estimator, given, message):
    with pytest.raises(UnsupportedError, match=message):
        estimator.fit(given, Y)


@pytest.mark.parametrize(
    ("sample_weight", "present", "message"),
    [
        (-np.ones(N), None, "sample weights must be finite and ≥ 0"),
        (np.zeros(N), None, "all zero"),
        (np.ones(5), None, "sample weights have 5 rows"),
        (None, np.ones((N, 3)), r"present must have shape \[n, modality\] = \[40, 2\], got \[40, 3\]"),
        (None, {"imgae": np.ones(N)}, "unknown modality 'imgae': did you mean 'image'"),
        (None, np.full((N, 2), 0.5), "present must hold booleans"),
    ],
    ids=["negative", "zero", "rows", "shape", "name", "halves"],
)
def test_weights_and_masks_that_cannot_be(sample_weight, present, message):
    with pytest.raises(InputError, match=message):
        FusionClassifier(epochs=1).fit(X, Y, present, sample_weight)


@pytest.mark.parametrize("ask", ["predict", "predict_proba", "score", "save", "reference_"])
def test_nothing_before_fit(ask):
    model = FusionClassifier()
    with pytest.raises(NotFittedError):
        getattr(model, ask) if ask == "reference_" else getattr(model, ask)("model" if ask == "save" else X)


@pytest.fixture(scope="module")
def fitted():
    return FusionClassifier("concat", epochs=1, device="cpu", encoders=None).fit(X, Y)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"imgae": IMAGE}, "unknown modality 'imgae': did you mean 'image'"),
        ({"image": AUDIO}, r"trained on image \(vector 3\), got image \(vector 2\)"),
        ({"image": IMAGE[:, :, None]}, "modality 'image' of kind vector must be"),
        ({"image": IMAGE, "audio": AUDIO[:5]}, "image has 40, audio has 5"),
        ({"image": changed(IMAGE, (3, 1), np.nan)}, "modality 'image' .* row 3"),
        (TABLE, r"fitted on modalities by name \(image, audio\): give a mapping or Samples"),
        ({}, "at least one modality"),
    ],
    ids=["name", "shape", "kind", "rows", "nan", "table", "empty"],
)
def test_what_cannot_be_predicted(fitted, given, message):
    with pytest.raises(InputError, match=message):
        fitted.predict(given)


def test_a_table_of_another_width_is_refused():
    model = FusionClassifier("concat", columns=COLUMNS, epochs=1, encoders=None).fit(TABLE, Y)
    with pytest.raises(ValueError, match="X has 4 features, but FusionClassifier is expecting 5"):
        model.predict(TABLE[:, :4])


def test_scores_refuse_what_training_never_saw(fitted):
    with pytest.raises(InputError, match=r"label 7 .* does not occur in the training targets"):
        fitted.score(X, UNSEEN)
    with pytest.raises(InputError, match="y is None"):
        fitted.score(X)
    numbers = FusionRegressor(epochs=1).fit(X, IMAGE[:, 0])
    with pytest.raises(InputError, match="targets have 2 columns, the model was trained to predict 1"):
        numbers.score(X, IMAGE[:, :2])


def test_errors_are_value_errors_of_one_family():
    with pytest.raises(ConsilienceError) as raised:
        FusionClassifier("conct").fit(X, Y)
    assert isinstance(raised.value, ValueError)
    assert "\n" not in str(raised.value)
