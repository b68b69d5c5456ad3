"""`fuga events`: what happened, who did it and why."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from controller.session.session import Session, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError
from controller.terminal.output import echo, print_json, short_id
from controller.terminal.times import clock, parse_moment

#: Polling period of `--follow` where there is no stream, and the time until it tries the stream
#: again.
_EVERY_S: Final = 1.0
_POLL_FOR_S: Final = 60.0
#: Too many streams are open, or the API is older than they are.
_NO_STREAM: Final = frozenset({404, 405, 429})
_PAGE: Final = 500


class NoSubjectError(BadInputError):
    """The typed name is that of no request, VM, host or volume."""


def subject_text(event: Mapping[str, Any]) -> str:
    """Return the kind of an event's subject with its name, or else its short id."""
    kind, key, name = event["subject_type"], str(event["subject_id"]), event.get("subject_name")
    if name is not None:
        return f"{kind} {'of ' if kind == 'assignment' else ''}{name}"
    return kind if kind == key else f"{kind} {short_id(key) if _is_uuid(key) else key}"


def _change_text(event: Mapping[str, Any]) -> str | None:
    if event.get("to_state") is None:
        return event.get("event")
    before = event.get("from_state")
    return f"{before} → {event['to_state']}" if before else str(event["to_state"])


EVENT_COLUMNS = (
    Column("at", lambda row: clock(row["at"])),
    field("kind", spare=2),
    Column("subject", subject_text),
    Column("change", _change_text),
    field("reason", spare=1),
    field("actor", spare=3),
    field("id", right=True, spare=4),
)


@pass_session
def events(
    session: Session,
    *,
    last: Annotated[
        int, typer.Option("--last", "-n", help="Number of newest events", min=1, max=_PAGE)
    ] = 100,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Show only events of the last 30m, 12h or 7d, or since a time"
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new events until Ctrl-C")
    ] = False,
    subject: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Show only events of this request, VM (also one that is gone), host or volume",
        ),
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Show only events of this kind")] = None,
    after: Annotated[
        int | None, typer.Option(help="Show events with a greater id, oldest first", min=0)
    ] = None,
) -> None:
    """List events, newest last."""
    if follow and session.json:
        raise BadInputError("--follow is for people; programs poll with --after")
    query: dict[str, Any] = {"kind": kind}
    if subject is not None:
        query["subject"] = find_subject_id(session, subject)
    if since is not None:
        query["since"] = parse_moment(since, "--since", datetime.now(UTC)).isoformat()
    order = {"newest": True} if after is None else {"after": after}
    items = session.api.get("events", limit=last, **order, **query)["items"]
    if session.json:
        print_json(items)
        return
    session.show(
        items, EVENT_COLUMNS, empty="no events" if items else _no_events_text(session, kind)
    )
    if follow:
        _follow_events(session, items[-1]["id"] if items else after or 0, query)
    elif len(items) == last:
        more = f"--after {items[-1]['id']}" if after is not None else f"--last {_PAGE}"
        session.print_message(f"there may be more: fuga events {more}")


def _no_events_text(session: Session, kind: str | None) -> str:
    """Return the message for an empty list of events, with the kinds of recent events."""
    if kind is None:
        return "no events"
    newest = session.api.get("events", limit=_PAGE, newest=True)["items"]
    kinds = sorted({str(event["kind"]) for event in newest} - {kind})
    others = f"; the newest {len(newest)} are of {', '.join(kinds)}" if kinds else ""
    return f"no events of kind {kind}{others}"


def _follow_events(session: Session, after: int, query: Mapping[str, Any]) -> None:
    """Print new events as they come; poll if the API refuses a stream."""
    from controller.client.errors import ApiProblemError, ApiUnreachableError  # noqa: PLC0415

    wanted = {name: value for name, value in query.items() if name != "since"}
    while True:
        poll_until = 0.0
        try:
            for kind, received in session.api.follow("events/stream", after=after, **wanted):
                if kind == "message":
                    _print_event(received)
                    after = received["id"]
        except ApiUnreachableError:
            pass  # polling waits for it, and says so if it does not come back
        except ApiProblemError as error:
            if error.http_status not in _NO_STREAM:
                raise
            poll_until = time.monotonic() + _POLL_FOR_S
        while True:
            page = session.api.get("events", after=after, limit=_PAGE, **wanted)
            after = page["next"]
            for event in page["items"]:
                _print_event(event)
            if len(page["items"]) < _PAGE:
                time.sleep(_EVERY_S)
                if time.monotonic() >= poll_until:
                    break


def _print_event(event: Mapping[str, Any]) -> None:
    parts = [clock(event["at"]), event["kind"], subject_text(event), _change_text(event)]
    parts.append(event["reason"])
    echo("  ".join(str(each) for each in parts if each))


def find_subject_id(session: Session, typed: str) -> str:
    """Return the id of the request, VM (also one that is gone), host or volume of this name."""
    from controller.client.errors import ApiProblemError  # noqa: PLC0415
    from controller.session.name_lookup import NameNotFoundError, find_past_target, find_past_volume  # noqa: PLC0415

    if _is_uuid(typed) or typed.isdigit():
        return typed
    try:
        return str(find_past_target(session.api, typed, session.print_note).record["id"])
    except NameNotFoundError as error:
        nothing = error
    with contextlib.suppress(ApiProblemError):
        return str(session.api.get(f"hosts/{typed}")["id"])
    if (volume := find_past_volume(session.api, typed)) is not None:
        return str(volume["id"])
    raise NoSubjectError(
        f"request, VM, host or volume {typed!r} not found; `fuga requests --all`, `fuga vms`,"
        f" `fuga vms --deleted`, `fuga host list` and `fuga volume list` list them"
        f"{nothing.suggestion}"
    )


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
