"""The contenders of `bench_defaults.py`: methods of this library by name, and rivals from scikit-learn.

A rival gets all modalities side by side, standardised by the training rows. A missing modality is the training mean,
0 after standardisation; a corrupted one is used as it is.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, StackingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from consilience import FusionClassifier, methods
from consilience.core.errors import UnknownNameError
from consilience.core.samples import Samples

OURS = ("auto", "bayes-robust", "bayes", "late", "concat")
# A prefix of a method's name → arguments of the estimator that the method gets instead of its defaults.
VARIANTS: dict[str, dict[str, Any]] = {
    # The defaults before steps were counted and encoders chosen.
    "yesterday": {"epochs": 100, "batch_size": 64, "lr": 1e-3, "patience": 15, "encoders": None},
}
PENALTIES = np.logspace(-4, 2, 7)  # C of a logistic regression
TREES = 500
SVC_C = (1, 10, 100)
SVC_GAMMA = (0.01, 0.1, 0.3, 1)  # times 1 / number of features
MOST_FOLDS = 5
SVC_FOLDS = 3
MOST_STEPS = 1000  # of the optimiser of a logistic regression
BOOSTING_LIMIT = 300  # seconds of one core that boosting may take, by `boosting_seconds`

Predict = Callable[[Samples], np.ndarray]


class LeftOut(Exception):
    """The contender does not take part."""


def folds(y: np.ndarray, most: int, seed: int) -> StratifiedKFold:
    """Folds that all have every class, so that a log-loss can be computed on each."""
    fewest = np.unique(y, return_counts=True)[1].min()
    return StratifiedKFold(min(most, int(fewest)), shuffle=True, random_state=seed)


def logistic(X: np.ndarray, y: np.ndarray, seed: int) -> LogisticRegressionCV:
    """Tuned by the log-loss of inner folds."""
    search = LogisticRegressionCV(
        Cs=PENALTIES, cv=folds(y, MOST_FOLDS, seed), scoring="neg_log_loss", max_iter=MOST_STEPS
    )
    return search.fit(X, y)


def fit_logistic(X: np.ndarray, y: np.ndarray, columns: Mapping[str, slice], seed: int) -> Any:
    return logistic(X, y, seed)


def fit_extra_trees(X: np.ndarray, y: np.ndarray, columns: Mapping[str, slice], seed: int) -> Any:
    return ExtraTreesClassifier(TREES, random_state=seed).fit(X, y)


def fit_boosting(X: np.ndarray, y: np.ndarray, columns: Mapping[str, slice], seed: int) -> Any:
    return HistGradientBoostingClassifier(random_state=seed).fit(X, y)


def boosting_seconds(rows: int, features: int, classes: int) -> float:
    """About how long boosting takes on one core: a pass over rows and histograms for each node of each tree."""
    trees = 100 * (classes if classes > 2 else 1)
    nodes = min(31, rows / 20)
    return trees * nodes * features * (256 + rows / 4) * 1e-9


def fit_svc(X: np.ndarray, y: np.ndarray, columns: Mapping[str, slice], seed: int) -> Any:
    """Tuned by the accuracy of inner folds, then calibrated by folds.

    One machine is trained on all rows, and only its calibration on out-of-fold values: with 100 rows that is far better
    than a machine for each fold.
    """
    grid = {"C": SVC_C, "gamma": [gamma / X.shape[1] for gamma in SVC_GAMMA]}
    search = GridSearchCV(SVC(), grid, cv=folds(y, SVC_FOLDS, seed), refit=False).fit(X, y)
    best = SVC(**search.best_params_)
    return CalibratedClassifierCV(best, cv=folds(y, MOST_FOLDS, seed), ensemble=False).fit(X, y)


def _experts(X: np.ndarray, y: np.ndarray, columns: Mapping[str, slice], seed: int) -> list[tuple[str, Any]]:
    """A logistic regression of each modality, not fitted, with its tuned C."""
    experts = []
    for name, own in columns.items():
        C = float(np.ravel(logistic(X[:, own], y, seed).C_)[0])
        chosen = ColumnTransformer([(name, "passthrough", own)])
        experts.append((name, make_pipeline(chosen, LogisticRegression(C=C, max_iter=MOST_STEPS))))
    return experts


def fit_voting(X: np.ndarray, y: np.ndarray, columns: Mapping[str, slice], seed: int) -> Any:
    """The mean of the modalities' probabilities."""
    return VotingClassifier(_experts(X, y, columns, seed), voting="soft").fit(X, y)


def fit_stacking(X: np.ndarray, y: np.ndarray, columns: Mapping[str, slice], seed: int) -> Any:
    """A tuned logistic regression on the modalities' out-of-fold probabilities."""
    final = LogisticRegressionCV(
        Cs=PENALTIES, cv=folds(y, MOST_FOLDS, seed), scoring="neg_log_loss", max_iter=MOST_STEPS
    )
    cv = folds(y, MOST_FOLDS, seed)
    return StackingClassifier(_experts(X, y, columns, seed), final, cv=cv, stack_method="predict_proba").fit(X, y)


RIVALS: dict[str, Callable[[np.ndarray, np.ndarray, Mapping[str, slice], int], Any]] = {
    "logistic": fit_logistic,
    "extra-trees": fit_extra_trees,
    "boosting": fit_boosting,
    "svc": fit_svc,
    "voting": fit_voting,
    "stacking": fit_stacking,
}


def check(contender: str, modalities: tuple[str, ...], rows: int, features: int, classes: int) -> None:
    """Raise `LeftOut`, with the reason, if a contender cannot take part or would take too long."""
    if contender == "boosting" and (seconds := boosting_seconds(rows, features, classes)) > BOOSTING_LIMIT:
        raise LeftOut(
            f"boosting would take some {seconds:.0f} s with {rows} rows, {features} features, {classes} classes"
        )
    if contender not in RIVALS:
        try:
            methods.find(split_name(contender)[1], modalities)
        except UnknownNameError:
            raise LeftOut(f"{contender} is not registered") from None


def split_name(contender: str) -> tuple[dict[str, Any], str]:
    """Arguments of the estimator and the name of the method."""
    prefix, _, name = contender.partition(":")
    return (VARIANTS[prefix], name) if prefix in VARIANTS else ({}, contender)


def fit(contender: str, train: Samples, seed: int) -> Predict:
    """Train a contender; return a function from samples to probabilities `[n, class]`, classes in sorted order."""
    if contender in RIVALS:
        return _fit_rival(contender, train, seed)
    arguments, name = split_name(contender)
    model = FusionClassifier(name, random_state=seed, device="cpu", **arguments).fit(train)
    return lambda samples: np.asarray(model.predict_proba(samples))


def _fit_rival(name: str, train: Samples, seed: int) -> Predict:
    ends = np.cumsum([train.modalities[name].shape[0] for name in train.names]).tolist()
    columns = {name: slice(start, end) for name, start, end in zip(train.names, [0, *ends], ends)}
    table = side_by_side(train)
    scaler = StandardScaler().fit(table)

    def standardised(samples: Samples) -> np.ndarray:
        return np.nan_to_num(scaler.transform(side_by_side(samples)), nan=0.0)

    model = RIVALS[name](standardised(train), train.y, columns, seed)
    return lambda samples: model.predict_proba(standardised(samples))


def side_by_side(samples: Samples) -> np.ndarray:
    """All features `[n, feature]`, nan where a modality is missing."""
    tables = []
    for column, name in enumerate(samples.names):
        values = np.array(samples[name], dtype=np.float64)
        values[~samples.present[:, column]] = np.nan
        tables.append(values)
    return np.concatenate(tables, axis=1)
