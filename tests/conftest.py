"""The long tests begin first: of two processes neither is left with one of them at the end."""

import os
import signal
from pathlib import Path

import pytest

# Some tests compare numbers bit for bit between processes, which sums over other numbers of threads would not give.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell leaves SIGINT ignored in what it starts in the background, and every process below inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow ones to the front, otherwise the order they came in."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture
def lean_processes(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Processes that torch spawns start sooner: Lightning Fabric imports torchmetrics, and that transformers, if there.

    A spawned process gets the search path of its parent, and finds a torchmetrics that cannot be imported.
    """
    folder = tmp_path_factory.mktemp("lean")
    (folder / "torchmetrics.py").write_text('raise ImportError("hidden from spawned processes")\n')
    monkeypatch.syspath_prepend(folder)
    return folder
