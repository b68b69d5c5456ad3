"""`fuga scale`, `label`, `extend`: change requests and VMs that exist."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

import typer

from controller.calling.session import Session, with_session
from controller.calling.targets import find_request, find_target
from controller.terminal.errors import BadInputError
from controller.terminal.output import clock

RequestArgument = Annotated[
    str, typer.Argument(metavar="REQUEST", help="Request name, id or end of the id")
]
TtlOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Delete the request and its VMs after TIME (90m, 2h, 7d)"),
]

_TIME: Final = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_ttl(given: str, option: str = "--ttl") -> int:
    """Read a time as ``2h`` into seconds."""
    found = _TIME.fullmatch(given)
    if found is None:
        raise BadInputError(
            f"{option}: found {given!r}, wanted a number and s, m, h or d, such as 2h"
        )
    return int(found[1]) * _SECONDS[found[2]]


def parse_end(given: str, option: str = "--expires") -> int | Literal["never"]:
    """Read a time as ``90d`` into seconds, or ``never``."""
    return "never" if given == "never" else parse_ttl(given, option)


def iso_time(given: str) -> datetime | None:
    """Read a time of ISO 8601, without a zone of UTC; None: it is none, or none of the calendar."""
    try:
        at = datetime.fromisoformat(given)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):  # in its zone it may be a time of the calendar
        return None


def parse_moment(given: str, option: str, now: datetime) -> datetime:
    """Read a span before now, or a time of ISO 8601; without a zone it is UTC."""
    if (at := iso_time(given)) is not None:
        return at
    try:
        return now - timedelta(seconds=parse_ttl(given, option))
    except (BadInputError, OverflowError):
        raise BadInputError(
            f"{option}: found {given!r}, wanted a span before now such as 7d or 12h, or a time"
            " such as 2026-11-10T00:00Z"
        ) from None


def parse_labels(given: list[str] | None) -> dict[str, str]:
    """Read ``key=value`` pairs."""
    labels = {}
    for each in given or ():
        key, equals, value = each.partition("=")
        if not (key and equals and value):
            raise BadInputError(f"found {each!r}, wanted KEY=VALUE such as env=test")
        labels[key] = value
    return labels


def labels_and_end(labels: list[str] | None, ttl: str | None) -> dict[str, Any]:
    """Return the labels and the end of a new request, as far as options give them."""
    given: dict[str, Any] = {"labels": parse_labels(labels)} if labels else {}
    return given if ttl is None else given | {"ttl_s": parse_ttl(ttl)}  # the API refuses 0


def told_labels(record: Mapping[str, Any]) -> str:
    """Return the labels of a request or VM as the text of a cell."""
    return ",".join(f"{key}={value}" for key, value in (record.get("labels") or {}).items())


@with_session
def scale(
    session: Session,
    *,
    request: RequestArgument,
    count: Annotated[int, typer.Option("-n", "--count", help="New number of VMs")],
    remove: Annotated[
        list[str] | None,
        typer.Option(metavar="VM", help="VM to remove first; repeatable"),
    ] = None,
) -> None:
    """Change the number of VMs. Unplaced VMs are removed first, then the newest."""
    found = find_request(session.api, request)
    body: dict[str, Any] = {"count": count}
    if remove:
        targets = [find_target(session.api, each) for each in remove]
        for target in targets:
            if target.kind != "vm":
                raise BadInputError(f"{target} is not a VM")
        body["remove"] = [target.record["id"] for target in targets]
    changed = session.api.patch(f"requests/{found['id']}", body)
    session.answer(
        changed, f"request {changed['name']}: {found['count']} -> {changed['count']} VMs"
    )


@with_session
def label(
    session: Session,
    *,
    target: Annotated[
        str, typer.Argument(metavar="NAME", help="Request or VM (name, id or end of the id)")
    ],
    changes: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE|KEY-...", help="Label to set, or KEY- to remove one"),
    ],
) -> None:
    """Set or remove labels of a request or a VM."""
    found = find_target(session.api, target)
    gone = {each[:-1]: None for each in changes if each.endswith("-") and "=" not in each}
    put = parse_labels([each for each in changes if each[:-1] not in gone])
    changed = session.api.patch(found.path, {"labels": {**gone, **put}})
    session.answer(changed, f"{found}: {told_labels(changed) or 'no labels'}")


@with_session
def extend(
    session: Session,
    *,
    request: RequestArgument,
    ttl: TtlOption = None,
    never: Annotated[bool, typer.Option("--never", help="Remove the end")] = False,
) -> None:
    """Set when a request ends, counted from now, or never."""
    if never == (ttl is not None):
        raise BadInputError("give either --ttl TIME or --never")
    found = find_request(session.api, request)
    body = {"ttl_s": "never" if ttl is None else parse_ttl(ttl)}
    changed = session.api.patch(f"requests/{found['id']}", body)
    ends = changed["expires_at"]
    told = "never ends" if ends is None else f"ends {clock(ends)}"
    session.answer(changed, f"request {changed['name']} {told}")
