"""Memory kept between steps: counted in the pages that the system has to clear."""

import ctypes
import subprocess
import sys

import pytest

gnu = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"),
    reason="only GNU's C library can be told to keep memory",
)
# Each in a process of its own, which the library is told in for good: 64 MB in pieces of 4, freed and asked for again.
COUNT = """
import resource, torch
from consilience.training.memory import kept_memory

def held():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def resident():
    return int(open("/proc/self/statm").read().split()[1])

def step():
    pieces = [torch.ones(2**20) for _ in range(16)]

with kept_memory(KEPT):
    step()
    before = held()
    for _ in range(10):
        step()
    print(held() - before)
    inside = resident()
print(inside - resident())
"""


def count(kept):
    program = COUNT.replace("KEPT", str(kept))
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return tuple(map(int, found.stdout.split()))


@gnu
def test_pages_are_asked_for_once_and_given_back_at_the_end():
    """A page has 4 KiB: ten steps of 64 MB are 160 000 of them, were they all given back after every step."""
    cleared, given_back = count(kept=True)
    assert cleared < 2_000
    assert given_back > 10_000


@gnu
def test_nothing_is_done_unasked():
    """How many pages are cleared then depends on what else lies in the heap: mostly all."""
    cleared, given_back = count(kept=False)
    assert cleared > 2_000
    assert given_back < 2_000
