"""Addresses to listen on, as settings name them."""

from __future__ import annotations

from typing import Final

UNIX: Final = "unix:"
_MAX_PORT: Final = 65_535


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[IPv6]:port``; raise `ValueError` for others."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdecimal() and int(port) <= _MAX_PORT):
        raise ValueError("host:port, such as 127.0.0.1:8732")
    return host, int(port)


def check_metrics_address(address: str) -> str:
    """Return the address of a process's metrics; raise `ValueError` if it is malformed."""
    if address.startswith(UNIX):
        well = len(address) > len(UNIX)
    else:
        try:
            well = bool(split_address(address))
        except ValueError:
            well = False
    if not well:
        raise ValueError("host:port or unix:PATH")
    return address
