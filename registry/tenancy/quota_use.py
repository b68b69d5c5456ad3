"""Limits of tenants and groups, and their use.

The requested amounts are those of all wanted VMs, by type and overhead. A call that requests more
compares them with the quota (`RemainingQuota`). The held amounts are those of unreleased
assignments. A round compares them before it places more (`drop_over_quota`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, literal, select

from registry.catalogue.resources import VMS, VOLUMES, demands
from registry.db.bulk import chunks, is_any_of
from registry.db.clock import db_now
from registry.db.dialect import has_one_writer
from registry.db.locks import lock_tenants
from registry.db.schema import (
    assignment_resources,
    assignments,
    is_place,
    quotas,
    requests,
    tenants,
    unreleased,
    vms,
    volumes,
)
from registry.errors import QuotaExceededError, QuotaExcess
from registry.lifecycle import FINISHED, VmDesired, VolumeState
from registry.records.round_commits import Placement
from registry.records.tenancy import OverQuota
from registry.tenancy.reservation_use import is_in_force, unrequested_vms
from registry.tenancy.tree import descendants, read_path

#: Amounts by resource; the numbers of VMs and of volumes are under `VMS` and `VOLUMES`.
Amounts = Mapping[str, int]
#: VMs that a tenant may ask for at most where requests above its quota wait: what waits is
#: rows, too, and read by every round.
MAX_REQUESTED: Final = 50_000
_FINISHED: Final = [state.value for state in FINISHED]


def read_limits(connection: Connection, keys: Iterable[UUID]) -> Mapping[UUID, Amounts]:
    """Return the quota limits of tenants and groups that have any, by resource."""
    found: defaultdict[UUID, dict[str, int]] = defaultdict(dict)
    for some in chunks(sorted(set(keys))):
        query = (
            select(quotas)
            .where(is_any_of(connection, quotas.c.tenant_id, some))
            .order_by(quotas.c.resource)
        )
        for row in connection.execute(query):
            found[row.tenant_id][row.resource] = row.amount
    return found


def default_limits(connection: Connection, keys: Iterable[UUID]) -> set[tuple[UUID, str]]:
    """Return which quota limits tenants got by default: pairs of tenant and resource."""
    query = select(quotas.c.tenant_id, quotas.c.resource).where(
        quotas.c.tenant_id.in_(sorted(set(keys))), quotas.c.by_default
    )
    return {(row.tenant_id, row.resource) for row in connection.execute(query)}


def lock_limited_nodes(
    connection: Connection, tenant_keys: Iterable[UUID]
) -> Mapping[UUID, Sequence[UUID]]:
    """Lock the tenants with quotas, and the groups with quotas above them.

    Until this transaction ends, no other call gets more within these limits. Returns for each
    tenant the nodes on its path that have limits.

    Tenants are locked first, as a requesting tenant is locked already, then groups, the deepest
    first. So all transactions lock several nodes in one order.
    """
    wanted = sorted(set(tenant_keys))
    locked: set[UUID] = set()
    while True:
        paths, limited = _paths_and_limited_nodes(connection, wanted)
        missing = limited - locked
        if not missing or has_one_writer(connection):
            return {asker: [k for k in path if k in limited] for asker, path in paths.items()}
        depth = {key: len(path) - at for path in paths.values() for at, key in enumerate(path)}
        lock_tenants(connection, *missing.intersection(wanted))
        groups = missing.difference(wanted)
        for level in sorted({depth[key] for key in groups}, reverse=True):
            lock_tenants(connection, *(key for key in groups if depth[key] == level))
        locked |= missing  # and read again: a tenant may have moved in the tree


def tenants_with_limits(connection: Connection, tenant_keys: Iterable[UUID]) -> set[UUID]:
    """Return the tenants that have quotas, or are below a group with quotas."""
    paths, limited = _paths_and_limited_nodes(connection, sorted(set(tenant_keys)))
    return {asker for asker, path in paths.items() if not limited.isdisjoint(path)}


def _paths_and_limited_nodes(
    connection: Connection, tenant_keys: Sequence[UUID]
) -> tuple[Mapping[UUID, Sequence[UUID]], set[UUID]]:
    """Return each tenant's path to the top of the tree, and the nodes with quotas."""
    paths: dict[UUID, list[UUID]] = {asker: [] for asker in tenant_keys}
    limited: set[UUID] = set()
    for some in chunks(tenant_keys):
        for asker, key, has_limits in connection.execute(_ON_PATHS, {"tenant_keys": some}):
            paths[asker].append(key)
            if has_limits:
                limited.add(key)
    return paths, limited


def _paths_query() -> Select[UUID, UUID, bool]:
    """Return the query for tenants and all groups above them, and whether each has a quota."""
    path = (
        select(
            tenants.c.id.label("asker"), tenants.c.id, tenants.c.parent_id, literal(0).label("at")
        )
        .where(tenants.c.id.in_(bindparam("tenant_keys", expanding=True)))
        .cte("path", recursive=True)
    )
    above = select(path.c.asker, tenants.c.id, tenants.c.parent_id, path.c.at + 1).join(
        tenants, tenants.c.id == path.c.parent_id
    )
    path = path.union_all(above)
    has_limits = select(quotas.c.tenant_id).where(quotas.c.tenant_id == path.c.id).exists()
    return select(path.c.asker, path.c.id, has_limits).order_by(path.c.asker, path.c.at)


_ON_PATHS: Final = _paths_query()


def requested_amounts(connection: Connection, key: UUID) -> Amounts:
    """Return the amounts of all wanted VMs of a tenant, or of all below a group."""
    numbers: Counter[UUID] = Counter()
    for some in chunks((key, *descendants(connection, key))):
        query = (
            select(requests.c.vm_type_id, func.count())
            .select_from(vms)
            .join(requests, requests.c.id == vms.c.request_id)
            .where(
                is_any_of(connection, requests.c.tenant_id, some),
                requests.c.state.not_in(_FINISHED),
                vms.c.desired != VmDesired.DELETED.value,
            )
            .group_by(requests.c.vm_type_id)
        )
        for vm_type_id, number in connection.execute(query):
            numbers[vm_type_id] += number
    total = Counter(total_amounts(connection, numbers))
    total.update(_amounts_of_volumes(connection, key, volumes.c.state != VolumeState.REMOVED.value))
    return total


def held_amounts(connection: Connection, key: UUID) -> Amounts:
    """Return the amounts of unreleased assignments of a tenant, or of all below a group."""
    total: Counter[str] = Counter()
    for some in chunks((key, *descendants(connection, key))):
        mine = (is_any_of(connection, assignments.c.tenant_id, some), is_place, unreleased)
        amounts = (
            select(assignment_resources.c.resource, func.sum(assignment_resources.c.amount))
            .join(assignments, assignments.c.id == assignment_resources.c.assignment_id)
            .where(*mine)
            .group_by(assignment_resources.c.resource)
        )
        for resource, amount in connection.execute(amounts):
            total[resource] += int(amount)
        number = select(func.count()).select_from(assignments).where(*mine)
        total[VMS] += connection.execute(number).scalar_one()
    total.update(_amounts_of_volumes(connection, key, volumes.c.host_id.is_not(None)))
    return total


def _amounts_of_volumes(connection: Connection, key: UUID, which: ColumnElement[bool]) -> Amounts:
    """Return number and disk of volumes of a tenant, or of all below a group, of a condition."""
    total: Counter[str] = Counter()
    for some in chunks((key, *descendants(connection, key))):
        query = select(func.count(), func.coalesce(func.sum(volumes.c.size_gib), 0))
        mine = is_any_of(connection, volumes.c.tenant_id, some)
        number, disk_gib = connection.execute(query.where(mine, which)).one()
        total.update({VOLUMES: number, "disk_gib": int(disk_gib)})
    return total


def drop_over_quota(
    connection: Connection,
    chosen: Sequence[tuple[Any, UUID]],
    limited: Mapping[UUID, Sequence[UUID]],
    disk_gib: Mapping[UUID, int] = MappingProxyType({}),
) -> tuple[list[tuple[Any, UUID]], list[Placement]]:
    """Drop (VM, host) pairs beyond quotas; return the others, and the dropped ones as placements.

    The present quotas apply, which may be lower than those that the round read. ``limited`` is the
    result of `lock_limited_nodes`, ``disk_gib`` the sizes of the volumes that a VM is placed with.
    """
    keys = {key for path in limited.values() for key in path}
    if not keys:
        return list(chosen), []
    limits = read_limits(connection, keys)
    used = {key: Counter(held_amounts(connection, key)) for key in keys}
    amounts = {
        vm_type: total_amounts(connection, {vm_type: 1})
        for vm_type in {vm.vm_type_id for vm, _ in chosen}
    }
    within: list[tuple[Any, UUID]] = []
    beyond: Counter[tuple[UUID, UUID]] = Counter()
    for vm, host_id in chosen:
        wanted, path = amounts[vm.vm_type_id], limited.get(vm.tenant_id, ())
        if more := disk_gib.get(vm.id):
            wanted = Counter(wanted) + Counter(disk_gib=more)
        if any(
            wanted.get(resource, 0) and used[key][resource] + wanted[resource] > limit
            for key in path
            for resource, limit in limits[key].items()
        ):
            beyond[vm.request_id, host_id] += 1
            continue
        within.append((vm, host_id))
        for key in path:
            used[key].update(wanted)
    parts = [
        Placement(request_id=request_id, host_id=host_id, count=count)
        for (request_id, host_id), count in beyond.items()
    ]
    return within, parts


def check_amounts(connection: Connection, owner: UUID, wanted: Amounts) -> None:
    """Raise if amounts that no VM holds exceed a quota of the tenant or a group above.

    The tenant is locked. Such amounts never wait for room in a quota.

    Raises
    ------
    QuotaExceededError
        Names each limit that would be exceeded.
    """
    RemainingQuota(connection, [owner]).check_amounts(owner, wanted)


def check_quota(
    connection: Connection, tenant: UUID, vm_type: UUID, count: int, *, over_quota: OverQuota
) -> None:
    """Raise if ``count`` VMs of a type exceed a quota; see `RemainingQuota.check`."""
    RemainingQuota(connection, [tenant]).check(tenant, vm_type, count, over_quota=over_quota)


def reserved_amounts(connection: Connection, key: UUID, which: ColumnElement[bool]) -> Amounts:
    """Return the amounts of reservations of a tenant, or of all below a group.

    Only reservations that meet a condition count, without VMs that requests drew on them.
    """
    numbers: Counter[UUID] = Counter()
    for of_owner in unrequested_vms(
        connection, (key, *descendants(connection, key)), which
    ).values():
        numbers.update(of_owner)
    return total_amounts(connection, numbers)


def exceeded_quotas(
    connection: Connection, owner: UUID, vm_type: UUID, count: int, which: ColumnElement[bool]
) -> tuple[Sequence[QuotaExcess], int]:
    """Return the quotas that ``count`` more VMs would exceed, and how many VMs would fit.

    Requests count as used, and so do reservations that meet the condition ``which``.
    """
    limited = lock_limited_nodes(connection, [owner])[owner]
    limits, wanted = read_limits(connection, limited), total_amounts(connection, {vm_type: 1})
    over, fits, names = [], count, read_owner_names(connection, limited)
    for key in limited:
        used = Counter(requested_amounts(connection, key))
        used.update(reserved_amounts(connection, key, which))
        for resource, limit in limits[key].items():
            of_one = wanted.get(resource, 0)
            if of_one and used[resource] + count * of_one > limit:
                fits = min(fits, max(0, limit - used[resource]) // of_one)
                over.append(
                    QuotaExcess(
                        tenant=names[key],
                        resource=resource,
                        limit=limit,
                        used=used[resource],
                        requested=count * of_one,
                    )
                )
    return over, fits


class RemainingQuota:
    """The quota that tenants have left in a transaction; each accepted request reduces it.

    Every transaction that lets tenants request more VMs creates one before it writes the VMs, with
    the tenants' rows locked (`lock_requesting_tenant`). Until it ends no other call requests
    within the same limits.
    """

    def __init__(self, connection: Connection, owners: Iterable[UUID]) -> None:
        self._connection = connection
        self._limited = lock_limited_nodes(connection, owners)
        self._limits = read_limits(
            connection, {key for path in self._limited.values() for key in path}
        )
        self._requested: dict[UUID, Amounts] = {}  #: as it is written
        self._taken: defaultdict[UUID, Counter[str]] = defaultdict(Counter)  #: and is not, yet
        self._amounts: dict[UUID, Amounts] = {}
        self._waits: dict[tuple[UUID, OverQuota], bool] = {}

    def check(self, owner: UUID, vm_type: UUID, count: int, *, over_quota: OverQuota) -> None:
        """Raise if ``count`` VMs of a type exceed a quota of the tenant or a group above.

        Parameters
        ----------
        over_quota : OverQuota
            What the installation says of requests above a quota, where neither the
            tenant nor a group above it says otherwise.

        Raises
        ------
        QuotaExceededError
            If a limit is exceeded and such requests do not wait. The error names each such limit.
        """
        limited = self._limited[owner]
        if not limited:
            return
        wanted, used = (
            self._amounts_of_vms(vm_type, count),
            {key: self._used_amounts(key) for key in limited},
        )
        over = self._exceeded_limits(wanted, used)
        # Who is not limited has no more than a group above it.
        if not over and max(each[VMS] for each in used.values()) + count <= MAX_REQUESTED:
            return
        if self._may_exceed_quota(owner, over_quota):
            used[owner] = self._used_amounts(owner)
            over = [(owner, VMS, MAX_REQUESTED)] if used[owner][VMS] + count > MAX_REQUESTED else []
        self._refuse(owner, wanted, used, over)

    def check_amounts(self, owner: UUID, wanted: Amounts) -> None:
        """Raise `QuotaExceededError` if amounts exceed a quota of the tenant or a group above."""
        used = {key: self._used_amounts(key) for key in self._limited[owner]}
        self._refuse(owner, wanted, used, self._exceeded_limits(wanted, used))

    def _exceeded_limits(
        self, wanted: Amounts, used: Mapping[UUID, Amounts]
    ) -> list[tuple[UUID, str, int]]:
        """Return the limits that amounts would exceed: owner, resource and limit."""
        return [
            (key, resource, limit)
            for key in used
            for resource, limit in self._limits[key].items()
            if wanted.get(resource) and used[key].get(resource, 0) + wanted[resource] > limit
        ]

    def _refuse(
        self,
        owner: UUID,
        wanted: Amounts,
        used: Mapping[UUID, Amounts],
        over: Sequence[tuple[UUID, str, int]],
    ) -> None:
        """Raise `QuotaExceededError` if there are limits that amounts exceed."""
        if not over:
            return
        names = read_owner_names(self._connection, (owner, *(key for key, _, _ in over)))
        exceeded = [
            QuotaExcess(
                tenant=names[key],
                resource=resource,
                limit=limit,
                used=used[key].get(resource, 0),
                requested=wanted[resource],
            )
            for key, resource, limit in over
        ]
        raise QuotaExceededError(names[owner], exceeded)

    def deduct(self, owner: UUID, vm_type: UUID, count: int) -> None:
        """Deduct VMs that this transaction will create from their tenant's remaining quota."""
        if self._limited[owner]:
            for key in {owner, *self._limited[owner]}:
                self._taken[key].update(self._amounts_of_vms(vm_type, count))

    def _amounts_of_vms(self, vm_type: UUID, count: int) -> Amounts:
        """Return the amounts of ``count`` VMs of a type, by resource."""
        if vm_type not in self._amounts:
            self._amounts[vm_type] = total_amounts(self._connection, {vm_type: 1})
        return {resource: amount * count for resource, amount in self._amounts[vm_type].items()}

    def _used_amounts(self, key: UUID) -> Counter[str]:
        """Return what a tenant or group uses of its quotas, with this transaction's requests."""
        if key not in self._requested:
            used = Counter(requested_amounts(self._connection, key))
            used.update(
                reserved_amounts(self._connection, key, is_in_force(db_now(self._connection)))
            )
            self._requested[key] = used
        return Counter(self._requested[key]) + self._taken[key]

    def _may_exceed_quota(self, owner: UUID, otherwise: OverQuota) -> bool:
        """Return whether a tenant's requests above its quota wait instead of being refused."""
        if (owner, otherwise) not in self._waits:
            said = _over_quota_rule(self._connection, owner, otherwise)
            self._waits[owner, otherwise] = said == "wait"
        return self._waits[owner, otherwise]


def _over_quota_rule(connection: Connection, tenant: UUID, otherwise: OverQuota) -> OverQuota:
    """Return the rule for a tenant's requests above a quota: the nearest setting on its path."""
    path = read_path(connection, tenant)
    query = select(tenants.c.id, tenants.c.over_quota).where(tenants.c.id.in_(path))
    said = {row.id: row.over_quota for row in connection.execute(query)}
    found: OverQuota = next((said[key] for key in path if said[key] is not None), otherwise)
    return found


def total_amounts(connection: Connection, numbers: Mapping[UUID, int]) -> Amounts:
    """Return the amounts, overhead included, of a number of VMs of each type, as quotas count.

    The assignments of the VMs will hold the same amounts. So a request within a quota is still
    within it when its VMs are placed.
    """
    total: Counter[str] = Counter({VMS: sum(numbers.values())})
    for vm_type_id, amounts in demands(connection, numbers).items():
        for resource, amount in amounts.items():
            total[resource] += amount * numbers[vm_type_id]
    return total


def read_owner_names(connection: Connection, keys: Iterable[UUID]) -> Mapping[UUID, str]:
    """Return the names of tenants and groups."""
    found: dict[UUID, str] = {}
    for some in chunks(sorted(set(keys))):
        query = select(tenants.c.id, tenants.c.name).where(
            is_any_of(connection, tenants.c.id, some)
        )
        found |= {row.id: row.name for row in connection.execute(query)}
    return found
