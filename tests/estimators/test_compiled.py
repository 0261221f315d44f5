"""`compiled()` gives the model's numbers, whatever is missing."""

import numpy as np
import pytest

import consilience as cs
from consilience.core.errors import UnsupportedError


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
