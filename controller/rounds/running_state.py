"""Converts rows of running VMs to arrays, the state on which plans of moves are decided."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import numpy as np

from controller.rounds.snapshots import (
    KnownArrays,
    SnapshotNames,
    drop_spot_requests,
    is_host_allowed,
    rows_by_request,
    to_snapshot,
)
from placement import IntArray
from placement.rebalancing.model import (
    OBSTACLES,
    Mobility,
    RebalanceObstacle,
    RunningGroup,
    RunningSpread,
    RunningState,
)
from registry.moves import RunningView, RunningVm
from registry.requests import zone_of
from registry.rounds import ClusterView

_MEMORY = "memory_mib"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningNames:
    """The names of the hosts, requests and VMs of a running state, by index."""

    snapshot: SnapshotNames
    vms: tuple[str, ...]  #: ids on the axis V


def to_running(
    view: RunningView, *, to_move: bool = True, known: KnownArrays | None = None
) -> tuple[RunningState, RunningNames]:
    """Convert rows of running VMs to the state on which a plan of moves is decided.

    Without ``to_move``, to the state for which a round keeps spare capacity: recent moves do not
    matter, and hosts with room kept for a request may take VMs of failed hosts.
    """
    freed: set[UUID] = set()
    if to_move:
        freed = _hosts_with_kept_room(view.cluster)
        view = replace(view, cluster=drop_spot_requests(view.cluster))
    cluster = view.cluster
    snapshot, names = to_snapshot(
        cluster, further_requests=view.requests, known=known, lends=not to_move
    )
    host_index = {host.id: index for index, host in enumerate(cluster.hosts)}
    tenant_index = {tenant.id: index for index, tenant in enumerate(cluster.tenants)}
    requests = {request.id: request for request in view.requests}
    vms = [vm for vm in view.vms if vm.host_id in host_index]
    eligible = _eligible_classes(view, snapshot.host_class, vms)
    # Thousands of requests form a few kinds; a plan weighs each kind on each host.
    kinds: dict[tuple[tuple[int, ...], bytes], int] = {}
    kind = _int_array(
        kinds.setdefault((vm.amounts, eligible[vm.request_id]), len(kinds)) for vm in vms
    )
    capacity, committed = (
        np.array(rows, dtype=np.int64).reshape(len(cluster.hosts), len(cluster.resources))
        for rows in (
            [host.capacity for host in cluster.hosts],
            [host.committed for host in cluster.hosts],
        )
    )
    zone_names = sorted({zone for host in cluster.hosts if (zone := zone_of(host.labels))})
    zone_index = {name: index for index, name in enumerate(zone_names)}
    zones = _int_array(zone_index.get(zone_of(host.labels) or "", -1) for host in cluster.hosts)
    memory = cluster.resources.index(_MEMORY)
    spreads = _running_spreads(view, vms, host_index, zones, zone_names)
    running = RunningState(
        snapshot=snapshot,
        kind=kind,
        host=_int_array(host_index[vm.host_id] for vm in vms),
        tenant=_int_array(tenant_index[requests[vm.request_id].tenant_id] for vm in vms),
        transfer_mib=_int_array(vm.amounts[memory] if vm.runs else 0 for vm in vms),
        mobility=_int_array(_mobility_of_vm(vm) for vm in vms),
        obstacle=_int_array(
            -1 if vm.obstacle is None else OBSTACLES.index(RebalanceObstacle(vm.obstacle))
            for vm in vms
        ),
        rests=np.array([vm.rests and to_move for vm in vms], dtype=np.bool_),
        demand=np.array([amounts for amounts, _ in kinds], dtype=np.int64).reshape(
            len(kinds), len(cluster.resources)
        ),
        eligible=np.frombuffer(b"".join(row for _, row in kinds), dtype=np.bool_).reshape(
            len(kinds), snapshot.eligible.shape[1]
        ),
        receives=np.array(
            [host.accepts and host.id not in freed for host in cluster.hosts], dtype=np.bool_
        ),
        over=np.maximum(committed - capacity, 0),
        groups=_running_groups(view, vms, host_index),
        spreads=spreads,
        zones=zones if spreads else _int_array(()),
    )
    return running, RunningNames(snapshot=names, vms=tuple(str(vm.id) for vm in vms))


def _hosts_with_kept_room(cluster: ClusterView) -> set[UUID]:
    """Return the hosts with room that is made or kept for waiting requests."""
    rooms = () if cluster.spot is None else cluster.spot.kept
    waits = {request.id for request in cluster.requests}
    hosts = {host for plan in cluster.freed for host in plan.hosts}
    return hosts | {room.host_id for room in rooms if room.request_id in waits}


def _int_array(values: object) -> IntArray:
    return np.array(list(values), dtype=np.int64)  # type: ignore[call-overload]


def _mobility_of_vm(vm: RunningVm) -> Mobility:
    if vm.obstacle is not None:
        return Mobility.NEVER
    return Mobility.LIVE if vm.runs else Mobility.COLD


def _eligible_classes(
    view: RunningView, host_class: IntArray, vms: Sequence[RunningVm]
) -> dict[UUID, bytes]:
    """Return the host classes allowed for each request's VMs, as the bytes of a boolean row.

    Hosts where builds of a request failed are excluded for a while, except for its VMs that are
    already there: they break no rule.
    """
    hosts = view.cluster.hosts
    classes = int(host_class.max(initial=-1)) + 1
    first = np.zeros(classes, dtype=np.int64)
    first[host_class[::-1]] = np.arange(len(hosts))[::-1]
    examples = [hosts[index] for index in first.tolist()]
    there: defaultdict[UUID, set[UUID]] = defaultdict(set)
    for vm in vms:
        there[vm.request_id].add(vm.host_id)
    known: dict[object, bytes] = {}
    rows: dict[UUID, bytes] = {}
    for request in view.requests:
        closed: frozenset[UUID] = frozenset()
        if request.avoid:
            failed = set(request.failed_on) - there[request.id]
            closed = frozenset((set(request.avoid) - set(request.failed_on)) | failed)
        wish = (request.requires, request.hosts, request.rules, closed)
        if wish not in known:
            able = [host.id not in closed and is_host_allowed(request, host) for host in examples]
            known[wish] = np.array(able, dtype=np.bool_).tobytes()
        rows[request.id] = known[wish]
    return rows


def _running_groups(
    view: RunningView, vms: Sequence[RunningVm], host_index: dict[UUID, int]
) -> tuple[RunningGroup, ...]:
    """Return the VM groups with their running VMs, and the hosts of members elsewhere."""
    rows_of = rows_by_request(view.cluster.requests)
    members: defaultdict[UUID, list[int]] = defaultdict(list)
    for index, vm in enumerate(vms):
        members[vm.request_id].append(index)
    groups = []
    for group in view.vm_groups:
        own = sorted(index for request in group.requests for index in members[request])
        known = {vms[index].host_id for index in own}
        others = [host_index[each] for each in group.hosts if each in host_index.keys() - known]
        groups.append(
            RunningGroup(
                apart=group.apart,
                hard=group.hard,
                vms=tuple(own),
                requests=tuple(
                    sorted(row for each in group.requests for row in rows_of.get(each, ()))
                ),
                hosts=tuple(sorted(others)),
            )
        )
    return tuple(groups)


def _running_spreads(
    view: RunningView,
    vms: Sequence[RunningVm],
    host_index: dict[UUID, int],
    zones: IntArray,
    zone_names: Sequence[str],
) -> tuple[RunningSpread, ...]:
    """Return the requests that are spread over zones, with their running VMs."""
    row_of = {request.id: row for row, request in enumerate(view.cluster.requests)}
    members: defaultdict[UUID, list[int]] = defaultdict(list)
    for index, vm in enumerate(vms):
        members[vm.request_id].append(index)
    spreads = []
    for request in view.requests:
        if request.spread is None:
            continue
        own = members[request.id]
        counted = Counter(int(zones[host_index[vms[index].host_id]]) for index in own)
        placed = dict(request.spread.placed)
        spreads.append(
            RunningSpread(
                maximum=request.spread.most,
                vms=tuple(own),
                request=row_of.get(request.id),
                # A VM that is moving counts on both hosts.
                others=tuple(
                    max(0, placed.get(name, 0) - counted[index])
                    for index, name in enumerate(zone_names)
                ),
            )
        )
    return tuple(spreads)
