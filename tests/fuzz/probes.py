"""Cases that crash, hang, take memory or are wrong, to see that the runner notices."""

from __future__ import annotations

import faulthandler
import subprocess
import sys
import time
from random import Random
from typing import Any

import numpy as np

from consilience.core.errors import InputError
from fuzz.fuzzers import Fuzzer, register


def draw(random: Random) -> str:
    """Draw one of those that end soon."""
    return random.choice(("right", "refused", "wrong", "foreign"))


def run(case: Any) -> None:
    """Do what the case says."""
    if case == "refused":
        raise InputError("a case that is refused")
    if case == "crash":
        faulthandler._sigsegv()
    if case == "hang":
        time.sleep(600)
    while case == "endless":
        pass
    if case == "waits for a process":
        subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 1.2: pass"], check=True)
    if case == "reserved":
        try:
            np.empty(1 << 37, dtype=np.uint8)
        except MemoryError as error:
            raise InputError("refused after memory ran out") from error
    if case == "used":
        np.ones(200 << 20, dtype=np.uint8)
    assert case != "wrong", "an answer is wrong"
    if case == "foreign":
        raise KeyError("an error of Python")


# No case is drawn in `make test-all` or `make fuzz`.
register(Fuzzer("probe", "probes", draw, run, seconds=2, examples=0, memory=100 << 20))
