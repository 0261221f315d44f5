"""The body of a request: read up to a limit, within a time, and as a share of the memory of all requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from consilience.serving.refusals import Refusal, malformed, overloaded
from consilience.serving.serving_settings import ServingSettings


class Streamed(Protocol):
    """A request whose body can be read piece by piece."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Lower-case name → value."""

    def stream(self) -> AsyncIterator[bytes]:
        """The pieces of the body."""


class Memory:
    """The bytes of all requests that are read or wait. For one event loop."""

    def __init__(self, most: int):
        self.most, self.used = most, 0

    def take(self, size: int) -> None:
        """Count bytes.

        Raises:
            Refusal: There would be too many (503).
        """
        if self.used + size > self.most:
            raise overloaded(f"the requests that wait fill the {self.most} bytes there are for them")
        self.used += size

    def give_back(self, size: int) -> None:
        """Count bytes as free."""
        self.used -= size


@asynccontextmanager
async def received(request: Streamed, settings: ServingSettings, memory: Memory) -> AsyncIterator[bytes]:
    """Read the body of a request; its bytes count until the block ends.

    Raises:
        Refusal: It is too large (413), compressed (415), too slow (408), empty or cut off (400), or the memory is
            full (503).
    """
    most = settings.body_bytes
    if (coding := request.headers.get("content-encoding", "identity").lower()) != "identity":
        raise Refusal(415, f"Content-Encoding {coding[:40]!r} is not supported: send the request as it is")
    stated = _stated_length(request.headers.get("content-length"))
    if stated is not None and stated > most:
        raise _too_large(most)
    taken = 0
    try:
        if stated is not None:
            memory.take(stated)
            taken = stated
        pieces: list[bytes] = []
        read = 0
        try:
            async with asyncio.timeout(settings.timeout):
                async for piece in request.stream():
                    read += len(piece)
                    if read > most:
                        raise _too_large(most)
                    if read > taken:
                        memory.take(read - taken)
                        taken = read
                    pieces.append(piece)
        except TimeoutError as error:
            raise Refusal(408, f"the request did not arrive within {settings.timeout:g} s") from error
        if not read:
            raise malformed("the request has no body")
        yield b"".join(pieces)
    finally:
        memory.give_back(taken)


def _stated_length(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise malformed("Content-Length is not a number")
    return int(text)


def _too_large(most: int) -> Refusal:
    return Refusal(413, f"a request may have {most} bytes: send fewer rows at a time, or raise --max-body")
