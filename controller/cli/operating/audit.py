"""`fuga audit`: who changed what, and who tried to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from controller.cli.operating.events import NoSubjectError, find_subject_id
from controller.session.session import Session, list_command
from controller.terminal.columns import Column, field
from controller.terminal.output import table_width
from controller.terminal.times import clock, parse_moment

_WIDEST_PATH: Final = 70
_ALL_FROM: Final = 140
#: What a kind of refusals begins with, before its method and route.
_STATUS: Final = re.compile(r"no answer|\S*")


def _caller_text(row: Mapping[str, Any]) -> str:
    if row["token"] is None:
        return "nobody"
    return f"{row['tenant'] or 'operator'}:{row['token']}"


def _result_text(row: Mapping[str, Any]) -> str:
    """Return the HTTP status of a call, or the numbers of refused calls by status."""
    refusals = row.get("refusals")
    if refusals:
        counts: Counter[str] = Counter()
        for kind, count in refusals.items():
            counts[_STATUS.match(kind)[0]] += count  # type: ignore[index]  # matches anything
        summary = ", ".join(f"{status} ×{count}" for status, count in counts.most_common())
        return f"{summary}, until {clock(row['last_at'])}"
    status = "no answer" if row["status"] is None else str(row["status"])
    return f"{status} (+{row['suppressed']} like it)" if row["suppressed"] else status


def _path_text(row: Mapping[str, Any]) -> str:
    # An upload's query names all that an image has; --output json has it in full.
    path: str = row["path"]
    shortened = path if len(path) <= _WIDEST_PATH else f"{path[: _WIDEST_PATH - 1]}…"
    kinds = len(row.get("refusals") or ())
    return shortened if kinds <= 1 else f"{shortened} and others"


_AT: Final = Column("at", lambda row: clock(row["at"]))
_WHO: Final = Column("who", _caller_text)
_RESULT: Final = Column("result", _result_text, prose=True)
COLUMNS: Final = (
    _AT,
    _WHO,
    field("address", "from"),
    field("method"),
    Column("path", _path_text),
    field("subject"),
    _RESULT,
    field("request_id", "request id"),
)
#: Where not all of them have room side by side.
NARROW: Final = (
    _AT,
    _WHO,
    Column("call", lambda row: f"{row['method']} {_path_text(row)}", prose=True),
    _RESULT,
)


def audit_columns(width: int) -> Sequence[Column]:
    """Return the columns of `fuga audit` that fit a table of this width, in characters."""
    return COLUMNS if width >= _ALL_FROM else NARROW


def _subject_id(session: Session, typed: str) -> str:
    """Return the id of the named subject, or the name of a subject without id."""
    try:
        return find_subject_id(session, typed)
    except NoSubjectError:
        return typed


@list_command
def audit(
    session: Session,
    *,
    token: Annotated[str | None, typer.Option(help="Show only calls with this token")] = None,
    tenant: Annotated[str | None, typer.Option(help="Show only calls of this tenant")] = None,
    subject: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Show only calls about this VM, request or host, or this id"
        ),
    ] = None,
    method: Annotated[str | None, typer.Option(help="Show only POST, PATCH, PUT or DELETE")] = None,
    status: Annotated[
        int | None, typer.Option(help="Show only calls with this HTTP status")
    ] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Show only 401, 403 and 429")] = False,
    request_id: Annotated[
        str | None, typer.Option(help="Show only the call with this X-Request-Id")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Show only calls of the last 30m, 12h or 7d, or since a time"
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of rows", min=1)] = 50,
) -> None:
    """List API calls that could change something, newest first (operators).

    A caller's refused calls within a minute share one row with a count.
    """
    filters = {
        "token": token,
        "tenant": tenant,
        "subject": subject and _subject_id(session, subject),
        "method": method.upper() if method else None,
        "status": status,
        "refused": "true" if refused else None,
        "request_id": request_id,
    }
    if since is not None:
        filters["since"] = parse_moment(since, "--since", datetime.now(UTC)).isoformat()
    rows = session.api.items("audit", max_items=limit, **filters)
    session.show(rows, audit_columns(table_width()), empty="no calls")
