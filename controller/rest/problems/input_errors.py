"""Describes the errors of a call's input: the field, what was found, what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from starlette.types import Scope

from controller.json_pointers import WHOLE, pointer_of, pointer_text
from controller.rest.middleware.callers import PROTECTED_PREFIX, is_api_path
from controller.rest.problems import patterns
from controller.rest.problems.errors import HeaderError
from controller.rest.problems.schema_text import ExpectedValues, Operation
from plain_text import join_names, suggest_names
from registry import (
    ImageUrlRefusedError,
    InvalidError,
    UnknownNameError,
    UriRefusedError,
    quote_value,
)

#: Members of a body that are never quoted in errors: secrets and long texts.
UNQUOTED: Final = frozenset(
    {
        *("user_data", "public_key", "ssh_keys", "content", "credential", "ssh_host_keys"),
        *("code", "verifier"),
    }
)
FOUND_SHOWN: Final = 120
_FIELDS_SHOWN: Final = 24
#: Fields whose members have names that callers choose.
_OF_NAMES: Final = frozenset({"labels", "limits", "overrides", "ratios", "reserved", "resources"})
#: Beginnings of Pydantic's messages: "Input should be a valid integer", ...
_SHOULD_BE: Final = re.compile(r"^(\w+ should (be )?|Value error, )")
#: Allowed values by type of error that the schema does not describe.
_OWN_WORDS: Final[Mapping[str, str]] = {
    "string_unicode": "valid Unicode text",
    "finite_number": "a finite number",
}
_NO_NAME: Final = re.compile(r"[^a-z0-9._-]+")


#: Returns the names of a kind that the caller may see; None if none are known.
Names = Callable[[str], Sequence[str] | None]


def no_names(kind: str) -> None:
    """Return None for every kind of name: the caller may see no names, or none are needed."""
    del kind


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """A refused call: its operation, and the names that its caller may see."""

    operation: Operation
    names: Names = no_names

    def add_suggestions(self, message: str, kind: str, key: str) -> str:
        """Return an error message with suggestions for an unknown name."""
        names = self.names(kind)
        if names is None:
            return message
        choices = suggest_names(key, names) if names else "none exist yet"
        return f"{message}; {choices}" if choices else message


UNKNOWN: Final = RefusedCall(Operation({}, {}))


def refused_call_of(scope: Scope) -> RefusedCall:
    """Return the refused call of a routed scope; `UNKNOWN` before routing."""
    routed = getattr(scope.get("route"), "path", None)
    if routed is None:
        return UNKNOWN
    # A router does not know its prefix.
    template = f"{PROTECTED_PREFIX}{routed}" if is_api_path(scope["path"]) else routed
    return RefusedCall(Operation.of(scope["app"].openapi(), template, scope["method"]))


def input_errors(error: Exception, method: str, call: RefusedCall) -> list[dict[str, Any]]:
    """Return the errors of a call's input, one per field; empty for other errors."""
    match error:
        case RequestValidationError():
            return list(
                _unique_fields(
                    _describe_input_error(found, call.operation) for found in error.errors()
                )
            )
        case InvalidError():
            place, found, allowed = (
                _field_location(error.field, method),
                error.found,
                error.allowed,
            )
            detail = str(error)
            if "pointer" in place:  # in the form of places: hosts[3], not hosts.3
                what = detail.removeprefix(f"{error.field}: ")
                detail = f"{pointer_text(place['pointer'])}: {what}"
            if isinstance(error, UnknownNameError) and not error.known:
                detail = call.add_suggestions(detail, error.kind, error.key)
        case ImageUrlRefusedError():
            place, found, allowed = _field_location("url", method), error.url, error.reason
            detail = str(error)
        case UriRefusedError():
            place, found, allowed = _field_location("uri", method), error.uri, error.reason
            detail = str(error)
        case HeaderError():
            place = {"in": "header", "parameter": error.name}
            found, allowed, detail = error.found, error.allowed, str(error)
        case _:
            return []
    return [{**place, "detail": detail, "found": quotable_value(found), "allowed": allowed}]


def input_errors_summary(errors: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence with the first three errors of the input, and the number of the others."""
    first = "; ".join(str(error["detail"]) for error in errors[:3])
    return first if len(errors) <= 3 else f"{first}; and {len(errors) - 3} more"


def quotable_value(value: Any) -> Any:
    """Return a value of the input for quoting in a problem: shortened, always valid JSON."""
    rendered: Any
    match value:
        case None | bool():
            rendered = value
        case int():
            rendered = value if abs(value) < 2**63 else "an integer beyond 64 bits"
        case float():
            rendered = value if math.isfinite(value) else str(value)
        case Mapping():
            rendered = f"an object with {len(value)} members"
        case list() | tuple():
            rendered = f"a list of {len(value)}"
        case _:
            text = str(value)
            rendered = text if len(text) <= FOUND_SHOWN else text[:FOUND_SHOWN] + "…"
    return rendered


def _unique_fields(found: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Drop further errors of a field, because each branch of a union reports its own."""
    seen = set()
    for each in found:
        key = (each["in"], each.get("pointer"), each.get("parameter"))
        if key not in seen:
            seen.add(key)
            yield each


def _field_location(name: str, method: str) -> dict[str, str]:
    """Return where a call has a field that the register center refused: body or query."""
    if method in {"POST", "PATCH", "PUT"}:
        field, dot, below = name.partition(".")
        # Names of things may have dots in them.
        path = [field, below] if dot and field in _OF_NAMES else name.split(".")
        return {"in": "body", "pointer": pointer_of(path)}
    return {"in": "query", "parameter": name}


def _describe_input_error(error: Mapping[str, Any], operation: Operation) -> dict[str, Any]:
    """Describe an error of Pydantic: the field, what was found, and what is allowed."""
    source, *path = error["loc"]
    surplus = error["type"] == "extra_forbidden"
    wanted = operation.expected_values(source, path[:-1] if surplus else path)
    at = tuple(quotable_value(part) if isinstance(part, str) else part for part in wanted.path)
    if surplus:
        at = (*at, quotable_value(path[-1]))
    place: dict[str, Any] = {"in": source}
    if source == "body":
        place["pointer"] = pointer_of([part for part in at if part != "[key]"])
        name = pointer_text(place["pointer"])
    else:
        place["parameter"] = name = str(path[0]) if path else ""
        if len(at) > 1:
            name = pointer_text(pointer_of(at))
    found = _found_value(error, path)
    if surplus:
        known = operation.parameters(source) if source != "body" else wanted.fields
        allowed = _unknown_field_text(str(path[-1]), known)
        return {**place, "detail": f"{name}: {allowed}", "found": found, "allowed": allowed}
    allowed = _allowed_text(error, wanted)
    if error["type"] == "missing":
        what = name if name != WHOLE else "a JSON body"
        detail = f"{what}: found nothing, allowed is {allowed}"
        return {**place, "detail": detail, "found": "nothing", "allowed": allowed}
    quoted = _is_worth_quoting(error.get("input"), path)
    detail = f"{name}: found {quote_value(found) if quoted else found}, allowed is {allowed}"
    suggestion = _suggestion_for(error.get("input"), wanted)
    if suggestion and quoted:
        detail += f"; did you mean {suggestion}?"
    return {**place, "detail": detail, "found": found, "allowed": allowed}


def _found_value(error: Mapping[str, Any], path: Sequence[Any]) -> Any:
    value = error.get("input")
    if isinstance(value, str) and UNQUOTED & set(path):
        return f"{len(value)} characters"
    return quotable_value(value)


def _is_worth_quoting(value: Any, path: Sequence[Any]) -> bool:
    """Return whether to quote the found value instead of describing it."""
    if isinstance(value, Mapping | list | tuple):
        return False
    return not (isinstance(value, str) and UNQUOTED & set(path))


def _allowed_text(error: Mapping[str, Any], wanted: ExpectedValues) -> str:
    """Return what is allowed in a field, by the OpenAPI document or else by Pydantic's error."""
    kind = error["type"]
    if kind == "missing" and wanted.description is None:
        return "a value (required)"
    if kind in _OWN_WORDS:
        return _OWN_WORDS[kind]
    if kind == "value_error" or wanted.description is None:
        return _SHOULD_BE.sub("", str(error["msg"]))
    return wanted.description


def _unknown_field_text(typed: str, known: Sequence[str]) -> str:
    """Return what is allowed in place of an unknown field: similar names, or all of few."""
    advised = suggest_names(typed, known)
    if advised is None and len(known) <= _FIELDS_SHOWN:
        advised = f"known: {join_names(known, 'and')}" if known else "none are allowed"
    return f"unknown name; {advised or 'see /docs'}"


def _suggestion_for(value: Any, wanted: ExpectedValues) -> str | None:
    """Suggest a value for text: one of a few words, or a known name."""
    if not isinstance(value, str):
        return None
    advised = suggest_names(value, wanted.choices) or ""
    if advised.startswith("did you mean "):
        return advised.removeprefix("did you mean ").removesuffix("?")
    if wanted.pattern == patterns.NAME:
        return _NO_NAME.sub("-", value[:FOUND_SHOWN].lower()).strip("._-")[:63].rstrip("._-")
    return None
