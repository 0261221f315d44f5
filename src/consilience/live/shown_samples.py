"""The samples that a scene of the live page shows: the noise of each, and which of them comes first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from consilience.core.samples import Samples

LEADER = "bayes-robust"
LOUDEST = 10  # the largest level of noise that a visitor can give, standard deviations


def shown_samples(
    samples: Samples, std: Mapping[str, np.ndarray], models: Mapping[str, Any], seed: int = 0
) -> dict[str, Any]:
    """Return the samples as JSON values, a typical one first and the others as they come.

    Args:
        samples: With labels.
        std: Modality → the standard deviations by which its noise is scaled.
        models: Method → fitted model; `bayes-robust` is one of them.
        seed: Of the noise.

    Returns:
        The samples with the noise of each, how many of them are typical, and the largest level of noise.
    """
    rng = np.random.default_rng([seed, 1])
    # As the page has them, so that what is found typical here is what a visitor sees.
    X = {name: _rounded(samples[name]) for name in samples.names}
    noise = {name: _rounded(rng.normal(size=x.shape)) for name, x in X.items()}
    broken = [
        Samples.of(X | {name: X[name] + LOUDEST * _rounded(std[name]) * noise[name]}, samples.y)
        for name in samples.names
    ]
    found = typical(Samples.of(X, samples.y), broken, models)
    order = np.argsort(np.arange(len(samples)) != np.argmax(found), kind="stable") if found.any() else range(len(found))
    labels = [str(label) for label in models[LEADER].classes_.tolist()]
    assert samples.y is not None
    return {
        "loudest": LOUDEST,
        "typical": int(found.sum()),
        "samples": [
            {
                "y": labels.index(str(samples.y[row])),
                "x": {name: x[row].ravel().tolist() for name, x in X.items()},
                "noise": {name: drawn[row].ravel().tolist() for name, drawn in noise.items()},
            }
            for row in order
        ],
    }


def typical(samples: Samples, broken: list[Samples], models: Mapping[str, Any]) -> np.ndarray:
    """Which samples show what the page is about.

    Every method is right about them, `bayes-robust` is so whichever one modality is broken, and with the first one
    broken its ρ alone is below ½. The page says so in "What the numbers mean".

    Args:
        samples: As they are.
        broken: The same ones with one modality broken, for each modality.
        models: Method → fitted model; `bayes-robust` is one of them.

    Returns:
        A mask `[n]`.
    """
    leader = models[LEADER]
    right = [model.predict(samples) == samples.y for model in models.values()]
    right += [leader.predict(each) == samples.y for each in broken]
    sound = np.asarray(leader.full_prediction(broken[0]).extra["reliability"]) >= 0.5
    seen = ~sound[:, 0] & sound[:, 1:].all(axis=1)
    return np.all([*right, seen], axis=0)


def _rounded(values: np.ndarray) -> np.ndarray:
    return np.round(np.asarray(values, dtype=np.float64), 4)
