"""Conversion between rows and records: columns and fields with the same name correspond."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from sqlalchemy import Row, Table

R = TypeVar("R")


def record_of(record: type[R], row: Row[Any], **others: Any) -> R:
    """Return a record from a row's columns of the same names, and ``others``.

    A string becomes a member of the field's enum, and a JSON list a tuple.
    """
    columns = row._asdict()
    kind: type = record
    for name, convert in _field_conversions(kind).items():
        if name in columns and name not in others:
            value = columns[name]
            others[name] = value if convert is None or value is None else convert(value)
    return record(**others)


def row_of(table: Table, record: object, **others: Any) -> dict[str, Any]:
    """Return a table's row from a record's fields of the same names, and ``others``."""
    kind: type = type(record)
    names = [name for name in _field_conversions(kind) if name in table.c]
    return {name: _column_value(getattr(record, name)) for name in names} | others


@cache
def _field_conversions(record: type) -> Mapping[str, Callable[[Any], Any] | None]:
    """Return, by field of a record, the conversion from its column's value, or None."""
    hints = get_type_hints(record)
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(record)
    return {each.name: _value_conversion(hints[each.name]) for each in fields}


def _value_conversion(hint: Any) -> Callable[[Any], Any] | None:
    """Return the conversion from a column's value to a field of this type, or None."""
    for each in get_args(hint) if isinstance(hint, UnionType) else (hint,):
        if isinstance(each, type) and issubclass(each, Enum):
            return each
        if get_origin(each) is tuple:
            return tuple
    return None


def _column_value(value: Any) -> Any:
    """Return a record's value as a column stores it: enums by value, tuples as lists."""
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value
