"""Keyset pagination: a cursor has the last row's key, so pages neither skip nor repeat rows."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from uuid import UUID

from sqlalchemy import Column, ColumnElement, Connection, Table, select

from plain_text import similar_names
from registry.errors import InvalidError, UnknownNameError

T = TypeVar("T")
MAX_LIMIT: Final = 500
DEFAULT_LIMIT: Final = 100


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some rows of a list, and the cursor of the next page, or None after the last."""

    items: tuple[T, ...]
    next: str | None


def check_limit(limit: int) -> int:
    """Return the limit of a page's rows, or raise `InvalidError`."""
    if isinstance(limit, bool) or not 1 <= limit <= MAX_LIMIT:
        raise InvalidError("limit", limit, f"a whole number from 1 to {MAX_LIMIT}")
    return limit


def name_contains(column: Column[str], part: str | None) -> list[ColumnElement[bool]]:
    """Return the condition that a name contains ``part``, in any case; [] for None.

    No index supports it: the query reads names until a page is full.
    """
    return [] if part is None else [column.contains(part.lower(), autoescape=True)]


def ids_by_name(connection: Connection, kind: str, table: Table, name: str) -> Sequence[UUID]:
    """Return the ids of the rows with a name, for the filter of a list.

    Raises
    ------
    UnknownNameError
        If there are none, as an empty list would hide a wrong name.
    """
    found = connection.scalars(select(table.c.id).where(table.c.name == name)).all()
    if not found:
        names = connection.scalars(select(table.c.name)).all()
        raise UnknownNameError(kind, kind, name, known=similar_names(name, names))
    return found


def encode_cursor(*key: str | int) -> str:
    """Return the key of a page's last row as an opaque cursor."""
    text = json.dumps(list(key), separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *types: type) -> tuple[str | int, ...]:
    """Return the row key in a page's cursor, or raise `InvalidError` if we did not make it."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, UnicodeError, RecursionError):
        key = None
    if (
        not isinstance(key, list)
        or len(key) != len(types)
        or any(type(value) is not kind for value, kind in zip(key, types, strict=True))
        or not all(map(_is_storable_value, key))
    ):
        raise InvalidError("cursor", cursor, "a cursor of an earlier page of this list")
    return tuple(key)


def _is_storable_value(value: str | int) -> bool:
    """Return whether every database accepts a value of a cursor: no surrogates, no NUL, 64 bits."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return "\0" not in value and not any("\ud800" <= each <= "\udfff" for each in value)


def cursor_uuid(cursor: str) -> UUID:
    """Return the UUID in the cursor of a page of a list by id."""
    (text,) = decode_cursor(cursor, str)
    try:
        return UUID(hex=str(text))
    except ValueError:
        raise InvalidError("cursor", cursor, "a cursor of an earlier page of this list") from None


def page_of(rows: Sequence[T], limit: int, key: Callable[[T], tuple[str | int, ...]]) -> Page[T]:
    """Return a page of at most ``limit`` rows, with a cursor if ``rows`` has one more."""
    items = tuple(rows[:limit])
    more = len(rows) > limit
    return Page(items, encode_cursor(*key(items[-1])) if more and items else None)
