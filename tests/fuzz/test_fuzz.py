"""A minute of every fuzzer, the cases that failed once, and the runner itself. `make fuzz` runs for an hour."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest
from hypothesis import HealthCheck, given, settings

from fuzz import run
from fuzz.fuzzers import REFUSED, RIGHT, discover, kept_cases
from fuzz.run import Child, fuzz, repeat

FUZZERS = {name: fuzzer for name, fuzzer in discover().items() if fuzzer.examples}
KEPT = kept_cases()


@pytest.fixture(scope="module")
def child():
    """One process for all cases of this file; what dies in it is started again."""
    process = Child()
    yield process
    process.close()


@pytest.fixture(scope="module")
def bare():
    """A process that starts fast."""
    process = Child(bare=True)
    yield process
    process.close()


def check(child, name, case):
    answer = child.run(discover()[name], case)
    assert "said" not in answer, f"{answer['outcome']}\n{answer['said']}"
    return answer["outcome"]


@pytest.mark.parametrize("name", KEPT)
def test_what_failed_once(child, name):
    check(child, KEPT[name]["fuzzer"], KEPT[name]["case"])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, fuzzer in FUZZERS.items() if fuzzer.valid()])
def test_what_is_not_damaged_is_right(child, name):
    for case in FUZZERS[name].valid():
        assert check(child, name, case) == RIGHT, case


@pytest.mark.slow
@pytest.mark.parametrize("name", FUZZERS)
def test_fuzzer(child, name):
    fuzzer = FUZZERS[name]

    @settings(
        max_examples=fuzzer.examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(fuzzer.cases())
    def run(case):
        check(child, name, json.loads(json.dumps(case)))

    run()


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        ("right", RIGHT),
        ("refused", REFUSED),
        ("crash", "crash"),
        ("right in a new process", RIGHT),
        ("hang", "hang"),
        ("endless", "hang"),
        ("waits for a process", RIGHT),
        ("reserved", "memory"),
        ("used", "memory"),
        ("wrong", "AssertionError"),
        ("foreign", "KeyError"),
    ],
)
def test_the_runner_notices(bare, case, outcome):
    assert bare.run(discover()["probe"], case)["outcome"] == outcome


def test_a_run_says_its_state_and_ends_with_its_counts_when_it_is_stopped(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "SAID_EVERY", 0.0)
    asked = []

    def stops(child, fuzzer, case):
        asked.append(case)
        if len(asked) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return {"outcome": RIGHT}

    monkeypatch.setattr(run.Child, "run", stops)
    handler = signal.getsignal(signal.SIGTERM)
    assert fuzz(600, 0, ["probe"], tmp_path, bare=True) == 0
    assert signal.getsignal(signal.SIGTERM) is handler
    printed = capsys.readouterr().out.splitlines()
    assert printed[:4] == [f"0 min: {count} probes; 0 failed" for count in range(4)]
    assert printed[-1].startswith(("3 probes: 3 right", "4 probes: 4 right"))


def test_a_run_ends_in_time_whatever_its_case_does(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "GRACE", 0.2)
    monkeypatch.setattr(run.Child, "run", lambda *_: threading.Event().wait())
    assert fuzz(0.1, 0, ["probe"], tmp_path, bare=True) == 0
    assert "0 probes" in capsys.readouterr().out


@pytest.mark.slow
def test_a_failing_case_is_kept_counted_and_can_be_repeated(tmp_path, capsys):
    assert fuzz(600, 0, ["probe"], tmp_path, bare=True, most=20) > 0
    printed = capsys.readouterr().out
    assert " probes: " in printed
    assert " KeyError" in printed
    kept = [path for path in tmp_path.glob("probe-*.json") if json.loads(path.read_text())["case"] == "foreign"]
    assert len(kept) == 1
    assert repeat(kept[0])
    assert "an error of Python" in capsys.readouterr().out
