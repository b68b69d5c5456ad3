"""Connections to a server under test, by bytes."""

from __future__ import annotations

import re
import socket
import ssl
from pathlib import Path

from controller.rest.middleware.protocol import Deadlines
from tests.servers.certificates import Authority

LONG = 600.0


ALL_LONG = Deadlines(
    head_s=LONG, idle_s=LONG, body_s=LONG, unread_s=LONG, answer_s=LONG, goodbye_s=LONG
)


JSON_HEAD = b"POST /v1/requests HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def connected(url: str, source: str = "127.0.0.1") -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=30, source_address=(source, 0))


def is_refused(url: str, source: str = "127.0.0.1") -> bool:
    """Tell whether a connection is closed without a word, as soon as it is there or before."""
    try:
        with connected(url, source) as more:
            return all_of(more) == b""
    except ConnectionResetError:
        return True


def all_of(connection: socket.socket) -> bytes:
    """Return what comes until the other end closes; fails if it does not."""
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def one_of(connection: socket.socket) -> bytes:
    """Return one answer in full."""
    received = b""
    while not (found := re.search(rb"content-length: (\d+)\r\n.*?\r\n\r\n", received, re.S)):
        received += connection.recv(65536)
    while len(received) < found.end() + int(found[1]):
        received += connection.recv(65536)
    return received


IN_CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n"


ONE_BYTE = b"1\r\n[\r\n"


def two_ends(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return how a server and its clients speak TLS."""
    authority = Authority.make(folder / "authority")
    pair = authority.server()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair.certificate, pair.key)
    return server, ssl.create_default_context(cafile=str(authority.certificate))
