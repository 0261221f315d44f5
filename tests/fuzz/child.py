"""A child process that runs cases and may die: a crash, a hang or too much memory in it is an outcome.

    PYTHONPATH=tests python -m fuzz.child [--bare]

It reads one case in a line, and writes one outcome in a line.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import resource
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError
from fuzz.fuzzers import REFUSED, RIGHT, discover

RESERVED = 3 << 30  # a case may reserve so many bytes more than the process had before it
_HERE = f"{Path(__file__).parents[2]}{os.sep}"


def run_case(fuzzer: str, case: Any) -> dict[str, str]:
    """Run a case in this process; returns its outcome, and for a failure what happened and where."""
    chosen = discover()[fuzzer]
    _resident_peak()
    before = _resident_peak()
    try:
        outcome = chosen.run(case) or RIGHT
        failed = None
    except ConsilienceError as error:
        outcome, failed = REFUSED, error if _lacked_memory(error) else None
    except BaseException as error:  # polars' panics are no Exceptions
        if isinstance(error, KeyboardInterrupt):
            raise
        outcome, failed = "failed", error
    if failed is not None:
        kind = "memory" if _lacked_memory(failed) else type(failed).__name__
        return {
            "outcome": kind,
            "where": _place(failed),
            "said": "".join(traceback.format_exception(failed))[-6000:],
        }
    if _resident_peak() - before > chosen.memory:
        return {"outcome": "memory", "where": "", "said": "the case used too much memory, and was then " + outcome}
    return {"outcome": outcome}


def _lacked_memory(error: BaseException | None) -> bool:
    """Whether memory ran out on the way to an error; refusing after that is too late."""
    while error is not None:
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _place(error: BaseException) -> str:
    """The innermost line of this library, or else of the fuzzers, that an error came through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(_HERE)]
    frames = [frame for frame in frames if "site-packages" not in frame.filename]
    own = [frame for frame in frames if f"src{os.sep}consilience" in frame.filename] or frames
    return f"{own[-1].filename.removeprefix(_HERE)}:{own[-1].name}" if own else ""


def _resident_peak() -> int:
    """The most memory that this process has held since it was last asked, in bytes."""
    peak = _status("VmHWM")
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # starts the next peak at what is held now
    return peak


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the library prints is no answer
    faulthandler.enable()
    warnings.simplefilter("ignore")
    fuzzers = discover()
    if "--bare" not in sys.argv:  # torch, scikit-learn and the rest are loaded before memory is limited
        import consilience.estimators
        import consilience.methods

        consilience.methods.registry()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        warnings.simplefilter("ignore")
        resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + RESERVED, resource.RLIM_INFINITY))
        faulthandler.dump_traceback_later(0.9 * fuzzers[asked["fuzzer"]].seconds)
        answer = run_case(asked["fuzzer"], asked["case"])
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(answer), file=answers, flush=True)
        gc.collect(0)


if __name__ == "__main__":
    main()
