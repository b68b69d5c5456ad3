"""Reservations in a round: gives them room before the policy decides, and builds their commit."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import numpy as np

from controller.rounds.inputs import ReservedInputs
from controller.rounds.snapshots import all_requests, is_host_allowed
from placement import IntArray, Snapshot
from placement.model.host_classes import HostClasses, eligibility
from placement.model.reservations import (
    ReservationPlacement,
    Reservations,
    best_fit_counts,
    place_reservations,
)
from registry.reservations import ReservedView
from registry.rounds import ClusterView, KeptForReservation, ReservedCommit


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SettledReservations:
    """The room that a round gave to reservations before its policy ran."""

    rest: Snapshot  #: the snapshot that the policy decides on
    inputs: ReservedInputs
    names: tuple[tuple[str, str], ...]  #: (id, name) of each
    commit: ReservedCommit
    kept: tuple[int, ...]  #: VMs of each reservation for which room is kept
    drawn_or_kept: IntArray  #: (A,) amount of each allowance drawn, or kept for begun ones

    def kept_amounts(self) -> IntArray:
        """Return the amounts that reservations keep on each host, (H, R)."""
        found = np.zeros_like(self.rest.free)
        for number, host, count in self.inputs.kept:
            found[host] += count * self.inputs.reserved.demand[number]
        return found

    @property
    def changes(self) -> bool:
        """Whether the kept room differs from before, so that the round must be recorded."""
        return any(each.changes for each in self.commit.reservations)


def quota_in_use(
    reserved: SettledReservations | None,
    request: int,
    used: int,
    *,
    limit: int,
    need: int,
    resource: int | None,
) -> int:
    """Return the used amount of a quota that counts against a request, in the quota's unit.

    Room kept for the reservation on which the request draws does not limit it, unless the quota
    is exceeded only with that room.
    """
    number = -1 if reserved is None else int(reserved.inputs.reserved.draws[request])
    if reserved is None or number < 0 or not reserved.inputs.reserved.in_force[number]:
        return used
    of_one = 1 if resource is None else int(reserved.inputs.reserved.demand[number, resource])
    others = used - reserved.kept[number] * of_one
    return others if others + need > limit else used


def settle_reservations(
    view: ClusterView, reservations: ReservedView, snapshot: Snapshot
) -> SettledReservations:
    """Place requests that draw on reservations, and find room for the rest of the reservations."""
    reserved = _reserved_arrays(view, reservations, snapshot)
    settled = place_reservations(snapshot, reserved)
    requests = [each.asks for each in reservations.reservations]
    return SettledReservations(
        rest=settled.rest,
        inputs=ReservedInputs(
            reserved=reserved,
            drawn=settled.drawn,
            kept=settled.kept,
            rooms=tuple(each.room for each in snapshot.allowances),
        ),
        names=tuple((str(each.id), each.name) for each in requests),
        commit=_reservations_commit(view, reservations, reserved, settled),
        kept=_kept_counts(reserved, settled),
        drawn_or_kept=_amounts_drawn_or_kept(snapshot, reserved, settled),
    )


def _kept_counts(reserved: Reservations, settled: ReservationPlacement) -> tuple[int, ...]:
    """Return for how many VMs room is kept, by reservation."""
    kept = [0] * len(reserved.count)
    for number, _, count in settled.kept:
        kept[number] += count
    return tuple(kept)


def _amounts_drawn_or_kept(
    snapshot: Snapshot, reserved: Reservations, settled: ReservationPlacement
) -> IntArray:
    """Return the amount of each allowance that is drawn, or kept for begun reservations, (A,)."""
    if not snapshot.allowances:
        return np.zeros(0, dtype=np.int64)
    of_each = [(int(reserved.draws[request]), count) for request, _, count in settled.drawn]
    of_each += [(number, count) for number, _, count in settled.kept if reserved.in_force[number]]
    vms = np.zeros(len(snapshot.weight), dtype=np.int64)
    amounts = np.zeros_like(snapshot.held)
    for number, count in of_each:
        vms[reserved.tenant[number]] += count
        amounts[reserved.tenant[number]] += count * reserved.demand[number]
    return np.array(
        [
            (vms if each.resource is None else amounts[:, each.resource])[[*each.tenants]].sum()
            for each in snapshot.allowances
        ],
        dtype=np.int64,
    )


def _reserved_arrays(
    view: ClusterView, reservations: ReservedView, snapshot: Snapshot
) -> Reservations:
    """Return the reservations as arrays on the axes of a snapshot."""
    requests = [each.asks for each in reservations.reservations]
    tenant_index = {tenant.id: index for index, tenant in enumerate(view.tenants)}
    host_index = {host.id: index for index, host in enumerate(view.hosts)}
    place = {each.id: number for number, each in enumerate(requests)}
    drawn = {key: place[of] for key, of in reservations.draws.items() if of in place}
    _, first = np.unique(snapshot.host_class, return_index=True)
    classes = HostClasses(snapshot.host_class, tuple(first.tolist()))
    closed = {host for plan in view.freed for host in plan.hosts}
    if view.spot is not None:
        closed |= {kept.host_id for kept in view.spot.kept}
    demand = np.array([each.demand for each in requests], dtype=np.int64)
    return Reservations(
        tenant=np.array([tenant_index[each.tenant_id] for each in requests], dtype=np.int64),
        demand=demand.reshape(len(requests), len(view.resources)),
        eligible=eligibility(view.hosts, classes, requests, is_host_allowed),
        count=np.array([each.count for each in requests], dtype=np.int64),
        in_force=np.array([each.in_force for each in reservations.reservations], dtype=np.bool_),
        draws=np.array(
            [drawn.get(each.id, -1) for each in all_requests(view)[: len(snapshot.count)]],
            dtype=np.int64,
        ),
        holds=tuple(
            (number, host_index[host], count)
            for number, each in enumerate(reservations.reservations)
            for host, count in each.holds
        ),
        closed=tuple(sorted(host_index[host] for host in closed if host in host_index)),
    )


def _missing_vms(
    reservations: ReservedView, reserved: Reservations, settled: ReservationPlacement
) -> list[int]:
    """Return the number of VMs that lack room, by reservation, now or at its beginning, (V,).

    A reservation that has not begun may use room of reservations that end before it begins.
    """
    short: list[int] = settled.missing_vms(reserved).tolist()
    views = reservations.reservations
    coming = [n for n, each in enumerate(views) if short[n] and not each.in_force]
    if not coming:
        return short
    rows = np.array(settled.kept, dtype=np.int64).reshape(-1, 3)
    amounts = rows[:, 2:] * reserved.demand[rows[:, 0]]
    ends = np.array([each.ends_at.timestamp() for each in views])[rows[:, 0]]
    free = settled.rest.free.copy()
    for number in coming:
        then, over = free.copy(), ends <= views[number].starts_at.timestamp()
        np.add.at(then, rows[over, 1], amounts[over])
        allowed = reserved.eligible[number][settled.rest.host_class].copy()
        allowed[list(reserved.closed)] = False
        given = best_fit_counts(then, reserved.demand[number], allowed, short[number])
        # Room is promised once: room that is not free yet makes `free` negative.
        free -= given[:, None] * reserved.demand[number]
        short[number] -= int(given.sum())
    return short


def _reservations_commit(
    view: ClusterView,
    reservations: ReservedView,
    reserved: Reservations,
    settled: ReservationPlacement,
) -> ReservedCommit:
    """Return the room to commit for each reservation, and how many VMs lack room."""
    short = _missing_vms(reservations, reserved, settled)
    kept: list[list[tuple[UUID, int]]] = [[] for _ in short]
    for number, host, count in settled.kept:
        kept[number].append((view.hosts[host].id, count))
    return ReservedCommit(
        reservations=tuple(
            KeptForReservation(
                reservation_id=each.asks.id,
                kept=tuple(kept[number]),
                before=dict(each.holds),
                short=short[number],
                short_before=each.short,
                lost=each.lost,
            )
            for number, each in enumerate(reservations.reservations)
        )
    )
