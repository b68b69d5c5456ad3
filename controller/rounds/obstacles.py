"""Obstacles of waiting requests: every reason why hosts take no VM, counted over all hosts.

A host may have several obstacles. ``only`` counts the hosts with a single one: they would take a VM
if that obstacle were removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np

from controller.rounds.reservations import SettledReservations, quota_in_use
from controller.rounds.snapshots import SnapshotNames, rows_by_request
from placement import Allocation, BoolArray, Reason, Snapshot
from placement.constraints.allowances import RemainingAllowances
from placement.model.reasons import needed_at_once
from registry.requests import ZONE_LABEL, zone_of
from registry.rounds import BUDGET, BroughtVolumes, ClusterView, RequestView, VmGroupView

#: Maximum number of different requests explained in a round: each examines every host.
MAX_REQUEST_KINDS: Final = 1_000
#: The obstacle of hosts in backoff after failed builds; also the reason of requests waiting for it.
FAILED_BUILDS: Final = "failed_builds"
CLOSED_TO_IT: Final = "closed_to_it"
#: Reasons of requests whose volumes have files, which only some hosts reach.
VOLUME_HOST_FULL: Final = "volume_host_full"
VOLUME_HOST_CLOSED: Final = "volume_host_closed"
VOLUME_HOST_UNSUITABLE: Final = "volume_host_unsuitable"
#: Obstacles that belong to the request, not to hosts.
REQUEST_OBSTACLES: Final = frozenset({"quota", "budget"})
#: Number of host names shown to operators for an obstacle.
_HOSTS_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementObstacle:
    """One reason why hosts do not take a VM of a request."""

    kind: str  #: a resource, or closed, label, forbidden_label, zone, ... (`Obstacles.of`)
    what: str | None  #: the label, zone, group, resource, network or quota
    hosts: int  #: hosts to which it applies
    only: int  #: hosts without any other obstacle
    #: amount that the nearest host lacks, or that the quota or the addresses lack
    missing: int | None = None
    only_hosts: tuple[str, ...] = field(default=())  #: some hosts of ``only``, for operators
    #: for ``failed_builds`` and ``closed_to_it``: the time of the first retry
    until: datetime | None = None

    def document(self) -> dict[str, Any]:
        """Return the obstacle as JSON values."""
        return {
            "kind": self.kind,
            "what": self.what,
            "hosts": self.hosts,
            "only": self.only,
            "missing": self.missing,
            "only_hosts": list(self.only_hosts),
            "until": None if self.until is None else self.until.isoformat(timespec="seconds"),
        }


@dataclass(frozen=True, slots=True, eq=False)
class _HostObstacle:
    """An obstacle and the mask of hosts, shape (H,), to which it applies."""

    kind: str
    what: str | None
    hosts: BoolArray
    missing: int | None = None
    until: datetime | None = None


class Obstacles:
    """Finds what keeps a request's VMs off each host, on the hosts as the round left them.

    Equal requests share one computation.
    """

    def __init__(
        self,
        view: ClusterView,
        snapshot: Snapshot,
        allocation: Allocation,
        names: SnapshotNames,
        rooms: RemainingAllowances,
        *,
        reserved: SettledReservations | None = None,
    ) -> None:
        self._view = view
        self._snapshot = snapshot
        self._names = names
        self._rooms = rooms
        self._left_out: Counter[int] = Counter()
        for left in allocation.left_out:
            self._left_out[left.request] += left.count
        self._free = snapshot.after_placing(allocation.placed).free
        self._reserved = reserved
        self._kept = None if reserved is None else reserved.kept_amounts()
        self._accepts = np.array([host.accepts for host in view.hosts], dtype=np.bool_)
        self._failing = np.array(
            [host.backoff_until is not None for host in view.hosts], dtype=np.bool_
        )
        self._accepting = frozenset(host.name for host in view.hosts if host.accepts)
        self._all_hosts = np.ones(len(view.hosts), dtype=np.bool_)
        self._index: dict[object, int] = {}
        for index, host in enumerate(view.hosts):
            self._index[host.id] = self._index[host.name] = index
        self._rows = rows_by_request(view.requests)
        self._labels: dict[tuple[str, ...], list[int]] = {}
        for index, host in enumerate(view.hosts):
            self._labels.setdefault(host.labels, []).append(index)
        self._placed: dict[int, list[tuple[int, int]]] = {}
        for request, host_index, count in allocation.placed.tolist():
            self._placed.setdefault(request, []).append((host_index, count))
        self._held: dict[int, set[int]] = {}
        details = allocation.details
        for request, host_index in (*details.get("holding", ()), *details.get("freed", ())):
            self._held.setdefault(host_index, set()).add(request)
        self._groups: dict[Any, list[VmGroupView]] = {}
        for group in view.vm_groups:
            for member in group.requests:
                self._groups.setdefault(member, []).append(group)
        self._seen: dict[object, tuple[PlacementObstacle, ...]] = {}

    def obstacles_of(self, row: int) -> tuple[PlacementObstacle, ...]:
        """Return the obstacles of one more VM of a request, in a fixed order.

        Kinds: ``closed`` (takes no VMs now), ``failed_builds`` (takes none for a while,
        since builds failed there), ``label`` and ``forbidden_label``,
        ``zone`` and ``no_zone``, ``not_named``, ``volume`` (its file is elsewhere),
        ``closed_to_it`` (only its builds failed there), ``network`` (is not there),
        ``anti_affinity``, ``affinity``, ``zone_full``, ``held_back``,
        ``reserved`` (room is there, and kept for reservations) and ``resource``; ``budget``,
        ``no_address`` and ``quota`` keep it from all hosts alike.
        Empty for what is beyond `MAX_REQUEST_KINDS`.
        """
        request = self._view.requests[row]
        groups = [group for group in self._groups.get(request.id, ()) if group.hard]
        everywhere = tuple(self._cluster_obstacles(row, request))
        key = (
            request.demand,
            request.requires,
            request.rules,
            request.hosts,
            request.failed_on,
            request.network,
            request.volumes,
            everywhere,
            tuple(group.id for group in groups),
            request.id if request.spread is not None or self._held else None,
        )
        if key not in self._seen:
            if len(self._seen) >= MAX_REQUEST_KINDS:
                return ()
            self._seen[key] = self._find_obstacles(row, request, groups, everywhere)
        return self._seen[key]

    def has_only_failed_builds(self, row: int) -> bool:
        """Return whether failed builds are the only obstacle on some hosts."""
        kinds = {FAILED_BUILDS, CLOSED_TO_IT}
        return any(each.kind in kinds and each.only for each in self.obstacles_of(row))

    def volume_reason(self, row: int, reason: Reason) -> str | None:
        """Return the reason of a request that waits for the host of its volumes; None: it does not.

        ``reason`` is the policy's.
        """
        volumes = self._view.requests[row].volumes
        if volumes is None or volumes.hosts is None:
            return None
        if reason is Reason.NO_ROOM:
            return VOLUME_HOST_FULL
        if reason is not Reason.NO_ELIGIBLE_HOST:
            return None
        is_closed = self._accepting.isdisjoint(volumes.hosts)
        return VOLUME_HOST_CLOSED if is_closed else VOLUME_HOST_UNSUITABLE

    def _find_obstacles(
        self,
        row: int,
        request: RequestView,
        groups: list[VmGroupView],
        more: tuple[tuple[str, str, int | None], ...],
    ) -> tuple[PlacementObstacle, ...]:
        """Count the hosts of each obstacle of a request, and those where it is the only one."""
        found = [
            each
            for each in (
                *self._rule_obstacles(request),
                *self._state_obstacles(row, request, groups),
                *(
                    _HostObstacle(kind, what, self._all_hosts, missing)
                    for kind, what, missing in more
                ),
            )
            if each.hosts.any()
        ]
        number = np.zeros(len(self._accepts), dtype=np.int64)
        for each in found:
            number += each.hosts
        return tuple(
            self._placement_obstacle(each, each.hosts & (number == 1), request.demand)
            for each in found
        )

    def _cluster_obstacles(
        self, row: int, request: RequestView
    ) -> Iterator[tuple[str, str, int | None]]:
        """Yield obstacles that apply to all hosts, with the lacking amount if there is one.

        These are budgets, addresses and quotas.
        """
        left_out = self._left_out[row]
        needed = needed_at_once(self._snapshot, row, left_out) if left_out else 1
        short, network = request.short, request.network
        if short is not None and short.reason == BUDGET:
            for each in short.detail["budget"]:
                yield "budget", f"{each['resource']} of {each['tenant']}", None
        elif short is not None and network is not None and network.left is not None:
            # VMs with an address are placed first; then addresses lack for the next one.
            left = network.left if request.shut_out else 0
            if (request.shut_out or not left_out) and left < needed:
                yield "no_address", network.network, needed - left
        for allowance in self._rooms.exceeded_by(row, needed):
            owner, name, limit, held = self._names.quotas[allowance]
            resource = self._snapshot.allowances[allowance].resource
            amount = 1 if resource is None else request.demand[resource]
            # If a limit was lowered, more than the limit is in use.
            used = held + self._snapshot.allowances[allowance].room - self._rooms.left[allowance]
            need = needed * amount
            used = quota_in_use(
                self._reserved, row, used, limit=limit, need=need, resource=resource
            )
            yield "quota", f"{name} of {owner}", used + need - limit

    def _placement_obstacle(
        self, against: _HostObstacle, only: BoolArray, demand: tuple[int, ...]
    ) -> PlacementObstacle:
        """Return an obstacle with its hosts, some of their names, and the least lacking amount."""
        missing = against.missing
        if against.kind == "resource" and against.what is not None:
            resource = self._snapshot.resources.index(against.what)
            short = demand[resource] - self._free[:, resource]
            missing = int(short[only if only.any() else against.hosts].min())
        names = [self._view.hosts[index].name for index in np.flatnonzero(only)[:_HOSTS_NAMED]]
        return PlacementObstacle(
            kind=against.kind,
            what=against.what,
            hosts=int(against.hosts.sum()),
            only=int(only.sum()),
            missing=missing,
            only_hosts=tuple(names),
            until=(
                self._first_retry_at(only if only.any() else against.hosts)
                if against.kind == FAILED_BUILDS
                else against.until
            ),
        )

    def _first_retry_at(self, hosts: BoolArray) -> datetime:
        """Return the earliest end of the backoff of hosts after failed builds."""
        times = (self._view.hosts[index].backoff_until for index in np.flatnonzero(hosts))
        return min(time for time in times if time is not None)

    def _rule_obstacles(self, request: RequestView) -> Iterator[_HostObstacle]:
        """Yield obstacles by the request's rules, and hosts that are closed to all requests."""
        rules = request.rules
        yield _HostObstacle("closed", None, ~self._accepts & ~self._failing)
        yield _HostObstacle(FAILED_BUILDS, None, self._failing)
        for label in request.requires:
            yield _HostObstacle("label", label, ~self._hosts_with_label(label))
        for label in rules.forbids:
            yield _HostObstacle("forbidden_label", label, self._hosts_with_label(label))
        if rules.zone is not None:
            yield _HostObstacle(
                "zone", rules.zone, ~self._hosts_with_label(f"{ZONE_LABEL}{rules.zone}")
            )
        if rules.spread is not None:
            yield _HostObstacle(
                "no_zone", None, self._hosts_where(lambda labels: zone_of(labels) is None)
            )
        hosts = request.hosts
        if request.volumes is not None:
            hosts = request.named
            yield from self._volume_obstacles(request.volumes)
        if hosts is not None:
            yield _HostObstacle("not_named", None, ~self._host_mask(hosts))

    def _volume_obstacles(self, volumes: BroughtVolumes) -> Iterator[_HostObstacle]:
        """Yield the hosts that do not reach the files of volumes."""
        if volumes.hosts is not None:
            what = ", ".join(volumes.names)
            yield _HostObstacle("volume", what, ~self._host_mask(volumes.hosts))

    def _state_obstacles(
        self, row: int, request: RequestView, groups: list[VmGroupView]
    ) -> Iterator[_HostObstacle]:
        """Yield obstacles by the state of hosts: failed builds, networks, groups, lack of room."""
        if request.failed_on:
            there = self._host_mask(request.failed_on) & ~self._failing
            yield _HostObstacle(CLOSED_TO_IT, None, there, until=request.retry_at)
        if request.network is not None:
            network = request.network
            yield _HostObstacle("network", network.network, self._host_mask(network.without))
        for group in groups:
            there = self._host_mask(group.hosts)
            for member in (row for key in group.requests for row in self._rows[key]):
                there[[host for host, _ in self._placed.get(member, ())]] = True
            if group.apart:
                yield _HostObstacle("anti_affinity", group.name, there)
            elif there.any():
                yield _HostObstacle("affinity", group.name, ~there)
        if request.spread is not None:
            yield _HostObstacle("zone_full", None, self._full_zones(row, request))
        held = np.zeros(len(self._accepts), dtype=np.bool_)
        held[[host for host, holders in self._held.items() if row not in holders]] = True
        yield _HostObstacle("held_back", None, held)
        demand = np.array(request.demand, dtype=np.int64)
        short = self._free < demand
        if self._kept is not None:
            with_it = (self._free + self._kept >= demand).all(axis=1)
            kept: BoolArray = np.asarray(short.any(axis=1) & with_it)
            yield _HostObstacle("reserved", None, kept)
            short &= ~kept[:, None]
        for resource, name in enumerate(self._snapshot.resources):
            yield _HostObstacle("resource", name, short[:, resource])

    def _hosts_where(self, condition: Callable[[tuple[str, ...]], bool]) -> BoolArray:
        """Return the mask of hosts whose labels meet a condition, tested once per set of labels."""
        mask = np.zeros(len(self._accepts), dtype=np.bool_)
        for labels, hosts in self._labels.items():
            if condition(labels):
                mask[hosts] = True
        return mask

    def _hosts_with_label(self, label: str) -> BoolArray:
        """Return the mask of hosts with a label, shape (H,)."""
        return self._hosts_where(lambda labels: label in labels)

    def _host_mask(self, hosts: Iterable[Any]) -> BoolArray:
        """Return the mask of hosts with these ids or names, shape (H,)."""
        mask = np.zeros(len(self._accepts), dtype=np.bool_)
        mask[[self._index[host] for host in hosts if host in self._index]] = True
        return mask

    def _full_zones(self, row: int, request: RequestView) -> BoolArray:
        """Return the mask of hosts in zones that may get no more VMs of a spread request."""
        assert request.spread is not None  # noqa: S101 - called for spread requests alone
        held: dict[str, int] = dict(request.spread.placed)
        for host, count in self._placed.get(row, ()):
            zone = zone_of(self._view.hosts[host].labels)
            if zone is not None:
                held[zone] = held.get(zone, 0) + count
        max_per_zone = request.spread.most
        full = {zone for zone, count in held.items() if count >= max_per_zone}
        return self._hosts_where(lambda labels: zone_of(labels) in full)


_SENTENCES: Final[Mapping[str, str]] = {
    "closed": "room on {hosts} taking no VMs now: closed by an operator, or not answering",
    "failed_builds": "room on {hosts} held back after failed builds, until {until} at least",
    "label": "room on {hosts} without the label {what}",
    "forbidden_label": "room on {hosts} with the label {what}",
    "zone": "room on {hosts} outside zone {what}",
    "no_zone": "room on {hosts} in no zone",
    "not_named": "room on {hosts} other than those that it names",
    "volume": "room on {hosts} that cannot reach its volume {what}: detach that, and it starts"
    " without",
    CLOSED_TO_IT: "room on {hosts} where its builds failed recently, until {until} at least",
    "network": "room on {hosts} that network {what} does not reach",
    "no_address": "more free addresses in network {what} ({missing}): room is on {hosts}",
    "budget": "a higher budget for {what}, or the next month: room is on {hosts}",
    "quota": "{missing} more in the quota on {what}: room is on {hosts}",
    "anti_affinity": "room on {hosts} with a VM of group {what}",
    "affinity": "room on {hosts} without VMs of group {what}",
    "zone_full": "room on {hosts} in zones with their share of its VMs",
    "held_back": "room on {hosts} reserved for requests that have waited longer",
    "reserved": "room on {hosts} kept for reservations",
    "resource": "{hosts} short of {what} alone, the nearest by {missing}",
}


def remedy_text(obstacle: Mapping[str, Any], *, exact: bool) -> str | None:
    """Return the change that would remove an obstacle; None if it would not suffice alone.

    Unless ``exact``, the numbers are rounded coarsely and the text says so.
    """
    if not obstacle["only"]:
        return None
    number = obstacle["only"]
    hosts = "1 host" if number == 1 else f"{number} hosts"
    missing = obstacle["missing"]
    if not exact:
        hosts = f"at least {hosts}"
        if obstacle["kind"] not in REQUEST_OBSTACLES:
            missing = f"{missing} at most"
    sentence = _SENTENCES[obstacle["kind"]]
    return sentence.format(
        hosts=hosts, what=obstacle["what"], missing=missing, until=obstacle.get("until")
    )
