"""Whose history is meant: an id as it is, or what has a name."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, exists, select

from registry.db.schema import audit, events, hosts, requests, tenants, vms
from registry.errors import InvalidError, UnknownNameError
from registry.lifecycle import FINISHED, HostAdmin, VmDesired

#: A table of things with names, and which of its rows are there still.
_NAMED: Final = (
    ("request", requests, requests.c.state.not_in([each.value for each in FINISHED])),
    ("vm", vms, vms.c.desired != VmDesired.DELETED.value),
    ("host", hosts, hosts.c.admin != HostAdmin.RETIRED.value),
)
_MOST_NAMED: Final = 5


def subject_of_events(connection: Connection, given: str, tenant: str | None) -> str:
    """Return the id that events have of a subject; ``tenant`` is whose events are read.

    Raises
    ------
    InvalidError
        If nothing is called so, or several things that are there.
    """
    known = events.c.subject_id == given
    if tenant is not None:
        known &= events.c.tenant == tenant
    if _is_id(given) or _any(connection, known):
        return given
    found = _named(connection, given, tenant)
    if found is None:
        raise _unknown(given)
    return found


def subjects_of_audit(connection: Connection, given: str) -> tuple[str, ...]:
    """Return what the audit has of a subject: its id, and its name where a call had that.

    `InvalidError` as for `subject_of_events`.
    """
    if _is_id(given):
        return (given,)
    itself = _any(connection, audit.c.subject == given)
    try:
        found = _named(connection, given, None)
    except InvalidError:
        if itself:  # a tenant has no other key than its name
            return (given,)
        raise
    if found is not None:
        return (given, found)
    if itself:
        return (given,)
    raise _unknown(given)


def _is_id(text: str) -> bool:
    if text.isdigit():
        return True
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _any(connection: Connection, which: ColumnElement[bool]) -> bool:
    return bool(connection.scalar(select(exists().where(which))))


def _named(connection: Connection, name: str, tenant: str | None) -> str | None:
    """Return the id of what has a name: what is there, or else the latest that was."""
    there: list[tuple[UUID, str]] = []
    gone: list[tuple[UUID, str]] = []
    for kind, table, is_there in _NAMED:
        query = select(table.c.id, is_there.label("is_there")).where(table.c.name == name)
        if kind != "host":
            query = query.add_columns(tenants.c.name.label("tenant"))
            query = query.join(tenants, tenants.c.id == table.c.tenant_id)
            if tenant is not None:
                query = query.where(tenants.c.name == tenant)
        elif tenant is not None:
            continue
        query = query.order_by(is_there.desc(), table.c.id.desc()).limit(_MOST_NAMED + 1)
        for row in connection.execute(query):
            whose = f" of tenant {row.tenant}" if kind != "host" else ""
            (there if row.is_there else gone).append((row.id, f"{kind} {row.id}{whose}"))
    if len(there) > 1:
        some = ", ".join(told for _, told in there[:_MOST_NAMED])
        more = " and more" if len(there) > _MOST_NAMED else ""
        raise InvalidError("subject", name, f"the id of one of those called so: {some}{more}")
    found = there or sorted(gone)[-1:]
    return str(found[0][0]) if found else None


def _unknown(given: str) -> UnknownNameError:
    return UnknownNameError(
        "subject", "request, VM, host or other subject", given, hint="or its id"
    )
