"""The waiting status of requests as JSON in `requests.waiting`, and the slots they waited."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import case, select

from registry.db.schema import requests, slot_loop
from registry.records.requests import WaitingStatus

#: The slots that a request waited: its `rounds_waited`, and slots without a round since. A request
#: that waited in no round came after those slots, or there would have been a round.
SLOTS_WAITED: Final = case(
    (
        requests.c.rounds_waited > 0,
        requests.c.rounds_waited + select(slot_loop.c.without_round).scalar_subquery(),
    ),
    else_=0,
)


def waiting_status_to_json(waiting: WaitingStatus) -> dict[str, Any]:
    """Return the JSON form of a waiting status."""
    return {
        "count": waiting.count,
        "reason": waiting.reason,
        "round": waiting.round,
        "since": waiting.since.isoformat() if waiting.since is not None else None,
        "detail": dict(waiting.detail),
    }


def waiting_status_from_json(stored: Mapping[str, Any] | None) -> WaitingStatus | None:
    """Return the waiting status that JSON values hold; None for None."""
    if stored is None:
        return None
    since = stored["since"]
    return WaitingStatus(
        count=stored["count"],
        reason=stored["reason"],
        round=stored["round"],
        since=datetime.fromisoformat(since) if since is not None else None,
        detail=stored["detail"],
    )
