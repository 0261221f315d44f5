"""Small data of one's own, a finished comparison, and the command line called in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest

from consilience.cli import main

COLUMNS = ("--target", "fault", "--modality", "vibration=vibration_*", "--modality", "heat=heat_*,shop")
QUICK = ("--levels", "5", "--seeds", "2", "--epochs", "2")


class Done(NamedTuple):
    """What a command left: its exit code, and what it wrote."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _the_logger_is_left_as_it_was() -> Iterator[None]:
    logger = logging.getLogger("consilience")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture
def run(capsys) -> Callable[..., Done]:
    """The command line with these words."""

    def call(*words: object) -> Done:
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as left:  # --help and --version
            code = int(left.code or 0)
        return Done(code, *capsys.readouterr())

    return call


def machines(n: int = 240, seed: int = 0) -> pl.DataFrame:
    """Machines with two sensors, one of which fails now and then, and a category."""
    rng = np.random.default_rng(seed)
    fault = rng.choice(["none", "bearing", "leak"], size=n)
    vibration = rng.normal(size=(n, 3)) + 2.0 * (fault == "bearing")[:, None]
    heat = rng.normal(size=(n, 2)) + 2.0 * (fault == "leak")[:, None]
    vibration[rng.random(n) < 0.2] = np.nan
    columns = {f"vibration_{place}": column for place, column in enumerate(vibration.T)}
    columns |= {f"heat_{place}": column for place, column in enumerate(heat.T)}
    shop = rng.choice(["north", "south"], size=n)
    return pl.DataFrame({**columns, "shop": shop, "fault": fault}).fill_nan(None)


@pytest.fixture(scope="session")
def table(tmp_path_factory) -> Path:
    """A CSV of one's own."""
    path = tmp_path_factory.mktemp("own") / "machines.csv"
    machines().write_csv(path)
    return path


@pytest.fixture(scope="session")
def arrays(tmp_path_factory) -> Path:
    """An npz of one's own."""
    frame = machines().fill_null(np.nan)
    path = tmp_path_factory.mktemp("own") / "rig.npz"
    vibration = frame.select("^vibration_.*$").to_numpy()
    np.savez(
        path, vibration=vibration, heat=frame.select("^heat_.*$").to_numpy(), y=frame["fault"].to_numpy().astype(str)
    )
    return path


@pytest.fixture(scope="session")
def finished(table, tmp_path_factory) -> Path:
    """The run folder of a small comparison."""
    out = tmp_path_factory.mktemp("runs") / "machines"
    words = ["compare", str(table), *COLUMNS, "--methods", "late", "concat", *QUICK, "--out", str(out)]
    assert main(words) == 0
    return out


@pytest.fixture(scope="session")
def model(table, tmp_path_factory) -> Path:
    """A model trained by the command line."""
    out = tmp_path_factory.mktemp("models") / "late"
    assert main(["train", str(table), *COLUMNS, "--method", "late", "--epochs", "3", "--out", str(out)]) == 0
    return out
