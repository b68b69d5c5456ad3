"""Lists by keyset: a cursor names the last row seen, so pages neither skip nor repeat."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from uuid import UUID

from sqlalchemy import Column, ColumnElement, Connection, Table, select

from plain_text import nearest
from registry.errors import InvalidError, UnknownNameError

T = TypeVar("T")
MAX_LIMIT: Final = 500
DEFAULT_LIMIT: Final = 100


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some rows of a list, and where to go on (None: that was all)."""

    items: tuple[T, ...]
    next: str | None


def check_limit(limit: int) -> int:
    """Return the limit, if it is one."""
    if isinstance(limit, bool) or not 1 <= limit <= MAX_LIMIT:
        raise InvalidError("limit", limit, f"a whole number from 1 to {MAX_LIMIT}")
    return limit


def named_like(column: Column[str], part: str | None) -> list[ColumnElement[bool]]:
    """Return conditions: rows with a part of their name, in any case; none for None.

    No index serves it: it reads names until a page is full, or all of them.
    """
    return [] if part is None else [column.contains(part.lower(), autoescape=True)]


def ids_named(connection: Connection, kind: str, table: Table, name: str) -> Sequence[UUID]:
    """Return the ids of the rows with a name, to which a list is narrowed.

    Raises
    ------
    UnknownNameError
        If there are none, which would look like a list of what there is.
    """
    found = connection.scalars(select(table.c.id).where(table.c.name == name)).all()
    if not found:
        names = connection.scalars(select(table.c.name)).all()
        raise UnknownNameError(kind, kind, name, known=nearest(name, names))
    return found


def encode_cursor(*key: str | int) -> str:
    """Return a key as opaque text."""
    text = json.dumps(list(key), separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *types: type) -> tuple[str | int, ...]:
    """Return the key again; `InvalidError` for what `encode_cursor` did not make."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, UnicodeError, RecursionError):
        key = None
    if (
        not isinstance(key, list)
        or len(key) != len(types)
        or any(type(value) is not kind for value, kind in zip(key, types, strict=True))
        or not all(map(_may_be_compared, key))
    ):
        raise InvalidError("cursor", cursor, "a cursor of an earlier page of this list")
    return tuple(key)


def _may_be_compared(value: str | int) -> bool:
    """Whether every database takes it: no half of a character, no NUL, 64 bits."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return "\0" not in value and not any("\ud800" <= each <= "\udfff" for each in value)


def cursor_uuid(cursor: str) -> UUID:
    """Return the UUID that a cursor of a list by id names."""
    (text,) = decode_cursor(cursor, str)
    try:
        return UUID(hex=str(text))
    except ValueError:
        raise InvalidError("cursor", cursor, "a cursor of an earlier page of this list") from None


def page_of(rows: Sequence[T], limit: int, key: Callable[[T], tuple[str | int, ...]]) -> Page[T]:
    """Return a page of ``rows``, which were read with one more than ``limit``."""
    items = tuple(rows[:limit])
    more = len(rows) > limit
    return Page(items, encode_cursor(*key(items[-1])) if more and items else None)
