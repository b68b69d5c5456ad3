"""Talks HTTP with an application in this process."""

from __future__ import annotations

import warnings

import httpx
from starlette.types import ASGIApp

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette asks for httpx2; the CLI speaks httpx
    from starlette.testclient import TestClient


def a_client(app: ASGIApp, *, token: str | None = None) -> httpx.Client:
    """Return a client that sends this token with every call."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return TestClient(app, headers=headers, raise_server_exceptions=False)
