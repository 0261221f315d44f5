"""Linear experts on the modalities of a set, and what becomes of their opinions under every condition."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.comparison.experiments.bayes.deciding import (
    Case,
    Decided,
    Posteriors,
    decide_all,
    decide_elsewhere,
    decide_with_gaps,
)
from consilience.comparison.experiments.bayes.splits import (
    RATIO,
    draw_evenly,
    draw_shares,
    graded_shares,
    thin_out,
    weigh_by_class,
)
from consilience.core.samples import Samples

CONCAT, DROPOUT = "concat regression", "concat with dropout"
FOLDS = 5
COPIES = 5  # of the training samples, each with other modalities dropped
MISSING = 0.5
_TINY = np.finfo(np.float64).tiny  # what a probability that became 0 is taken for


def with_all_present(samples: Samples, n: int, seed: int) -> Decided:
    """n samples to learn from, the others to be decided."""
    y = np.asarray(samples.y)
    train, test = draw_evenly(y, n, seed)
    return Decided(decide_every_way(samples, train, test, seed), test, y[test])


def with_uneven_classes(samples: Samples, n: int, seed: int, *, rising: bool = False) -> Decided:
    """The first class many times as frequent as the last, in learning and in use; rising: the other way round."""
    y = np.asarray(samples.y)
    shares = graded_shares(y.max() + 1, RATIO)
    shares = shares[::-1] if rising else shares
    train, test = draw_shares(y, shares, n, seed)
    return Decided(decide_every_way(samples, train, test, seed), test, y[test], weigh_by_class(y[test], shares))


def with_shares_reversed(samples: Samples, n: int, seed: int) -> Decided:
    """Learned with the first class the most frequent, used where it is the rarest."""
    y = np.asarray(samples.y)
    shares = graded_shares(y.max() + 1, RATIO)
    train, others = draw_shares(y, shares, n, seed)
    test = thin_out(y, others, shares[::-1])
    true = np.bincount(y[test], minlength=len(shares)) / len(test)
    ways, off = decide_elsewhere(hear(samples, train, test, seed), true)
    return Decided(ways, test, y[test], off=off)


def with_modalities_missing(samples: Samples, n: int, seed: int) -> Decided:
    """Learned from whole samples; of those to be decided each modality is gone with probability ½."""
    y, rng = np.asarray(samples.y), np.random.default_rng(seed)
    train, test = draw_evenly(y, n, seed)
    present = rng.random((len(test), len(samples.names))) >= MISSING
    ways = decide_with_gaps(hear(samples, train, test, seed, present=present))
    ways[DROPOUT] = concat_with_dropout(samples, train, test, present, rng)
    return Decided(ways, test, y[test])


def decide_every_way(
    samples: Samples, train: np.ndarray, test: np.ndarray, seed: int, groups: np.ndarray | None = None
) -> Posteriors:
    """All that can be done with the experts' opinions, and one regression on all their features."""
    x, y = np.concatenate([samples[name] for name in samples.names], axis=1), np.asarray(samples.y)
    ways = decide_all(hear(samples, train, test, seed, groups=groups))
    return {**ways, CONCAT: _log(make_expert().fit(x[train], y[train]).predict_proba(x[test]))}


def hear(
    samples: Samples,
    train: np.ndarray,
    test: np.ndarray,
    seed: int,
    *,
    present: np.ndarray | None = None,
    groups: np.ndarray | None = None,
) -> Case:
    """One expert a modality: opinions on the training rows out-of-fold, on the test rows by experts trained on all.

    present: `[test row, modality]` · groups: of each sample `[n]`; what belongs together comes into one fold.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_predict

    y = np.asarray(samples.y)[train]
    divide: Any = StratifiedKFold if groups is None else StratifiedGroupKFold
    together = None if groups is None else groups[train]
    folds = list(divide(FOLDS, shuffle=True, random_state=seed).split(train, y, together))
    held_out, said = [], []
    for name in samples.names:
        x = samples[name]
        held_out.append(cross_val_predict(make_expert(), x[train], y, cv=folds, method="predict_proba"))
        said.append(make_expert().fit(x[train], y).predict_proba(x[test]))
    return Case(_log(np.stack(held_out, axis=1)), y, _log(np.stack(said, axis=1)), present)


def make_expert() -> Any:
    """Logistic regression on standardised features, at scikit-learn's defaults."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=3000))


def concat_with_dropout(
    samples: Samples, train: np.ndarray, test: np.ndarray, present: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """A regression on all features, learned from copies of the training samples that lack modalities too.

    What is absent has the mean of the training samples.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaled = [StandardScaler().fit(samples[name][train]).transform(samples[name]) for name in samples.names]

    def seen(rows: np.ndarray, there: np.ndarray) -> np.ndarray:
        return np.concatenate([x[rows] * there[:, [place]] for place, x in enumerate(scaled)], axis=1)

    copies = [seen(train, rng.random((len(train), len(scaled))) >= MISSING) for _ in range(COPIES)]
    labels = np.tile(np.asarray(samples.y)[train], COPIES)
    fitted = LogisticRegression(max_iter=3000).fit(np.concatenate(copies), labels)
    return _log(fitted.predict_proba(seen(test, present)))


def _log(probabilities: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(probabilities, _TINY))
