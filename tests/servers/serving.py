"""Serves an application on loopback, in a thread, for tests that need real HTTP."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from fastapi import FastAPI

from controller.rest.middleware.connection_limits import UNLIMITED, ConnectionLimits
from controller.rest.middleware.protocol import Deadlines
from controller.rest.middleware.rate_limits import RateLimits
from controller.rest.server import DEADLINES, bounded_server, open_listener


@contextmanager
def served(
    app: FastAPI,
    *,
    deadlines: Deadlines = DEADLINES,
    connections: ConnectionLimits = UNLIMITED,
    tls: ssl.SSLContext | None = None,
    listen: str = "127.0.0.1:0",
    trusted_proxies: Collection[str] = (),
    limits: RateLimits | None = None,
) -> Iterator[str]:
    """Serve until the block ends; gives the URL."""
    listener = open_listener(listen)
    listener.set_limits(connections)
    server = bounded_server(
        app, trusted_proxies=trusted_proxies, deadlines=deadlines, limits=limits
    )
    server.config.load()
    server.config.ssl = tls
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
