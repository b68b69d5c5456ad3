"""Room of reservations: the hosts that keep it, and the requests that draw on it.

Before the policy decides, room is found for what is reserved, and requests that draw on a
reservation are placed where it has room. For all other requests that room is taken.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from placement.errors import InfeasibleAllocationError
from placement.model.arrays import BoolArray, IntArray
from placement.model.snapshot import Snapshot

#: Rows of (request or reservation, host, count), in that order.
Rows: TypeAlias = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Reservations:
    """The reservations at the start of a round. Axes: V reservations, and those of its snapshot."""

    tenant: IntArray  #: (V,) indices of N
    demand: IntArray  #: (V, R) of one VM
    eligible: BoolArray  #: (V, C)
    count: IntArray  #: (V,) VMs for which room is to be kept
    in_force: BoolArray  #: (V,) has it begun? Then it counts in shares and quotas, and is drawn on
    draws: IntArray  #: (Q,) the reservation on which a request draws, -1 for none
    holds: Rows = ()  #: where room is kept, on hosts that take VMs; free room shows it as taken
    closed: tuple[int, ...] = ()  #: hosts that are kept for others: no room is chosen there

    def document(self) -> dict[str, Any]:
        """Return the reservations as JSON values, which `from_document` reads back."""
        return {
            field.name: value.tolist() if isinstance(value, np.ndarray) else _to_lists(value)
            for field in dataclasses.fields(self)
            for value in [getattr(self, field.name)]
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], snapshot: Snapshot) -> Reservations:
        """Build the reservations from the JSON values that `document` returned."""
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
            holds=parse_rows(document["holds"]),
            closed=tuple(document["closed"]),
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReservationPlacement:
    """The hosts of each reservation's room, and the requests that drew on it."""

    drawn: Rows  #: of request, host, count
    kept: Rows  #: of reservation, host, count: what is kept after that
    #: what is left to decide: what was drawn is placed, what is kept is taken
    rest: Snapshot

    def missing_vms(self, reserved: Reservations) -> IntArray:
        """Return the number of VMs of each reservation without room, (V,)."""
        kept = np.zeros_like(reserved.count)
        for number, _, count in self.kept:
            kept[number] += count
        for request, _, count in self.drawn:
            kept[reserved.draws[request]] += count
        short: IntArray = np.maximum(reserved.count - kept, 0)
        return short


def parse_rows(listed: Any) -> Rows:
    """Read rows of drawn or kept VMs back from JSON values."""
    return tuple((first, host, count) for first, host, count in listed)


def best_fit_counts(free: IntArray, demand: IntArray, allowed: BoolArray, count: int) -> IntArray:
    """Place equal VMs by best fit; return how many each host takes.

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
    demanded = demand > 0
    fit: IntArray = np.zeros(len(free), dtype=np.int64)
    if count <= 0 or not demanded.any():
        return fit
    fit = (free[:, demanded] // demand[demanded]).min(axis=1)
    fit = np.where(allowed, np.clip(fit, 0, count), 0)
    some = np.flatnonzero(fit)
    order = some[np.argsort(fit[some], kind="stable")]
    upto = np.cumsum(fit[order])
    given: IntArray = np.zeros_like(fit)
    given[order] = np.clip(count - (upto - fit[order]), 0, fit[order])
    return given


def place_reservations(snapshot: Snapshot, reserved: Reservations) -> ReservationPlacement:
    """Choose hosts for reservations without room, and let requests draw on reservations.

    Room that is kept stays where it is; less is kept where more is than is wanted. Which requests
    draw is placed in order of creation, within quotas, a gang whole or not at all: where room is
    kept, then on free room of hosts that it may use, for which as much is kept no more elsewhere.
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
    for number in np.flatnonzero(left).tolist():
        allowed = _allowed_hosts(snapshot, reserved, number)
        given = best_fit_counts(free, reserved.demand[number], allowed, int(left[number]))
        free -= given[:, None] * reserved.demand[number]
        for host in np.flatnonzero(given).tolist():
            kept[number, host] += int(given[host])
    drawn = _ReservationDraws(snapshot, reserved, kept=kept, free=free).draw_all()
    rows = tuple((number, host, count) for (number, host), count in sorted(kept.items()) if count)
    return ReservationPlacement(
        drawn=drawn, kept=rows, rest=_remaining_snapshot(snapshot, reserved, drawn, rows, free)
    )


def _allowed_hosts(snapshot: Snapshot, reserved: Reservations, number: int) -> BoolArray:
    """Return the hosts on which a reservation's room may be chosen, shape (H,)."""
    allowed: BoolArray = reserved.eligible[number][snapshot.host_class].copy()
    allowed[list(reserved.closed)] = False
    return allowed


class _ReservationDraws:
    """Lets requests draw on reservations, one after another.

    It takes what they draw out of what is ``kept`` and is ``free``. What has no place where room is
    kept, as its own rules exclude those hosts, would be placed by the policy outside that room, and
    count twice.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        reserved: Reservations,
        *,
        kept: Counter[tuple[int, int]],
        free: IntArray,
    ) -> None:
        self._snapshot, self._reserved = snapshot, reserved
        self._kept, self._free = kept, free
        self._within = _TenantAllowances(snapshot)
        # Hosts without any more go out, so that ten thousand requests do not look at them again.
        self._hosts: defaultdict[int, dict[int, None]] = defaultdict(dict)
        self._stands: Counter[int] = Counter()
        for (number, host), count in sorted(kept.items()):
            self._hosts[number][host] = None
            self._stands[number] += count
        #: reservations and eligibilities for which nothing is free
        self._full: set[tuple[int, bytes]] = set()

    def draw_all(self) -> Rows:
        """Let all requests draw on their reservations; return rows of request, host and count."""
        draws, in_force = self._reserved.draws, self._reserved.in_force
        waiting = np.flatnonzero((draws >= 0) & (self._snapshot.count > 0))
        return tuple(
            row
            for request in waiting.tolist()
            if in_force[draws[request]]
            for row in self._draw_request(request)
        )

    def _draw_request(self, request: int) -> Rows:
        """Let one request draw on its reservation, a gang whole or not at all; return its rows."""
        number = int(self._reserved.draws[request])
        tenant, demand = int(self._snapshot.tenant[request]), self._reserved.demand[number]
        eligible = self._snapshot.eligible[request]
        maximum = self._within.fit(tenant, demand, int(self._snapshot.count[request]))
        places = self._places_with_kept_room(number, eligible, maximum)
        drawn = places.total()
        # Of a reservation that lacks room for some, no host that it may use has any.
        maximum = min(maximum, self._stands[number]) - drawn
        others = self._places_without_kept_room(number, eligible, maximum)
        total = drawn + others.total()
        if total < max(1, int(self._snapshot.min_count[request])):
            return ()
        self._take_vms(number, places, others)
        self._within.take(tenant, demand, total)
        return tuple((request, host, count) for host, count in sorted((places + others).items()))

    def _places_with_kept_room(
        self, number: int, eligible: BoolArray, max_vms: int
    ) -> Counter[int]:
        """Choose hosts that keep room of a reservation for at most ``max_vms`` drawn VMs."""
        places: Counter[int] = Counter()
        for host in self._hosts[number]:
            if max_vms <= 0:
                break
            if eligible[self._snapshot.host_class[host]]:
                places[host] = min(self._kept[number, host], max_vms)
                max_vms -= places[host]
        return places

    def _places_without_kept_room(
        self, number: int, eligible: BoolArray, max_vms: int
    ) -> Counter[int]:
        """Choose hosts without kept room for at most ``max_vms`` VMs that draw on a reservation."""
        kind = (number, eligible.tobytes())
        if max_vms <= 0 or kind in self._full:
            return Counter()
        allowed = eligible[self._snapshot.host_class] & _allowed_hosts(
            self._snapshot, self._reserved, number
        )
        given = best_fit_counts(self._free, self._reserved.demand[number], allowed, max_vms)
        if given.sum() < max_vms:
            self._full.add(kind)
        return Counter({host: int(given[host]) for host in np.flatnonzero(given).tolist()})

    def _take_vms(self, number: int, places: Counter[int], others: Counter[int]) -> None:
        """Take the room of VMs drawn on a reservation; release what it keeps elsewhere."""
        demand = self._reserved.demand[number]
        for host, count in others.items():
            self._free[host] -= count * demand
        for host, count in places.items():
            self._release_kept_room(number, host, count)
        gone = others.total()  # as much is wanted no more where it is kept
        for host in list(self._hosts[number]) if gone else ():
            if not gone:
                break
            count = min(gone, self._kept[number, host])
            self._release_kept_room(number, host, count)
            self._free[host] += count * demand
            gone -= count
            self._full.clear()

    def _release_kept_room(self, number: int, host: int, count: int) -> None:
        """Release room that a host keeps for a reservation."""
        self._kept[number, host] -= count
        self._stands[number] -= count
        if not self._kept[number, host]:
            del self._hosts[number][host]


class _TenantAllowances:
    """The quota allowances of tenants whose requests draw on reservations."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._room = [each.room for each in snapshot.allowances]
        self._resource = [each.resource for each in snapshot.allowances]
        self._of_tenant: defaultdict[int, list[int]] = defaultdict(list)
        for place, each in enumerate(snapshot.allowances):
            for tenant in each.tenants:
                self._of_tenant[tenant].append(place)

    def fit(self, tenant: int, demand: IntArray, max_vms: int) -> int:
        """Return how many VMs the quotas of a tenant allow, at most ``max_vms``."""
        for place in self._of_tenant[tenant]:
            of_one = self._fit_in_allowance(place, demand)
            max_vms = min(max_vms, self._room[place] // of_one) if of_one else max_vms
        return max_vms

    def take(self, tenant: int, demand: IntArray, count: int) -> None:
        """Subtract the VMs that a tenant gets from its quotas."""
        for place in self._of_tenant[tenant]:
            self._room[place] -= count * self._fit_in_allowance(place, demand)

    def _fit_in_allowance(self, place: int, demand: IntArray) -> int:
        """Return how much of a quota allowance one VM uses."""
        resource = self._resource[place]
        return 1 if resource is None else int(demand[resource])


def _remaining_snapshot(
    snapshot: Snapshot, reserved: Reservations, drawn: Rows, kept: Rows, free: IntArray
) -> Snapshot:
    """Return the snapshot for the policy once reservations are placed.

    Requests that drew are gone; reservations in force count as held.
    """
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
        allowances=tuple(each.reduced_by(vms, amounts) for each in snapshot.allowances),
    )


def restore_reservations(
    rest: Snapshot, reserved: Reservations, drawn: Rows, kept: Rows, rooms: tuple[int, ...]
) -> Snapshot:
    """Restore the snapshot before reservations were placed, from the later one and quotas.

    Its gangs are no longer known: each gang that drew took at least the VMs that it drew.
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


def check_reservations(before: Snapshot, reserved: Reservations, drawn: Rows, kept: Rows) -> None:
    """Raise unless draws and kept room obey every rule of reservations.

    The check shares no code with `place_reservations`. The rules: a request draws only on its
    tenant's reservation, of its own type, from its beginning, and only where it may be; no more is
    drawn and kept together than is reserved; on no host is more drawn, and kept, than was free or
    kept there; what was kept, and is wanted, stays, but for as much as is drawn where none was
    kept.

    Raises
    ------
    InfeasibleAllocationError
        Naming the first rule that is broken.
    """
    had: Counter[tuple[int, int]] = Counter()
    for number, host, count in reserved.holds:
        had[number, host] += count
    drew = _check_draws(before, reserved, drawn, had)
    now = drew.copy()
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
    gone, elsewhere = Counter[int](), Counter[int]()
    for (number, host), count in had.items():
        gone[number] += max(0, count - now[number, host])
    for (number, host), count in drew.items():
        elsewhere[number] += max(0, count - had[number, host])
    for number, count in gone.items():
        if stood[number] <= wanted[number] and count > elsewhere[number]:
            raise InfeasibleAllocationError(f"room of reservation {number} does not stay")
    _check_room(before, reserved, had, now)


def _check_draws(
    before: Snapshot, reserved: Reservations, drawn: Rows, had: Counter[tuple[int, int]]
) -> Counter[tuple[int, int]]:
    """Check the requests that draw on reservations; return the VMs of each on each host."""
    now: Counter[tuple[int, int]] = Counter()
    requested: Counter[int] = Counter()
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
        requested[request] += count
        now[number, host] += count
        if now[number, host] > had[number, host] and (
            host in reserved.closed or not reserved.eligible[number, before.host_class[host]]
        ):
            raise InfeasibleAllocationError(f"more is drawn on host {host} than is kept there")
    for request, count in requested.items():
        if not before.min_count[request] <= count <= before.count[request]:
            raise InfeasibleAllocationError(f"request {request} draws {count} VMs")
    return now


def _check_room(
    before: Snapshot,
    reserved: Reservations,
    had: Counter[tuple[int, int]],
    now: Counter[tuple[int, int]],
) -> None:
    """Check that no host holds more for reservations than it kept for them and had free."""
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


def _to_lists(value: Any) -> list[Any]:
    """Return rows of reservations as lists, for JSON."""
    return [list(each) if isinstance(each, tuple) else each for each in value]
