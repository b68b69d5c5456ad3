"""Where the API listens."""

from __future__ import annotations

import socket

import pytest

from controller.rest.errors import ListenError
from controller.rest.server import listen_on


def test_it_listens_on_a_free_port():
    with listen_on("127.0.0.1:0") as listener:
        assert listener.getsockname()[1] > 0


def test_an_address_in_use_is_said_with_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"

        with pytest.raises(ListenError, match=f"cannot listen on {address}: .*in use.*FUGA_LISTEN"):
            listen_on(address)


@pytest.mark.parametrize("listen", ["", "8732", "localhost", ":8732", "127.0.0.1:http", "h:99999"])
def test_what_is_not_host_and_port_is_refused(listen: str):
    with pytest.raises(ListenError, match="not host:port"):
        listen_on(listen)


def test_a_host_that_is_not_ours_is_refused():
    with pytest.raises(ListenError):
        listen_on("192.0.2.1:8732")
