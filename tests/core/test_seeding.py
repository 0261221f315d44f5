"""Blocks of several threads draw what each would draw alone, and leave torch's random state as it was."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from consilience.core.seeding import let_others_by, seeded, stepped_aside

LONG = 20  # seconds, after which a thread is taken to wait for ever


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() == torch.float32
    with ThreadPoolExecutor(1) as pool:  # whoever comes next gets a turn
        pool.submit(draw, 0).result(timeout=LONG)


def draw(seed, count=200):
    """Numbers drawn one by one, letting others by."""
    drawn = []
    with seeded(seed):
        for _ in range(count):
            drawn.append(torch.rand(3))
            let_others_by()
    return torch.stack(drawn)


def test_threads_draw_what_they_would_draw_alone():
    alone = [draw(seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(draw, range(8)))
    for one, other in zip(alone, together):
        assert torch.equal(one, other)


def test_a_long_block_lets_a_short_one_by():
    ended = threading.Event()
    short = threading.Thread(target=lambda: (draw(1, 3), ended.set()))
    with seeded(0):
        expected = torch.rand(4)
    with seeded(0):
        first = torch.rand(2)
        short.start()
        until = time.monotonic() + LONG
        while not ended.is_set() and time.monotonic() < until:
            let_others_by()
        assert ended.is_set()
        assert torch.equal(torch.cat([first, torch.rand(2)]), expected)
    short.join()


def test_the_default_dtype_does_not_reach_other_threads():
    found = []

    def look():
        with seeded(1):
            found.append(torch.get_default_dtype())

    other = threading.Thread(target=look)
    with seeded(0):
        torch.set_default_dtype(torch.float64)
        with stepped_aside():
            other.start()
            other.join(LONG)
        assert torch.get_default_dtype() == torch.float64
    assert found == [torch.float32]


def test_waiting_for_a_thread_that_needs_its_turn():
    with seeded(0), ThreadPoolExecutor(1) as pool:
        first = torch.rand(1)
        with stepped_aside():
            pool.submit(draw, 5).result(timeout=LONG)
        second = torch.rand(1)
    with seeded(0):
        assert torch.equal(torch.cat([first, second]), torch.rand(2))


def test_blocks_within_blocks():
    with seeded(0):
        expected = torch.rand(2)
    with seeded(0):
        first = torch.rand(1)
        with seeded(1):
            torch.rand(5)
            with stepped_aside():
                pass
        assert torch.equal(torch.cat([first, torch.rand(1)]), expected)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_ends_a_block(error):
    with pytest.raises(error), seeded(0):
        raise error
    with pytest.raises(error), seeded(0), stepped_aside():
        raise error


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to a thread")
@pytest.mark.parametrize("inside", [False, True])
def test_ctrl_c_while_waiting_for_a_turn(inside):
    """Before a block begins, and within one that lets others by."""
    taken, leave = threading.Event(), threading.Event()

    def hold():
        with seeded(1):
            taken.set()
            leave.wait(LONG)

    def interrupt():
        taken.wait(LONG)
        time.sleep(0.2)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.2)
        leave.set()

    def wait_inside():
        with seeded(0):
            holder.start()
            interrupter.start()
            while True:
                let_others_by()

    def wait_before():
        holder.start()
        taken.wait(LONG)
        interrupter.start()
        with seeded(0):
            time.sleep(LONG)

    holder, interrupter = threading.Thread(target=hold), threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        wait_inside() if inside else wait_before()
    holder.join(LONG)
    interrupter.join(LONG)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_process_does_not_wait_for_threads_of_its_parent():
    taken, leave = threading.Event(), threading.Event()

    def hold():
        with seeded(1):
            taken.set()
            leave.wait(LONG)

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait(LONG)
    child = os.fork()
    if child == 0:
        signal.alarm(LONG)  # ends a child that waits for ever
        with seeded(0):
            os._exit(0)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        leave.set()
        holder.join(LONG)
