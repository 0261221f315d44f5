"""Which tests are slow, by measurement. They begin first: of two processes neither is left with one at the end."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

# Some tests compare numbers bit for bit between processes, which sums over other numbers of threads would not give.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell leaves SIGINT ignored in what it starts in the background, and every process below inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Written by `pytest --measure-slow`: the tests that took so many seconds or more.
SLOW_TESTS = Path(__file__).with_name("slow_tests.txt")
SLOW_SECONDS = 2.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--measure-slow` writes the list of slow tests again."""
    parser.addoption("--measure-slow", action="store_true", help=f"write {SLOW_TESTS.name} from this run of all tests")


def pytest_configure(config: pytest.Config) -> None:
    """A part of the tests says nothing of the others."""
    part = config.option.file_or_dir or config.option.markexpr or config.option.keyword or config.option.collectonly
    if config.getoption("--measure-slow") and part:
        raise pytest.UsageError("--measure-slow needs a run of all tests: leave out files, -m, -k and --collect-only")


@pytest.hookimpl(tryfirst=True)  # before those with the mark are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the measured tests as slow, and put all slow ones to the front; otherwise the order they came in."""
    measured = set(SLOW_TESTS.read_text(encoding="utf-8").splitlines()) if SLOW_TESTS.exists() else set()
    for item in items:
        if item.nodeid in measured:
            item.add_marker("slow")
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: pytest.ExitCode, config: pytest.Config
) -> None:
    """Write the list of slow tests if it was asked for and the run came to its end."""
    if not config.getoption("--measure-slow") or exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                seconds[report.nodeid] += report.duration
    slow = sorted(name for name, taken in seconds.items() if taken >= SLOW_SECONDS)
    SLOW_TESTS.write_text("".join(f"{name}\n" for name in slow), encoding="utf-8")


@pytest.fixture
def lean_processes(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Processes that torch spawns start sooner: Lightning Fabric imports torchmetrics, and that transformers, if there.

    A spawned process gets the search path of its parent, and finds a torchmetrics that cannot be imported.
    """
    folder = tmp_path_factory.mktemp("lean")
    (folder / "torchmetrics.py").write_text('raise ImportError("hidden from spawned processes")\n')
    monkeypatch.syspath_prepend(folder)
    return folder
