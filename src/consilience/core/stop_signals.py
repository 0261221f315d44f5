"""Ctrl-C and SIGTERM of a command: it ends soon, with one line and the exit code that shells use."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_GRACE_SECONDS = 1.5


class StopSignals:
    """Turns SIGINT, SIGTERM and SIGHUP into a KeyboardInterrupt, and ends a process that does not end by itself.

    The interrupt may be lost: code in C does not see it, and some libraries catch it. A thread waits for the same
    signals, and after a short time ends the process. Files are written whole or not at all, so nothing is damaged.

    Attributes:
        received: The first signal that was received.
        message: The line to print at the end.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.message = "consilience: stopped"
        self._patient = False
        self._installed: tuple[int, ...] = ()
        self._said = threading.Lock()

    @property
    def exit_code(self) -> int:
        """128 + the signal, as shells have it."""
        return 128 + (self.received or signal.SIGINT)

    def install(self) -> None:
        """Handle the signals in this process from now on, except those that it was started to ignore."""
        if self._installed or threading.current_thread() is not threading.main_thread():
            return
        asked = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
        free = (signal.SIG_DFL, signal.default_int_handler)
        self._installed = tuple(number for number in asked if signal.getsignal(number) in free)
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(reading,), daemon=True).start()
        for number in self._installed:
            signal.signal(number, self._interrupt)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._leave_to_parent)
        sys.unraisablehook = self._hide_interrupts(sys.unraisablehook)

    def leave(self, *numbers: int) -> None:
        """Leave signals to the caller, which handles them itself from now on."""
        self._installed = tuple(number for number in self._installed if number not in numbers)

    @contextmanager
    def patiently(self) -> Iterator[None]:
        """Give the block the time that it needs to end after a first signal, but not after a second one."""
        self._patient = True
        try:
            yield
        finally:
            self._patient = False

    def say(self) -> None:
        """Print the message; after a signal only once, as the thread that waits for it prints it too."""
        if self.received is None or self._said.acquire(blocking=False):
            with suppress(OSError, ValueError, AttributeError):  # standard error is closed: there is nobody to tell
                print(self.message, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Print the message and end the process, without waiting for its threads."""
        self.say()
        os._exit(self.exit_code)

    def _interrupt(self, number: int, frame: Any) -> None:
        again = self.received is not None
        self.received = self.received or number
        if again and not self._patient:
            return  # it is ending already, which must not be interrupted
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                self.end()  # a module in C++ that is interrupted while it is imported aborts the process
            frame = frame.f_back
        raise KeyboardInterrupt

    def _watch(self, reading: int) -> None:
        count = 0
        while True:
            numbers = [number for number in os.read(reading, 64) if number in self._installed]
            count += len(numbers)
            if numbers and (count > 1 or not self._patient):
                time.sleep(_GRACE_SECONDS)
                self.received = self.received or numbers[0]
                self.end()

    def _leave_to_parent(self) -> None:
        """In a forked process signals do what they do by default."""
        signal.set_wakeup_fd(-1)
        for number in self._installed:
            signal.signal(number, signal.SIG_DFL)

    def _hide_interrupts(self, before: Any) -> Any:
        """A hook for errors that nobody can catch; it does not print the interrupt, after which the process ends."""

        def hook(unraisable: Any) -> None:
            if self.received is None:
                before(unraisable)

        return hook


# A process has one set of signals.
STOP = StopSignals()
