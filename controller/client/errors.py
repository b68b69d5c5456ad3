"""What a call of the API may end with instead of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller.errors import ControllerError


class ApiError(ControllerError):
    """Base of the errors of the client."""


class ApiUnreachableError(ApiError):
    """Nobody answers at the API's address, or somebody else does."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"cannot reach the API at {url}: {reason}")
        self.url = url
        self.reason = reason


class ProblemError(ApiError):
    """The API refused, with a problem document (RFC 9457)."""

    def __init__(self, http_status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(_message(http_status, problem))
        self.http_status = http_status
        self.code = problem.get("code")
        self.problem = problem

    @property
    def current_version(self) -> str | None:
        """What an `If-Match` would have had to name (412)."""
        found = self.problem.get("current_version")
        return str(found) if found is not None else None


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
    return "\n".join(lines)
