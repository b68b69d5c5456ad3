"""Does what a round says of spot VMs hold? Independent of who decided it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from placement.errors import InfeasibleAllocationError
from placement.model.snapshot import Allocation, Snapshot
from placement.model.spot import Spot


def check_spot(snapshot: Snapshot, spot: Spot, allocation: Allocation) -> None:
    """Raise unless an allocation keeps every rule of spot VMs; without any word it ends none.

    The rules: each spot VM ends once, and only one that may, for a request that is let in on
    its host; who is let in shares by the share, may use that host, and lets no more in than the
    round left out, nor than the allowances leave; all that a host lets in and all that is placed
    there fits once those end.

    Raises
    ------
    InfeasibleAllocationError
        Naming the first rule that is broken.
    """
    told = allocation.details.get("spot", {})
    ends = [(vm, request) for vm, request in told.get("ends", ())]
    lets_in = [(request, host, count) for request, host, count in told.get("lets_in", ())]
    _check_lets_in(snapshot, spot, allocation, lets_in)
    here = {(request, host) for request, host, _ in lets_in}
    ended: defaultdict[int, list[int]] = defaultdict(list)
    seen: set[int] = set()
    for vm, request in ends:
        if not 0 <= vm < len(spot.host) or vm in seen or not spot.may_end[vm]:
            raise InfeasibleAllocationError(f"spot VM {vm} may not end, or ends twice")
        seen.add(vm)
        host = int(spot.host[vm])
        if (request, host) not in here:
            raise InfeasibleAllocationError(f"spot VM {vm} ends on host {host} for nobody there")
        ended[host].append(vm)
    _check_room(snapshot, spot, allocation, lets_in, ended)


def _check_lets_in(
    snapshot: Snapshot,
    spot: Spot,
    allocation: Allocation,
    lets_in: Sequence[tuple[int, int, int]],
) -> None:
    left = Counter[int]()
    for each in allocation.left_out:
        left[each.request] += each.count
    for request, host, count in lets_in:
        if not (0 <= request < len(snapshot.count) and 0 <= host < len(snapshot.capacity)):
            raise InfeasibleAllocationError(f"request {request} is let in on host {host}")
        if spot.asks[request]:
            raise InfeasibleAllocationError(f"spot VMs end for request {request}, of spot VMs")
        if not snapshot.eligible[request, snapshot.host_class[host]]:
            raise InfeasibleAllocationError(
                f"spot VMs end for request {request} on host {host}, which it may not use"
            )
        left[request] -= count
        if count <= 0 or left[request] < 0:
            raise InfeasibleAllocationError(
                f"spot VMs end for {count} VMs of request {request} on host {host}, "
                f"of which too few were left out"
            )
    for number, allowance in enumerate(snapshot.allowances):
        given = 0
        taken = [*allocation.placed.tolist(), *lets_in]
        for request, _, count in taken:
            if int(snapshot.tenant[request]) in allowance.tenants:
                of_one = 1 if allowance.resource is None else snapshot.demand[request]
                amount = of_one if isinstance(of_one, int) else int(of_one[allowance.resource])
                given += count * amount
        if lets_in and given > allowance.room:
            raise InfeasibleAllocationError(
                f"allowance {number} leaves {allowance.room}, spot VMs end for {given}"
            )


def _check_room(
    snapshot: Snapshot,
    spot: Spot,
    allocation: Allocation,
    lets_in: Sequence[tuple[int, int, int]],
    ended: dict[int, list[int]],
) -> None:
    taken: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for request, host, count in [*allocation.placed.tolist(), *lets_in]:
        taken[host].append((request, count))
    for host in sorted({host for _, host, _ in lets_in}):
        room = [int(amount) for amount in snapshot.free[host]]
        for request, count in taken[host]:
            for resource in range(len(room)):
                room[resource] -= count * int(snapshot.demand[request, resource])
        for vm in ended.get(host, ()):
            for resource in range(len(room)):
                room[resource] += int(spot.amounts[vm, resource])
        if min(room, default=0) < 0:
            raise InfeasibleAllocationError(
                f"host {host} has too little room for whom its spot VMs end"
            )
