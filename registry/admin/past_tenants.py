"""Past tenants, groups and quotas of a period, from their present state and the events since.

Events are read backwards: each has the state before it. Changes from before events
were purged, or from before the period, are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, select

from registry.db.bulk import chunks
from registry.db.schema import events, quotas, tenants

_ADDED, _REMOVED = "tenant_added", "tenant_removed"
_WEIGHED, _MOVED, _QUOTA = "tenant_weighed", "tenant_moved", "quota_set"
_ABOVE: Final = ("parent", "before")  #: the event fields with the former parent group
_KINDS: Final = (_ADDED, _REMOVED, _WEIGHED, _MOVED, _QUOTA)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastStanding:
    """The parent and weight of a tenant or group from a time on."""

    since: datetime
    parent: str | None
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTenant:
    """A tenant or group of the period."""

    name: str
    is_group: bool
    standings: tuple[PastStanding, ...]  #: in order of time; the first is that of the beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class PastQuota:
    """The limits of a tenant or group on one resource over the period."""

    owner: str
    resource: str
    limits: tuple[tuple[datetime, int | None], ...]  #: each limit with its start; None for no limit


@dataclass(frozen=True, slots=True)
class _TenantState:
    """A tenant or group between two events."""

    parent: str | None
    weight: float
    is_group: bool


def past_tenants(
    connection: Connection, since: datetime, until: datetime
) -> tuple[tuple[PastTenant, ...], tuple[PastQuota, ...]]:
    """Return the tenants and groups of a past period, in order of creation, and their quotas."""
    now, present = _present_tenants(connection)
    changes = _tenant_events(connection, now, since)
    limits = _present_limits(connection)
    found: list[PastTenant] = []
    owned: list[PastQuota] = []
    for name in [*now, *sorted(changes.keys() - now.keys())]:
        state = now.get(name)
        standings = _past_standings(state, name in present, changes[name], since, until)
        if standings:
            is_group = _is_group(state, changes[name])
            found.append(PastTenant(name=name, is_group=is_group, standings=standings))
            owned += _past_quotas(name, limits.get(name, {}), changes[name], since, until)
    return tuple(found), tuple(owned)


def _tenant_events(
    connection: Connection, names: Iterable[str], since: datetime
) -> Mapping[str, list[Any]]:
    """Return tenants' and groups' events since a time, newest first, with those of groups above.

    Removed groups have no row, but the events of their former members name them.
    """
    changes: defaultdict[str, list[Any]] = defaultdict(list)
    needed: set[str] = set()
    while layer := sorted({*names} - needed):
        needed |= {*layer}
        above: set[str] = set()
        for some in chunks(layer):
            query = (
                select(events.c.subject_id, events.c.at, events.c.kind, events.c.data)
                .where(
                    events.c.subject_id.in_(some), events.c.kind.in_(_KINDS), events.c.at > since
                )
                .order_by(events.c.id.desc())
            )
            for row in connection.execute(query):
                changes[row.subject_id].append(row)
                above |= {name for key in _ABOVE if isinstance(name := row.data.get(key), str)}
        names = above
    return changes


def _present_tenants(connection: Connection) -> tuple[Mapping[str, _TenantState], set[str]]:
    """Return all tenants with a row, in order of creation, and the names of those not removed."""
    rows = connection.execute(select(tenants).order_by(tenants.c.created_at, tenants.c.id)).all()
    name_of = {row.id: row.name for row in rows}
    states = {
        row.name: _TenantState(name_of.get(row.parent_id), row.weight, row.is_group) for row in rows
    }
    return states, {row.name for row in rows if row.removed_at is None}


def _present_limits(connection: Connection) -> Mapping[str, Mapping[str, int]]:
    """Return the present quotas: the limit by tenant or group, and resource."""
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    query = select(tenants.c.name, quotas.c.resource, quotas.c.amount).join(
        tenants, tenants.c.id == quotas.c.tenant_id
    )
    for name, resource, amount in connection.execute(query):
        found[name][resource] = amount
    return found


def _is_group(state: _TenantState | None, newest_first: Sequence[Any]) -> bool:
    """Return whether a past tenant was a group, by its row or the event of its removal."""
    if state is not None:
        return state.is_group
    return any(row.data.get("is_group", False) for row in newest_first)


def _past_standings(
    last: _TenantState | None,
    is_there: bool,
    newest_first: Sequence[Any],
    since: datetime,
    until: datetime,
) -> tuple[PastStanding, ...]:
    """Return a tenant's parents and weights over a period, by time; () if it did not exist."""
    state = last or _TenantState(None, 1.0, is_group=False)
    found: list[PastStanding] = []

    def add_standing(at: datetime) -> None:
        if is_there and at <= until:
            found.append(PastStanding(since=at, parent=state.parent, weight=state.weight))

    for row in newest_first:
        if row.kind == _QUOTA:
            continue
        add_standing(row.at)
        if row.kind == _ADDED:
            is_there = False
        elif row.kind == _REMOVED:
            is_there = True
            weight = row.data.get("weight", state.weight)
            state = replace(state, parent=row.data.get("parent"), weight=weight)
        elif row.kind == _WEIGHED:
            state = replace(state, weight=row.data["before"])
        else:
            state = replace(state, parent=row.data["before"])
    add_standing(since)
    return tuple(reversed(found))


def _past_quotas(
    owner: str,
    last: Mapping[str, int],
    newest_first: Sequence[Any],
    since: datetime,
    until: datetime,
) -> list[PastQuota]:
    """Return the limits of one tenant or group over a period, by resource."""
    limits: dict[str, int | None] = dict(last)
    found: defaultdict[str, list[tuple[datetime, int | None]]] = defaultdict(list)
    for row in newest_first:
        if row.kind == _REMOVED:
            limits = dict(row.data.get("limits", {}))
        elif row.kind == _QUOTA:
            for resource, before in row.data["before"].items():
                if row.at <= until:
                    found[resource].append((row.at, limits.get(resource)))
                limits[resource] = before
    for resource, limit in limits.items():
        if limit is not None or resource in found:
            found[resource].append((since, limit))
    return [
        PastQuota(owner=owner, resource=resource, limits=tuple(reversed(found[resource])))
        for resource in sorted(found)
    ]
