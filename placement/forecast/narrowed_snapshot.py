"""A snapshot reduced to the part that a decision of a run ahead can change.

In a full cluster a slot frees a few hosts of thousands, and of thousands of rows few have VMs to
place. A policy that is shown these alone decides the same, much sooner. Hosts without room for
anything that waits are one host of their class with nothing free, so that shares are of the
same pool.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from placement.model.arrays import IntArray
from placement.model.constraints import AffinityGroup, Constraints
from placement.model.snapshot import Snapshot

#: Fewer hosts than this are all shown.
_FEW_HOSTS: int = 32


@dataclass(frozen=True, slots=True, eq=False)
class NarrowedSnapshot:
    """A part of a snapshot, with the original index of each of its hosts and requests."""

    snapshot: Snapshot
    rows: IntArray  #: (Q',) indices of Q
    hosts: IntArray  #: (H',) indices of H; of hosts that are one, the first


def narrow_snapshot(snapshot: Snapshot, *, whole: bool = False) -> NarrowedSnapshot:
    """Return the part of a simulated round's snapshot on which the policy's decision depends.

    Parameters
    ----------
    whole : bool
        Show every host, for policies that compare hosts without room, too.
    """
    rows = np.flatnonzero(snapshot.count)
    if snapshot.constraints is not None:
        rows = np.arange(len(snapshot.count))
    hosts, capacity = np.arange(len(snapshot.capacity)), snapshot.capacity
    if not whole and len(hosts) > _FEW_HOSTS:
        hosts, capacity = _hosts_with_room(snapshot)
    constraints = snapshot.constraints
    if constraints is not None and len(hosts) < len(snapshot.capacity):
        constraints = _constraints_on_hosts(constraints, hosts, len(snapshot.capacity))
    shown = dataclasses.replace(
        snapshot,
        capacity=capacity,
        free=snapshot.free[hosts],
        host_class=snapshot.host_class[hosts],
        eligible=snapshot.eligible[rows],
        demand=snapshot.demand[rows],
        count=snapshot.count[rows],
        min_count=snapshot.min_count[rows],
        tenant=snapshot.tenant[rows],
        age=snapshot.age[rows],
        priority=None if snapshot.priority is None else snapshot.priority[rows],
        constraints=constraints,
    )
    return NarrowedSnapshot(shown, rows, hosts)


def _hosts_with_room(snapshot: Snapshot) -> tuple[IntArray, IntArray]:
    """Return the hosts to keep and their free amounts; full hosts of a class become one."""
    waiting = snapshot.count > 0
    kinds = np.unique(snapshot.demand[waiting], axis=0)
    is_open = np.zeros(len(snapshot.capacity), dtype=np.bool_)
    for demand in kinds:
        wanted = np.flatnonzero(demand)
        is_open |= (snapshot.free[:, wanted] >= demand[wanted]).all(axis=1)
    if snapshot.constraints is not None:
        for group in snapshot.constraints.groups:
            is_open[[*group.hosts]] = True
    closed = np.flatnonzero(~is_open)
    classes, firsts, member = np.unique(
        snapshot.host_class[closed], return_index=True, return_inverse=True
    )
    sums = np.zeros((len(classes), snapshot.capacity.shape[1]), dtype=np.int64)
    np.add.at(sums, member.ravel(), snapshot.capacity[closed])
    hosts = np.concatenate([np.flatnonzero(is_open), closed[firsts]])
    capacity = np.concatenate([snapshot.capacity[is_open], sums])
    order = np.argsort(hosts, kind="stable")
    return hosts[order], capacity[order]


def _constraints_on_hosts(constraints: Constraints, hosts: IntArray, number: int) -> Constraints:
    """Return the constraints with hosts numbered as in the narrowed snapshot."""
    place = np.full(number, -1, dtype=np.int64)
    place[hosts] = np.arange(len(hosts))
    zones = constraints.zones
    return dataclasses.replace(
        constraints,
        groups=tuple(
            AffinityGroup(
                apart=group.apart,
                hard=group.hard,
                requests=group.requests,
                hosts=tuple(place[[*group.hosts]].tolist()),
            )
            for group in constraints.groups
        ),
        zones=tuple(zones[host] for host in hosts.tolist()) if zones else zones,
    )
