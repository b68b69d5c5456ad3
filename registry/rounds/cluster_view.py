"""The cluster in one consistent read: all that a round decides on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, and_, false, func, or_, select

from registry.catalogue.resources import demands, resource_names
from registry.db.bulk import chunks, is_any_of
from registry.db.clock import db_now
from registry.db.schema import (
    assignments,
    build_failures,
    hosts,
    inventories,
    is_place,
    plans,
    quotas,
    request_groups,
    request_images,
    request_networks,
    requests,
    reservations,
    rounds,
    spot_room_holds,
    tenants,
    vm_types,
    vms,
)
from registry.images.holds import IMAGE_HELD, requests_of_held_images
from registry.ledger.brought_volumes import brought_volumes
from registry.ledger.placeable import is_waiting_vm, kept_disks_of_requests
from registry.ledger.shared_disks import SHARED_POOL_LABEL, KeptDisk
from registry.lifecycle import OPEN_REQUESTS, HostAdmin, PlanState, RequestState
from registry.networks.addresses import limited_request, network_limits
from registry.records.cluster import (
    Accounts,
    BroughtVolumes,
    CapacityView,
    ClusterView,
    FreedView,
    GroupView,
    HostView,
    QuotaView,
    RequestView,
    ReservedView,
    SpotView,
    TenantView,
)
from registry.records.liveness import Lease
from registry.records.requests import Rules, WaitingStatus
from registry.records.rounds import LatestRound
from registry.requests.rules import NO_RULES, memberships, rules_of
from registry.requests.waiting_status import SLOTS_WAITED
from registry.rounds.borrowed import borrowed_view, borrows_anything, count_to_borrow
from registry.rounds.freed_room import freed_views
from registry.rounds.group_views import hosts_of_group, spread_views, vm_group_views
from registry.rounds.known_hosts import Holdings, KnownHosts, sum_holdings
from registry.rounds.leases import check_epoch
from registry.rounds.reserved_room import held_for_reservations, reserved_view
from registry.rounds.slot_loop import check_not_paused
from registry.rounds.spent_budgets import limit_by_budgets
from registry.rounds.spot import spot_holdings, spot_view
from registry.tenancy.reservation_use import IS_STANDING

_LATEST = tuple(rounds.c[name] for name in LatestRound.__dataclass_fields__)
#: Plans that are carried out to let a request in.
_MAKING_ROOM = (
    select(plans.c.id, plans.c.arguments, plans.c.admitted)
    .where(plans.c.state == PlanState.APPROVED.value, plans.c.admitted.is_not(None))
    .order_by(plans.c.approved_at, plans.c.id)
)
#: Reason of VMs whose volume has a file that is being deleted.
VOLUME_LEAVES: Final = "volume_leaves"
_BEGUN = (RequestState.PARTLY_PLACED.value, RequestState.PLACED.value)


def read_cluster(connection: Connection, lease: Lease, known: KnownHosts) -> ClusterView:
    """Return the inputs of a round; of known hosts only changes are read.

    It raises `StaleEpochError` if the lease is not current, and `SlotLoopPausedError` while the
    slot loop is paused.
    """
    check_epoch(connection, lease.name, lease.holder, lease.epoch)
    check_not_paused(connection)
    return view_cluster(connection, lease.epoch, known)


def view_cluster(
    connection: Connection, epoch: int = 0, known: KnownHosts | None = None
) -> ClusterView:
    """Return the cluster as a round would see it, for callers that decide nothing."""
    now = db_now(connection)
    axis = resource_names(connection)
    known = known or KnownHosts()
    reserved, hosts_ = _reserved_view(connection, axis, now, known.read(connection, axis, now))
    spot = _spot_view(connection, axis, now)
    borrowed = None
    if borrows_anything(connection):
        asks = _borrowing_request_views(connection, axis, now, [host.id for host in hosts_])
        borrowed = borrowed_view(connection, axis, asks)
    tenants_, groups = _tenant_views(connection, axis, known.read_holdings(connection, axis), spot)
    waiting = _waiting_request_views(connection, axis, now, [host.id for host in hosts_])
    grouped = [
        request.id
        for request in waiting
        if request.rules.affinity is not None or request.rules.anti_affinity is not None
    ]
    return ClusterView(
        epoch=epoch,
        now=now,
        resources=axis,
        hosts=hosts_,
        tenants=tenants_,
        requests=waiting,
        groups=groups,
        vm_groups=vm_group_views(connection, grouped) if grouped else (),
        quotas=_quota_views(connection),
        last=latest_round(connection),
        freed=room_freed_by_plans(connection, axis),
        spot=spot,
        borrowed=borrowed,
        reserved=reserved,
    )


def room_freed_by_plans(connection: Connection, axis: Sequence[str]) -> tuple[FreedView, ...]:
    """Return the room that approved plans of moves free for waiting requests."""
    under_way = connection.execute(_MAKING_ROOM).all()
    return freed_views(connection, axis, under_way) if under_way else ()


def latest_round(connection: Connection) -> LatestRound | None:
    """Return the latest round without its shares, or None before the first."""
    query = select(*_LATEST).order_by(rounds.c.number.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    return LatestRound(**row._mapping) if row is not None else None


def capacity_view(
    connection: Connection,
    demand: Mapping[str, int],
    tenant: str | None,
    rules: Rules,
    known: KnownHosts,
) -> CapacityView:
    """Return the hosts as a round would see them, for VMs of one demand of a tenant."""
    axis, now = resource_names(connection), db_now(connection)
    _, hosts_ = _reserved_view(connection, axis, now, known.read(connection, axis, now))
    return CapacityView(
        resources=axis,
        demand=_amounts_vector(demand, axis),
        hosts=hosts_,
        apart_from=hosts_of_group(connection, tenant, rules.anti_affinity),
        together_with=hosts_of_group(connection, tenant, rules.affinity),
    )


def read_accounts(connection: Connection) -> Accounts:
    """Return the amounts that every tenant holds, and the pool's capacity."""
    axis = resource_names(connection)
    offered = (
        select(inventories.c.resource, func.sum(inventories.c.capacity))
        .join(hosts, hosts.c.id == inventories.c.host_id)
        .where(hosts.c.admin != HostAdmin.RETIRED.value)
        .group_by(inventories.c.resource)
    )
    pool = {resource: int(amount) for resource, amount in connection.execute(offered)}
    now = db_now(connection)
    spot = _spot_view(connection, axis, now)
    found, groups = _tenant_views(connection, axis, sum_holdings(connection, axis), spot)
    if reserved := held_for_reservations(connection, axis, now):
        found = tuple(
            replace(each, held=tuple(map(int.__add__, each.held, reserved[each.id])))
            if each.id in reserved
            else each
            for each in found
        )
    return Accounts(resources=axis, pool=_amounts_vector(pool, axis), tenants=found, groups=groups)


def _amounts_vector(amounts: Mapping[str, int], axis: Sequence[str]) -> tuple[int, ...]:
    """Return amounts as integers in the order of the resource axis, shape (R,)."""
    return tuple(amounts.get(name, 0) for name in axis)


def _spot_view(connection: Connection, axis: tuple[str, ...], now: datetime) -> SpotView | None:
    """Return the state of spot VMs; None if no tenant has, requests or waits for any."""
    any_vm = select(vms.c.id).where(vms.c.spot, vms.c.deleted_at.is_(None)).exists()
    any_room = select(spot_room_holds.c.host_id).where(spot_room_holds.c.until > now).exists()
    if not connection.scalar(select(or_(any_vm, any_room))):
        return None
    return spot_view(connection, axis, now)


def _reserved_view(
    connection: Connection, axis: Sequence[str], now: datetime, hosts_: tuple[HostView, ...]
) -> tuple[ReservedView | None, tuple[HostView, ...]]:
    """Return the reservations (None if there are none), and hosts with reserved room committed."""
    anything = select(reservations.c.id).where(IS_STANDING, reservations.c.keep_from <= now)
    if not connection.scalar(select(anything.exists())):
        return None, hosts_
    return reserved_view(connection, axis, now, hosts_)


def _tenant_views(
    connection: Connection, axis: Sequence[str], held: Holdings, spot: SpotView | None
) -> tuple[tuple[TenantView, ...], tuple[GroupView, ...]]:
    """Return the tenants and groups as a round sees them, with what their VMs hold."""
    nothing = (0,) * (1 + len(axis))
    spot_held = {} if spot is None else spot_holdings(spot.vms)

    def ordinary_holdings(tenant: UUID) -> tuple[int, ...]:
        """Return the amounts of a tenant's VMs other than spot VMs."""
        of_all = held.get(tenant, nothing)[1:]
        return tuple(map(int.__sub__, of_all, spot_held[tenant])) if tenant in spot_held else of_all

    rows = connection.execute(
        select(tenants)
        .where(tenants.c.removed_at.is_(None))
        .order_by(tenants.c.created_at, tenants.c.id)
    ).all()
    return (
        tuple(
            TenantView(
                id=row.id,
                name=row.name,
                weight=row.weight,
                held=ordinary_holdings(row.id),
                parent_id=row.parent_id,
                vms=held.get(row.id, nothing)[0],
                spot_held=spot_held.get(row.id, ()),
            )
            for row in rows
            if not row.is_group
        ),
        tuple(
            GroupView(id=row.id, name=row.name, weight=row.weight, parent_id=row.parent_id)
            for row in rows
            if row.is_group
        ),
    )


def _quota_views(connection: Connection) -> tuple[QuotaView, ...]:
    """Return all quotas as a round sees them."""
    query = (
        select(quotas, tenants.c.name)
        .join(tenants, tenants.c.id == quotas.c.tenant_id)
        .order_by(tenants.c.created_at, tenants.c.id, quotas.c.resource)
    )
    return tuple(
        QuotaView(owner_id=row.tenant_id, owner=row.name, resource=row.resource, limit=row.amount)
        for row in connection.execute(query)
    )


def requests_ever_placed(connection: Connection, request_ids: Sequence[UUID]) -> set[UUID]:
    """Return which of these requests ever had a place, so that ``min_count`` no longer binds."""
    found: set[UUID] = set()
    for some in chunks(request_ids):
        query = select(vms.c.request_id).where(
            is_any_of(connection, vms.c.request_id, some), vms.c.generation > 0
        )
        found.update(connection.scalars(query.distinct()))
    return found


def min_at_once(min_count: int, waiting: int, *, begun: bool) -> int:
    """Return the minimum number of a request's VMs that a round places, if it places any.

    ``min_count`` binds the first round that places the request. If the tenant deleted VMs before
    that, the minimum is at most the number of VMs that are still wanted.
    """
    return 1 if begun else max(1, min(min_count, waiting))


def running_requests(
    connection: Connection, axis: Sequence[str], now: datetime, everywhere: Sequence[UUID]
) -> tuple[RequestView, ...]:
    """Return the requests that have VMs on hosts, as if those VMs were to be placed."""
    placed = select(assignments.c.id).where(assignments.c.vm_id == vms.c.id, is_place).exists()
    return _request_views(
        connection, axis, now, everywhere, which=placed, states=_BEGUN, to_place=False
    )


def request_of_vm(
    connection: Connection,
    axis: Sequence[str],
    now: datetime,
    everywhere: Sequence[UUID],
    vm_id: UUID,
) -> RequestView:
    """Return the request of a VM that has a place, as if this one VM were to be placed."""
    [found] = _request_views(
        connection,
        axis,
        now,
        everywhere,
        which=vms.c.id == vm_id,
        states=_BEGUN,
        to_place=False,
        of_vm=vm_id,
    )
    return found


def _waiting_request_views(
    connection: Connection, axis: Sequence[str], now: datetime, everywhere: Sequence[UUID]
) -> tuple[RequestView, ...]:
    """Return the requests with VMs that a round may place."""
    return _request_views(
        connection,
        axis,
        now,
        everywhere,
        which=is_waiting_vm(),
        states=OPEN_REQUESTS,
        to_place=True,
    )


def _borrowing_request_views(
    connection: Connection, axis: Sequence[str], now: datetime, everywhere: Sequence[UUID]
) -> tuple[RequestView, ...]:
    """Return the requests that may borrow VMs, with how many more."""
    return _request_views(
        connection,
        axis,
        now,
        everywhere,
        which=false(),
        states=[RequestState.PLACED.value],
        to_place=True,
        counts=count_to_borrow(connection),
    )


def _request_views(
    connection: Connection,
    axis: Sequence[str],
    now: datetime,
    everywhere: Sequence[UUID],
    *,
    which: ColumnElement[bool],
    states: Sequence[str],
    to_place: bool,
    of_vm: UUID | None = None,
    counts: Mapping[UUID, int] | None = None,
) -> tuple[RequestView, ...]:
    """Return requests in these states with their VMs that meet a condition, or with ``counts``.

    With ``to_place``, requests whose image is held are closed to all hosts, and VMs that wait for
    a budget are left out. With ``of_vm`` only the
    request of that VM is returned.
    """
    in_question: ColumnElement[bool] = requests.c.state.in_(states)
    if of_vm is not None:
        its = select(vms.c.request_id).where(vms.c.id == of_vm).scalar_subquery()
        in_question = and_(in_question, requests.c.id == its)
    if counts is None:
        counts = {
            row.request_id: row.waiting
            for row in connection.execute(
                select(vms.c.request_id, func.count().label("waiting"))
                .select_from(vms)
                .join(requests, requests.c.id == vms.c.request_id)
                .where(in_question, which)
                .group_by(vms.c.request_id)
            )
        }
    else:
        in_question = and_(in_question, requests.c.max_count.is_not(None))
    demand = demands(connection)
    avoid: defaultdict[UUID, list[UUID]] = defaultdict(list)
    retry_at: dict[UUID, datetime] = {}
    failures = (
        select(build_failures)
        .where(build_failures.c.avoid_until > now)
        .order_by(build_failures.c.host_id)
    )
    for row in connection.execute(failures):
        avoid[row.request_id].append(row.host_id)
        earliest = retry_at.get(row.request_id, row.avoid_until)
        retry_at[row.request_id] = min(earliest, row.avoid_until)
    in_group = select(request_groups.c.group_id).where(request_groups.c.request_id == requests.c.id)
    rows = connection.execute(
        select(
            requests,
            vm_types.c.name.label("vm_type"),
            request_images.c.image_id,
            request_networks.c.network_id,
            in_group.exists().label("in_group"),
            SLOTS_WAITED.label("slots"),
        )
        .select_from(requests)
        .join(vm_types, vm_types.c.id == requests.c.vm_type_id)
        .outerjoin(request_images, request_images.c.request_id == requests.c.id)
        .outerjoin(request_networks, request_networks.c.request_id == requests.c.id)
        .where(in_question)
        .order_by(requests.c.created_at, requests.c.id)
    ).all()
    rows = [row for row in rows if counts.get(row.id)]
    begun = requests_ever_placed(connection, [row.id for row in rows if row.min_count > 1])
    # Networks of no request are not read.
    networked = [row.id for row in rows if row.network_id is not None]
    on_networks = (
        network_limits(connection, networked, everywhere, waits=which) if networked else {}
    )
    grouped = [row.id for row in rows if row.in_group]
    groups = memberships(connection, grouped) if grouped else {}
    spread = [row for row in rows if row.spread is not None]
    spreads = spread_views(connection, spread) if spread else {}
    found = [
        RequestView(
            id=row.id,
            name=row.name,
            tenant_id=row.tenant_id,
            vm_type=row.vm_type,
            demand=_amounts_vector(demand[row.vm_type_id], axis),
            count=counts[row.id],
            min_count=min_at_once(row.min_count, counts[row.id], begun=row.id in begun),
            requires=tuple(row.requires),
            hosts=tuple(row.hosts) if row.hosts is not None else None,
            avoid=tuple(avoid[row.id]),
            failed_on=tuple(avoid[row.id]),
            retry_at=retry_at.get(row.id),
            age=row.slots,
            created_at=row.created_at,
            rules=rules_of(row, groups.get(row.id, {})) if _has_rules(row) else NO_RULES,
            spread=spreads.get(row.id),
            priority=row.priority,
            spot=row.spot,
        )
        for row in rows
    ]
    found = [
        limited_request(view, on_networks[view.id], everywhere) if view.id in on_networks else view
        for view in found
    ]
    has_images = any(row.image_id is not None for row in rows)
    held = requests_of_held_images(connection) if to_place and has_images else {}
    found = [
        _closed_for_held_image(view, held[view.id], everywhere) if view.id in held else view
        for view in found
    ]
    if to_place:
        found = list(limit_by_budgets(connection, found, now, everywhere, which))
    kept = kept_disks_of_requests(connection, which) if to_place else {}
    brought = brought_volumes(connection, which) if to_place and counts else {}
    place = axis.index("disk_gib") if brought else 0
    return tuple(
        part
        for view in found
        for part in _split_by_disks(
            view, kept.get(view.id, {}), brought.get(view.id, {}), disk_place=place
        )
    )


def _split_by_disks(
    view: RequestView,
    kept: Mapping[UUID, KeptDisk],
    brought: Mapping[UUID, BroughtVolumes],
    *,
    disk_place: int,
) -> Iterator[RequestView]:
    """Yield a request in parts whose VMs have equal disks elsewhere, and the rest.

    VMs with a disk in a shared pool come first, then those with volumes. A minimum applies to the
    parts that any host may take.
    """
    if view.shut_out or not (kept or brought):
        yield view
        return
    alike = Counter(
        (kept[key].label if key in kept else "", brought.get(key, BroughtVolumes()))
        for key in {*kept, *brought}
    )
    left = view.count
    # Parts on certain hosts precede the others.
    for label, its in sorted(alike, key=lambda each: (each[0] == "", each[1].hosts is None, *each)):
        count = min(alike[label, its], left)
        left -= count
        if count:
            is_free = not label and its.hosts is None
            part = replace(
                view,
                count=count,
                min_count=min(view.min_count, count) if is_free else 1,
                short=None if left else view.short,
            )
            if label:
                part = replace(
                    part,
                    requires=tuple(sorted({*view.requires, label})),
                    shared_pool=label.removeprefix(SHARED_POOL_LABEL),
                )
            yield part if its == BroughtVolumes() else _with_volumes(part, its, disk_place)
    if left:
        yield replace(view, count=left, min_count=min(view.min_count, left))


def _with_volumes(view: RequestView, its: BroughtVolumes, disk_place: int) -> RequestView:
    """Return a request whose VMs start with volumes, with these in its demand and its hosts."""
    demand = list(view.demand)
    demand[disk_place] += its.disk_gib
    hosts_ = view.hosts
    if its.leaving:
        hosts_ = ()
    elif its.hosts is not None:
        hosts_ = tuple(name for name in its.hosts if hosts_ is None or name in hosts_)
    view = replace(view, demand=tuple(demand), hosts=hosts_, named=view.hosts, volumes=its)
    if not its.leaving:
        return view
    detail = {"volumes": list(its.leaving)}
    short = WaitingStatus(count=view.count, reason=VOLUME_LEAVES, detail=detail)
    return replace(view, short=short, shut_out=True)


def _has_rules(row: Row[Any]) -> bool:
    """Return whether a request has placement rules or is in a VM group."""
    said = row.zone is not None or row.spread is not None
    return bool(row.in_group or said or row.forbids or row.prefers)


def _closed_for_held_image(
    view: RequestView, image: str, everywhere: Sequence[UUID]
) -> RequestView:
    """Return a request that no host may take, as its image is held."""
    short = WaitingStatus(count=view.count, reason=IMAGE_HELD, detail={"image": image})
    return replace(view, avoid=tuple(everywhere), short=short, shut_out=True)
