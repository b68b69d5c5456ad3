"""Texts about hosts, the same in lists, messages and waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def health_text(host: Mapping[str, Any]) -> str:
    """Return a host's health, or ``starting`` until it is up for the first time or again."""
    starts = host["health"] == "enrolling" or host.get("returning_since")
    return "starting" if starts else str(host["health"])
