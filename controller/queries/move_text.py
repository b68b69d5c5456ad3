"""Moves as their readers may see them: redacted records, and sentences."""

from __future__ import annotations

import dataclasses

from controller.host_aliases import Viewer
from registry.moves import Move, MoveState


def redact_move(move: Move, reader: Viewer) -> Move:
    """Replace both hosts by the tenant's aliases; hide which operator or process requested it."""
    if reader.is_operator:
        return move
    cancelled_by = move.cancelled_by
    return dataclasses.replace(
        move,
        from_host=reader.host(move.from_host),
        to_host=reader.host(move.to_host),
        reason=reader.redact_text(move.reason),
        requested_by=reader.actor(move.requested_by),
        cancelled_by=None if cancelled_by is None else reader.actor(cancelled_by),
        last_error=reader.redact_text_or_none(move.last_error),
    )


def move_sentence(move: Move) -> str:
    """Return a sentence about a move: hosts, reason, time, and the downtime of the guest."""
    way = f"from {move.from_host} to {move.to_host} ({move.reason})"
    if move.ended_at is None:
        return f"it is moving {way}"
    at = f"at {move.ended_at:%Y-%m-%d %H:%M:%S} UTC"
    if move.state is MoveState.MOVED:
        still = ""
        if move.downtime_ms is not None:
            still = f"; its guest stood still for {move.downtime_ms / 1000:g} s"
        how = "while its guest ran" if move.kind == "live" else "while it was off"
        return f"it moved {way} {at}, {how}{still}"
    became = "failed" if move.state is MoveState.FAILED else "was cancelled"
    return f"its move {way} {became} {at}: {move.last_error}"
