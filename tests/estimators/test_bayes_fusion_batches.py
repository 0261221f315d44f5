"""BayesFusion: the posterior of a sample does not depend on the others that it is predicted with."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from consilience import BayesFusion

CERTAIN = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]])


def opinions(kind, n=90):
    """Opinions of two experts on three classes that repeat one another, `[n, 2, 3]`, labels and what is present."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    shown = np.where(rng.random((n, 2)) < 0.3, rng.integers(0, 3, (n, 2)), y[:, None])
    given = CERTAIN[shown] if kind == "probabilities" else 4.0 * np.eye(3)[shown]
    if kind == "loud":
        given = given * np.resize([1.0, 1e3, 1e8], n)[:, None, None]
    elif kind == "float32":
        given = given.astype(np.float32)
    return given, y, rng.random((n, 2)) < 0.9


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["probabilities", "logits", "loud", "float32"])
@pytest.mark.parametrize("kappa", ["gaussian", "copula", "none"])
@pytest.mark.parametrize("reliability", [None, "auto", "graded"])
def test_given_opinions(kind, kappa, reliability):
    given, y, present = opinions(kind)
    settings = {"calibration": "robust", "reliability": reliability, "from_probabilities": kind == "probabilities"}
    model = BayesFusion(kappa=kappa, **settings).fit(given, y, present)
    assert_independent(model, lambda rows: (given[rows], present[rows]), len(y))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "expert", [LinearDiscriminantAnalysis(), LogisticRegression(), DecisionTreeClassifier(random_state=0)]
)
def test_experts(expert):
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    few = np.array([[0.0, 1.0, 7.0], [1.0, 0.0, 7.0], [5.0, -3.0, 7.0]])
    X = {"few": few[np.where(rng.random(90) < 0.2, 0, y)], "many": rng.normal(size=(90, 4)) + y[:, None]}
    model = BayesFusion(experts=expert, reliability="auto").fit(X, y)
    assert_independent(model, lambda rows: ({name: values[rows] for name, values in X.items()},), 90)


def assert_independent(model, part, n):
    order = np.random.default_rng(1).permutation(n)
    for predict in (model.predict_proba, model.trust):
        whole = predict(*part(np.arange(n)))
        for rows in ([order], np.array_split(order, [1, 3, 20]), np.arange(n)[:, None]):
            found = np.concatenate([predict(*part(some)) for some in rows])
            assert np.isfinite(found).all()
            assert found[np.argsort(np.concatenate(rows))] == pytest.approx(whole, abs=1e-5)
