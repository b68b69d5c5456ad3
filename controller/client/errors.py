"""Errors of a call of the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from controller.errors import ControllerError
from controller.json_pointers import pointer_text
from plain_text import plain


class ApiError(ControllerError):
    """Base of the errors of the client."""


class ApiUnreachableError(ApiError):
    """The API does not answer at its address, or another server does."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"cannot reach the API at {url}: {reason}")
        self.url = url
        self.reason = reason


class ApiProblemError(ApiError):
    """The API refused, with a problem document (RFC 9457)."""

    def __init__(self, http_status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(_problem_message(http_status, problem, str))
        self.http_status = http_status
        self.code = problem.get("code")
        self.problem = problem

    def message_with_names(self, called: Callable[[str], str]) -> str:
        """Return the message with the names of fields replaced, for example by options."""
        return _problem_message(self.http_status, self.problem, called)

    @property
    def current_version(self) -> str | None:
        """The resource's current version, which a 412 answer names."""
        found = self.problem.get("current_version")
        return str(found) if found is not None else None


def _problem_message(
    http_status: int, problem: Mapping[str, Any], called: Callable[[str], str]
) -> str:
    """Return the text of a problem document, with a line for each error of the input."""
    errors = [each for each in problem.get("errors") or () if isinstance(each, Mapping)]
    lines = [line for line in (_input_error_text(each, called) for each in errors) if line]
    if not lines:
        detail = problem.get("detail") or problem.get("title") or f"HTTP status {http_status}"
        return plain(str(detail))
    if len(lines) == 1:
        return lines[0]
    title = plain(str(problem.get("title") or f"HTTP status {http_status}"))
    return "\n".join([f"{title}:", *(f"  {each}" for each in lines)])


def _input_error_text(error: Mapping[str, Any], called: Callable[[str], str]) -> str:
    """Return one error of the input as text, with the caller's name of the field."""
    pointer = error.get("pointer")
    place = pointer_text(str(pointer)) if pointer else str(error.get("parameter") or "")
    detail = str(error.get("detail") or "")
    # In lists of a query the place has its number after its name.
    name, colon, what = detail.partition(": ")
    if colon and place and name.startswith(place):
        detail = f"{called(name)}: {what}"
    return plain(detail)
