"""What a fuzzer is, and the list of them: every module of this folder that calls `register` adds its own.

A fuzzer draws cases and runs them. A case is a JSON value that holds all that is needed to repeat it. `run` returns
where the library's answer is right, raises a `ConsilienceError` where the library refuses, and anything else is a
failure: another exception, an `AssertionError` of a check, a crash, a hang, or too much memory.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import strategies as st

RIGHT, REFUSED = "right", "refused"
HERE = Path(__file__).parent
CORPUS = HERE / "corpus"


@dataclass(frozen=True)
class Fuzzer:
    """A source of cases of one kind.

    Attributes:
        name: Of the fuzzer, in cases and reports.
        unit: What a case is, in the plural: "files", "models", "checks", "calls", "reports".
        draw: Draws a case, a JSON value, with a random generator.
        run: Runs a case; returns None or another allowed outcome, raises a `ConsilienceError` where it was refused.
        valid: Cases without any damage, which must be right.
        seconds: A case that takes more processor time hangs, as does one that does nothing for so long.
        memory: A case may use so many bytes.
        examples: How many cases `make test-all` runs; 0: none, and `make fuzz` none either.
    """

    name: str
    unit: str
    draw: Callable[[Random], Any]
    run: Callable[[Any], str | None]
    seconds: float = 30.0
    examples: int = 20
    memory: int = 1 << 30
    valid: Callable[[], list[Any]] = list

    def cases(self) -> st.SearchStrategy[Any]:
        """The cases as a strategy of hypothesis, which makes a failing one smaller."""
        return st.randoms(use_true_random=False).map(self.draw)


FUZZERS: dict[str, Fuzzer] = {}


def register(fuzzer: Fuzzer) -> Fuzzer:
    """Add a fuzzer; no other file may have one of the same name."""
    before = FUZZERS.setdefault(fuzzer.name, fuzzer)
    assert before.run.__code__.co_filename == fuzzer.run.__code__.co_filename, f"there are two of {fuzzer.name!r}"
    return before


def discover() -> dict[str, Fuzzer]:
    """Import every module of this folder, and return the fuzzers by name."""
    for path in sorted(HERE.glob("*.py")):
        if path.stem not in ("run", "child") and not path.stem.startswith("test_"):
            importlib.import_module(f"fuzz.{path.stem}")
    return FUZZERS


def kept_cases() -> dict[str, dict[str, Any]]:
    """The cases that failed once, by the name of their file: fuzzer, case, and what was found."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(CORPUS.glob("*.json"))}
