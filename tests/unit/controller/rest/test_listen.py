"""Where the API listens."""

from __future__ import annotations

import asyncio
import socket

import pytest

from controller.rest.problems.errors import ListenError
from controller.rest.server import open_listener


def test_it_listens_on_a_free_port():
    with open_listener("127.0.0.1:0") as listener:
        assert listener.getsockname()[1] > 0


async def no_delay_of_a_connection(listener: socket.socket) -> int:
    """What asyncio, below the server, makes of one that comes in."""
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def note(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        accepted.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(note, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        no_delay = await accepted
        writer.close()
        await writer.wait_closed()
        return no_delay


def test_answers_do_not_wait_for_more_to_send():
    with open_listener("127.0.0.1:0") as listener:
        assert asyncio.run(no_delay_of_a_connection(listener))


def test_an_address_in_use_is_said_with_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"

        with pytest.raises(ListenError, match=f"cannot listen on {address}: .*in use.*FUGA_LISTEN"):
            open_listener(address)


@pytest.mark.parametrize("listen", ["", "8732", "localhost", ":8732", "127.0.0.1:http", "h:99999"])
def test_what_is_not_host_and_port_is_refused(listen: str):
    with pytest.raises(ListenError, match="not host:port"):
        open_listener(listen)


def test_a_host_that_is_not_ours_is_refused():
    with pytest.raises(ListenError):
        open_listener("192.0.2.1:8732")
