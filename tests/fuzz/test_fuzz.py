"""A minute of every fuzzer, the cases that failed once, and the runner itself. `make fuzz` runs for an hour."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings

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
