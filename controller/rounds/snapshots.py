"""Converts rows of the register center to a snapshot of arrays, and names its indices.

The register center returns the same object for a host until the host changes
(`registry.rounds.known_hosts`), so arrays are cached and only changed hosts are converted again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from uuid import UUID

import numpy as np

from controller.rounds.tenant_trees import build_allowances, build_tenant_tree
from placement import IntArray, Snapshot
from placement.model.constraints import AffinityGroup, Constraints, Spread
from placement.model.host_classes import HostClasses, eligibility, host_classes, preferred_classes
from placement.model.snapshot import Borrowed, Spot
from registry.requests import NO_RULES, rules_allow, zone_of
from registry.rounds import (
    BorrowedView,
    ClusterView,
    HostView,
    PreemptibleVm,
    RequestView,
    SpotView,
)

#: If a larger part of the hosts changed, all are converted again: it is no more work.
_MAX_CHANGED_PART: Final = 0.5
#: Numbers of host kinds (accepts, labels), for rounds in which no request names or avoids hosts.
_Kinds: TypeAlias = Mapping[tuple[bool, tuple[str, ...]], int]


def _int_rows(rows: Sequence[Sequence[int]], width: int) -> IntArray:
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)


@dataclass(frozen=True, slots=True, eq=False)
class HostArrays:
    """Hosts as arrays. Copy an array before changing it."""

    hosts: tuple[HostView, ...]
    capacity: IntArray  #: (H, R)
    committed: IntArray  #: (H, R)
    kind: IntArray  #: (H,) kind of each host: whether it accepts VMs, and its labels
    kinds: _Kinds
    names: tuple[tuple[str, str], ...]  #: (id, name) of each

    @classmethod
    def of(cls, hosts: tuple[HostView, ...], resources: int) -> HostArrays:
        """Convert rows of hosts to arrays."""
        kinds: dict[tuple[bool, tuple[str, ...]], int] = {}
        kind = [kinds.setdefault((host.accepts, host.labels), len(kinds)) for host in hosts]
        return cls(
            hosts,
            _int_rows([host.capacity for host in hosts], resources),
            _int_rows([host.committed for host in hosts], resources),
            np.array(kind, dtype=np.int64),
            kinds,
            tuple((str(host.id), host.name) for host in hosts),
        )

    def for_hosts(self, hosts: tuple[HostView, ...], resources: int) -> HostArrays:
        """Return the arrays of other hosts; reuse these if most hosts are unchanged."""
        if self.capacity.shape != (len(hosts), resources):
            return HostArrays.of(hosts, resources)
        changed = [place for place, host in enumerate(hosts) if host is not self.hosts[place]]
        if len(changed) > _MAX_CHANGED_PART * len(hosts):
            return HostArrays.of(hosts, resources)
        if not changed:
            return self
        capacity, committed, kind = (
            each.copy() for each in (self.capacity, self.committed, self.kind)
        )
        kinds = dict(self.kinds)
        capacity[changed] = _int_rows([hosts[place].capacity for place in changed], resources)
        committed[changed] = _int_rows([hosts[place].committed for place in changed], resources)
        kind[changed] = [
            kinds.setdefault((hosts[place].accepts, hosts[place].labels), len(kinds))
            for place in changed
        ]
        others = {
            place: name
            for place in changed
            if (name := (str(hosts[place].id), hosts[place].name)) != self.names[place]
        }
        names = self.names
        if others:
            names = tuple(others.get(place, name) for place, name in enumerate(names))
        return HostArrays(hosts, capacity, committed, kind, kinds, names)

    def classes(self) -> HostClasses:
        """Return the host classes for requests that name or avoid no single hosts.

        Equal to those of `placement.model.host_classes.host_classes`, in order of appearance.
        """
        _, first, kind = np.unique(self.kind, return_index=True, return_inverse=True)
        in_order = np.argsort(first)
        number = np.empty_like(in_order)
        number[in_order] = np.arange(len(in_order))
        return HostClasses(number[kind].astype(np.int64), tuple(first[in_order].tolist()))


class KnownArrays:
    """Caches the arrays of the latest hosts. Safe to share between threads."""

    def __init__(self) -> None:
        self._latest = HostArrays.of((), 0)

    def build_arrays(self, hosts: tuple[HostView, ...], resources: int) -> HostArrays:
        """Return the arrays of hosts; reuse cached arrays of unchanged hosts."""
        found = self._latest = self._latest.for_hosts(hosts, resources)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotNames:
    """The names of a snapshot's indices; stored with it, for people and replays."""

    hosts: tuple[tuple[str, str], ...]  #: (id, name) on the axis H
    tenants: tuple[tuple[str, str], ...]  #: (id, name) on the axis N
    requests: tuple[tuple[str, str, str], ...]  #: (id, name, vm_type) on the axis Q
    #: (id, name, node) of each group of tenants in the tree
    groups: tuple[tuple[str, str, int], ...] = ()
    #: (owner's name, resource, quota, held) of each allowance; "vms": their number
    quotas: tuple[tuple[str, str, int, int], ...] = ()
    spot: tuple[tuple[str, str], ...] = ()  #: (id, name) of spot VMs on the axis S
    borrowed: tuple[tuple[str, str], ...] = ()  #: (id, name) of borrowed VMs on the axis B
    reserved: tuple[tuple[str, str], ...] = ()  #: (id, name) of reservations on the axis V


def drop_spot_requests(view: ClusterView) -> ClusterView:
    """Return the cluster without requests for spot VMs; running spot VMs keep their room."""
    if view.spot is None:
        return view
    requests = tuple(request for request in view.requests if not request.spot)
    return replace(view, requests=requests, spot=None)


def to_snapshot(
    view: ClusterView,
    further_requests: Sequence[RequestView] = (),
    known: KnownArrays | None = None,
    *,
    lends: bool = False,
) -> tuple[Snapshot, SnapshotNames]:
    """Convert one read of the register center to the snapshot that a policy decides on.

    ``further_requests`` also distinguish host classes. ``known`` caches the arrays of hosts from
    earlier reads. With ``lends``, what requests may borrow follows the requests of the view, as
    rows of its own (`all_requests`), and borrowed VMs may end.
    Hosts that take no VMs now (draining, unreachable, held back) keep their
    capacity, which counts in the pool, but no request is eligible there.
    """
    hosts = (known or KnownArrays()).build_arrays(view.hosts, len(view.resources))
    requests = all_requests(view) if lends else view.requests
    distinguishing = [*requests, *further_requests]
    if any(each.hosts is not None or each.avoid for each in distinguishing):
        classes = host_classes(view.hosts, distinguishing)
    else:
        classes = hosts.classes()
    preferred = preferred_classes(
        view.hosts, classes, {row: request.rules.prefers for row, request in enumerate(requests)}
    )
    committed = hosts.committed + _incoming_amounts(view) if view.freed else hosts.committed
    tenant_index = {tenant.id: index for index, tenant in enumerate(view.tenants)}
    tree, groups = build_tenant_tree(view.tenants, view.groups) if view.groups else (None, ())
    allowances, quotas = build_allowances(view) if view.quotas else ((), ())
    eligible = eligibility(view.hosts, classes, requests, is_host_allowed)
    borrowed_vms = _vms_in_view(view, view.borrowed) if lends else []
    snapshot = Snapshot(
        resources=view.resources,
        capacity=hosts.capacity,
        free=np.maximum(hosts.capacity - committed, 0),
        host_class=classes.of_host,
        eligible=eligible,
        demand=_int_rows([request.demand for request in requests], len(view.resources)),
        count=_request_values(requests, lambda request: request.count),
        min_count=_request_values(requests, lambda request: request.min_count),
        tenant=_request_values(requests, lambda request: tenant_index[request.tenant_id]),
        age=_request_values(requests, lambda request: request.age),
        weight=np.array([tenant.weight for tenant in view.tenants], dtype=np.float64),
        held=_int_rows([tenant.held for tenant in view.tenants], len(view.resources)),
        tree=tree,
        constraints=_build_constraints(view, preferred),
        allowances=allowances,
        priority=_request_values(requests, lambda request: request.priority)
        if any(request.priority for request in requests)
        else None,
        spot=None
        if view.spot is None
        else _spot_arrays(
            view,
            view.spot,
            requests,
            room=hosts.capacity - committed,
            open_to=lambda row, host: bool(eligible[row, classes.of_host[host]]),
        ),
        borrowed=None
        if view.borrowed is None or not lends
        else _borrowed_arrays(view, borrowed_vms, requests, room=hosts.capacity - committed),
    )
    names = SnapshotNames(
        hosts=hosts.names,
        tenants=tuple((str(tenant.id), tenant.name) for tenant in view.tenants),
        requests=tuple((str(request.id), request.name, request.vm_type) for request in requests),
        groups=tuple((str(group.id), group.name, node) for group, node in groups),
        quotas=quotas,
        spot=()
        if snapshot.spot is None
        else tuple((str(vm.id), vm.name) for vm in _vms_in_view(view, view.spot)),
        borrowed=tuple((str(vm.id), vm.name) for vm in borrowed_vms),
    )
    return snapshot, names


def all_requests(view: ClusterView) -> tuple[RequestView, ...]:
    """Return the requests of a round: those that wait, then those that may borrow VMs."""
    return view.requests if view.borrowed is None else (*view.requests, *view.borrowed.asks)


def freed_rows(view: ClusterView) -> tuple[tuple[int, int], ...]:
    """Return rows of request and host: the hosts on which moves make room for a request."""
    if not view.freed:
        return ()
    rows_of = rows_by_request(view.requests)
    index_of = {host.id: index for index, host in enumerate(view.hosts)}
    return tuple(
        (row, index_of[host])
        for plan in view.freed
        for host in plan.hosts
        for row in rows_of.get(plan.request_id, ())
        if host in index_of
    )


def is_host_allowed(request: RequestView, host: HostView) -> bool:
    """Return whether a request may use a host by its labels, its zone and the hosts it names."""
    if request.rules == NO_RULES and request.hosts is None and not request.requires:
        return True
    return rules_allow(
        request.rules, request.requires, request.hosts, host=host.name, labels=host.labels
    )


def _spot_arrays(
    view: ClusterView,
    seen: SpotView,
    requests: Sequence[RequestView],
    *,
    room: IntArray,
    open_to: Callable[[int, int], bool],
) -> Spot:
    """Convert the rows of spot VMs to arrays.

    No spot VM ends on a host whose ``room``, (H, R), is negative, because its room would not be
    free. Room is kept for a request only on hosts that are ``open_to`` it now, so a drained or
    failed host delays no other request.
    """
    rows_of = rows_by_request(view.requests)
    index_of = {host.id: index for index, host in enumerate(view.hosts)}
    tenant_index = {tenant.id: index for index, tenant in enumerate(view.tenants)}
    vms = _vms_in_view(view, seen)
    host = np.array([index_of[vm.host_id] for vm in vms], dtype=np.int64)
    may_end = np.array([vm.may_end for vm in vms], dtype=np.bool_)
    return Spot(
        asks=np.array([request.spot for request in requests], dtype=np.bool_),
        host=host,
        tenant=np.array([tenant_index[vm.tenant_id] for vm in vms], dtype=np.int64),
        amounts=_int_rows([vm.amounts for vm in vms], len(view.resources)),
        may_end=may_end & (room[host] >= 0).all(axis=1),
        kept=tuple(
            (row, index_of[kept.host_id], kept.count)
            for kept in seen.kept
            for row in rows_of.get(kept.request_id, ())
            if kept.host_id in index_of and open_to(row, index_of[kept.host_id])
        ),
    )


def _borrowed_arrays(
    view: ClusterView,
    vms: Sequence[PreemptibleVm],
    requests: Sequence[RequestView],
    *,
    room: IntArray,
) -> Borrowed:
    """Convert the rows of borrowed VMs to arrays; none ends where ``room``, (H, R), is negative."""
    index_of = {host.id: index for index, host in enumerate(view.hosts)}
    tenant_index = {tenant.id: index for index, tenant in enumerate(view.tenants)}
    number: dict[UUID, int] = {}
    host = np.array([index_of[vm.host_id] for vm in vms], dtype=np.int64)
    may_end = np.array([vm.may_end for vm in vms], dtype=np.bool_)
    return Borrowed(
        asks=np.array([request.borrowed for request in requests], dtype=np.bool_),
        host=host,
        tenant=np.array([tenant_index[vm.tenant_id] for vm in vms], dtype=np.int64),
        request=np.array(
            [number.setdefault(vm.request_id, len(number)) for vm in vms], dtype=np.int64
        ),
        amounts=_int_rows([vm.amounts for vm in vms], len(view.resources)),
        may_end=may_end & (room[host] >= 0).all(axis=1),
        ending=np.array([vm.ending for vm in vms], dtype=np.bool_),
    )


def _vms_in_view(
    view: ClusterView, seen: SpotView | BorrowedView | None
) -> Sequence[PreemptibleVm]:
    """Return the spot or borrowed VMs whose hosts and tenants are in the view."""
    hosts = {host.id for host in view.hosts}
    tenants = {tenant.id for tenant in view.tenants}
    vms = () if seen is None else seen.vms
    return [vm for vm in vms if vm.host_id in hosts and vm.tenant_id in tenants]


def _build_constraints(
    view: ClusterView, preferred: dict[int, tuple[int, ...]]
) -> Constraints | None:
    """Return the constraints beyond eligibility; None if no request has any."""
    is_spread = any(request.spread is not None for request in view.requests)
    if not (view.vm_groups or is_spread or preferred):
        return None
    rows_of = rows_by_request(view.requests)
    index_of = {host.id: index for index, host in enumerate(view.hosts)}
    zone_names = sorted({zone for host in view.hosts if (zone := zone_of(host.labels))})
    spreads = [
        Spread(
            request=row,
            maximum=request.spread.most,
            placed=tuple(dict(request.spread.placed).get(zone, 0) for zone in zone_names),
        )
        for row, request in enumerate(view.requests)
        if request.spread is not None
    ]
    return Constraints(
        groups=tuple(
            AffinityGroup(
                apart=group.apart,
                hard=group.hard,
                requests=tuple(sorted(row for key in group.requests for row in rows_of[key])),
                hosts=_known_indices(group.hosts, index_of),
            )
            for group in view.vm_groups
        ),
        spreads=tuple(spreads),
        zones=_zone_indices(view.hosts, zone_names) if spreads else (),
        preferred=preferred,
    )


def _incoming_amounts(view: ClusterView) -> IntArray:
    """Return the amounts that plans which make room will move to each host, (H, R)."""
    coming = np.zeros((len(view.hosts), len(view.resources)), dtype=np.int64)
    if any(plan.coming for plan in view.freed):
        index_of = {host.id: index for index, host in enumerate(view.hosts)}
        for plan in view.freed:
            for host, amounts in plan.coming:
                if host in index_of:
                    coming[index_of[host]] += amounts
    return coming


def rows_by_request(requests: Sequence[RequestView]) -> Mapping[UUID, Sequence[int]]:
    """Map each request to its rows: several if some of its VMs have disks in shared pools."""
    found: defaultdict[UUID, list[int]] = defaultdict(list)
    for row, request in enumerate(requests):
        found[request.id].append(row)
    return found


def _known_indices(hosts: Sequence[UUID], index_of: dict[UUID, int]) -> tuple[int, ...]:
    """Return the indices of the hosts that the snapshot has, in order."""
    return tuple(sorted(index_of[host] for host in hosts if host in index_of))


def _zone_indices(hosts: Sequence[HostView], names: Sequence[str]) -> tuple[int, ...]:
    """Return the index of each host's zone among the names; -1: it is in no zone."""
    place = {name: index for index, name in enumerate(names)}
    return tuple(place.get(zone_of(host.labels) or "", -1) for host in hosts)


def _request_values(
    requests: Sequence[RequestView], value: Callable[[RequestView], int]
) -> IntArray:
    return np.array([value(request) for request in requests], dtype=np.int64)
