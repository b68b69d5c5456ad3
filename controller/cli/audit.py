"""`fuga audit`: who changed what, and who tried to."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from controller.cli.changes import parse_ttl
from controller.cli.output import Column, clock, field
from controller.cli.session import Session, listing

_WIDEST_PATH: Final = 70


def _who(row: Mapping[str, Any]) -> str:
    if row["token"] is None:
        return "nobody"
    return f"{row['tenant'] or 'operator'}:{row['token']}"


def _result(row: Mapping[str, Any]) -> str:
    status = "no answer" if row["status"] is None else str(row["status"])
    return f"{status} (+{row['untold']} like it)" if row["untold"] else status


def _path(row: Mapping[str, Any]) -> str:
    # An upload's query names all that an image has; --output json has it in full.
    path: str = row["path"]
    return path if len(path) <= _WIDEST_PATH else f"{path[: _WIDEST_PATH - 1]}…"


COLUMNS = (
    Column("at", lambda row: clock(row["at"])),
    Column("who", _who),
    field("address", "from"),
    field("method"),
    Column("path", _path),
    field("subject"),
    Column("result", _result),
    field("request_id", "request id"),
)


@listing
def audit(
    session: Session,
    *,
    token: Annotated[str | None, typer.Option(help="Only of the token of that name.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only of that tenant's tokens.")] = None,
    subject: Annotated[str | None, typer.Option(help="Only about the thing of that id.")] = None,
    method: Annotated[str | None, typer.Option(help="Only POST, PATCH, PUT or DELETE.")] = None,
    status: Annotated[int | None, typer.Option(help="Only what was answered that.")] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Only 401, 403 and 429.")] = False,
    request_id: Annotated[str | None, typer.Option(help="The one with that X-Request-Id.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not older than 30m, 12h or 7d.")
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 50,
) -> None:
    """List calls of the API that could change something, newest first. For operators."""
    filters = {
        "token": token,
        "tenant": tenant,
        "subject": subject,
        "method": method.upper() if method else None,
        "status": status,
        "refused": "true" if refused else None,
        "request_id": request_id,
    }
    if since is not None:
        begin = datetime.now(UTC) - timedelta(seconds=parse_ttl(since, "--since"))
        filters["since"] = begin.isoformat()
    rows = session.api.items("audit", most=limit, **filters)
    session.show(rows, COLUMNS, empty="no calls")
