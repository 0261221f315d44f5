"""What surrounds every request: keys, hosts, the time it may take, errors as one line, the log and the metrics."""

from __future__ import annotations

import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from consilience.core.errors import InputError
from consilience.serving.api_keys import Key, check_key
from consilience.serving.refusals import Refusal, overloaded
from consilience.serving.request_log import log
from consilience.serving.server_metrics import ServerMetrics

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# The key of what handlers tell the log about a request, in its scope.
NOTES = "consilience"
# Probes of a load balancer carry no key, and tell nothing about models.
_OPEN = ("/v2/health/live", "/v2/health/ready")
_LONGEST_PATH = 200


class Gate:
    """An ASGI application around another one.

    Args:
        app: The application.
        metrics: Where requests are counted.
        keys: A function that returns the keys of which one is needed; none: no key is needed.
        hosts: Names that the Host header may have; None: any. A server that only this machine can reach refuses
            others, so that a page in a browser cannot reach it under a name of its own (DNS rebinding).
    """

    def __init__(
        self, app: App, metrics: ServerMetrics, keys: Callable[[], tuple[Key, ...]], hosts: Collection[str] | None
    ):
        self.app, self.metrics, self.keys = app, metrics, keys
        self.hosts = None if hosts is None else {host.lower() for host in hosts}
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        number = uuid.uuid4().hex[:16]
        notes: dict[str, Any] = {"route": "other", "id": number}
        scope[NOTES] = notes
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        unread = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        status, size, started = 500, 0, False

        async def reading() -> MutableMapping[str, Any]:
            nonlocal unread
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                unread = False
            return message

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal status, size, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                further = [(b"x-request-id", number.encode()), (b"x-content-type-options", b"nosniff")]
                if unread:  # the rest of the request is not worth reading
                    further.append((b"connection", b"close"))
                message = {**message, "headers": [*message.get("headers", ()), *further]}
            else:
                size += len(message.get("body", b""))
            await send(message)

        self._in_flight += 1
        self.metrics.in_flight.set(self._in_flight)
        try:
            self._check_host(headers.get("host", ""))
            if scope["path"] not in _OPEN:
                notes["key"] = check_key(self.keys(), headers)
            await self.app(scope, reading, sending)
        except Exception as error:
            if not started:  # else it was answered and told already
                await _send(sending, refuse(scope, error))
        finally:
            self._in_flight -= 1
            self.metrics.in_flight.set(self._in_flight)
            seconds, route = time.perf_counter() - began, notes.pop("route")
            self.metrics.requests.add(route, status)
            self.metrics.latency.observe(seconds, route)
            if status >= 400:
                self.metrics.errors.add(route, status)
            log(
                "request",
                "info" if status < 500 else "warning",
                method=scope["method"][:20],
                path=scope["path"][:_LONGEST_PATH],
                status=status,
                ms=round(seconds * 1000, 3),
                bytes=size,
                client=(scope.get("client") or ("",))[0],
                **{name: value for name, value in notes.items() if value not in ("", None)},
            )

    def _check_host(self, given: str) -> None:
        if self.hosts is None:
            return
        name = given.rsplit(":", 1)[0] if not given.endswith("]") else given
        if name.strip("[]").lower() not in self.hosts:
            raise Refusal(
                421, "the Host of the request is not one of this server: call it by its address, or give --host-name"
            )


def refuse(scope: Scope, error: BaseException) -> Refusal:
    """Return what is answered for an error, and note it for the log.

    400 for one in what was sent; 500 for one of ours, whose trace is logged.
    """
    notes = scope[NOTES]
    refusal = _as_refusal(error, notes["id"])
    if refusal.status != 400:  # the reason of a 400 quotes what was sent, which is no matter of the log
        notes["reason"] = str(refusal)
    return refusal


def _as_refusal(error: BaseException, number: str) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, InputError):
        return Refusal(400, str(error))
    if isinstance(error, MemoryError):
        log("error", "error", id=number, reason="out of memory")
        return overloaded("there is not enough memory for this request: send fewer rows")
    trace = "".join(traceback.format_exception(error))
    log("error", "error", id=number, reason=type(error).__name__, trace=trace[-4000:])
    return Refusal(500, f"internal error; the log of the server has more under the id {number}")


async def _send(send: Send, refusal: Refusal) -> None:
    encoded = [(name.lower().encode(), value.encode()) for name, value in refusal.all_headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": encoded})
    await send({"type": "http.response.body", "body": refusal.body})
