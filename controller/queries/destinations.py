"""Chooses destinations of a move that names no host: all possible hosts, the best first.

The policy is Best-Fit DRFH of the catalogue. For a single VM shares decide nothing, so it chooses
the host whose free capacity best matches the VM's demand. The same policy places the remainder
after a game of FUGA and decides rounds whose policy failed. It keeps every rule of the VM's
request. Hosts with room kept for waiting requests are left out: a VM moves there only if the call
names the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace
from typing import Final
from uuid import UUID

import numpy as np

from controller.rounds.obstacles import Obstacles, remedy_text
from controller.rounds.snapshots import to_snapshot
from placement import Allocation, check_allocation, decide, policy_by_name
from placement.constraints.allowances import RemainingAllowances
from registry import MoveRefusedError
from registry.moves import MoveObstacle
from registry.rounds import ClusterView

POLICY: Final = "best_fit_drfh"
#: The row that stands for all requests with kept room: row 0 is the VM's own.
_OF_OTHERS: Final = -1


def destination_hosts(view: ClusterView, vm: str) -> Iterator[str]:
    """Yield the names of hosts that a VM may move to, the best first.

    Parameters
    ----------
    view : ClusterView
        Contains one request, for the VM to move (`registry.moves.Moves.cluster_for_move`).
    vm : str
        The name of the VM, for errors.

    Raises
    ------
    MoveRefusedError
        If no host takes the VM; raised before the first host, with the obstacles.
    """
    policy = policy_by_name(POLICY, {})
    kept = hosts_with_kept_room(view)
    view = replace(view, spot=None)  # the VM has a place already, spot VM or not
    [waiting] = view.requests
    request = replace(waiting, avoid=tuple(sorted({*waiting.avoid, *kept})))
    given = 0
    while True:
        snapshot, _ = to_snapshot(replace(view, requests=(request,)))
        allocation = decide(snapshot, policy, seed=0, budget_units=None)
        check_allocation(snapshot, allocation)
        if not len(allocation.placed):
            if not given:
                raise MoveRefusedError(
                    vm, MoveObstacle.NOWHERE.value, _no_destination_reason(view, kept)
                )
            return
        host = view.hosts[int(allocation.placed[0][1])]
        yield host.name
        given += 1
        request = replace(request, avoid=tuple(sorted({*request.avoid, host.id})))


def hosts_with_kept_room(view: ClusterView) -> frozenset[UUID]:
    """Return the hosts with room that is made or kept for waiting requests."""
    made = {host for plan in view.freed for host in plan.hosts}
    kept = () if view.spot is None else view.spot.kept
    return frozenset(made | {room.host_id for room in kept})


def _no_destination_reason(view: ClusterView, kept: Set[UUID]) -> str:
    """Return a message with the reason why no host takes the VM, and a remedy."""
    [request] = view.requests
    network = request.network.without if request.network is not None else frozenset()
    left_out = {*request.avoid} - {*request.failed_on, *network}
    others = replace(view, hosts=tuple(host for host in view.hosts if host.id not in left_out))
    if not others.hosts:
        return "there is no other host of its kind"
    for group in view.vm_groups:
        if group.hard and not group.apart and left_out.issuperset(group.hosts) and group.hosts:
            return f"the other VMs of its group {group.name} are on its host"
    snapshot, names = to_snapshot(others)
    held = [[_OF_OTHERS, row] for row, host in enumerate(others.hosts) if host.id in kept]
    allocation = Allocation(
        placed=np.zeros((0, 3), dtype=np.int64), left_out=(), details={"freed": held}
    )
    found = Obstacles(
        others, snapshot, allocation, names, RemainingAllowances(snapshot)
    ).obstacles_of(0)
    said = (remedy_text(each.document(), exact=True) for each in found)
    would_help = [sentence for sentence in said if sentence is not None]
    message = f"none of {len(others.hosts)} other hosts takes it"
    return f"{message}; it would need {', or '.join(would_help)}" if would_help else message
