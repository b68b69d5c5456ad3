"""Ports for servers that cannot be told to take any."""

from __future__ import annotations

import random
import socket
from typing import Final

#: Below those that the system gives to outgoing connections, which come and go all the time.
_RANGE: Final = (15_000, 32_000)


def a_quiet_port() -> int:
    """Return a port of loopback that nobody has and that no connection is given."""
    while True:
        port = random.SystemRandom().randint(*_RANGE)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
