"""Room that is kept for reservations: where it is kept, and who of their tenants draws on it.

Before the policy decides, room is found for what is reserved, and requests that draw on a
reservation are placed where it has room. To everybody else that room is taken.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from placement.errors import InfeasibleAllocationError
from placement.round.arrays import BoolArray, IntArray
from placement.round.model import Snapshot

#: Rows of (request or reservation, host, count), in that order.
Rows: TypeAlias = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Reserved:
    """What is reserved, as a round begins. Axes: V reservations, and those of its snapshot."""

    tenant: IntArray  #: (V,) indices of N
    demand: IntArray  #: (V, R) of one VM
    eligible: BoolArray  #: (V, C)
    count: IntArray  #: (V,) VMs for which room is to be kept
    in_force: BoolArray  #: (V,) has it begun? Then it counts in shares and quotas, and is drawn on
    draws: IntArray  #: (Q,) the reservation on which a request draws, -1 for none
    holds: Rows = ()  #: where room is kept, on hosts that take VMs; free room shows it as taken
    closed: tuple[int, ...] = ()  #: hosts that are kept for others: no room is chosen there

    def document(self) -> dict[str, Any]:
        """Return JSON values, from which `of_document` makes the same again."""
        return {
            field.name: value.tolist() if isinstance(value, np.ndarray) else _listed(value)
            for field in dataclasses.fields(self)
            for value in [getattr(self, field.name)]
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any], snapshot: Snapshot) -> Reserved:
        """Read back what `document` returned."""
        size = len(document["count"])
        return cls(
            tenant=np.array(document["tenant"], dtype=np.int64),
            demand=np.array(document["demand"], dtype=np.int64).reshape(
                size, len(snapshot.resources)
            ),
            eligible=np.array(document["eligible"], dtype=np.bool_).reshape(
                size, snapshot.eligible.shape[1]
            ),
            count=np.array(document["count"], dtype=np.int64),
            in_force=np.array(document["in_force"], dtype=np.bool_),
            draws=np.array(document["draws"], dtype=np.int64),
            holds=rows_of(document["holds"]),
            closed=tuple(document["closed"]),
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Settled:
    """Where reservations have their room, and who drew on them."""

    drawn: Rows  #: of request, host, count
    kept: Rows  #: of reservation, host, count: what is kept after that
    #: what is left to decide: what was drawn is placed, what is kept is taken
    rest: Snapshot

    def short(self, reserved: Reserved) -> IntArray:
        """Return for how many VMs of each reservation, (V,), there is no room."""
        kept = np.zeros_like(reserved.count)
        for number, _, count in self.kept:
            kept[number] += count
        for request, _, count in self.drawn:
            kept[reserved.draws[request]] += count
        short: IntArray = np.maximum(reserved.count - kept, 0)
        return short


def rows_of(listed: Any) -> Rows:
    """Read rows back from JSON values."""
    return tuple((first, host, count) for first, host, count in listed)


def best_fit(free: IntArray, demand: IntArray, allowed: BoolArray, count: int) -> IntArray:
    """Return on which hosts VMs that are alike go, each host filled before the next.

    Parameters
    ----------
    free : ndarray of int64, shape (H, R)
    demand : ndarray of int64, shape (R,)
        Of one VM.
    allowed : ndarray of bool, shape (H,)
    count : int
        VMs at most.

    Returns
    -------
    ndarray of int64, shape (H,)
        VMs on each host. Hosts come in the order of how many fit, the fullest first, ties by
        index.
    """
    asked = demand > 0
    fit: IntArray = np.zeros(len(free), dtype=np.int64)
    if count <= 0 or not asked.any():
        return fit
    fit = (free[:, asked] // demand[asked]).min(axis=1)
    fit = np.where(allowed, np.clip(fit, 0, count), 0)
    some = np.flatnonzero(fit)
    order = some[np.argsort(fit[some], kind="stable")]
    upto = np.cumsum(fit[order])
    given: IntArray = np.zeros_like(fit)
    given[order] = np.clip(count - (upto - fit[order]), 0, fit[order])
    return given


def settle(snapshot: Snapshot, reserved: Reserved) -> Settled:
    """Let requests draw, then choose hosts for what has no room yet.

    Room that is kept stays where it is; less is kept where more is than is wanted. Who draws is
    placed in order of creation, within quotas, a gang whole or not at all.
    """
    kept: Counter[tuple[int, int]] = Counter()
    left = reserved.count.copy()
    for number, host, count in reserved.holds:
        taken = min(count, int(left[number]))
        if taken:
            kept[number, host] += taken
            left[number] -= taken
    # Room of before that is not wanted any more is free again.
    free = snapshot.free.copy()
    for number, host, count in reserved.holds:
        free[host] += (count - kept[number, host]) * reserved.demand[number]
    drawn = _drawn(snapshot, reserved, kept)
    for number in np.flatnonzero(left).tolist():
        allowed = reserved.eligible[number][snapshot.host_class].copy()
        allowed[list(reserved.closed)] = False
        given = best_fit(free, reserved.demand[number], allowed, int(left[number]))
        free -= given[:, None] * reserved.demand[number]
        for host in np.flatnonzero(given).tolist():
            kept[number, host] += int(given[host])
    rows = tuple((number, host, count) for (number, host), count in sorted(kept.items()) if count)
    return Settled(drawn=drawn, kept=rows, rest=_rest(snapshot, reserved, drawn, rows, free))


def _drawn(snapshot: Snapshot, reserved: Reserved, kept: Counter[tuple[int, int]]) -> Rows:
    """Return who draws where; takes it out of what is ``kept``."""
    allowances = list(snapshot.allowances)
    drawn: list[tuple[int, int, int]] = []
    hosts: defaultdict[int, list[int]] = defaultdict(list)
    for number, host in sorted(kept):
        hosts[number].append(host)
    for request in np.flatnonzero((reserved.draws >= 0) & (snapshot.count > 0)).tolist():
        number = int(reserved.draws[request])
        if not reserved.in_force[number]:
            continue
        most, tenant = int(snapshot.count[request]), int(snapshot.tenant[request])
        for each in allowances:
            if tenant in each.tenants:
                of_one = 1 if each.resource is None else int(reserved.demand[number, each.resource])
                most = min(most, each.room // of_one) if of_one else most
        may = snapshot.eligible[request][snapshot.host_class]
        places = []
        for host in hosts[number]:
            count = min(kept[number, host], most)
            if may[host] and count > 0:
                places.append((host, count))
                most -= count
        total = sum(count for _, count in places)
        if total < max(1, int(snapshot.min_count[request])):
            continue
        for host, count in places:
            kept[number, host] -= count
            drawn.append((request, host, count))
        vms = np.zeros(len(snapshot.weight), dtype=np.int64)
        vms[tenant] = total
        amounts = vms[:, None] * reserved.demand[number]
        allowances = [each.after(vms, amounts) for each in allowances]
    return tuple(drawn)


def _rest(
    snapshot: Snapshot, reserved: Reserved, drawn: Rows, kept: Rows, free: IntArray
) -> Snapshot:
    """Return what is left: what began counts as held, whether it is drawn or kept."""
    count, min_count = snapshot.count.copy(), snapshot.min_count.copy()
    vms = np.zeros(len(snapshot.weight), dtype=np.int64)
    amounts = np.zeros_like(snapshot.held)
    of_each = [(int(reserved.draws[request]), placed) for request, _, placed in drawn]
    of_each += [(number, placed) for number, _, placed in kept if reserved.in_force[number]]
    for number, placed in of_each:
        vms[reserved.tenant[number]] += placed
        amounts[reserved.tenant[number]] += placed * reserved.demand[number]
    for request, _, placed in drawn:
        count[request] -= placed
        min_count[request] = 1
    return dataclasses.replace(
        snapshot,
        free=free,
        count=count,
        min_count=min_count,
        held=snapshot.held + amounts,
        allowances=tuple(each.after(vms, amounts) for each in snapshot.allowances),
    )


def unsettled(
    rest: Snapshot, reserved: Reserved, drawn: Rows, kept: Rows, rooms: tuple[int, ...]
) -> Snapshot:
    """Return the snapshot that was settled, given what is left of it and its allowances' rooms.

    Its gangs are not known any more: each that drew took so many at least.
    """
    free, held = rest.free.copy(), rest.held.copy()
    count, min_count = rest.count.copy(), rest.min_count.copy()
    amounts = np.zeros_like(held)
    for number, host, placed in kept:
        free[host] += placed * reserved.demand[number]
    for number, host, placed in reserved.holds:
        free[host] -= placed * reserved.demand[number]
    of_each = [(int(reserved.draws[request]), placed) for request, _, placed in drawn]
    of_each += [(number, placed) for number, _, placed in kept if reserved.in_force[number]]
    for number, placed in of_each:
        amounts[reserved.tenant[number]] += placed * reserved.demand[number]
    for request, host, placed in drawn:
        free[host] += placed * rest.demand[request]
        count[request] += placed
    allowances = tuple(
        dataclasses.replace(each, room=room)
        for each, room in zip(rest.allowances, rooms, strict=True)
    )
    return dataclasses.replace(
        rest,
        free=free,
        held=held - amounts,
        count=count,
        min_count=min_count,
        allowances=allowances,
    )


def check_reserved(before: Snapshot, reserved: Reserved, drawn: Rows, kept: Rows) -> None:
    """Raise unless what is drawn and kept keeps every rule. Shares no code with `settle`.

    The rules: who draws, draws on its own reservation, of its own type, from its beginning, and
    only where it may be; no more is drawn and kept together than is reserved; on no host is more
    drawn, and kept, than was free or kept there; what was kept, and is wanted, stays.

    Raises
    ------
    InfeasibleAllocationError
        Naming the first rule that is broken.
    """
    had: Counter[tuple[int, int]] = Counter()
    for number, host, count in reserved.holds:
        had[number, host] += count
    now = _check_drawn(before, reserved, drawn, had)
    for number, host, count in kept:
        if count <= 0 or not reserved.eligible[number, before.host_class[host]]:
            raise InfeasibleAllocationError(f"reservation {number} has {count} on host {host}")
        now[number, host] += count
    total, stood = Counter[int](), Counter[int]()
    for (number, _), count in now.items():
        total[number] += count
    for (number, _), count in had.items():
        stood[number] += count
    wanted = reserved.count.tolist()
    for number, count in total.items():
        if count > wanted[number]:
            raise InfeasibleAllocationError(f"reservation {number} of {wanted[number]} has {count}")
    for (number, host), count in had.items():
        if stood[number] <= wanted[number] and now[number, host] < count:
            raise InfeasibleAllocationError(f"room of reservation {number} does not stay")
    _check_room(before, reserved, had, now)


def _check_drawn(
    before: Snapshot, reserved: Reserved, drawn: Rows, had: Counter[tuple[int, int]]
) -> Counter[tuple[int, int]]:
    """Check who draws; return how much of each reservation on each host."""
    now: Counter[tuple[int, int]] = Counter()
    asked: Counter[int] = Counter()
    for request, host, count in drawn:
        number = int(reserved.draws[request])
        if number < 0 or not reserved.in_force[number] or count <= 0:
            raise InfeasibleAllocationError(f"request {request} draws {count} on no reservation")
        if before.demand[request].tolist() != reserved.demand[number].tolist():
            raise InfeasibleAllocationError(f"request {request} draws VMs of another type")
        if before.tenant[request] != reserved.tenant[number]:
            raise InfeasibleAllocationError(f"request {request} draws on another tenant's room")
        if not before.eligible[request, before.host_class[host]]:
            raise InfeasibleAllocationError(f"request {request} may not use host {host}")
        asked[request] += count
        now[number, host] += count
        if now[number, host] > had[number, host]:
            raise InfeasibleAllocationError(f"more is drawn on host {host} than is kept there")
    for request, count in asked.items():
        if not before.min_count[request] <= count <= before.count[request]:
            raise InfeasibleAllocationError(f"request {request} draws {count} VMs")
    return now


def _check_room(
    before: Snapshot,
    reserved: Reserved,
    had: Counter[tuple[int, int]],
    now: Counter[tuple[int, int]],
) -> None:
    """Check that no host has more for reservations than it had for them, and free."""
    more: defaultdict[int, list[int]] = defaultdict(lambda: [0] * len(before.resources))
    for places, sign in ((now, 1), (had, -1)):
        for (number, host), count in places.items():
            for resource, amount in enumerate(reserved.demand[number].tolist()):
                more[host][resource] += sign * count * amount
    for host, amounts in more.items():
        for resource, amount in enumerate(amounts):
            free = int(before.free[host, resource])
            if amount > free:
                raise InfeasibleAllocationError(
                    f"host {host} has {free} {before.resources[resource]} free, given {amount}"
                    " more for reservations"
                )


def _listed(value: Any) -> list[Any]:
    return [list(each) if isinstance(each, tuple) else each for each in value]
