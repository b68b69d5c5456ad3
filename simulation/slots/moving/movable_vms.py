"""The running VMs of a simulation as planners of moves see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from placement import BoolArray, FloatArray, IntArray, Snapshot
from placement.rebalancing.model import (
    OBSTACLES,
    Mobility,
    RebalanceObstacle,
    RunningGroup,
    RunningSpread,
    RunningState,
)
from registry.requests import zone_of
from simulation.slots.cluster import Cluster
from simulation.slots.host_rules import GroupKey, HostRules, group_keys, may_use
from simulation.slots.interning import InternedNames
from simulation.slots.running_vms import VmRows
from simulation.slots.waiting_rows import WaitingRows
from simulation.traces.request_constraints import RequestConstraints

MEMORY: Final = "memory_mib"
_MOVING: Final = OBSTACLES.index(RebalanceObstacle.MOVING)


class VmKey(NamedTuple):
    """The key of alike running VMs, of which any one may move."""

    request: int
    end_s: float
    host: int  #: of the cluster


@dataclass(frozen=True, slots=True, eq=False)
class MovableVms:
    """The simulated running VMs as planners of moves see them, V in all, with their keys.

    They are in order of request, end and host.
    """

    running: RunningState
    request: IntArray  #: (V,)
    end_s: FloatArray  #: (V,)
    tenant: IntArray  #: (V,) numbers of `InternedNames`, as kind and constraints
    kind: IntArray  #: (V,)
    constraints: IntArray  #: (V,)
    hosts: IntArray  #: (H,) numbers of the cluster's hosts

    def key(self, vm: int) -> VmKey:
        """Return the key that a running VM shares with alike VMs."""
        host = int(self.hosts[self.running.host[vm]])
        return VmKey(int(self.request[vm]), float(self.end_s[vm]), host)

    def by_key(self) -> dict[VmKey, list[int]]:
        """Return the running VMs of each key, ascending."""
        found: dict[VmKey, list[int]] = {}
        keys = (self.request.tolist(), self.end_s.tolist(), self.hosts[self.running.host].tolist())
        for vm, key in enumerate(zip(*keys, strict=True)):
            found.setdefault(VmKey(*key), []).append(vm)
        return found


def build_movable_vms(
    snapshot: Snapshot,
    tenants: IntArray,
    vms: VmRows | None,
    *,
    moving: Counter[VmKey],
    resting: Counter[VmKey],
    arriving: Sequence[tuple[int, int]],
    names: InternedNames,
    cluster: Cluster,
    waiting: WaitingRows,
    rules: HostRules,
) -> MovableVms:
    """Return the running VMs for a planner of moves, with classes that fit their constraints.

    Parameters
    ----------
    tenants : ndarray of int64, shape (N,)
        Numbers of the snapshot's tenants.
    vms : Vms or None
        All that runs, in any order.
    moving, resting : Counter
        How many VMs of a key move, or have moved lately.
    arriving : sequence of (request, host)
        Where VMs arrive, by number of the cluster's host.
    """
    rows = VmRows.empty() if vms is None else vms
    rows = rows.where(np.lexsort((rows.host, rows.end_s, rows.request)))
    each = np.repeat(np.arange(len(rows)), rows.count)
    tables = names.request_constraints.values
    kinds, kind = np.unique(
        np.stack([rows.kind, rows.constraints], axis=1).reshape(-1, 2), axis=0, return_inverse=True
    )
    place = np.zeros(len(names.tenants), dtype=np.int64)
    place[tenants] = np.arange(len(tenants))
    of_host = np.full(len(cluster.capacity), -1, dtype=np.int64)
    of_host[cluster.rows] = np.arange(len(cluster.rows))
    demand = names.demand[kinds[:, 0]]
    request, end_s, host = rows.request[each], rows.end_s[each], rows.host[each]
    moves, rests = (
        _mask_of_keys(request, end_s, host, moving),
        _mask_of_keys(request, end_s, host, resting),
    )
    over = np.maximum(cluster.committed[cluster.rows] - cluster.pool_capacity(), 0)
    zones = sorted({zone for each in cluster.hosts if (zone := zone_of(each.labels))})
    zone_index = {name: index for index, name in enumerate(zones)}
    zone_of_host = [zone_index.get(zone_of(each.labels) or "", -1) for each in cluster.hosts]
    bound = _BoundVms.of(rows, each, cluster=cluster, waiting=waiting, tables=tables)
    spreads = bound.spreads(zone_of_host, arriving)
    running = RunningState(
        snapshot=snapshot,
        kind=kind.ravel()[each],
        host=of_host[host],
        tenant=place[rows.tenant[each]],
        transfer_mib=demand[kind.ravel()[each], names.resources.index(MEMORY)],
        mobility=np.where(moves, Mobility.NEVER, Mobility.LIVE).astype(np.int64),
        obstacle=np.where(moves, _MOVING, -1).astype(np.int64),
        rests=rests,
        demand=demand,
        eligible=_eligibility_of_kinds(
            snapshot, cluster, [tables[number] for number in kinds[:, 1].tolist()]
        ),
        receives=np.array([each.accepts for each in cluster.hosts], dtype=np.bool_),
        over=over,
        groups=bound.groups(rules),
        spreads=spreads,
        zones=np.array(zone_of_host if spreads else [], dtype=np.int64),
    )
    of_each = (rows.tenant[each], rows.kind[each], rows.constraints[each])
    return MovableVms(running, request, end_s, *of_each, cluster.rows)


def _mask_of_keys(
    request: IntArray, end_s: FloatArray, host: IntArray, counts: Counter[VmKey]
) -> BoolArray:
    """Mark the first ``counts[key]`` VMs of each key."""
    marked = np.zeros(len(request), dtype=np.bool_)
    for key, count in counts.items():
        first = int(np.searchsorted(request, key.request))
        last = int(np.searchsorted(request, key.request, side="right"))
        same = (end_s[first:last] == key.end_s) & (host[first:last] == key.host)
        marked[first + np.flatnonzero(same)[:count]] = True
    return marked


def _eligibility_of_kinds(
    snapshot: Snapshot, cluster: Cluster, tables: Sequence[RequestConstraints]
) -> BoolArray:
    """Return the host classes that running VMs of each kind may use, (K, C), closed ones, too."""
    classes = snapshot.eligible.shape[1]
    example = np.zeros(classes, dtype=np.int64)
    example[snapshot.host_class[::-1]] = np.arange(len(snapshot.host_class))[::-1]
    known: dict[RequestConstraints, list[bool]] = {}
    for table in tables:
        if table not in known:
            known[table] = [may_use(table, cluster.hosts[host]) for host in example.tolist()]
    rows = [known[table] for table in tables]
    return np.array(rows, dtype=np.bool_).reshape(len(tables), classes)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _BoundVms:
    """The running VMs that groups and spreads bind to others."""

    vms: list[tuple[int, int, RequestConstraints]]  #: index of V, request, constraints
    of_group: dict[GroupKey, list[int]]  #: indices of V
    host: IntArray  #: (V,) numbers of hosts
    cluster: Cluster
    waiting: WaitingRows
    tables: Sequence[RequestConstraints]

    @classmethod
    def of(
        cls,
        rows: VmRows,
        each: IntArray,
        *,
        cluster: Cluster,
        waiting: WaitingRows,
        tables: Sequence[RequestConstraints],
    ) -> _BoundVms:
        """Find the running VMs that groups and spreads bind to others."""
        ruled = np.array([table.is_ruled for table in tables], dtype=np.bool_)
        members = np.flatnonzero(ruled[rows.constraints[each]]).tolist() if len(each) else []
        vms, of_group = [], dict[GroupKey, list[int]]()
        for vm in members:
            row = int(each[vm])
            table = tables[int(rows.constraints[row])]
            vms.append((vm, int(rows.request[row]), table))
            for key in group_keys(int(rows.tenant[row]), table):
                of_group.setdefault(key, []).append(vm)
        return cls(
            vms=vms,
            of_group=of_group,
            host=rows.host[each],
            cluster=cluster,
            waiting=waiting,
            tables=tables,
        )

    def groups(self, rules: HostRules) -> tuple[RunningGroup, ...]:
        """Return the VM groups of running and waiting VMs, for a planner of moves."""
        requests: dict[GroupKey, list[int]] = {}
        for row, number in enumerate(self.waiting.constraints.tolist()):
            for key in group_keys(int(self.waiting.tenant[row]), self.tables[number]):
                requests.setdefault(key, []).append(row)
        groups = []
        for key, hosts in rules.groups():
            vms = self.of_group.get(key, [])
            if not vms and key not in requests:
                continue
            own = set(self.host[vms].tolist())
            groups.append(
                RunningGroup(
                    apart=key[2],
                    hard=key[3],
                    vms=tuple(vms),
                    requests=tuple(requests.get(key, ())),
                    hosts=self.cluster.positions_in_pool(
                        [host for host in hosts if host not in own]
                    ),
                )
            )
        return tuple(groups)

    def spreads(
        self, zone_of_host: Sequence[int], arriving: Sequence[tuple[int, int]]
    ) -> tuple[RunningSpread, ...]:
        """Return the spreads of requests with running VMs, for a planner of moves.

        How many VMs a request once wanted is known as long as some wait: later it is as
        many as run.
        """
        members: dict[int, list[int]] = {}
        table_of: dict[int, RequestConstraints] = {}
        for vm, request, table in self.vms:
            if table.rules.spread is not None:
                members.setdefault(request, []).append(vm)
                table_of[request] = table
        row_of = {request: row for row, request in enumerate(self.waiting.request.tolist())}
        place = {host: index for index, host in enumerate(self.cluster.rows.tolist())}
        spreads = []
        for request, own in members.items():
            hosts = self.cluster.hosts
            zones = {zone_of(each.labels) for each in hosts if may_use(table_of[request], each)}
            row = row_of.get(request)
            wanted = len(own) if row is None else int(self.waiting.wanted[row])
            others = [0] * (max(zone_of_host) + 1)
            for arriving_request, host in arriving:
                if arriving_request == request and host in place:
                    others[zone_of_host[place[host]]] += 1
            spreads.append(
                RunningSpread(
                    maximum=-(-wanted // max(len(zones), 1)),
                    vms=tuple(own),
                    request=row,
                    others=tuple(others),
                )
            )
        return tuple(spreads)
