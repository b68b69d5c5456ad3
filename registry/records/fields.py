"""Roles of record fields: set by clients, or observed.

The version of a resource (its `ETag`) covers the fields that clients set. A record of a resource
with versions marks each of its fields as one or the other.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum, auto
from types import MappingProxyType
from typing import Annotated, TypeVar, get_type_hints

T = TypeVar("T")


class FieldRole(Enum):
    """The origin of a field's value."""

    SETTABLE = auto()
    OBSERVED = auto()


#: A client sets the field, at creation or later.
Settable = Annotated[T, FieldRole.SETTABLE]
#: The site assigns, computes or observes the field.
Observed = Annotated[T, FieldRole.OBSERVED]


@functools.cache
def field_roles(record: type) -> Mapping[str, FieldRole | None]:
    """Return whether clients set or observe each field of a record; None if neither is stated."""
    hints = get_type_hints(record, include_extras=True)
    return MappingProxyType({each.name: _field_role(hints[each.name]) for each in fields(record)})


@functools.cache
def settable_fields(record: type) -> tuple[str, ...]:
    """Return the fields of a record that clients set, or all fields if none has a role."""
    roles = field_roles(record)
    if not any(roles.values()):
        return tuple(roles)
    return tuple(name for name, role in roles.items() if role is FieldRole.SETTABLE)


def _field_role(hint: object) -> FieldRole | None:
    """Return the role of a record's field in its annotation, or None."""
    found = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, FieldRole)]
    return found[0] if len(found) == 1 else None
