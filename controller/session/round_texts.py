"""Texts about rounds for tables and for the status lines of `fuga up`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def shares_text(round_: Mapping[str, Any]) -> str:
    """Return the dominant share of every tenant after a round, as text."""
    parts = []
    for each in round_.get("shares") or ():
        share = each.get("dominant_share", each.get("share", each.get("after")))
        parts.append(f"{each.get('tenant')} {share:.3f}" if share is not None else each["tenant"])
    return "  ".join(parts)


def duration_s(round_: Mapping[str, Any]) -> float | None:
    """Return how long a round took, in seconds."""
    timings = round_.get("timings") or {}
    return max(timings.values()) if timings else None  # the whole duration is one of the timings


def decided_by_text(round_: Mapping[str, Any]) -> str:
    """Return the name of the deciding policy, with a note if the budget cut its search."""
    who = str(round_["decided_by"])
    return f"{who}, cut" if round_.get("cut") else who
