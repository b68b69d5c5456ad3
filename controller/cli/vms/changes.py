"""`fuga scale`, `label`, `extend`: change requests and VMs that exist."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from controller.session.name_lookup import find_request, find_target, find_targets
from controller.session.session import Session, pass_session
from controller.terminal.errors import BadInputError
from controller.terminal.pairs import unique_pairs
from controller.terminal.times import clock, parse_ttl

_COUNT: Final = re.compile(r"([0-9]+)(?:\.\.([0-9]+))?")

RequestArgument = Annotated[
    str, typer.Argument(metavar="REQUEST", help="Request name, id or end of the id")
]
TtlOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Delete the request and its VMs after TIME (90m, 2h, 7d)"),
]


def parse_count(given: str) -> dict[str, int]:
    """Parse ``N`` or ``N..MAX`` as fields of a request."""
    found = _COUNT.fullmatch(given)
    if found is None:
        raise typer.BadParameter(f"{given!r}: wanted a number of VMs such as 4, or 4..20")
    count = int(found[1])
    if found[2] is None:
        return {"count": count}
    if int(found[2]) < count:
        raise typer.BadParameter(f"{given!r}: the second number is the maximum, as in 4..20")
    return {"count": count, "max_count": int(found[2])}


def _check_count(given: str) -> str:
    parse_count(given)
    return given


CountOption = Annotated[
    str,
    typer.Option(
        "-n",
        "--count",
        metavar="N[..MAX]",
        help="Number of VMs; up to MAX with borrowed ones",
        callback=_check_count,
    ),
]


def count_text(request: Mapping[str, Any]) -> str:
    """Return the number of VMs of a request, with its maximum if it borrows any."""
    most = request.get("max_count")
    return f"{request['count']}" if most is None else f"{request['count']}..{most}"


def parse_labels(given: list[str] | None) -> dict[str, str]:
    """Parse the labels of a request or VM: ``key=value`` pairs."""
    return unique_pairs("KEY=VALUE", map(_parse_label, given or ()))


def _parse_label(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not (key and equals and value):
        raise BadInputError(f"found {word!r}, wanted KEY=VALUE such as env=test")
    return key, value


def labels_and_end(labels: list[str] | None, ttl: str | None) -> dict[str, Any]:
    """Return the fields of a new request that ``--label`` and ``--ttl`` set."""
    given: dict[str, Any] = {"labels": parse_labels(labels)} if labels else {}
    return given if ttl is None else given | {"ttl_s": parse_ttl(ttl)}  # the API refuses 0


def labels_text(record: Mapping[str, Any]) -> str:
    """Return the labels of a request or VM as the text of a cell."""
    return ",".join(f"{key}={value}" for key, value in (record.get("labels") or {}).items())


@pass_session
def scale(
    session: Session,
    *,
    request: RequestArgument,
    count: CountOption,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="VM", help="VM to remove first; repeatable")
    ] = None,
) -> None:
    """Change the number of VMs. Unplaced VMs are removed first, then the newest."""
    found = find_request(session.api, request)
    body: dict[str, Any] = {**parse_count(count)}
    if found.get("max_count") is not None:  # without a maximum, none are borrowed
        body.setdefault("max_count", body["count"])
    if remove:
        targets = find_targets(session.api, remove)
        for target in targets:
            if target.kind != "vm":
                raise BadInputError(f"{target} is not a VM")
        body["remove"] = [target.record["id"] for target in targets]
    changed = session.api.patch(f"requests/{found['id']}", body)
    session.answer(
        changed, f"request {changed['name']}: {count_text(found)} -> {count_text(changed)} VMs"
    )


@pass_session
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
    gone = unique_pairs("KEY-", [(each[:-1], None) for each in changes if _is_removal(each)])
    put = parse_labels([each for each in changes if not _is_removal(each)])
    if both := gone.keys() & put.keys():
        raise BadInputError(f"label {min(both)!r} is both set and removed")
    changed = session.api.patch(found.path, {"labels": {**gone, **put}})
    session.answer(changed, f"{found}: {labels_text(changed) or 'no labels'}")


def _is_removal(change: str) -> bool:
    return change.endswith("-") and "=" not in change


@pass_session
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
    ending = "never ends" if ends is None else f"ends {clock(ends)}"
    session.answer(changed, f"request {changed['name']} {ending}")
