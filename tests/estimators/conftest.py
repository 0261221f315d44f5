"""A small set that two modalities explain together, and estimators quick enough to fit in every test."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from consilience import FusionClassifier, FusionRegressor, Samples


class Toy(NamedTuple):
    """image `[n, 3]` and audio `[n, 2]`; the class is the sign of their sum, the number the sum itself."""

    X: dict[str, np.ndarray]
    y: np.ndarray
    number: np.ndarray

    @property
    def table(self) -> np.ndarray:
        return np.hstack(list(self.X.values()))

    def samples(self, y: np.ndarray | None = None) -> Samples:
        return Samples.of(self.X, self.y if y is None else y)


COLUMNS = {"image": slice(0, 3), "audio": slice(3, 5)}
QUICK = {"epochs": 15, "lr": 0.01, "batch_size": 32, "device": "cpu"}


@pytest.fixture(scope="session")
def toy() -> Toy:
    rng = np.random.default_rng(0)
    X = {"image": rng.normal(size=(80, 3)), "audio": rng.normal(size=(80, 2))}
    number = X["image"][:, 0] + X["audio"][:, 1]
    return Toy(X, (number > 0).astype(int), number)


@pytest.fixture
def classifier() -> Callable[..., FusionClassifier]:
    return lambda method="concat", **given: FusionClassifier(method, **(QUICK | given))


@pytest.fixture
def regressor() -> Callable[..., FusionRegressor]:
    return lambda method="concat", **given: FusionRegressor(method, **(QUICK | given))


@pytest.fixture
def columns() -> dict[str, slice]:
    return dict(COLUMNS)
