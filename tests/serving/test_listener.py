"""The socket that the server listens on."""

import asyncio
import socket

import pytest

from consilience.core.errors import InputError
from consilience.serving.listener import bind


def test_answers_leave_at_once():
    """Nagle's algorithm would hold back an answer's body until its head is acknowledged, 40 ms later on Linux."""
    options = []

    async def connect():
        def answer(reader, writer):
            accepted = writer.get_extra_info("socket")
            options.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        server = await asyncio.start_server(answer, sock=bind("127.0.0.1", 0))
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            await reader.read()
            writer.close()

    asyncio.run(connect())
    assert len(options) == 1
    assert options[0] != 0


def test_an_address_that_is_taken_is_named():
    with bind("127.0.0.1", 0) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(InputError, match=rf"127\.0\.0\.1:{port}.*another --port"):
            bind("127.0.0.1", port)
