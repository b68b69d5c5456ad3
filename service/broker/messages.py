"""The exact format of fuga's messages.

Anyone who reaches the broker can write anything into a queue, and one unexpected header ends
Celery's consumer. So a worker parses the bytes here, and builds a new envelope for Celery from the
task's name, its arguments and its expiry. Messages that differ from fuga's format are refused. An
invented id is harmless, as the row says what to do (docs/adr/0037).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID, uuid4

from registry import RegistryError

#: Maximum size of a message; fuga's have about 2 kB with a long path.
MAX_BYTES: Final = 32 << 10
_MAX_TEXT: Final = 8 << 10
#: Maximum time until a message expires; fuga's senders set seconds or minutes.
_MAX_USE: Final = timedelta(days=1)

#: Checks whether the arguments of a task have fuga's format.
Arguments = Callable[[list[Any]], bool]


class ForeignMessageError(RegistryError):
    """A message is not fuga's; `reason` is one of a few words."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the message is not fuga's: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class AllowedMessages:
    """The allowed messages of one queue: its name, and the arguments of each task."""

    queue: str
    tasks: Mapping[str, Arguments]
    threads: int  #: maximum messages of it in progress at a time


def is_id(value: object) -> bool:
    """Return whether a value of a message is a UUID in fuga's form."""
    if not isinstance(value, str) or len(value) != 36:
        return False
    try:
        return str(UUID(value)) == value
    except ValueError:
        return False


def is_text(value: object, *, max_length: int = _MAX_TEXT) -> bool:
    """Return whether a value of a message is text that may be a file name."""
    if not isinstance(value, str) or len(value) > max_length:
        return False
    return not any(each == "\0" or "\ud800" <= each <= "\udfff" for each in value)


def is_one_id(arguments: list[Any]) -> bool:
    """Return whether the arguments of a message's task are one id."""
    return len(arguments) == 1 and is_id(arguments[0])


def envelope(content: bytes, known: AllowedMessages, *, now: datetime) -> dict[str, Any]:
    """Return a message's envelope for Celery, built from its checked parts.

    Raises
    ------
    ForeignMessageError
        If the message does not have fuga's exact format, or has expired.
    """
    if len(content) > MAX_BYTES:
        raise ForeignMessageError("too_long")
    found = _parse_json(content, "not_json")
    if not isinstance(found, dict):
        raise ForeignMessageError("not_an_envelope")
    _check_keys_and_values(found, _ENVELOPE, optional=_RESTORED, reason="envelope")
    headers, properties = found["headers"], found["properties"]
    _check_keys_and_values(headers, _HEADERS, optional=_RESTORED, reason="headers")
    _check_keys_and_values(properties, _PROPERTIES, optional=_EXPIRING, reason="properties")
    _check_keys_and_values(
        properties["delivery_info"], _DELIVERY, optional=_RESTORED, reason="properties"
    )
    arguments = _parse_arguments(found["body"])
    check = known.tasks.get(headers["task"])
    if check is None:
        raise ForeignMessageError("task")
    if not check(arguments):
        raise ForeignMessageError("arguments")
    return _rebuilt_envelope(
        headers["id"],
        headers["task"],
        arguments,
        _checked_expiry(headers["expires"], now),
        known.queue,
    )


def _parse_json(content: bytes | str, reason: str) -> Any:
    """Parse JSON of a message, or raise `ForeignMessageError`."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise ForeignMessageError(reason) from None


def _parse_arguments(body: str) -> list[Any]:
    """Return the task's arguments in a message's body, or raise `ForeignMessageError`."""
    try:
        decoded = base64.b64decode(body, validate=True)
    except ValueError:  # characters outside of ASCII, too
        raise ForeignMessageError("body") from None
    match _parse_json(decoded, "body"):
        case [list() as arguments, named, how] if named == {} and how == _EMBED:
            return arguments
    raise ForeignMessageError("body")


def _checked_expiry(expires: str | None, now: datetime) -> str | None:
    """Return a message's time of expiry in one form; raise `ForeignMessageError` if it is over."""
    if expires is None:
        return None
    try:
        until = datetime.fromisoformat(expires)
        if until.tzinfo is None:
            raise ForeignMessageError("headers")
        until = until.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ForeignMessageError("headers") from None
    if until <= now:
        raise ForeignMessageError("expired")
    if until > now + _MAX_USE:
        raise ForeignMessageError("headers")
    return until.isoformat()


def _rebuilt_envelope(
    task_id: str, task: str, arguments: list[Any], expires: str | None, queue: str
) -> dict[str, Any]:
    """Return the envelope of a message as fuga's Celery would have written it."""
    body = json.dumps([arguments, {}, dict(_EMBED)]).encode()
    return {
        "body": base64.b64encode(body).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {
            "lang": "py",
            "task": task,
            "id": task_id,
            "shadow": None,
            "eta": None,
            "expires": expires,
            "group": None,
            "group_index": None,
            "retries": 0,
            "timelimit": [None, None],
            "root_id": task_id,
            "parent_id": None,
            "argsrepr": "",
            "kwargsrepr": "",
            "origin": "",
            "ignore_result": True,
            "replaced_task_nesting": 0,
            "stamped_headers": None,
            "stamps": {},
        },
        "properties": {
            "correlation_id": task_id,
            "reply_to": "",
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": str(uuid4()),  # identifies the message until it is done
        },
    }


ValueCheck = Callable[[Any], bool]


def _check_keys_and_values(
    found: object,
    required: Mapping[str, ValueCheck],
    *,
    optional: Mapping[str, ValueCheck],
    reason: str,
) -> None:
    """Raise `ForeignMessageError` unless a dict has exactly these keys with valid values."""
    if not isinstance(found, dict):
        raise ForeignMessageError(reason)
    keys = found.keys()
    if not (required.keys() <= keys <= required.keys() | optional.keys()):
        raise ForeignMessageError(reason)
    if not all((required.get(key) or optional[key])(value) for key, value in found.items()):
        raise ForeignMessageError(reason)


def _check_equals(wanted: object) -> ValueCheck:
    """Return a check that a message's value equals another of the same type."""
    # By type as well: to Python, 0, 0.0 and False are one.
    return lambda value: type(value) is type(wanted) and value == wanted


def _allow_none(check: ValueCheck) -> ValueCheck:
    """Return a check of a message's value that None passes, too."""
    return lambda value: value is None or check(value)


def _is_bool(value: object) -> bool:
    """Return whether a message's value is true or false."""
    return isinstance(value, bool)


def _is_dict(value: object) -> bool:
    """Return whether a message's value is an object of JSON."""
    return isinstance(value, dict)


def _is_number_in_text(value: object) -> bool:
    """Return whether a message's value is a whole number as text."""
    return isinstance(value, str) and len(value) <= 12 and value.isascii() and value.isdigit()


_EMBED: Final[Mapping[str, None]] = MappingProxyType(
    {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
)
#: Set by kombu when an ending worker returns messages that it had not begun.
_RESTORED: Final[Mapping[str, ValueCheck]] = MappingProxyType({"redelivered": _is_bool})
_EXPIRING: Final[Mapping[str, ValueCheck]] = MappingProxyType({"expiration": _is_number_in_text})
_ENVELOPE: Final[Mapping[str, ValueCheck]] = MappingProxyType(
    {
        "body": lambda value: isinstance(value, str),
        "content-type": _check_equals("application/json"),
        "content-encoding": _check_equals("utf-8"),
        "headers": _is_dict,
        "properties": _is_dict,
    }
)
_HEADERS: Final[Mapping[str, ValueCheck]] = MappingProxyType(
    {
        "lang": _check_equals("py"),
        "task": is_text,
        "id": is_id,
        "shadow": _check_equals(None),
        "eta": _check_equals(None),
        "expires": _allow_none(lambda value: is_text(value, max_length=40)),
        "group": _check_equals(None),
        "group_index": _check_equals(None),
        "retries": _check_equals(0),
        "timelimit": _check_equals([None, None]),
        # A task that sends another one is its parent.
        "root_id": is_id,
        "parent_id": _allow_none(is_id),
        "argsrepr": is_text,
        "kwargsrepr": _allow_none(is_text),
        "origin": is_text,
        "ignore_result": _allow_none(_is_bool),
        "replaced_task_nesting": _check_equals(0),
        "stamped_headers": _check_equals(None),
        "stamps": _check_equals({}),
    }
)
_PROPERTIES: Final[Mapping[str, ValueCheck]] = MappingProxyType(
    {
        "correlation_id": is_id,
        "reply_to": is_text,
        "delivery_mode": _check_equals(2),
        "delivery_info": _is_dict,
        "priority": _check_equals(0),
        "body_encoding": _check_equals("base64"),
        "delivery_tag": is_id,
    }
)
_DELIVERY: Final[Mapping[str, ValueCheck]] = MappingProxyType(
    {"exchange": is_text, "routing_key": is_text}
)
