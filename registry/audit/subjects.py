"""Subjects of events and audit entries, found by id or name."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, exists, select

from registry.db.schema import (
    audit,
    events,
    hosts,
    requests,
    resources,
    tenants,
    vm_types,
    vms,
    volumes,
)
from registry.errors import InvalidError, UnknownNameError
from registry.lifecycle import FINISHED, HostAdmin, VmDesired, VolumeState

#: A table of named things, with the condition for rows that are not deleted.
_NAMED: Final = (
    ("request", requests, requests.c.state.not_in([each.value for each in FINISHED])),
    ("vm", vms, vms.c.desired != VmDesired.DELETED.value),
    ("host", hosts, hosts.c.admin != HostAdmin.RETIRED.value),
    ("volume", volumes, volumes.c.state != VolumeState.REMOVED.value),
)
_MAX_NAMED: Final = 5


def subjects_of_events(connection: Connection, given: str, tenant: str | None) -> tuple[str, ...]:
    """Return the ids of a subject in events; ``tenant`` limits names to one tenant's things.

    There are two ids if one thing's name is another's id.

    Raises
    ------
    InvalidError
        If nothing has the name, or several existing things have it.
    """
    known = events.c.subject_id == given
    if tenant is not None:
        known &= events.c.tenant == tenant
    return _find_subjects(connection, given, known, tenant)


def subjects_of_audit(connection: Connection, given: str) -> tuple[str, ...]:
    """Return the id of a subject of audited calls, and its name if they used it.

    It raises the errors of `subjects_of_events`.
    """
    found = _find_subjects(connection, given, audit.c.subject == given, None)
    return found if found[0] == given else (given, *found)


def _find_subjects(
    connection: Connection, given: str, known: ColumnElement[bool], tenant: str | None
) -> tuple[str, ...]:
    """Return the ids of a subject of events or audited calls, by its id or name.

    ``known`` is the condition of records that have the text as their subject's id.
    """
    key = _parse_id(given)
    if key is None and (_has_row(connection, known) or _is_key(connection, given, tenant)):
        key = given
    try:
        named = _id_of_name(connection, given, tenant)
    except InvalidError:
        if key is None:
            raise
        named = None
    found = tuple(dict.fromkeys(each for each in (key, named) if each is not None))
    if not found:
        raise _unknown_subject(given)
    return found


def _parse_id(text: str) -> str | None:
    """Return an id in its stored form, or None if the text is no id."""
    if text.isdigit():
        return text
    try:
        return str(UUID(text))
    except ValueError:
        return None


def _is_key(connection: Connection, name: str, tenant: str | None) -> bool:
    """Return whether a name is the key of an object that the tenant may see."""
    keys = [vm_types.c.name == name, resources.c.name == name]
    if tenant in {None, name}:
        keys.append(tenants.c.name == name)
    return any(_has_row(connection, each) for each in keys)


def _has_row(connection: Connection, which: ColumnElement[bool]) -> bool:
    """Return whether any row meets a condition."""
    return bool(connection.scalar(select(exists().where(which))))


def _id_of_name(connection: Connection, name: str, tenant: str | None) -> str | None:
    """Return the id of the existing object with a name, else of the latest deleted one."""
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
        query = query.order_by(is_there.desc(), table.c.id.desc()).limit(_MAX_NAMED + 1)
        for row in connection.execute(query):
            whose = f" of tenant {row.tenant}" if kind != "host" else ""
            (there if row.is_there else gone).append((row.id, f"{kind} {row.id}{whose}"))
    if len(there) > 1:
        some = ", ".join(label for _, label in there[:_MAX_NAMED])
        more = " and more" if len(there) > _MAX_NAMED else ""
        raise InvalidError("subject", name, f"the id of one of those called so: {some}{more}")
    found = there or sorted(gone)[-1:]
    return str(found[0][0]) if found else None


def _unknown_subject(given: str) -> UnknownNameError:
    """Return the error that no subject of events or audited calls has a name."""
    return UnknownNameError(
        "subject", "request, VM, host, volume or other subject", given, hint="or its id"
    )
