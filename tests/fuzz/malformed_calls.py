"""Malformed calls of everything public: a valid call of each, of which one argument at a time is replaced.

    python tests/fuzz/malformed_calls.py [--door NAME] [--calls N] [--seed S]

prints what did not end in a right result or a ConsilienceError, grouped by where it came up.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from consilience.core.errors import ConsilienceError, is_library_error
from fuzz.calls_after_fitting import DOORS as DOORS_AFTER_FITTING
from fuzz.fuzzers import Fuzzer, register
from fuzz.hostile_values import hostile
from fuzz.public_calls import DOORS as PUBLIC_DOORS
from fuzz.public_calls import Door

DOORS = (*PUBLIC_DOORS, *DOORS_AFTER_FITTING)

# Seconds of processor time after which a call is given up, and seconds for one that only waits.
PATIENCE, WAITING = 20, 300
_SOURCE = str(Path(sys.modules["consilience"].__file__ or "").parent)


@dataclass(frozen=True)
class Call:
    """One call: a door, the argument that is replaced ("" for none), and the hostile value by name."""

    door: Door
    argument: str
    value: str
    make: Callable[[], Any]

    def __str__(self) -> str:
        return f"{self.door.name}({self.argument}={self.value})"

    def run(self) -> Any:
        """Call the door; everything but the replaced argument is valid."""
        arguments = self.door.arguments()
        if self.argument:
            arguments[self.argument] = self.make()
        return self.door.call(**arguments)


@dataclass(frozen=True)
class Outcome:
    """How a call ended.

    "right"; "refused" by a check of ours; "wrapped": refused, with the error of another library as cause; "foreign": an
    exception that is not ours; "unprintable": a message that no terminal shows; "not finite"; "slow".
    """

    kind: str
    error: str = ""
    place: str = ""

    @property
    def allowed(self) -> bool:
        """Whether a call may end so."""
        return self.kind in ("right", "refused", "wrapped", "slow")


class _TooSlow(BaseException):
    """The call took longer than `PATIENCE` or `WAITING`."""


def calls(doors: Iterable[Door] = DOORS) -> Iterator[Call]:
    """Every valid call, and every malformed one."""
    for door in doors:
        yield Call(door, "", "valid", lambda: None)
        for argument, valid in door.arguments().items():
            if argument in door.fixed:
                continue
            for value, make in hostile(valid):
                if (argument, value) not in door.skip:
                    yield Call(door, argument, value, make)
        if door.takes_options:
            yield Call(door, "nobody", "unknown option", lambda: 5)


def sample(count: int, seed: int, doors: Iterable[Door] = DOORS) -> list[Call]:
    """Some of the calls: as many of each door, as far as it has them; doors marked slow a tenth of that."""
    doors = list(doors)
    random_ = random.Random(seed)
    share = max(1, count // len(doors))
    chosen: list[Call] = []
    for door in doors:
        own = list(calls([door]))
        chosen += random_.sample(own, min(len(own), max(1, share // 10) if door.slow else share))
    return chosen


def judge(call: Call) -> Outcome:
    """Make a call in an empty folder, and say how it ended."""

    def give_up(*_: Any) -> None:
        raise _TooSlow

    before, folder = os.getcwd(), tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True)
    handlers = {number: signal.signal(number, give_up) for number in (signal.SIGPROF, signal.SIGALRM)}
    with folder, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        os.chdir(folder.name)
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)
        signal.alarm(WAITING)
        try:
            result = call.run()
            wrong = "" if call.door.any_number else not_finite(result)
            return Outcome("not finite", wrong, call.door.name) if wrong else Outcome("right")
        except ConsilienceError as error:
            if not _printable(error):
                return Outcome("unprintable", repr(_first_line(error)), _place(error))
            if error.__cause__ is not None and is_library_error(error.__cause__):
                return Outcome("wrapped", _first_line(error), _place(error.__cause__))
            return Outcome("refused", _first_line(error))
        except MemoryError:
            return Outcome("refused", "out of memory")
        except _TooSlow:
            return Outcome("slow")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return Outcome("foreign", f"{type(error).__name__}: {_first_line(error)}", _place(error))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            os.chdir(before)


def not_finite(result: Any, where: str = "result") -> str:
    """Name the first NaN or +inf in a result, or "". −inf is the logarithm of 0."""
    if isinstance(result, Mapping):
        return next(filter(None, (not_finite(value, f"{where}[{name!r}]") for name, value in result.items())), "")
    if isinstance(result, list | tuple):
        return next(filter(None, (not_finite(value, f"{where}[{n}]") for n, value in enumerate(result))), "")
    if hasattr(result, "detach"):
        result = result.detach().cpu().double().numpy() if result.is_floating_point() else np.zeros(1)
    if isinstance(result, float | np.floating | np.ndarray):
        values = np.asarray(result)
        if values.dtype.kind == "f" and (np.isnan(values).any() or np.isposinf(values).any()):
            return f"{where} holds NaN or infinity"
    return ""


def _first_line(error: BaseException) -> str:
    try:
        return (str(error).splitlines() or [""])[0][:300]
    except Exception as broken:  # a message that cannot be printed is a failure of its own
        return f"(message raises {type(broken).__name__})"


def _printable(error: BaseException) -> bool:
    """Whether the message can be written to a terminal or a file."""
    try:
        str(error).encode()
    except Exception:
        return False
    return True


def _place(error: BaseException) -> str:
    """Where in the library an exception came up, and the line of the library below it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(_SOURCE)]
    if not frames:
        return "outside"
    last = frames[-1]
    return f"{last.filename[len(_SOURCE) + 1 :]}:{last.lineno} {last.name}: {last.line}"


@cache
def _by_name() -> dict[str, Call]:
    return {str(call): call for call in calls()}


def draw_call(random: random.Random) -> str:
    """Draw a call by its name."""
    return random.choice(list(_by_name()))


def run_call(case: str) -> str:
    """Make a call; raises an error if it may not end as it does."""
    outcome = judge(_by_name()[case])
    assert outcome.allowed, f"{outcome.kind}: {outcome.error} at {outcome.place}"
    return outcome.kind


register(Fuzzer("calls", "calls", draw_call, run_call, seconds=60, examples=100))


def main() -> int:
    """Run all or some of the calls, and print what is not allowed by place."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--door", action="append", help="only doors whose name contains this")
    parser.add_argument("--calls", type=int, help="this many calls instead of all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=4, help="examples of each place")
    parser.add_argument("--wrapped", action="store_true", help="also print what is only refused by a wrapped error")
    options = parser.parse_args()
    reported = {"slow", "wrapped"} if options.wrapped else {"slow"}
    doors = [door for door in DOORS if not options.door or any(part in door.name for part in options.door)]
    chosen = calls(doors) if options.calls is None else sample(options.calls, options.seed, doors)
    outcomes: Counter[str] = Counter()
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    spent: Counter[str] = Counter()
    for call in chosen:
        began = time.monotonic()
        outcome = judge(call)
        spent[call.door.name] += time.monotonic() - began  # type: ignore[assignment]
        outcomes[outcome.kind] += 1
        if call.value == "valid" and outcome.kind != "right" and not call.door.never_right:
            print(f"a valid call fails: {call.door.name}: {outcome}", flush=True)
        if not outcome.allowed or outcome.kind in reported:
            found[outcome.kind + " " + outcome.place, outcome.error[:40]].append(f"{call}: {outcome.error}")
    for (place, _), examples in sorted(found.items(), key=lambda entry: -len(entry[1])):
        print(f"\n{len(examples)} × {place}")
        for example in examples[: options.show]:
            print("   ", example[:260])
    print("\n", dict(outcomes), "\n", {name: round(seconds, 1) for name, seconds in spent.most_common(12)})
    return 1 if any(not kind.startswith(("slow", "wrapped")) for kind, _ in found) else 0


if __name__ == "__main__":
    sys.exit(main())
