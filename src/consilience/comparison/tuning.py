"""The same budget for every method: random search over learning rate and optimizer, judged on validation.

The protocol of Shankar, Thompson, Fiterau 2022 (D.3): learning rates on a logarithmic scale from 1e-5 to 5e-2, and
Adam, Adagrad, RMSProp or SGD in their default configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from consilience.training import Model

LOWEST, HIGHEST = 1e-5, 5e-2
OPTIMIZERS = ("adam", "adagrad", "rmsprop", "sgd")


def draw_trials(count: int, seed: int) -> list[dict[str, Any]]:
    """The settings to try, the same for every method that shares the seed.

    >>> draw_trials(2, seed=0) == draw_trials(3, seed=0)[:2]
    True
    """
    random = np.random.default_rng([seed, 20220930])
    return [
        {
            "lr": float(np.exp(random.uniform(np.log(LOWEST), np.log(HIGHEST)))),
            "optimizer": str(random.choice(OPTIMIZERS)),
        }
        for _ in range(count)
    ]


def tune(
    fit: Callable[[Mapping[str, Any]], Model], judge: Callable[[Model], float], count: int, seed: int
) -> tuple[Model, dict[str, Any]]:
    """Fit once per trial and keep the model with the lowest validation loss; also says what was tried."""
    tried: list[dict[str, Any]] = []
    best: Model | None = None
    lowest = np.inf
    for trial in draw_trials(count, seed):
        model = fit(trial)
        loss = judge(model)
        tried.append({**trial, "validation_loss": loss})
        if best is None or loss < lowest:
            best, lowest = model, loss
    assert best is not None
    return best, {"tried": tried, "chosen": min(tried, key=lambda one: one["validation_loss"])}
