"""Reservations in a round: rows into arrays, room before the policy decides, and back into rows."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import numpy as np

from controller.rounds.inputs import ReservedInputs
from controller.rounds.snapshots import may_use
from placement import Snapshot
from placement.round.host_classes import HostClasses, eligibility
from placement.round.reserved import Reserved, Settled, settle
from registry.reservations import ReservedView
from registry.rounds import ClusterView, KeptForReservation, ReservedCommit


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SettledReservations:
    """What a round decided of reservations before its policy was asked."""

    rest: Snapshot  #: what is left to decide
    inputs: ReservedInputs
    names: tuple[tuple[str, str], ...]  #: (id, name) of each
    commit: ReservedCommit

    @property
    def changes(self) -> bool:
        """Return whether room is kept otherwise than before, so that a round has to say so."""
        return any(each.changes for each in self.commit.reservations)


def settle_reservations(
    view: ClusterView, reservations: ReservedView, snapshot: Snapshot
) -> SettledReservations:
    """Let requests draw on reservations, and find room for what is reserved besides."""
    reserved = _reserved(view, reservations, snapshot)
    settled = settle(snapshot, reserved)
    asks = [each.asks for each in reservations.reservations]
    return SettledReservations(
        rest=settled.rest,
        inputs=ReservedInputs(
            reserved=reserved,
            drawn=settled.drawn,
            kept=settled.kept,
            rooms=tuple(each.room for each in snapshot.allowances),
        ),
        names=tuple((str(each.id), each.name) for each in asks),
        commit=_commit(view, reservations, reserved, settled),
    )


def _reserved(view: ClusterView, reservations: ReservedView, snapshot: Snapshot) -> Reserved:
    """Return what is reserved on the axes of a snapshot."""
    asks = [each.asks for each in reservations.reservations]
    tenant_index = {tenant.id: index for index, tenant in enumerate(view.tenants)}
    host_index = {host.id: index for index, host in enumerate(view.hosts)}
    place = {each.id: number for number, each in enumerate(asks)}
    drawn = {key: place[of] for key, of in reservations.draws.items() if of in place}
    _, first = np.unique(snapshot.host_class, return_index=True)
    classes = HostClasses(snapshot.host_class, tuple(first.tolist()))
    closed = {host for plan in view.freed for host in plan.hosts}
    if view.spot is not None:
        closed |= {kept.host_id for kept in view.spot.kept}
    demand = np.array([each.demand for each in asks], dtype=np.int64)
    return Reserved(
        tenant=np.array([tenant_index[each.tenant_id] for each in asks], dtype=np.int64),
        demand=demand.reshape(len(asks), len(view.resources)),
        eligible=eligibility(view.hosts, classes, asks, may_use),
        count=np.array([each.count for each in asks], dtype=np.int64),
        in_force=np.array([each.in_force for each in reservations.reservations], dtype=np.bool_),
        draws=np.array([drawn.get(each.id, -1) for each in view.requests], dtype=np.int64),
        holds=tuple(
            (number, host_index[host], count)
            for number, each in enumerate(reservations.reservations)
            for host, count in each.holds
        ),
        closed=tuple(sorted(host_index[host] for host in closed if host in host_index)),
    )


def _commit(
    view: ClusterView, reservations: ReservedView, reserved: Reserved, settled: Settled
) -> ReservedCommit:
    short = settled.short(reserved).tolist()
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
