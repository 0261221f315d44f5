"""Memory kept between steps: counted in what the system has to clear, each time in a process of its own."""

import ctypes
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from consilience.core.errors import InputError
from consilience.methods import Spec
from consilience.training import Trainer, devices, stacked_seeds
from training.toys import Straight, make_samples, prepare

gnu = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"),
    reason="only GNU's C library can be told to keep memory",
)
# 64 MB in pieces of 4, freed and asked for again. Without huge pages, of which a few would do.
PROGRAM = """
import ctypes, resource, torch
from consilience.training import devices
from consilience.training.devices import kept_memory

devices.TRIM_AFTER = 0
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE

def cleared():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt * resource.getpagesize() / 1e6

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 1e6

def step():
    pieces = [torch.ones(2**20) for _ in range(16)]

def ten():
    step()
    before = cleared()
    for _ in range(10):
        step()
    return cleared() - before
"""


def run(program):
    found = subprocess.run([sys.executable, "-c", PROGRAM + program], capture_output=True, text=True, check=True)
    return [float(number) for number in found.stdout.split()]


@gnu
def test_memory_is_asked_for_once_and_given_back_at_the_end():
    """Ten steps would clear 670 MB, were all given back after every step."""
    cleared, given_back = run("""
with kept_memory() as kept:
    assert kept
    print(ten())
    inside = resident()
print(inside - resident())
""")
    assert cleared < 10
    assert given_back > 40


@gnu
def test_a_short_while_is_not_worth_giving_back():
    (given_back,) = run("""
devices.TRIM_AFTER = 100
with kept_memory():
    step()
    inside = resident()
print(inside - resident())
""")
    assert given_back < 10


@gnu
def test_inside_one_another_the_last_to_end_gives_back():
    within, given_back = run("""
with kept_memory():
    with kept_memory():
        step()
        inside = resident()
    print(inside - resident())
print(inside - resident())
""")
    assert within < 10
    assert given_back > 40


@gnu
def test_afterwards_the_process_gives_back_what_is_much():
    """By the library itself: what torch allocates beside its tensors may lie above them and hold them in place."""
    left, kept = run("""
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]

def pieces():
    before = resident()
    pieces = [library.malloc(2**24) for _ in range(25)]
    for piece in pieces:
        ctypes.memset(piece, 1, 2**24)
    for piece in pieces:
        library.free(piece)
    return resident() - before

with kept_memory():
    pass
print(pieces())
with kept_memory():
    print(pieces())
""")
    assert left < 100  # of 420
    assert kept > 300


@gnu
def test_nothing_is_done_unasked():
    (told,) = run("""
with kept_memory(False) as kept:
    step()
print(kept + devices._gnu_library.cache_info().currsize)
""")
    assert told == 0


@pytest.mark.parametrize("asked", [True, False])
def test_training_asks_for_it(monkeypatch, asked):
    heard = []

    @contextmanager
    def listen(asked):
        heard.append(asked)
        yield False

    monkeypatch.setattr(devices, "kept_memory", listen)
    samples = make_samples(32)
    preparation = prepare(samples)
    how = {"epochs": 1, "device": "cpu", "keep_memory": asked}
    Trainer(preparation, **how).run(Straight(Spec(preparation.modalities, preparation.task)), samples)
    stacked_seeds.fit_together("late", [(samples, samples)], [0], trainer=Trainer(**how))
    assert heard == [asked, asked]


def test_it_decides_no_number_and_must_be_yes_or_no():
    assert Trainer(keep_memory=True).settings() == Trainer(keep_memory=False).settings()
    with pytest.raises(InputError, match="keep_memory"):
        Trainer(keep_memory="perhaps")


def test_a_module_that_is_there_already_is_not_touched(monkeypatch):
    module = nn.LSTM(2, 3)
    with monkeypatch.context() as patched:
        patched.setattr(nn.Module, "to", None)  # would set the weights of the layer anew under another thread's call
        assert devices.moved_to(module, torch.device("cpu")) is module
    assert next(devices.moved_to(module, torch.device("meta")).parameters()).device.type == "meta"


@pytest.mark.parametrize("device", ["gpu", {}, None, 0.5])
def test_unknown_devices(device):
    with pytest.raises(InputError, match="unknown device"):
        devices.resolve_device(device)
