"""`fuga pause` and `resume`: stop and start deciding slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from controller.client.errors import ApiError
from controller.session.session import Session, pass_session
from controller.terminal.times import clock


@pass_session
def pause(
    session: Session,
    reason: Annotated[
        str, typer.Argument(metavar="REASON", help="Reason, shown to waiting tenants and recorded")
    ],
) -> None:
    """Stop deciding slots until `fuga resume`. Workers keep creating and deleting VMs."""
    answer = session.api.post("slot-loop/pause", {"reason": reason})
    session.answer(answer, "paused: no rounds until `fuga resume`")


@pass_session
def resume(
    session: Session,
    reason: Annotated[
        str | None, typer.Argument(metavar="[REASON]", help="Reason, recorded")
    ] = None,
) -> None:
    """Decide slots again, starting with the next one."""
    answer = session.api.post("slot-loop/resume", {"reason": reason})
    session.answer(answer, "resumed: the next slot will be decided")


def pause_notice(session: Session) -> str | None:
    """Return a sentence about the pause, or None while slots are decided."""
    try:
        found: Mapping[str, Any] = session.api.get("slot-loop")
    except ApiError:  # an older API, or none: another finding reports that
        return None
    if found["state"] != "paused":
        return None
    by = f" by {found['changed_by']}" if found["changed_by"] else ""
    return (
        f"the slot loop is paused since {clock(found['changed_at'])}{by}: {found['reason']}."
        " Resume it with `fuga resume`."
    )


def halt_notice(session: Session) -> str | None:
    """Return a sentence that explains why no slot is decided, or None."""
    if notice := pause_notice(session):
        return notice
    try:
        late = session.api.get("status")["late"]
    except ApiError:
        return None
    no_process = next(
        (each for each in late if each["work"] == "decide" and each["unattended"]), None
    )
    if no_process is None:
        return None
    return f"nothing is decided: {no_process['message']}. Operators: see `fuga status`."
