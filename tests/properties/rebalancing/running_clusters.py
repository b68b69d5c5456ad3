"""Hypothesis strategies that build clusters with VMs that run."""

from __future__ import annotations

import dataclasses
from typing import Final

import numpy as np
from hypothesis import strategies as st

from placement.rebalancing.model import (
    Mobility,
    RebalanceLimits,
    RunningGroup,
    RunningSpread,
    RunningState,
)
from tests.unit.placement.rebalancing.builders import a_running

SIZES: Final = ((4, 8), (8, 8), (8, 16), (16, 16), (6, 9))

limits = st.builds(
    RebalanceLimits,
    per_source=st.integers(1, 4),
    per_destination=st.integers(1, 4),
    at_once=st.integers(1, 6),
)


@st.composite
def runnings(
    draw: st.DrawFn,
    *,
    max_hosts: int = 6,
    max_vms: int = 14,
    rules: bool = True,
    over: bool = False,
    waiting: bool = False,
) -> RunningState:
    """Draw a cluster: VMs of several tenants and kinds, some of which cannot move.

    With ``rules`` groups and spreads, some of which are broken already; with
    ``over`` hosts that hold more than they have; with ``waiting`` requests.
    """
    hosts = draw(st.integers(2, max_hosts))
    capacity = np.array([draw(st.sampled_from(SIZES)) for _ in range(hosts)])
    kinds = draw(st.integers(1, 4))
    demand = [(draw(st.integers(0, 4)), draw(st.integers(1, 5))) for _ in range(kinds)]
    classes = draw(st.integers(1, 2))
    room = capacity.copy()
    host, kind = [], []
    for _ in range(draw(st.integers(0, max_vms))):
        of_kind, at = draw(st.integers(0, kinds - 1)), draw(st.integers(0, hosts - 1))
        if (room[at] >= demand[of_kind]).all() or (over and draw(st.integers(0, 3)) == 0):
            room[at] -= demand[of_kind]
            host.append(at)
            kind.append(of_kind)
    vms = len(host)
    movable = st.sampled_from([Mobility.LIVE] * 5 + [Mobility.COLD, Mobility.NEVER])
    requests = draw(st.integers(1, 2)) if waiting else 0
    count = [draw(st.integers(1, 3)) for _ in range(requests)]
    running = a_running(
        host=host,
        kind=kind,
        capacity=capacity.tolist(),
        demand=demand,
        host_class=[draw(st.integers(0, classes - 1)) for _ in range(hosts - 1)] + [classes - 1],
        eligible=[[draw(st.integers(0, 5)) > 0 for _ in range(classes)] for _ in range(kinds)],
        tenant=[draw(st.integers(0, 2)) for _ in range(vms)],
        weight=(1.0, 2.0, 0.5),
        mobility=[draw(movable) for _ in range(vms)],
        rests=[draw(st.integers(0, 4)) == 0 for _ in range(vms)],
        receives=[draw(st.integers(0, 7)) > 0 for _ in range(hosts)],
        other=[[draw(st.sampled_from([0, 0, 1])) * int(r >= 1) for r in row] for row in room],
        requests=[(draw(st.integers(1, 6)), draw(st.integers(1, 8))) for _ in range(requests)],
        count=count,
        min_count=[draw(st.integers(1, most)) for most in count],
        requests_eligible=[
            [draw(st.integers(0, 5)) > 0 for _ in range(classes)] for _ in range(requests)
        ]
        or None,
    )
    return draw(_ruled(running)) if rules and vms else running


@st.composite
def _ruled(draw: st.DrawFn, running: RunningState) -> RunningState:
    vms, hosts, requests = len(running), len(running.receives), len(running.snapshot.count)
    some = st.lists(st.integers(0, vms - 1), unique=True, min_size=1, max_size=5).map(sorted)
    waiting = st.lists(st.integers(0, requests - 1), unique=True) if requests else st.just([])
    elsewhere = st.lists(st.integers(0, hosts - 1), unique=True, max_size=1)
    groups, together = [], set()
    for _ in range(draw(st.integers(0, 3))):
        apart = draw(st.booleans())
        members = [vm for vm in draw(some) if apart or vm not in together]
        if not apart:
            together.update(members)
        groups.append(
            RunningGroup(
                apart=apart,
                hard=draw(st.integers(0, 3)) > 0,
                vms=tuple(members),
                requests=tuple(sorted(draw(waiting))),
                hosts=tuple(draw(elsewhere)) if draw(st.integers(0, 3)) == 0 else (),
            )
        )
    zones = draw(st.integers(1, 3))
    spreads = [
        RunningSpread(
            maximum=draw(st.integers(1, 3)),
            vms=tuple(members),
            request=number if number < requests and draw(st.booleans()) else None,
            others=tuple(draw(st.integers(0, 1)) for _ in range(zones))
            if draw(st.booleans())
            else (),
        )
        for number in range(draw(st.integers(0, 2)))
        if (members := [vm for vm in draw(some) if vm not in together])
    ]
    of_host = [draw(st.integers(-1, zones - 1)) for _ in range(hosts - 1)] + [zones - 1]
    return dataclasses.replace(
        running,
        groups=tuple(groups),
        spreads=tuple(spreads),
        zones=np.array(of_host if spreads else [], dtype=np.int64),
    )


def a_tight_cluster(seed: int) -> tuple[RunningState, list[int]]:
    """Return a small cluster and hosts to empty, where what leaves nearly fills the rest.

    Drawn from a seed and not by Hypothesis, which prefers what is simple: how often
    a heuristic misses is counted over cases that are hard.
    """
    rng = np.random.default_rng(seed)
    hosts, leaving = int(rng.integers(3, 7)), int(rng.integers(1, 3))
    capacity = np.array(SIZES)[rng.integers(0, len(SIZES), hosts)] * 2
    kinds = rng.integers(1, 7, (4, 2))
    host, kind, room = [], [], capacity.copy()
    for at in range(hosts):
        load = 1.0 if at < leaving else rng.uniform(0.2, 0.8)
        for _ in range(40):
            of_kind = int(rng.integers(0, len(kinds)))
            if ((capacity[at] - room[at] + kinds[of_kind]) <= load * capacity[at]).all():
                room[at] -= kinds[of_kind]
                host.append(at)
                kind.append(of_kind)
    # Of those that leave so many stay away that the rest could just fit.
    free = room[leaving:].sum(axis=0)
    kept_host, kept_kind = [], []
    for at, of_kind in zip(host, kind, strict=True):
        if at < leaving:
            if (kinds[of_kind] > free).any():
                continue
            free = free - kinds[of_kind]
        kept_host.append(at)
        kept_kind.append(of_kind)
    vms = len(kept_host)
    members = rng.permutation(vms)[: int(rng.integers(0, 4))].tolist()
    running = a_running(
        host=kept_host,
        kind=kept_kind,
        capacity=capacity.tolist(),
        demand=kinds.tolist(),
        tenant=rng.integers(0, 2, vms).tolist(),
        groups=[RunningGroup(apart=True, hard=True, vms=tuple(sorted(members)))] if members else (),
    )
    return running, list(range(leaving))
