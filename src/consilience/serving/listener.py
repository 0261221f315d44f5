"""The HTTP server: uvicorn with a time limit on headers, and with signals that finish what runs or load models anew."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

from consilience.core.errors import InputError
from consilience.core.stop_signals import STOP
from consilience.serving.gate import Gate
from consilience.serving.request_log import log

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HEADER_SECONDS = 10.0
_KEEP_ALIVE_SECONDS = 30
BACKLOG = 2048
_OPEN_FILES = 65536


def bind(host: str, port: int) -> socket.socket:
    """Return a socket at an address; port 0: any that is free.

    Raises:
        InputError: The address cannot be used.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # Without the protocol's number asyncio leaves Nagle's algorithm on: answers wait 40 ms for an acknowledgement.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        number = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else 0
        advice = {
            errno.EADDRINUSE: "give another --port, or 0 for any that is free",
            errno.EACCES: "ports below 1024 may need an administrator: give a larger --port",
        }.get(number or 0, "give an address of this machine as --host: 127.0.0.1, or 0.0.0.0 for all that it has")
        if isinstance(error, OverflowError):
            advice = "give a --port of at most 65535"
        raise InputError(f"serve: cannot listen at {host}:{port}: {error}; {advice}") from error
    return bound


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    return host in LOOPBACK or host.startswith("127.")


def listen(app: Gate, bound: socket.socket, on_reload: Callable[[], Any], grace: float) -> None:
    """Serve until SIGTERM or Ctrl-C, which let running requests finish; a second one ends at once.

    Args:
        app: The application.
        bound: The socket.
        on_reload: Called in a thread on SIGHUP.
        grace: Seconds that running requests have after SIGTERM.
    """
    try:
        import uvicorn
        from uvicorn.protocols.http.h11_impl import H11Protocol
    except ImportError as error:
        raise InputError("serve needs FastAPI and uvicorn: pip install 'consilience[serve]'") from error

    class ImpatientProtocol(H11Protocol):
        """Closes connections whose headers do not arrive, or whose answers nobody takes, as uvicorn does not."""

        _overdue: asyncio.TimerHandle | None = None
        _untaken = 0  # bytes of answers when it was looked last

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect_headers()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._receives_headers():
                self._expect_headers()
            elif self._overdue is not None:
                self._overdue.cancel()
                self._overdue = None

        def connection_lost(self, exc: Exception | None) -> None:
            if self._overdue is not None:
                self._overdue.cancel()
            super().connection_lost(exc)

        def timeout_keep_alive_handler(self) -> None:
            untaken = self.transport.get_write_buffer_size()
            if not untaken:
                super().timeout_keep_alive_handler()
            elif untaken == self._untaken:
                self.transport.abort()  # an orderly end would wait for the client too
            else:
                self._untaken = untaken
                again = self.loop.call_later(_KEEP_ALIVE_SECONDS, self.timeout_keep_alive_handler)
                self.timeout_keep_alive_task = again

        def _receives_headers(self) -> bool:
            return str(self.conn.their_state) == "IDLE"

        def _expect_headers(self) -> None:
            if self._overdue is None:
                self._overdue = self.loop.call_later(_HEADER_SECONDS, self._close_overdue)

        def _close_overdue(self) -> None:
            self._overdue = None
            if self._receives_headers() and not self.transport.is_closing():
                self.transport.close()

    class Server(uvicorn.Server):
        """Takes the signals of a command, which ends with 0 once all requests are answered."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            asked = {signal.SIGTERM: self.handle_exit, signal.SIGINT: self.handle_exit, signal.SIGHUP: reload}
            STOP.leave(*asked)
            before = {number: signal.signal(number, handler) for number, handler in asked.items()}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

        def handle_exit(self, sig: int, frame: Any) -> None:
            log("stop", signal=signal.Signals(sig).name, again=self.should_exit)
            if self.should_exit:
                self.force_exit = True
            self.should_exit = True

    def reload(number: int, frame: Any) -> None:
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, on_reload)

    _raise_open_files()
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        http=ImpatientProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(grace)),
        backlog=BACKLOG,
    )
    Server(config).run(sockets=[bound])


def _raise_open_files() -> None:
    """Allow as many connections as the system lets this process have."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
