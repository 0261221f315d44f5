"""Saved models small enough to serve in every test, and a client that asks the application without a network."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
import pytest

import consilience as cs
from consilience.serving import ModelStore, ServingSettings, create_app
from consilience.serving.row_warnings import dispatching

PATIENCE = 120.0  # seconds until a test gives up what must happen; a loaded machine may take many of them
QUICK = {"epochs": 2, "device": "cpu", "verbose": 0}
COLUMNS = {"vibration": ["vibration_*"], "temp": ["temp_*", "mode"], "note": ["note"]}
ROW = {"vibration_0": 1.2, "vibration_1": -0.5, "temp_0": 20.5, "mode": "idle", "note": "a strange noise"}


def machines(rows: int = 240, seed: int = 0) -> pl.DataFrame:
    """Three states of a machine, seen by a vibration sensor, a thermometer with a mode, and notes."""
    rng = np.random.default_rng(seed)
    state = rng.integers(3, size=rows)
    return pl.DataFrame(
        {
            **{f"vibration_{n}": rng.normal(size=rows) + state for n in range(2)},
            "temp_0": 20 + rng.normal(size=rows) - state,
            "mode": np.array(["idle", "run"])[rng.integers(2, size=rows)],
            "note": np.array(["all fine", "a strange noise", "oil leaks"])[state],
            "state": np.array(["ok", "worn", "leak"])[state],
            "hours": 10.0 * state + rng.normal(size=rows),
        }
    )


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of saved models: machines (classes), hours (a number), arrays (a sequence and a vector)."""
    folder = tmp_path_factory.mktemp("models")
    table = machines()
    for name, target, other in (("machines", "state", "hours"), ("hours", "hours", "state")):
        table.drop(other).write_csv(folder / f"{name}.csv")
        data = cs.load_data(folder / f"{name}.csv", target=target, modalities=COLUMNS, kinds={"note": "text"})
        estimator: Any = cs.FusionClassifier if target == "state" else cs.FusionRegressor
        estimator("late", random_state=0, **QUICK).fit(data.train).save(folder / name)
    rng = np.random.default_rng(1)
    y = np.arange(60) % 2
    X = {"motion": rng.normal(size=(60, 5, 2)) + y[:, None, None], "level": rng.normal(size=(60, 3)) + y[:, None]}
    cs.FusionClassifier("concat", random_state=0, **QUICK).fit(X, y).save(folder / "arrays")
    return folder


class Client:
    """Asks the application in this process."""

    def __init__(self, store: ModelStore, **further: Any):
        self.store = store
        self.app = create_app(store, **further)

    def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        async def one() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
                return await client.request(method, path, **request)

        return asyncio.run(one())

    def get(self, path: str, **request: Any) -> httpx.Response:
        return self.ask("GET", path, **request)

    def post(self, path: str, **request: Any) -> httpx.Response:
        return self.ask("POST", path, **request)

    def rows(self, rows: Any, model: str = "machines") -> httpx.Response:
        return self.post(f"/v1/models/{model}/predict", json={"rows": rows})


@pytest.fixture
def serve(models: Path) -> Iterator[Callable[..., Client]]:
    """A function that serves models of the folder by name, with limits."""
    stores: list[ModelStore] = []

    def start(*names: str, keys: Any = tuple, hosts: Any = None, store: dict | None = None, **limits: Any) -> Client:
        folders = {name: models / name for name in names or ("machines",)}
        stores.append(ModelStore(folders, ServingSettings(**limits), **(store or {})))
        return Client(stores[-1], keys=keys, hosts=hosts)

    with dispatching():
        yield start
    for each in stores:
        each.close()


class Running:
    """`consilience serve` in a process of its own."""

    def __init__(self, *words: str):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - not a pipe, which would fill up
        self.process = subprocess.Popen(
            [sys.executable, "-m", "consilience", "serve", *words, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=environment,
        )
        said = self.process.stdout.readline()
        found = re.search(r"at http://127\.0\.0\.1:(\d+)", said)
        assert found, said + self.logged()
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def stop(self) -> tuple[int, str]:
        """Send SIGTERM; return the exit code and the log."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, self.logged()

    def logged(self) -> str:
        number = self.log.fileno()  # not by seek: the server writes at the place that both share
        return os.pread(number, os.fstat(number).st_size, 0).decode()

    def memory(self) -> int:
        """Resident kilobytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1])


@pytest.fixture
def running() -> Iterator[Callable[..., Running]]:
    """A function that starts a server."""
    started: list[Running] = []

    def start(*words: Any) -> Running:
        started.append(Running(*map(str, words)))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def wait_for(happened: Callable[[], bool], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
