"""Why VMs wait, as JSON in `requests.waiting`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from registry.records.requests import Waiting


def to_json(waiting: Waiting) -> dict[str, Any]:
    """Return what is stored."""
    return {
        "count": waiting.count,
        "reason": waiting.reason,
        "round": waiting.round,
        "since": waiting.since.isoformat() if waiting.since is not None else None,
        "detail": dict(waiting.detail),
    }


def from_json(stored: Mapping[str, Any] | None) -> Waiting | None:
    """Return what was stored."""
    if stored is None:
        return None
    since = stored["since"]
    return Waiting(
        count=stored["count"],
        reason=stored["reason"],
        round=stored["round"],
        since=datetime.fromisoformat(since) if since is not None else None,
        detail=stored["detail"],
    )
