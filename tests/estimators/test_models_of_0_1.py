"""Models saved by 0.1.0 load and answer as they did then."""

import json

import numpy as np
import pytest

import consilience as cs
from documents import ROOT

FOLDER = ROOT / "tests" / "fixtures" / "models_0_1"
OUTPUTS = json.loads((FOLDER / "outputs.json").read_text(encoding="utf-8"))
INPUTS = np.load(FOLDER / "inputs.npz")
ROWS = {"left": INPUTS["left"], "right": INPUTS["right"]}  # one row of each modality is missing


@pytest.mark.parametrize("name", ["concat", "qmf", "bayes-robust", "pro-concat", "tmc"])
def test_classifiers(name):
    model, expected = cs.load(FOLDER / name), OUTPUTS[name]
    np.testing.assert_allclose(model.predict_proba(ROWS), expected["proba"], rtol=1e-5, atol=1e-6)
    assert model.predict(ROWS).tolist() == expected["labels"]
    assert hasattr(model, "trust") == ("trust" in expected)
    if "trust" in expected:
        trust = model.trust(ROWS)
        shares = {key: value.tolist() for key, value in trust.items()} if isinstance(trust, dict) else trust
        for found, told in zip(_columns(shares), _columns(expected["trust"]), strict=True):
            np.testing.assert_allclose(found, told, rtol=1e-4, atol=1e-6)


def test_regressor():
    predicted = cs.load(FOLDER / "regressor-late").predict(ROWS)
    np.testing.assert_allclose(predicted, OUTPUTS["regressor-late"]["predict"], rtol=1e-5, atol=1e-6)


def test_fusion_of_opinions():
    probabilities = cs.load(FOLDER / "bayes-fusion").predict_proba({"a": INPUTS["a"], "b": INPUTS["b"]})
    np.testing.assert_allclose(probabilities, OUTPUTS["bayes-fusion"]["proba"], rtol=1e-6, atol=1e-9)


def test_latent_model():
    model = cs.load(FOLDER / "latent-m2vae")
    encoded = model.encode({"left": INPUTS["clean_left"], "right": INPUTS["clean_right"]})
    found = np.asarray(encoded[0] if isinstance(encoded, tuple) else encoded)
    np.testing.assert_allclose(found, OUTPUTS["latent-m2vae"]["encode"], rtol=1e-4, atol=1e-5)
    generated = model.generate(["right"], given={"left": INPUTS["clean_left"]})["right"]
    np.testing.assert_allclose(generated, OUTPUTS["latent-m2vae"]["generate"], rtol=1e-4, atol=1e-5)


def _columns(trust):
    return list(trust.values()) if isinstance(trust, dict) else [trust]
