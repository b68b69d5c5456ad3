"""A cache of hosts and of tenants' holdings, from a control centre's last read.

On PostgreSQL every row records which transaction wrote it (``xmin``). Whatever was
written by one that was over before the oldest that ran during the last read, the
last read saw; all else is read again, also what it had seen. So a round reads the
rows that changed, and never misses one. Numbers of transactions in rows are the
lower half of the real ones and come again after 2^32: after a quarter of that, on
another server, database or start of it, or with other resources, everything is
read again, and so it always is on SQLite.

Rows of inventories and hosts are never deleted; retired hosts are left out.

Whatever takes or gives back capacity writes the inventory of its host, by triggers, so what
tenants hold is summed up again on the hosts whose inventories were written. What arrives or
leaves is held as well, but is no VM's place: few VMs move, and these are looked up each time.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias
from uuid import UUID

import structlog
from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Row,
    Select,
    Text,
    and_,
    cast,
    func,
    literal_column,
    select,
)

from registry.db.bulk import PARAMETERS, chunks, is_any_of
from registry.db.schema import (
    assignment_resources,
    assignments,
    hosts,
    inventories,
    is_place,
    unreleased,
    volumes,
)
from registry.lifecycle import HostAdmin, HostHealth
from registry.records.cluster import HostView

_WRAP: Final = 2**32
_ANEW_AFTER: Final = 2**30
_NOTHING: Final = (0, 0)
#: Number of reads after which kept holdings are compared with the sums of all assignments.
_CHECKED_EVERY: Final = 64
_SNAPSHOT: Final = """
    SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest,
           pg_postmaster_start_time()::text AS started,
           (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) AS database
"""
#: A host whose version covers all that is read here, except its inventory.
_QUIET: Final = and_(
    hosts.c.admin == HostAdmin.ACTIVE.value,
    hosts.c.health == HostHealth.UP.value,
    hosts.c.backoff_until.is_(None),
    hosts.c.pool_silent_since.is_(None),
    hosts.c.same_machine_as.is_(None),
    hosts.c.found_machine_uuid.is_(None),
)


#: Of each tenant that has a place: its VMs, and what they hold of each resource.
Holdings: TypeAlias = Mapping[UUID, tuple[int, ...]]

log: Final = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _ReadPosition:
    """The snapshot and the database of a read; later changes are read from there on."""

    oldest: int  #: transactions below were over
    place: tuple[object, ...]

    def can_extend(self, now: _ReadPosition) -> bool:
        """Return whether a later read of hosts may build on this one."""
        return self.place == now.place and 0 <= now.oldest - self.oldest < _ANEW_AFTER


class KnownHosts:
    """A cache of hosts that are not retired, for one reader at a time.

    Parameters
    ----------
    keeps_holdings : bool
        Whether the holdings are kept and updated from the last read, at a few hundred bytes for
        each tenant of a host. Otherwise `read_holdings` sums up all assignments.
    checked_every : int
        The number of reads after which kept holdings are compared with the sums of all assignments.
    """

    def __init__(
        self, *, keeps_holdings: bool = False, checked_every: int = _CHECKED_EVERY
    ) -> None:
        self._keeps_holdings, self._checked_every = keeps_holdings, checked_every
        self._since: _ReadPosition | None = None
        self._rows: dict[UUID, Row[Any]] = {}
        self._amounts: defaultdict[UUID, dict[str, tuple[int, int]]] = defaultdict(dict)
        self._views: dict[UUID, HostView] = {}
        self._by_name: tuple[HostView, ...] = ()
        self._place: dict[UUID, int] = {}  #: of each host in `_by_name`
        #: time alone changes whether hosts of failed builds are held back
        self._timed: set[UUID] = set()
        #: of hosts that have nothing else to report, as `_QUIET` has it: id and version
        self._quiet: dict[UUID, str] = {}
        self._held_on: dict[UUID, list[tuple[UUID, tuple[int, ...]]]] = {}
        self._held: dict[UUID, tuple[int, ...]] = {}
        #: the hosts of which `_held` is not known any more; None: of all
        self._written: set[UUID] | None = None
        self._unchecked = 0
        self.rows_read = 0  #: by the last read

    def read(
        self, connection: Connection, axis: Sequence[str], now: datetime
    ) -> tuple[HostView, ...]:
        """Return all hosts as they are in this transaction, by name."""
        before, since = self._since, _read_position(connection, axis)
        self._since = None  # a read that is cut short begins again
        if before is None or since is None or not before.can_extend(since):
            self._rows.clear()
            self._amounts.clear()
            self._views.clear()
            self._by_name = ()
            self._place.clear()
            self._timed.clear()
            self._quiet.clear()
            changed, self._written = self._read_changes(connection, None), None
        else:
            changed = self._read_changes(connection, before.oldest)
            if self._written is not None:
                self._written |= changed
        for key in changed:
            self._update_view(key, axis, now)
        for key in self._timed - changed:
            self._update_view(key, axis, now)
        self._sort_views(changed | self._timed)
        self._since = since
        return self._by_name

    def _sort_views(self, changed: Set[UUID]) -> None:
        """Update the hosts sorted by name; sort them again only if hosts were added or removed."""
        known = [key for key in changed if key in self._place]
        if all(
            key in self._views and self._views[key].name == self._by_name[self._place[key]].name
            for key in known
        ) and not any(key in self._views for key in changed if key not in self._place):
            if known:
                views = list(self._by_name)
                for key in known:
                    views[self._place[key]] = self._views[key]
                self._by_name = tuple(views)
            return
        self._by_name = tuple(sorted(self._views.values(), key=lambda view: (view.name, view.id)))
        self._place = {view.id: place for place, view in enumerate(self._by_name)}

    def read_holdings(self, connection: Connection, axis: Sequence[str]) -> Holdings:
        """Return the tenants' holdings, in the transaction of the last `read`."""
        if self._since is None or not self._keeps_holdings:
            return sum_holdings(connection, axis)
        written, self._written = self._written, None  # cut short, all is summed up again
        if written is None:
            self._held_on.clear()
            self._held.clear()
            self._sum_holdings(connection, axis, None)
        else:
            for some in chunks(sorted(written)):
                self._sum_holdings(connection, axis, some)
        away = _sums_query(axis, assignments.c.tenant_id).where(unreleased, ~is_place)
        held = dict(self._held)
        for tenant, *amounts in connection.execute(away):
            held[tenant] = _subtract_amounts(held[tenant], _to_int_sums(amounts))
        of_vms = {tenant: amounts for tenant, amounts in held.items() if any(amounts)}
        found = _with_volumes(connection, axis, of_vms)
        self._unchecked += 1
        if self._unchecked >= self._checked_every:
            self._unchecked, all_of_it = 0, sum_holdings(connection, axis)
            if found != all_of_it:
                log.error("known_holdings_differ", tenants=_differing_keys(found, all_of_it))
                return all_of_it
        self._written = set()
        return found

    def _sum_holdings(
        self, connection: Connection, axis: Sequence[str], host_ids: Sequence[UUID] | None
    ) -> None:
        """Sum up the tenants' holdings on some hosts; None means all hosts."""
        query = _sums_query(axis, assignments.c.host_id, assignments.c.tenant_id).where(unreleased)
        if host_ids is not None:
            query = query.where(is_any_of(connection, assignments.c.host_id, host_ids))
            for host in host_ids:
                for tenant, amounts in self._held_on.pop(host, ()):
                    self._held[tenant] = _subtract_amounts(self._held[tenant], amounts)
        nothing = (0,) * (1 + len(axis))
        for host, tenant, *sums in connection.execute(query):
            amounts, before = _to_int_sums(sums), self._held.get(tenant, nothing)
            self._held_on.setdefault(host, []).append((tenant, amounts))
            self._held[tenant] = tuple(map(int.__add__, before, amounts))

    def _read_changes(self, connection: Connection, floor: int | None) -> set[UUID]:
        """Read the rows of hosts written since the last read; return the hosts that changed."""
        of_inventories = select(
            inventories.c.host_id,
            inventories.c.resource,
            inventories.c.capacity,
            inventories.c.committed,
        )
        if floor is not None:
            of_inventories = of_inventories.where(_written_since("inventories", floor))
        amounts = connection.execute(of_inventories).all()
        rows = self._rows_of_hosts(connection, floor)
        for host_id, resource, capacity, committed in amounts:
            self._amounts[host_id][resource] = (capacity, committed)
        # What a poll writes to the row of its host is nothing that is read here.
        changed = [row for row in rows if self._rows.get(row.id) != row]
        for row in changed:
            self._rows[row.id] = row
            if row.quiet:
                self._quiet[row.id] = f"{row.id} {row.version}"
            else:
                self._quiet.pop(row.id, None)
            if row.backoff_until is None:
                self._timed.discard(row.id)
            else:
                self._timed.add(row.id)
        self.rows_read = len(amounts) + len(rows)
        return {host_id for host_id, *_ in amounts} | {row.id for row in changed}

    def _rows_of_hosts(self, connection: Connection, floor: int | None) -> Sequence[Row[Any]]:
        """Return the rows of all hosts, or of those written since that may have changed.

        Polls write every host several times a minute and rarely change anything that a round
        reads. Other writes raise the version, or mark the host as no longer quiet. So only the
        versions of quiet hosts are read, as one value: a row for each would dominate the time of a
        read.
        """
        query = select(
            hosts.c.id,
            hosts.c.name,
            hosts.c.version,
            hosts.c.admin,
            hosts.c.health,
            cast(hosts.c.labels, Text).label("labels"),
            hosts.c.backoff_until,
            hosts.c.pool_silent_since.is_not(None).label("pool_silent"),
            hosts.c.same_machine_as.is_not(None).label("is_double"),
            hosts.c.found_machine_uuid.is_not(None).label("is_another"),
            _QUIET.label("quiet"),
        )
        if floor is None:
            return connection.execute(query).all()
        written = _written_since("hosts", floor)
        version = func.concat(hosts.c.id, " ", hosts.c.version)
        digest = select(func.string_agg(version, ",")).where(written, _QUIET)
        versions = (connection.scalar(digest) or "").split(",")
        unknown = {*filter(None, versions)}.difference(self._quiet.values())
        others = [UUID(each.partition(" ")[0]) for each in sorted(unknown)]
        rows = list(connection.execute(query.where(written, ~_QUIET)))
        if len(others) > PARAMETERS:  # with that many, all are read in one statement
            rows += connection.execute(query.where(written, _QUIET))
        elif others:
            rows += connection.execute(query.where(is_any_of(connection, hosts.c.id, others)))
        return rows

    def _update_view(self, key: UUID, axis: Sequence[str], now: datetime) -> None:
        """Update a host as rounds see it from its cached row and amounts; drop a retired one."""
        row, amounts = self._rows[key], self._amounts[key]
        if row.admin == HostAdmin.RETIRED.value:
            self._views.pop(key, None)
            return
        is_up = row.admin == HostAdmin.ACTIVE.value and row.health == HostHealth.UP.value
        is_open = is_up and not (row.pool_silent or row.is_double or row.is_another)
        held_back = row.backoff_until is not None and row.backoff_until > now
        self._views[key] = HostView(
            id=row.id,
            name=row.name,
            version=row.version,
            accepts=is_open and not held_back,
            labels=_parse_labels(row.labels),
            capacity=tuple(amounts.get(name, _NOTHING)[0] for name in axis),
            committed=tuple(amounts.get(name, _NOTHING)[1] for name in axis),
            backoff_until=row.backoff_until if is_open and held_back else None,
        )


def sum_holdings(connection: Connection, axis: Sequence[str]) -> Holdings:
    """Return the numbers of VMs and amounts that tenants hold, summed up from all assignments.

    Volumes add their disk, attached or not.
    """
    placed = select(assignments.c.tenant_id, func.count()).where(is_place, unreleased)
    found = {
        tenant: [vms, *(0 for _ in axis)]
        for tenant, vms in connection.execute(placed.group_by(assignments.c.tenant_id))
    }
    query = (
        select(
            assignments.c.tenant_id,
            assignment_resources.c.resource,
            func.sum(assignment_resources.c.amount),
        )
        .select_from(assignment_resources)
        .join(assignments, assignments.c.id == assignment_resources.c.assignment_id)
        .where(is_place, unreleased)
        .group_by(assignments.c.tenant_id, assignment_resources.c.resource)
    )
    place = {name: 1 + index for index, name in enumerate(axis)}
    for tenant, resource, amount in connection.execute(query):
        found[tenant][place[resource]] = int(amount)
    held = {tenant: tuple(amounts) for tenant, amounts in found.items()}
    return _with_volumes(connection, axis, held)


def _with_volumes(connection: Connection, axis: Sequence[str], held: Holdings) -> Holdings:
    """Return the tenants' holdings with the disk of their volumes, attached or not."""
    query = select(volumes.c.tenant_id, func.sum(volumes.c.size_gib)).where(
        volumes.c.host_id.is_not(None)
    )
    of_volumes = connection.execute(query.group_by(volumes.c.tenant_id)).all()
    if not of_volumes:
        return held
    found, place = dict(held), 1 + axis.index("disk_gib")
    for tenant, size_gib in of_volumes:
        amounts = list(found.get(tenant, (0,) * (1 + len(axis))))
        amounts[place] += int(size_gib)
        found[tenant] = tuple(amounts)
    return found


def _sums_query(axis: Sequence[str], *by: Column[Any]) -> Select[Any]:
    """Return the query for numbers of VMs, and amounts of each resource, of assignments."""
    amount, resource = assignment_resources.c.amount, assignment_resources.c.resource
    amounts = [func.sum(amount).filter(resource == name) for name in axis]
    return (
        select(*by, func.count(assignments.c.id.distinct()), *amounts)
        .select_from(assignment_resources)
        .join(assignments, assignments.c.id == assignment_resources.c.assignment_id)
        .group_by(*by)
    )


def _to_int_sums(sums: Sequence[Any]) -> tuple[int, ...]:
    """Return the sums of a query as integers; NULL is 0."""
    return tuple(int(each or 0) for each in sums)


def _subtract_amounts(held: Sequence[int], amounts: Sequence[int]) -> tuple[int, ...]:
    """Return a tenant's amounts less those of some assignments, both of shape (1 + R,)."""
    return tuple(map(int.__sub__, held, amounts))


def _differing_keys(one: Holdings, other: Holdings) -> list[str]:
    """Return the tenants whose cached holdings differ from the sums of the database."""
    return sorted(str(key) for key in one.keys() | other.keys() if one.get(key) != other.get(key))


@functools.lru_cache(maxsize=10_000)
def _parse_labels(stored: str) -> tuple[str, ...]:
    """Parse a host's stored labels; cached, as many hosts have equal labels."""
    return tuple(json.loads(stored))


def _read_position(connection: Connection, axis: Sequence[str]) -> _ReadPosition | None:
    """Return the position of a read in the database's history; None on SQLite."""
    if connection.dialect.name == "sqlite":
        return None
    row = connection.exec_driver_sql(_SNAPSHOT).one()
    return _ReadPosition(oldest=row.oldest, place=(row.started, row.database, tuple(axis)))


def _written_since(table: str, oldest: int) -> ColumnElement[bool]:
    """Return the condition that the last read may not show the transaction that wrote a row."""
    ahead = f"(({table}.xmin::text::bigint - {oldest % _WRAP}) & {_WRAP - 1})"
    return literal_column(f"({ahead} < {_WRAP // 2})", Boolean())
