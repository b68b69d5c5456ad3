"""The engine's version, stored with every round for replays."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version


@cache
def engine_version() -> str:
    """Version of the installed distribution."""
    return version("fuga-controller")
