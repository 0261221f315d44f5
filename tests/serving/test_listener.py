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


@pytest.mark.parametrize("host", ["no-such-machine.invalid", "192.0.2.1"])
def test_an_address_that_cannot_be_used_says_what_can(host):
    with pytest.raises(InputError, match=f"cannot listen at {host}:0: .*; give an address of this machine") as error:
        bind(host, 0)
    assert "\n" not in str(error.value)


def test_a_port_that_is_not_allowed_asks_for_another(monkeypatch):
    def refuse(self, address):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(InputError, match=r"Permission denied; ports below 1024 may need .*give a larger --port"):
        bind("127.0.0.1", 80)
