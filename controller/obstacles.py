"""What keeps a waiting request off each host: every reason, counted over all hosts.

A host may have several reasons against it. ``only`` counts those that have no other:
what would take a VM if that one thing changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from placement import Allocation, BoolArray, Snapshot
from placement.shortage import free_after
from registry import ZONE_LABEL, ClusterView, RequestView, VmGroupView, zone_of

#: Kinds of request that are looked at in one round: each looks at every host.
MOST_LOOKED_AT: Final = 1_000
#: Names of hosts that an operator is told of one obstacle.
_HOSTS_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """One reason why hosts do not take a VM of a request."""

    kind: str  #: a resource, or closed, label, forbidden_label, zone, ... (`Obstacles.of`)
    what: str | None  #: the label, zone, group or resource
    hosts: int  #: that it keeps the request from
    only: int  #: of them, those that nothing else keeps it from
    missing: int | None = None  #: of a resource, what the nearest of them lacks
    only_hosts: tuple[str, ...] = field(default=())  #: some of them by name, for operators

    def document(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "kind": self.kind,
            "what": self.what,
            "hosts": self.hosts,
            "only": self.only,
            "missing": self.missing,
            "only_hosts": list(self.only_hosts),
        }


class Obstacles:
    """Looks at the hosts of a round as it left them.

    Requests that ask alike share one look.
    """

    def __init__(self, view: ClusterView, snapshot: Snapshot, allocation: Allocation) -> None:
        self._view = view
        self._snapshot = snapshot
        self._free = free_after(snapshot, allocation)
        self._accepts = np.array([host.accepts for host in view.hosts], dtype=np.bool_)
        self._index = {host.id: index for index, host in enumerate(view.hosts)}
        self._row = {request.id: row for row, request in enumerate(view.requests)}
        self._labels: dict[tuple[str, ...], list[int]] = {}
        for index, host in enumerate(view.hosts):
            self._labels.setdefault(host.labels, []).append(index)
        self._placed: dict[int, list[tuple[int, int]]] = {}
        for request, host_index, count in allocation.placed.tolist():
            self._placed.setdefault(request, []).append((host_index, count))
        self._held: dict[int, set[int]] = {}
        for request, host_index in allocation.details.get("holding", ()):
            self._held.setdefault(host_index, set()).add(request)
        self._groups: dict[Any, list[VmGroupView]] = {}
        for group in view.vm_groups:
            for member in group.requests:
                self._groups.setdefault(member, []).append(group)
        self._seen: dict[object, tuple[Obstacle, ...]] = {}

    def of(self, row: int) -> tuple[Obstacle, ...]:
        """Return what keeps one more VM of a request from hosts, in a fixed order.

        Kinds: ``closed`` (takes no VMs now), ``label`` and ``forbidden_label``,
        ``zone`` and ``no_zone``, ``not_named``, ``closed_to_it`` (its builds failed
        there, or its network is not there), ``anti_affinity``, ``affinity``,
        ``zone_full``, ``held_back``, and ``resource``. Empty for what is beyond
        `MOST_LOOKED_AT`.
        """
        request = self._view.requests[row]
        groups = [group for group in self._groups.get(request.id, ()) if group.hard]
        key = (
            request.demand,
            request.requires,
            request.rules,
            request.hosts,
            request.avoid,
            tuple(group.id for group in groups),
            request.id if request.spread is not None or self._held else None,
        )
        if key not in self._seen:
            if len(self._seen) >= MOST_LOOKED_AT:
                return ()
            self._seen[key] = self._look(row, request, groups)
        return self._seen[key]

    def _look(
        self, row: int, request: RequestView, groups: list[VmGroupView]
    ) -> tuple[Obstacle, ...]:
        found = [
            (kind, what, mask)
            for kind, what, mask in self._masks(row, request, groups)
            if mask.any()
        ]
        against = np.zeros(len(self._accepts), dtype=np.int64)
        for _, _, mask in found:
            against += mask
        return tuple(
            self._obstacle(kind, what, mask, mask & (against == 1), request)
            for kind, what, mask in found
        )

    def _obstacle(
        self, kind: str, what: str | None, mask: BoolArray, only: BoolArray, request: RequestView
    ) -> Obstacle:
        missing = None
        if kind == "resource" and what is not None:
            resource = self._snapshot.resources.index(what)
            short = request.demand[resource] - self._free[:, resource]
            missing = int(short[only if only.any() else mask].min())
        names = [self._view.hosts[index].name for index in np.flatnonzero(only)[:_HOSTS_NAMED]]
        return Obstacle(
            kind=kind,
            what=what,
            hosts=int(mask.sum()),
            only=int(only.sum()),
            missing=missing,
            only_hosts=tuple(names),
        )

    def _masks(
        self, row: int, request: RequestView, groups: list[VmGroupView]
    ) -> Iterator[tuple[str, str | None, BoolArray]]:
        """Yield each reason with the hosts, shape (H,), that it speaks of."""
        rules = request.rules
        yield "closed", None, ~self._accepts
        for label in request.requires:
            yield "label", label, ~self._carrying(label)
        for label in rules.forbids:
            yield "forbidden_label", label, self._carrying(label)
        if rules.zone is not None:
            yield "zone", rules.zone, ~self._carrying(f"{ZONE_LABEL}{rules.zone}")
        if rules.spread is not None:
            yield "no_zone", None, self._where(lambda labels: zone_of(labels) is None)
        if request.hosts is not None:
            named = set(request.hosts)
            listed = [host.name not in named for host in self._view.hosts]
            yield "not_named", None, np.array(listed, dtype=np.bool_)
        if request.avoid:
            yield "closed_to_it", None, self._among(request.avoid)
        for group in groups:
            there = self._among(group.hosts)
            for member in group.requests:
                there[[host for host, _ in self._placed.get(self._row[member], ())]] = True
            if group.apart:
                yield "anti_affinity", group.name, there
            elif there.any():
                yield "affinity", group.name, ~there
        if request.spread is not None:
            yield "zone_full", None, self._full_zones(row, request)
        held = np.zeros(len(self._accepts), dtype=np.bool_)
        held[[host for host, holders in self._held.items() if row not in holders]] = True
        yield "held_back", None, held
        short = self._free < np.array(request.demand, dtype=np.int64)
        for resource, name in enumerate(self._snapshot.resources):
            yield "resource", name, short[:, resource]

    def _where(self, condition: Callable[[tuple[str, ...]], bool]) -> BoolArray:
        """Return the hosts whose labels meet a condition; hosts labelled alike are asked once."""
        mask = np.zeros(len(self._accepts), dtype=np.bool_)
        for labels, hosts in self._labels.items():
            if condition(labels):
                mask[hosts] = True
        return mask

    def _carrying(self, label: str) -> BoolArray:
        return self._where(lambda labels: label in labels)

    def _among(self, hosts: tuple[Any, ...]) -> BoolArray:
        mask = np.zeros(len(self._accepts), dtype=np.bool_)
        mask[[self._index[host] for host in hosts if host in self._index]] = True
        return mask

    def _full_zones(self, row: int, request: RequestView) -> BoolArray:
        assert request.spread is not None  # noqa: S101 - asked of spread requests alone
        held: dict[str, int] = dict(request.spread.placed)
        for host, count in self._placed.get(row, ()):
            zone = zone_of(self._view.hosts[host].labels)
            if zone is not None:
                held[zone] = held.get(zone, 0) + count
        most = request.spread.most
        full = {zone for zone, count in held.items() if count >= most}
        return self._where(lambda labels: zone_of(labels) in full)


_SENTENCES: Final[Mapping[str, str]] = {
    "closed": "room on {hosts} taking no VMs now: closed by an operator, or not answering",
    "label": "room on {hosts} without the label {what}",
    "forbidden_label": "room on {hosts} with the label {what}",
    "zone": "room on {hosts} outside zone {what}",
    "no_zone": "room on {hosts} in no zone",
    "not_named": "room on {hosts} besides those that it names",
    "closed_to_it": "room on {hosts} where VMs of it could not be built lately, or which its "
    "network does not reach",
    "anti_affinity": "room on {hosts} with a VM of group {what}",
    "affinity": "room on {hosts} apart from group {what}",
    "zone_full": "room on {hosts} in zones with their part of its VMs",
    "held_back": "room on {hosts} kept for requests that have waited longer",
    "resource": "{hosts} short of {what} alone, the nearest by {missing}",
}


def what_would_help(obstacle: Mapping[str, Any]) -> str | None:
    """Say of a stored obstacle what would have to change; None if that would not suffice."""
    if not obstacle["only"]:
        return None
    number = obstacle["only"]
    hosts = "1 host" if number == 1 else f"{number} hosts"
    sentence = _SENTENCES[obstacle["kind"]]
    return sentence.format(hosts=hosts, what=obstacle["what"], missing=obstacle["missing"])
