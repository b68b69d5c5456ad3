"""What a command may end with instead of an answer, and its exit status."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from controller.errors import ControllerError


class ExitStatus(IntEnum):
    """What the commands answer to the shell; 0 is success."""

    FAILED = 1  #: it was tried and did not work
    BAD_INPUT = 2  #: asked in a way that cannot be answered
    WAIT_EXPIRED = 3  #: `--wait` lasted longer than `--timeout`
    UNREACHABLE = 4  #: no API answers


class CliError(ControllerError):
    """Ends a command with one message and an exit status."""

    status = ExitStatus.FAILED


class BadInputError(CliError):
    """What was typed cannot be meant."""

    status = ExitStatus.BAD_INPUT


class WaitExpiredError(CliError):
    """`--wait` ended before what it waited for."""

    status = ExitStatus.WAIT_EXPIRED


class ApiUnreachableError(CliError):
    """Nobody answers at the API's address."""

    status = ExitStatus.UNREACHABLE

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"cannot reach the API at {url}: {reason}\n"
            "Is it running? `fuga up` starts it; FUGA_URL or --url names another address."
        )
        self.url = url


class ProblemError(CliError):
    """The API refused, with a problem document (RFC 9457)."""

    def __init__(self, http_status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(_message(http_status, problem))
        self.http_status = http_status
        self.code = problem.get("code")
        self.status = ExitStatus.BAD_INPUT if http_status < 500 else ExitStatus.FAILED


_ADVICE = {
    401: "Set FUGA_TOKEN, or run the command where `fuga up` keeps its state (FUGA_STATE_DIR).",
    403: "This needs another token: `--as TENANT`, or the operator's.",
}


def _message(http_status: int, problem: Mapping[str, Any]) -> str:
    """One message of a problem document: what, where, what to do."""
    title = str(problem.get("title") or f"HTTP status {http_status}")
    detail = problem.get("detail")
    lines = [str(detail) if detail else title]
    for each in problem.get("errors") or ():
        if isinstance(each, Mapping):
            place = each.get("field") or each.get("pointer") or each.get("loc") or ""
            if isinstance(place, list | tuple):
                place = ".".join(str(part) for part in place)
            what = each.get("message") or each.get("detail") or each.get("msg") or ""
            line = f"  {place}: {what}" if place else f"  {what}"
            if line.strip(": ") and str(what) not in lines[0]:
                lines.append(line)
        else:
            lines.append(f"  {each}")
    if http_status in _ADVICE:
        lines.append(_ADVICE[http_status])
    return "\n".join(lines)
