"""scikit-learn's own checks: all of them with `concat`, on one table as one modality and as two; some with `auto`.

Two of the checks compare to seven digits: a fit with weights against one with repeated rows, and rows predicted alone
against rows predicted together. They ask for all samples in one batch, no dropout, nothing held out, and 64 bits.

The columns alternate, so that a NaN in a single cell never makes a modality of NaN: that would be a missing modality,
which is allowed, where the checks expect an error. They expect one of `fill="none"` alone.
"""

import pytest
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from consilience import FusionClassifier, FusionRegressor

EXACT = {"precision": "64", "batch_size": 512, "validation": None, "settings": {"width": 16, "dropout": 0.0}}
QUICK = {"epochs": 30, "lr": 0.02, "device": "cpu"}
PLAIN = {"hidden": [16], "dropout": 0.0}
ALTERNATING = {"even": slice(0, None, 2), "odd": slice(1, None, 2)}


def build(estimator, columns):
    fill = "none" if columns else "indicator"
    return estimator(
        "concat", columns=columns, fill=fill, encoders=dict.fromkeys(columns or ["x"], PLAIN), **EXACT, **QUICK
    )


ESTIMATORS = [
    build(estimator, columns) for estimator in (FusionClassifier, FusionRegressor) for columns in (None, ALTERNATING)
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", [FusionClassifier, FusionRegressor])
@pytest.mark.parametrize(
    "name",
    [
        "check_estimators_overwrite_params",
        "check_estimators_nan_inf",
        "check_estimators_pickle",
        "check_sample_weights_not_overwritten",
        "check_fit_idempotent",
        "check_n_features_in",
    ],
)
def test_scikit_learn_with_the_default_method(name, kind):
    estimator = kind(columns=ALTERNATING, epochs=2, device="cpu", fill="none")
    assert estimator.method == "auto"
    getattr(estimator_checks, name)(kind.__name__, estimator)
