"""Check that an allocation is feasible, by code that shares nothing with policies."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from placement.errors import InfeasibleAllocationError
from placement.model.arrays import SHARE_TOLERANCE
from placement.model.snapshot import Allocation, Borrowed, Snapshot
from placement.model.tenant_tree import TenantTree

#: Rows of an allocation's details: VM and request, or request, host and count
_Rows: TypeAlias = list[tuple[int, ...]]


def check_ends(snapshot: Snapshot, allocation: Allocation) -> None:
    """Raise unless an allocation keeps every rule of spot and borrowed VMs that end.

    The rules: each VM ends once, and only one that may, for a request that is let in on
    its host; a request that gets the room is no request of spot or borrowed VMs, may use that host,
    and gets no more than the round left out, nor than the allowances leave; all that a host lets in
    and all that is placed there fits once those end. Of the borrowed VMs of one request on a host
    the newest end, and each ends only for a tenant whose share is then not above what its own
    tenant keeps; the shares are those of the nodes at which the two branches of the tree part.

    Raises
    ------
    InfeasibleAllocationError
        Naming the first rule that is broken.
    """
    everywhere: _Rows = []
    freed: defaultdict[int, list[list[int]]] = defaultdict(list)
    for kind, running in (("spot", snapshot.spot), ("borrowed", snapshot.borrowed)):
        if running is None:
            continue
        ends, lets_in = _details_rows(allocation, kind)
        here = {(request, host) for request, host, _ in lets_in}
        seen: set[int] = set()
        for vm, request in ends:
            if not 0 <= vm < len(running.host) or vm in seen or not running.may_end[vm]:
                raise InfeasibleAllocationError(f"{kind} VM {vm} may not end, or ends twice")
            seen.add(vm)
            host = int(running.host[vm])
            if (request, host) not in here:
                raise InfeasibleAllocationError(
                    f"{kind} VM {vm} ends on host {host}, where no request needs it"
                )
            freed[host].append(running.amounts[vm].tolist())
        everywhere += lets_in
    _check_displacing(snapshot, allocation, everywhere)
    _check_freed_room(snapshot, allocation, everywhere, freed)
    if snapshot.borrowed is not None:
        _check_newest_first(snapshot.borrowed, allocation)
        _check_borrowed_shares(snapshot, snapshot.borrowed, allocation, everywhere)


def _details_rows(allocation: Allocation, kind: str) -> tuple[_Rows, _Rows]:
    """Return the ends of spot or borrowed VMs in an allocation, and the requests let in."""
    details = allocation.details.get(kind, {})
    return [tuple(row) for row in details.get("ends", ())], [
        tuple(row) for row in details.get("lets_in", ())
    ]


def _check_displacing(snapshot: Snapshot, allocation: Allocation, lets_in: _Rows) -> None:
    """Check the requests for which VMs end: eligibility, counts and quotas."""
    left = Counter[int]()
    for each in allocation.left_out:
        left[each.request] += each.count
    for request, host, count in lets_in:
        if not (0 <= request < len(snapshot.count) and 0 <= host < len(snapshot.capacity)):
            raise InfeasibleAllocationError(f"request {request} is let in on host {host}")
        if any(
            each is not None and each.asks[request] for each in (snapshot.spot, snapshot.borrowed)
        ):
            raise InfeasibleAllocationError(
                f"VMs end for request {request}, of spot or borrowed VMs"
            )
        if not snapshot.eligible[request, snapshot.host_class[host]]:
            raise InfeasibleAllocationError(
                f"VMs end for request {request} on host {host}, which it may not use"
            )
        left[request] -= count
        if count <= 0 or left[request] < 0:
            raise InfeasibleAllocationError(
                f"VMs end for {count} VMs of request {request} on host {host}, "
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
                f"allowance {number} leaves {allowance.room}, VMs end for {given}"
            )


def _check_freed_room(
    snapshot: Snapshot,
    allocation: Allocation,
    lets_in: _Rows,
    freed: Mapping[int, Sequence[Sequence[int]]],
) -> None:
    """Check that what a host admits fits once the VMs that end there are gone."""
    taken: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for request, host, count in [*allocation.placed.tolist(), *lets_in]:
        taken[host].append((request, count))
    for host in sorted({host for _, host, _ in lets_in}):
        room = [int(amount) for amount in snapshot.free[host]]
        for request, count in taken[host]:
            for resource in range(len(room)):
                room[resource] -= count * int(snapshot.demand[request, resource])
        for amounts in freed.get(host, ()):
            for resource in range(len(room)):
                room[resource] += amounts[resource]
        if min(room, default=0) < 0:
            raise InfeasibleAllocationError(
                f"host {host} has too little room for the requests that its VMs end for"
            )


def _check_newest_first(borrowed: Borrowed, allocation: Allocation) -> None:
    """Check that of a request's borrowed VMs on a host none ends before a newer one."""
    ended = {vm for vm, _ in _details_rows(allocation, "borrowed")[0]}
    stays: set[tuple[int, int]] = set()
    for vm in reversed(range(len(borrowed.host))):
        where = int(borrowed.request[vm]), int(borrowed.host[vm])
        if vm in ended and where in stays:
            raise InfeasibleAllocationError(f"borrowed VM {vm} ends before a newer one")
        if vm not in ended and borrowed.may_end[vm]:
            stays.add(where)


def _check_borrowed_shares(
    snapshot: Snapshot, borrowed: Borrowed, allocation: Allocation, lets_in: _Rows
) -> None:
    """Check that borrowed VMs end only for tenants that then hold no more than is kept."""
    ends, _ = _details_rows(allocation, "borrowed")
    pool = [int(amount) for amount in snapshot.pool]
    held = [[int(amount) for amount in row] for row in snapshot.held]

    def add(tenant: int, amounts: Sequence[int], count: int) -> None:
        for resource, amount in enumerate(amounts):
            held[tenant][resource] += count * int(amount)

    spot = snapshot.spot
    for request, _, count in allocation.placed.tolist():
        in_share = not borrowed.asks[request] and (spot is None or not spot.asks[request])
        add(int(snapshot.tenant[request]), snapshot.demand[request], count if in_share else 0)
    left = snapshot.count.tolist()
    for request, _, count in allocation.placed.tolist():
        left[request] -= count
    for request, _, count in () if spot is None else spot.kept:
        add(int(snapshot.tenant[request]), snapshot.demand[request], min(count, left[request]))
    for request, _, count in lets_in:
        add(int(snapshot.tenant[request]), snapshot.demand[request], count)
    for vm in {*np.flatnonzero(borrowed.ending).tolist(), *(vm for vm, _ in ends)}:
        add(int(borrowed.tenant[vm]), borrowed.amounts[vm], -1)
    tree = snapshot.tree or TenantTree.flat(snapshot.weight)
    below: defaultdict[int, list[int]] = defaultdict(list)
    for tenant, leaf in enumerate(tree.leaf):
        for node in tree.path(leaf):
            below[node].append(tenant)

    def level(node: int) -> float:
        total = [sum(held[tenant][each] for tenant in below[node]) for each in range(len(pool))]
        shares = [amount / size for amount, size in zip(total, pool, strict=True) if size > 0]
        return max(shares, default=0.0) / float(tree.weight[node])

    for vm, request in ends:
        taker, borrower = int(snapshot.tenant[request]), int(borrowed.tenant[vm])
        above = tree.path(tree.leaf[taker]), tree.path(tree.leaf[borrower])
        its, other = (
            [node for node in path if node not in set(without)]
            for path, without in (above, above[::-1])
        )
        if taker != borrower and level(its[-1]) > level(other[-1]) + SHARE_TOLERANCE:
            raise InfeasibleAllocationError(
                f"borrowed VM {vm} of tenant {borrower} ends for tenant {taker}, "
                f"which then holds more than tenant {borrower} keeps"
            )


def check_allocation(
    snapshot: Snapshot, allocation: Allocation, *, overload: float | Sequence[float] | None = None
) -> None:
    """Raise unless ``allocation`` keeps every rule of ``snapshot``.

    The rules: rows name requests and hosts that exist, sorted by request, then
    host, each pair once, counts above zero; a request only sits on hosts that
    it may use; what is placed fits in the free part of each host, to the unit;
    placed and left out add up to the count of every request; at least
    ``min_count`` VMs of a request or none; no tenant is given more than the allowances
    leave; of a hard group one VM on a host, or all on one host; of a request that
    is spread no more in a zone than its part; with ``overload``, nothing is placed
    on a host that is thereby filled above that fraction of its capacity: one for
    all hosts, or one for each, shape (H,).

    Sums are taken in Python's integers, so that no quantity can overflow.

    Raises
    ------
    InfeasibleAllocationError
        Naming the first rule that is broken.
    """
    _check_rows(snapshot, allocation)
    _check_eligibility(snapshot, allocation)
    _check_counts(snapshot, allocation)
    _check_allowances(snapshot, allocation)
    _check_groups(snapshot, allocation)
    _check_spreads(snapshot, allocation)
    _check_room(snapshot, allocation)
    if snapshot.spot is not None or snapshot.borrowed is not None:
        check_ends(snapshot, allocation)
    if overload is not None:
        hosts = len(snapshot.capacity)
        of_each = overload if isinstance(overload, Sequence) else [overload] * hosts
        _check_overload(snapshot, allocation, of_each)


def _check_rows(snapshot: Snapshot, allocation: Allocation) -> None:
    """Check the form of the placed rows: existing requests and hosts, order, counts above 0."""
    placed = allocation.placed
    if placed.ndim != 2 or placed.shape[1] != 3 or placed.dtype != np.int64:
        raise InfeasibleAllocationError(
            f"placed has shape {placed.shape} of {placed.dtype}, expected (P, 3) of int64"
        )
    before: tuple[int, int] | None = None
    for request, host, count in placed.tolist():
        if not 0 <= request < len(snapshot.count):
            raise InfeasibleAllocationError(f"request {request} does not exist")
        if not 0 <= host < len(snapshot.capacity):
            raise InfeasibleAllocationError(f"host {host} does not exist")
        if count <= 0:
            raise InfeasibleAllocationError(f"{count} VMs of request {request} on host {host}")
        if before is not None and (request, host) <= before:
            raise InfeasibleAllocationError(
                f"request {request} on host {host} stands twice or out of order"
            )
        before = (request, host)


def _check_eligibility(snapshot: Snapshot, allocation: Allocation) -> None:
    """Check that every request is only on hosts that it may use."""
    for request, host, _ in allocation.placed.tolist():
        if not snapshot.eligible[request, snapshot.host_class[host]]:
            raise InfeasibleAllocationError(f"request {request} may not use host {host}")


def _check_counts(snapshot: Snapshot, allocation: Allocation) -> None:
    """Check that the placed and unplaced VMs of each request add up to its count, gangs whole."""
    placed = [0] * len(snapshot.count)
    left_out = [0] * len(snapshot.count)
    for request, _, count in allocation.placed.tolist():
        placed[request] += count
    for left in allocation.left_out:
        if not 0 <= left.request < len(snapshot.count) or left.count <= 0:
            raise InfeasibleAllocationError(f"left out {left.count} of request {left.request}")
        left_out[left.request] += left.count
    for request, wanted in enumerate(snapshot.count.tolist()):
        if placed[request] + left_out[request] != wanted:
            raise InfeasibleAllocationError(
                f"request {request} wants {wanted} VMs, "
                f"placed {placed[request]} and left out {left_out[request]}"
            )
        if 0 < placed[request] < int(snapshot.min_count[request]):
            raise InfeasibleAllocationError(
                f"request {request} takes {snapshot.min_count[request]} VMs or none, "
                f"placed {placed[request]}"
            )


def _check_allowances(snapshot: Snapshot, allocation: Allocation) -> None:
    """Check that tenants get no more than their quota allowances leave."""
    for number, allowance in enumerate(snapshot.allowances):
        resource, given = allowance.resource, 0
        for request, _, count in allocation.placed.tolist():
            if int(snapshot.tenant[request]) in allowance.tenants:
                demand = snapshot.demand[request]
                given += count * (1 if resource is None else int(demand[resource]))
        if given > allowance.room:
            what = "VMs" if resource is None else snapshot.resources[resource]
            raise InfeasibleAllocationError(
                f"allowance {number} leaves {allowance.room} {what} to its tenants, given {given}"
            )


def _check_groups(snapshot: Snapshot, allocation: Allocation) -> None:
    """Check that hard VM groups are kept apart, or kept together."""
    groups = () if snapshot.constraints is None else snapshot.constraints.groups
    groups_of: dict[int, list[int]] = {}
    for number, group in enumerate(groups):
        for request in group.requests if group.hard else ():
            groups_of.setdefault(request, []).append(number)
    taken: dict[int, dict[int, int]] = {}
    for request, host, count in allocation.placed.tolist():
        for number in groups_of.get(request, ()):
            on_host = taken.setdefault(number, {})
            on_host[host] = on_host.get(host, 0) + count
    for number, on_host in taken.items():
        group = groups[number]
        if group.apart:
            for host, count in on_host.items():
                if count > 1 or host in group.hosts:
                    raise InfeasibleAllocationError(
                        f"host {host} holds several VMs of group {number}, which keeps apart"
                    )
        elif len(on_host) > 1 and not group.hosts:
            raise InfeasibleAllocationError(
                f"group {number} keeps together and is on hosts {sorted(on_host)}"
            )
        elif group.hosts and not on_host.keys() <= set(group.hosts):
            raise InfeasibleAllocationError(
                f"group {number} keeps together on {sorted(group.hosts)}, "
                f"placed on {sorted(on_host)}"
            )


def _check_spreads(snapshot: Snapshot, allocation: Allocation) -> None:
    """Check that spread requests have no more than their part in any zone."""
    constraints = snapshot.constraints
    if constraints is None:
        return
    in_zone = {spread.request: list(spread.placed) for spread in constraints.spreads}
    maximum = {spread.request: spread.maximum for spread in constraints.spreads}
    for request, host, count in allocation.placed.tolist():
        if request not in in_zone:
            continue
        zone = constraints.zones[host]
        if zone < 0:
            raise InfeasibleAllocationError(
                f"request {request} is spread over zones, host {host} is in none"
            )
        in_zone[request][zone] += count
        if in_zone[request][zone] > maximum[request]:
            raise InfeasibleAllocationError(
                f"zone {zone} may hold {maximum[request]} VMs of request {request}, "
                f"given {in_zone[request][zone]}"
            )


def _check_room(snapshot: Snapshot, allocation: Allocation) -> None:
    """Check that what is placed fits into the free amounts of each host."""
    for host, sums in _placed_amounts(snapshot, allocation).items():
        for resource, amount in enumerate(sums):
            free = int(snapshot.free[host, resource])
            if amount > free:
                raise InfeasibleAllocationError(
                    f"host {host} has {free} {snapshot.resources[resource]} free, given {amount}"
                )


def _check_overload(snapshot: Snapshot, allocation: Allocation, overload: Sequence[float]) -> None:
    """Check that no host is filled above its overload threshold."""
    for host, sums in _placed_amounts(snapshot, allocation).items():
        threshold = Fraction(str(overload[host]))
        for resource, amount in enumerate(sums):
            capacity = int(snapshot.capacity[host, resource])
            running = capacity - int(snapshot.free[host, resource])
            if amount and running + amount > threshold * capacity:
                raise InfeasibleAllocationError(
                    f"host {host} is filled above {overload[host]} "
                    f"of its {snapshot.resources[resource]}"
                )


def _placed_amounts(snapshot: Snapshot, allocation: Allocation) -> dict[int, list[int]]:
    """Return the amounts placed on each host that receives VMs, by resource."""
    taken: dict[int, list[int]] = {}
    for request, host, count in allocation.placed.tolist():
        sums = taken.setdefault(host, [0] * len(snapshot.resources))
        for resource, amount in enumerate(snapshot.demand[request].tolist()):
            sums[resource] += count * amount
    return taken
