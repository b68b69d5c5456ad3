"""The inputs of waiting-time forecasts: running VMs, and past lifetimes.

A fixed number of rows is read, however long the history is: the newest VMs, and samples of earlier
ones at exponentially growing distances. VMs are sampled by their creation time, whether they live
or not, so that long lifetimes are not overrepresented.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, and_, case, func, select

from registry.catalogue.resources import demands, resource_names
from registry.db.bulk import chunks, is_any_of
from registry.db.ids import lowest_uuid7
from registry.db.schema import (
    assignments,
    is_place,
    requests,
    round_inputs,
    rounds,
    spot_preemptions,
    tenants,
    unreleased,
    vm_types,
    vms,
)
from registry.lifecycle import FINISHED
from registry.records.cluster import RequestView
from registry.records.forecast_inputs import ForecastInputs, LivingVms, PastLife, RecentRequest
from registry.records.requests import Rules
from registry.rounds.cluster_view import view_cluster
from registry.rounds.known_hosts import KnownHosts
from registry.rounds.slot_loop import slot_loop_status

#: VMs that are read, the newest, and of each earlier time.
NEWEST: Final = 20_000
OF_EACH_TIME: Final = 1_000
_FIRST_TIME: Final = timedelta(hours=1)
_TIMES: Final = 14  #: the last of them two years long
#: Requests are taken to come on as they came in this time.
LATELY: Final = timedelta(days=1)
MAX_RECENT_VMS: Final = 2_000
_LATEST_INPUTS: Final = (
    select(round_inputs.c.inputs)
    .join(rounds, rounds.c.number == round_inputs.c.round)
    .where(rounds.c.decided_by == "policy")
    .order_by(rounds.c.number.desc())
    .limit(1)
)


def can_forecast(connection: Connection) -> bool:
    """Return whether a policy decided a round, so that a forecast of waiting times can start."""
    if slot_loop_status(connection).slot_length_s is None:
        return False
    latest = _LATEST_INPUTS.with_only_columns(round_inputs.c.round)
    return connection.scalar(latest) is not None


def read_forecast_inputs(connection: Connection, known: KnownHosts | None = None) -> ForecastInputs:
    """Return the inputs of a forecast of waiting times, in a caller's transaction."""
    cluster = view_cluster(connection, known=known)
    axis = resource_names(connection)
    made = _sample_vms(connection, cluster.now)
    placed_at = _first_placed_at(connection, [row.id for row in made])
    demand = {
        key: tuple(amounts.get(name, 0) for name in axis)
        for key, amounts in demands(connection).items()
    }
    named = connection.execute(select(vm_types.c.id, vm_types.c.name))
    names = {row.id: row.name for row in named}
    since = cluster.now - LATELY
    kinds, came, since = _recent_arrivals(connection, made, since, demand, names)
    return ForecastInputs(
        cluster=cluster,
        living=_living_vms(connection),
        lives=_past_lives(made, placed_at, cluster.now),
        kinds=kinds,
        came=came,
        came_since=since,
        ends=_request_ends(connection),
        demand=demand,
        vm_types=names,
        slot_length_s=slot_loop_status(connection).slot_length_s,
        inputs=connection.scalar(_LATEST_INPUTS),
    )


def sample_past_lives(connection: Connection, now: datetime) -> tuple[PastLife, ...]:
    """Return past lifetimes of a sample of VMs, in a caller's transaction."""
    made = _sample_vms(connection, now)
    return _past_lives(made, _first_placed_at(connection, [row.id for row in made]), now)


def _sample_vms(connection: Connection, now: datetime) -> list[Row[Any]]:
    """Return a sample of VMs, living and gone, by creation time, the newest first."""
    newest = connection.execute(_vm_sample_query().order_by(vms.c.id.desc()).limit(NEWEST)).all()
    found = list(newest)
    if len(newest) < NEWEST:
        return found
    end = newest[-1].id
    length = _FIRST_TIME
    for _ in range(_TIMES):
        begin = lowest_uuid7(now - length)
        length *= 2
        if begin < end:
            its = and_(vms.c.id >= begin, vms.c.id < end)
            some = _vm_sample_query().where(its).order_by(vms.c.id).limit(OF_EACH_TIME)
            found += connection.execute(some).all()
            end = begin
    return found


def _vm_sample_query() -> Any:
    """Return the query for the rows of VMs of which forecasts take lifetimes and arrivals."""
    return (
        select(
            vms.c.id,
            vms.c.request_id,
            vms.c.tenant_id,
            requests.c.vm_type_id,
            vms.c.created_at,
            vms.c.deleted_at,
        )
        .join(requests, requests.c.id == vms.c.request_id)
        .where(~vms.c.spot, ~vms.c.borrowed)
    )


def _first_placed_at(connection: Connection, vm_ids: Sequence[UUID]) -> Mapping[UUID, datetime]:
    """Return when VMs got their first place, by VM."""
    found: dict[UUID, datetime] = {}
    for some in chunks(vm_ids):
        query = select(assignments.c.vm_id, assignments.c.created_at).where(
            is_any_of(connection, assignments.c.vm_id, some), assignments.c.generation == 1
        )
        found.update((row.vm_id, row.created_at) for row in connection.execute(query))
    return found


def _past_lives(
    made: Sequence[Row[Any]], first: Mapping[UUID, datetime], now: datetime
) -> tuple[PastLife, ...]:
    """Return past lifetimes of VMs; VMs of a request with the same start and end count once."""
    seen: set[object] = set()
    lives = []
    for row in made:
        placed_at = first.get(row.id)
        if placed_at is None:
            continue
        end = row.deleted_at or now
        minute = None if row.deleted_at is None else int(row.deleted_at.timestamp() // 60)
        key = (row.request_id, placed_at, minute)
        if key not in seen:
            seen.add(key)
            lives.append(
                PastLife(
                    tenant_id=row.tenant_id,
                    vm_type_id=row.vm_type_id,
                    lived_s=max(0.0, (end - placed_at).total_seconds()),
                    ended=row.deleted_at is not None,
                )
            )
    return tuple(lives)


def _living_vms(connection: Connection) -> tuple[LivingVms, ...]:
    """Return VMs that have a place, and since when; one that was moved counts from its creation."""
    placed_at = case(
        (assignments.c.generation == 1, assignments.c.created_at), else_=vms.c.created_at
    )
    # Announced ends of spot and borrowed VMs come before those of their requests.
    ends_at = func.coalesce(spot_preemptions.c.ends_at, requests.c.expires_at)
    query = (
        select(
            assignments.c.host_id,
            assignments.c.tenant_id,
            vms.c.request_id,
            requests.c.vm_type_id,
            placed_at.label("placed_at"),
            ends_at.label("ends_at"),
            func.count(),
        )
        .select_from(assignments)
        .join(vms, vms.c.id == assignments.c.vm_id)
        .join(requests, requests.c.id == vms.c.request_id)
        .outerjoin(spot_preemptions, spot_preemptions.c.vm_id == vms.c.id)
        .where(is_place, unreleased)
        .group_by(
            assignments.c.host_id,
            assignments.c.tenant_id,
            vms.c.request_id,
            requests.c.vm_type_id,
            placed_at,
            ends_at,
        )
        .order_by(vms.c.request_id, placed_at, assignments.c.host_id)
    )
    # One object for each id: a process is sent all of it, which takes a third of the time so.
    known: dict[UUID, UUID] = {}
    one = known.setdefault
    return tuple(
        LivingVms(
            host_id=one(host, host),
            tenant_id=one(tenant, tenant),
            request_id=one(request, request),
            vm_type_id=one(vm_type, vm_type),
            placed_at=at,
            ends_at=ends,
            count=count,
        )
        for host, tenant, request, vm_type, at, ends, count in connection.execute(query).all()
    )


def _request_ends(connection: Connection) -> Mapping[UUID, datetime]:
    """Return the end times of open requests that expire."""
    query = select(requests.c.id, requests.c.expires_at).where(
        requests.c.expires_at.is_not(None), requests.c.state.not_in(FINISHED)
    )
    return {row.id: row.expires_at for row in connection.execute(query)}


def _recent_arrivals(
    connection: Connection,
    made: Sequence[Row[Any]],
    since: datetime,
    demand: Mapping[UUID, tuple[int, ...]],
    names: Mapping[UUID, str],
) -> tuple[tuple[RequestView, ...], tuple[RecentRequest, ...], datetime]:
    """Return the kinds of recent requests, the arrivals of VMs, and the start of that period."""
    newest = made[:NEWEST]
    together = Counter(
        (row.created_at, row.request_id) for row in newest if row.created_at >= since
    )
    lately = sorted(together)
    if len(newest) == NEWEST and newest[-1].created_at > since:
        since = newest[-1].created_at
    if len(lately) > MAX_RECENT_VMS:
        lately = lately[-MAX_RECENT_VMS:]
        since = lately[0][0]
    kinds: dict[object, tuple[int, RequestView]] = {}
    kind_of: dict[UUID, int] = {}
    for some in chunks(sorted({request for _, request in lately})):
        for row in connection.execute(_arrivals_query(is_any_of(connection, requests.c.id, some))):
            rules = Rules(forbids=tuple(row.forbids), zone=row.zone)
            named = None if row.hosts is None else tuple(row.hosts)
            request_key = (tuple(row.requires), named, rules, row.priority)
            key = (row.tenant_id, row.vm_type_id, *request_key)
            view = RequestView(
                id=row.id,
                name=row.name,
                tenant_id=row.tenant_id,
                vm_type=names[row.vm_type_id],
                demand=demand[row.vm_type_id],
                count=1,
                min_count=1,
                requires=tuple(row.requires),
                hosts=named,
                avoid=(),
                age=0,
                created_at=row.created_at,
                rules=rules,
                priority=row.priority,
            )
            kind_of[row.id] = kinds.setdefault(key, (len(kinds), view))[0]
    return (
        tuple(view for _, view in kinds.values()),
        tuple(
            RecentRequest(kind=kind_of[request], requested_at=at, count=together[at, request])
            for at, request in lately
            if request in kind_of
        ),
        since,
    )


def _arrivals_query(which: ColumnElement[bool]) -> Any:
    """Return the query for the demands and rules of recent requests, without removed tenants."""
    return (
        select(
            requests.c.id,
            requests.c.name,
            requests.c.tenant_id,
            requests.c.vm_type_id,
            requests.c.requires,
            requests.c.hosts,
            requests.c.forbids,
            requests.c.zone,
            requests.c.priority,
            requests.c.created_at,
        )
        .join(tenants, tenants.c.id == requests.c.tenant_id)
        .where(which, tenants.c.removed_at.is_(None), ~requests.c.spot)
        .order_by(requests.c.id)
    )
