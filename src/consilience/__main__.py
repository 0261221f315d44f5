"""The command line as a process: `python -m consilience`, and the command `consilience`."""

import os
import signal
import sys

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until signals are handled, Ctrl-C ends the process without a word

from consilience.core.stop_signals import STOP


def start() -> int:
    """Run the command line; returns the exit code. Signals are handled from the first moment, also while importing."""
    for descriptor in range(3):  # one that is closed would be given to the next file, and written to by accident
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    STOP.install()
    try:
        from consilience.cli.main import main

        code = main()
    except BaseException:
        if STOP.received is None:
            raise
        STOP.end()
    if STOP.received is not None:
        STOP.end()  # without waiting for threads that were interrupted
    return code


if __name__ == "__main__":
    sys.exit(start())
