"""Serves an application on loopback, in a thread, for tests that need real HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from controller.rest.server import listen_on


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """Serve until the block ends; gives the URL."""
    listener = listen_on("127.0.0.1:0")
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
