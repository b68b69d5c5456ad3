"""Clusters with VMs that run, drawn for plans that are made for a gain, and plain code on them."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import strategies as st

from placement.rebalancing.model import Mobility, RunningGroup, RunningSpread, RunningState
from tests.unit.placement.rebalancing.builders import a_running


@st.composite
def uneven_clusters(
    draw: st.DrawFn, *, max_hosts: int = 6, max_vms: int = 20, ruled: bool = False
) -> RunningState:
    """Draw hosts that are filled unevenly, with every rule that a VM can be under.

    Some hosts are over their capacity, some take nothing, some rules are broken already.
    Hypothesis draws what is easy to read in a failure, numpy the many amounts.
    """
    hosts, vms = draw(st.integers(2, max_hosts)), draw(st.integers(1, max_vms))
    kinds, classes = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    rules, obstacles = ruled or draw(st.booleans()), not ruled and draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    vms = max(vms, int(rng.integers(1, max_vms + 1)))
    demand = rng.choice([0, 1, 1, 2, 3], (kinds, 2))
    capacity = rng.choice([4, 8, 12, 16, 20], (hosts, 2))
    if obstacles:
        capacity[rng.random((hosts, 2)) < 0.1] = 0
    crowded = int(rng.integers(1, hosts + 1))  # the first hosts hold all, so that there is work

    def members(fewest: int) -> tuple[int, ...]:
        number = min(vms, int(rng.integers(fewest, 5)))
        return tuple(rng.permutation(vms)[:number].tolist())

    groups = [
        RunningGroup(
            apart=bool(rng.random() < 0.7),
            hard=bool(rng.random() < 0.7),
            vms=members(1),
            hosts=((), (), (0,), (hosts - 1,))[rng.integers(4)],
        )
        for _ in range(rng.integers(2, 6) if ruled else rng.integers(0, 3) if rules else 0)
    ]
    spreads = [
        RunningSpread(maximum=int(rng.integers(1, 4)), vms=members(2))
        for _ in range(rng.integers(0, 2) if rules else 0)
    ]
    modes = [Mobility.LIVE, Mobility.COLD, Mobility.NEVER]
    return a_running(
        host=rng.integers(0, crowded, vms).tolist(),
        capacity=(capacity * [1, 1024]).tolist(),
        demand=(demand * [1, 1024]).tolist(),
        kind=rng.integers(0, kinds, vms).tolist(),
        eligible=(rng.random((kinds, classes)) < (0.8 if obstacles else 1)).tolist(),
        host_class=[*rng.integers(0, classes, hosts - 1).tolist(), classes - 1],
        tenant=rng.integers(0, 2, vms).tolist(),
        mobility=rng.choice(modes, vms, p=[0.7, 0.2, 0.1] if obstacles else [1, 0, 0]).tolist(),
        rests=(rng.random(vms) < 0.2 * obstacles).tolist(),
        receives=(rng.random(hosts) < (0.8 if obstacles else 1)).tolist(),
        other=(rng.random((hosts, 2)) < 0.2 * obstacles).astype(int).tolist(),
        groups=groups,
        spreads=spreads,
        zones=rng.integers(-1, 2, hosts).tolist() if spreads else (),
    )


def may_move(running: RunningState, vm: int, host: int) -> bool:
    """May this VM go there now, for a gain? Rule by rule, with nothing kept up."""
    demand = running.demand[running.kind[vm]].tolist()
    room = running.room[host].tolist()
    if running.rests[vm] or running.mobility[vm] == Mobility.NEVER or host == running.host[vm]:
        return False
    if not running.receives[host]:
        return False
    if not running.eligible[running.kind[vm], running.snapshot.host_class[host]]:
        return False
    if any(amount > left for amount, left in zip(demand, room, strict=True) if amount):
        return False
    for group in running.groups:
        if vm in group.vms:
            others = {int(running.host[each]) for each in group.vms if each != vm}
            others |= set(group.hosts)
            if host in others if group.apart else others and host not in others:
                return False
    for spread in running.spreads:
        if vm in spread.vms:
            zone = running.zones[host]
            there = [each for each in spread.vms if running.zones[running.host[each]] == zone]
            if zone < 0 or (
                zone != running.zones[running.host[vm]] and len(there) >= spread.maximum
            ):
                return False
    return True


def moved(running: RunningState, vm: int, host: int) -> RunningState:
    """Return the same once a VM is there, no matter that it moved."""
    where, room = running.host.copy(), running.room.copy()
    demand = running.demand[running.kind[vm]]
    room[where[vm]] += demand
    room[host] -= demand
    where[vm] = host
    snapshot = dataclasses.replace(running.snapshot, free=np.maximum(room, 0))
    return dataclasses.replace(running, snapshot=snapshot, host=where, over=np.maximum(-room, 0))
