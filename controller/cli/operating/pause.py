"""`fuga pause` and `resume`: whether slots are decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from controller.calling.session import Session, with_session
from controller.client.errors import ApiError
from controller.terminal.output import clock


@with_session
def pause(
    session: Session,
    reason: Annotated[
        str, typer.Argument(metavar="REASON", help="Read by whoever waits meanwhile, and kept.")
    ],
) -> None:
    """Decide no slot until `fuga resume`; what is placed is still built and deleted."""
    answer = session.api.post("slot-loop/pause", {"reason": reason})
    session.answer(answer, "paused: no round commits from now on; `fuga resume` ends it")


@with_session
def resume(
    session: Session,
    reason: Annotated[str | None, typer.Argument(metavar="[REASON]", help="Kept.")] = None,
) -> None:
    """Decide slots again, from the next one on."""
    answer = session.api.post("slot-loop/resume", {"reason": reason})
    session.answer(answer, "resumed: the next slot is decided")


def paused(session: Session) -> str | None:
    """Return a sentence about the pause; None where slots are decided."""
    try:
        found: Mapping[str, Any] = session.api.get("slot-loop")
    except ApiError:  # of an API that is older, or that is away: others tell that
        return None
    if found["state"] != "paused":
        return None
    by = f" by {found['changed_by']}" if found["changed_by"] else ""
    return (
        f"the slot loop is paused since {clock(found['changed_at'])}{by}: {found['reason']}."
        " `fuga resume` ends it"
    )
