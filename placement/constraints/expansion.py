"""Express constraints as eligibility, limits and extra requests, which every policy knows.

- *Apart*: each group is a limit, one more column after the resources: every host offers
  1 of it, 0 if it holds a VM of the group already, and a member's VM demands 1. It
  counts in no share and no ranking (`Snapshot.limits`).
- *Together*: the members are eligible on the hosts of the group alone; where it has
  none, on the host that holds most of what the group waits for.
- *Spread*: the request becomes one for each zone, open to that zone's hosts alone,
  of as many VMs as the zone is due.
- *Preferred*: the request is eligible on preferred hosts alone; VMs without room
  there are requested once more without the preference.

So a policy respects constraints that it knows nothing of, those of other
distributions included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from placement.model.arrays import BoolArray, IntArray
from placement.model.constraints import AffinityGroup, Constraints, Spread
from placement.model.reasons import hosts_open_to
from placement.model.row_groups import group_rows
from placement.model.snapshot import Snapshot
from placement.model.vm_kinds import vms_that_fit


class SoftConstraint(StrEnum):
    """A constraint that is dropped where it leaves no room."""

    LABELS = "labels"  #: preferred hosts
    GROUPS = "groups"  #: groups that are not hard


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExpandedSnapshot:
    """An equivalent snapshot without constraints."""

    snapshot: Snapshot
    origin: IntArray  #: (Q',) the original request of each of its requests, ascending
    zone: IntArray  #: (Q',) the zone that each is open to, -1 where it is not spread
    homes: Mapping[int, int]  #: the host chosen for a group that has none yet


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPlaces:
    """Hosts and zones that constraints chose and where the policy placed nothing despite room."""

    homes: Mapping[int, AbstractSet[int]] = field(default_factory=dict)  #: hosts, by group
    zones: Mapping[int, AbstractSet[int]] = field(default_factory=dict)  #: by request


def expand_constraints(
    snapshot: Snapshot,
    constraints: Constraints,
    soft_kept: frozenset[SoftConstraint],
    refused: RefusedPlaces | None = None,
) -> ExpandedSnapshot:
    """Express constraints as eligibility and limits, so that any policy keeps them."""
    refused = refused or RefusedPlaces()
    groups = [
        (number, group)
        for number, group in enumerate(constraints.groups)
        if (group.hard or SoftConstraint.GROUPS in soft_kept)
        and snapshot.count[list(group.requests)].any()
    ]
    limited = snapshot_with_limits(snapshot, [group for _, group in groups if group.apart])
    numbers = [number for number, group in groups if not group.apart]
    together = [group for _, group in groups if not group.apart]
    scratch = limited.free.copy()
    hosts_of = [
        _hosts_of_group(limited, group, scratch, refused.homes.get(number, frozenset()))
        for number, group in zip(numbers, together, strict=True)
    ]
    zones = np.array(constraints.zones, dtype=np.int64)
    marks = [np.isin(np.arange(len(scratch)), hosts).astype(np.int64) for hosts in hosts_of]
    split, old_class = _split_host_classes(
        limited, [*marks, *([zones] if constraints.spreads else [])]
    )
    eligible = split.eligible.copy()
    if SoftConstraint.LABELS in soft_kept:
        for request, classes in constraints.preferred.items():
            eligible[request] &= np.isin(old_class, classes)
    for group, hosts in zip(together, hosts_of, strict=True):
        allowed = np.isin(np.arange(len(old_class)), split.host_class[hosts])
        eligible[list(group.requests)] &= allowed
    homes = {
        number: int(hosts[0])
        for number, group, hosts in zip(numbers, together, hosts_of, strict=True)
        if len(hosts) and not group.hosts
    }
    whole = dataclasses.replace(split, eligible=eligible)
    return _expand_spreads(whole, constraints.spreads, zones, refused, homes)


def snapshot_with_limits(snapshot: Snapshot, apart: Sequence[AffinityGroup]) -> Snapshot:
    """Return the snapshot with a limit of one VM per host for each anti-affinity group."""
    if not apart:
        return dataclasses.replace(snapshot, constraints=None)
    offered = np.ones((len(snapshot.free), len(apart)), dtype=np.int64)
    demanded = np.zeros((len(snapshot.count), len(apart)), dtype=np.int64)
    for column, group in enumerate(apart):
        offered[list(group.hosts), column] = 0
        demanded[list(group.requests), column] = 1
    # What demands nothing else still gets nothing.
    demanded[~snapshot.demand.any(axis=1)] = 0
    no_limits = np.zeros((len(snapshot.weight), len(apart)), dtype=np.int64)
    return dataclasses.replace(
        snapshot,
        resources=(*snapshot.resources, *(f"group:{number}" for number in range(len(apart)))),
        capacity=np.concatenate([snapshot.capacity, offered], axis=1),
        free=np.concatenate([snapshot.free, offered], axis=1),
        demand=np.concatenate([snapshot.demand, demanded], axis=1),
        held=np.concatenate([snapshot.held, no_limits], axis=1),
        constraints=None,
        limits=len(apart),
    )


def _hosts_of_group(
    snapshot: Snapshot, group: AffinityGroup, scratch: IntArray, refused: AbstractSet[int]
) -> IntArray:
    """Return the hosts allowed to an affinity group: its present hosts, or a new host.

    The new host is the one that holds most of the waiting VMs. Ties go to the host
    with most room for more. Its room is subtracted from ``scratch``, shape (H, R), so
    that the next group does not count on the same room.
    """
    if group.hosts:
        return np.array(group.hosts, dtype=np.int64)
    waiting = [request for request in group.requests if snapshot.count[request] > 0]
    if not waiting or not len(scratch):
        return np.zeros(0, dtype=np.int64)
    left = scratch.copy()
    held = np.zeros(len(left), dtype=np.int64)
    for request in waiting:
        fit = np.minimum(vms_that_fit(left, snapshot.demand[request]), snapshot.count[request])
        fit[~hosts_open_to(snapshot, request) | (fit < snapshot.min_count[request])] = 0
        left -= fit[:, None] * snapshot.demand[request]
        held += fit
    held[list(refused)] = 0
    if not held.any():
        return np.zeros(0, dtype=np.int64)
    room = vms_that_fit(scratch, snapshot.demand[waiting[0]])
    host = int(np.lexsort((np.arange(len(left)), -room, -held))[0])
    scratch[host] = left[host]
    return np.array([host], dtype=np.int64)


def _split_host_classes(snapshot: Snapshot, marks: Sequence[IntArray]) -> tuple[Snapshot, IntArray]:
    """Split host classes so that all hosts of a class have equal ``marks``, each of shape (H,).

    Returns
    -------
    Snapshot
    ndarray of int64, shape (C',)
        The class that each of its classes is a part of.
    """
    if not marks:
        return snapshot, np.arange(snapshot.eligible.shape[1])
    parts = group_rows(snapshot.host_class, *marks)
    old_class: IntArray = snapshot.host_class[parts.first]
    split = dataclasses.replace(
        snapshot, host_class=parts.of_row, eligible=snapshot.eligible[:, old_class]
    )
    return split, old_class


def _expand_spreads(
    snapshot: Snapshot,
    spreads: Sequence[Spread],
    zones: IntArray,
    refused: RefusedPlaces,
    homes: Mapping[int, int],
) -> ExpandedSnapshot:
    """Replace each request that is spread by one request per zone."""
    origin = np.arange(len(snapshot.count), dtype=np.int64)
    if not spreads:
        no_zone = np.full(len(origin), -1, dtype=np.int64)
        return ExpandedSnapshot(snapshot=snapshot, origin=origin, zone=no_zone, homes=homes)
    spread_of = {spread.request: spread for spread in spreads}
    kept: list[int] = []
    in_zone: list[int] = []
    counts: list[int] = []
    eligible: list[BoolArray] = []
    # -2 for a class without hosts: no request may use it.
    zone_of_class = np.full(snapshot.eligible.shape[1], -2, dtype=np.int64)
    zone_of_class[snapshot.host_class] = zones
    for request, count in enumerate(snapshot.count.tolist()):
        spread = spread_of.get(request)
        if spread is None:
            kept.append(request)
            in_zone.append(-1)
            counts.append(count)
            eligible.append(snapshot.eligible[request])
            continue
        closed = refused.zones.get(request, frozenset())
        for zone, part in enumerate(_vms_per_zone(snapshot, spread, zones, closed)):
            kept.append(request)
            in_zone.append(zone)
            counts.append(part)
            eligible.append(snapshot.eligible[request] & (zone_of_class == zone))
    origin = np.array(kept, dtype=np.int64)
    spread_out = np.isin(origin, list(spread_of))
    return ExpandedSnapshot(
        snapshot=dataclasses.replace(
            snapshot,
            eligible=np.array(eligible, dtype=np.bool_).reshape(len(kept), -1),
            demand=snapshot.demand[origin],
            count=np.array(counts, dtype=np.int64),
            # A part of a gang is no gang: whether it is whole shows when all have decided.
            min_count=np.where(spread_out, 1, snapshot.min_count[origin]),
            tenant=snapshot.tenant[origin],
            age=snapshot.age[origin],
        ),
        origin=origin,
        zone=np.array(in_zone, dtype=np.int64),
        homes=homes,
    )


def _vms_per_zone(
    snapshot: Snapshot, spread: Spread, zones: IntArray, closed: AbstractSet[int]
) -> list[int]:
    """Return how many VMs of a spread request each zone gets, as evenly as room allows.

    Each VM goes to the zone that has the fewest of them and has room. Ties go to the
    zone with most room left, then to the first.
    """
    open_to, demand = hosts_open_to(snapshot, spread.request), snapshot.demand[spread.request]
    fits = vms_that_fit(snapshot.free, demand) * open_to
    room = [
        0 if zone in closed else int(fits[zones == zone].sum())
        for zone in range(len(spread.placed))
    ]
    parts = [0] * len(room)
    for _ in range(int(snapshot.count[spread.request])):
        able = [
            zone
            for zone, part in enumerate(parts)
            if part < room[zone] and spread.placed[zone] + part < spread.maximum
        ]
        if not able:
            break
        best = min(
            able,
            key=lambda zone: (spread.placed[zone] + parts[zone], parts[zone] - room[zone], zone),
        )
        parts[best] += 1
    return parts
