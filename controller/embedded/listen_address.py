"""The address at which the API of `fuga up` listens."""

from __future__ import annotations

import errno
import socket

from controller.terminal.errors import BadInputError
from service.socket_addresses import split_address


def choose_listen_address(listen: str, port: int | None) -> tuple[str, str]:
    """Return ``host:port`` for the API to listen on, and its URL on this machine.

    Raises
    ------
    BadInputError
        If the address is malformed, not of this machine, or taken.
    """
    try:
        host, written = split_address(listen)
    except ValueError as error:
        raise BadInputError(f"FUGA_LISTEN: found {listen!r}, wanted {error}") from None
    wanted = written if port is None else port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, wanted))
            probe.listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise BadInputError(
                    f"another program listens on {host}:{wanted}. Use `fuga up --port"
                    f" {wanted + 1}`, "
                    "or `fuga up --port 0` for any free port."
                ) from None
            raise BadInputError(
                f"cannot listen on {host}:{wanted}: {error.strerror}. "
                "Set another address with FUGA_LISTEN."
            ) from None
        chosen = probe.getsockname()[1]
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared only
    shown, found = (f"[{it}]" if ":" in it else it for it in (host, here))
    return f"{shown}:{chosen}", f"http://{found}:{chosen}"
