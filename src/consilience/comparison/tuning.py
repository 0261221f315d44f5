"""Tuning: random draws of learning rate and optimizer, of which the one with the lowest validation loss is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import TrainingError

if TYPE_CHECKING:
    from consilience.training import Model

# Tuning draws from the protocol of Shankar, Thompson and Fiterau 2022 (D.3), with the same budget for every method:
# learning rates on a logarithmic scale, and optimizers in their default configuration.
LOWEST, HIGHEST = 1e-5, 5e-2
OPTIMIZERS = ("adam", "adagrad", "rmsprop", "sgd")


def draw_trials(count: int, seed: int) -> list[dict[str, Any]]:
    """Return the settings to try, the same for every method with this seed.

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
    """Fit once per trial and keep the model with the lowest validation loss; also returns what was tried.

    A trial that diverges is discarded; if all do, the last error is raised.
    """
    tried: list[dict[str, Any]] = []
    best: Model | None = None
    chosen: dict[str, Any] = {}
    failure: TrainingError | None = None
    for trial in draw_trials(count, seed):
        try:
            model = fit(trial)
        except TrainingError as error:
            failure = error
            tried.append({**trial, "validation_loss": None})
            continue
        tried.append({**trial, "validation_loss": judge(model)})
        if best is None or tried[-1]["validation_loss"] < chosen["validation_loss"]:
            best, chosen = model, tried[-1]
    if best is None:
        assert failure is not None
        raise failure
    return best, {"tried": tried, "chosen": chosen}


def validation_loss(model: Model) -> float:
    """Return the lowest validation loss of a model's training."""
    losses = [row["validation_loss"] for log in model.logs for row in log.rows if "validation_loss" in row]
    if not losses:
        raise TrainingError("tuning needs a validation loss, and this method's training reports none")
    return min(losses)
