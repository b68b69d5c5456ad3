"""Decides whether a reservation can be accepted, in a child process that can be killed."""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import numpy as np

from controller.queries.coarse_numbers import round_down_to_step
from controller.queries.wait_forecast import build_lifetimes, forecast_start
from controller.rounds.snapshots import is_host_allowed
from placement import BoolArray
from placement.forecast.reservation_forecast import (
    ReservationDemand,
    ReservationVerdict,
    reservation_verdict,
)
from registry.requests import NO_RULES
from registry.reservations import Reservation, ReservationDecision
from registry.rounds import ClusterView, ForecastInputs, HostView, RequestView

#: Time for all samples together.
TIME_S: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationQuery:
    """Inputs of the child process that judges a reservation."""

    view: ForecastInputs
    reservation: Reservation
    before: tuple[tuple[Reservation, int], ...]  #: overlapping ones, VMs without room
    demand: tuple[tuple[int, ...], ...]  #: of one VM of each in ``before``, then of ``reservation``
    time_s: float = TIME_S


def judge_reservation(question: ReservationQuery) -> ReservationVerdict:
    """Judge whether a reservation will have room: sample which VMs will have ended by then."""
    view, wanted = question.view, question.reservation
    present, _ = forecast_start(view)
    hosts = view.cluster.hosts
    *demands, own = question.demand
    before = tuple(
        _reservation_demand(each, count, demand, hosts)
        for (each, count), demand in zip(question.before, demands, strict=True)
    )
    began = time.monotonic()
    return reservation_verdict(
        present,
        build_lifetimes(view),
        before,
        _reservation_demand(wanted, wanted.count, own, hosts),
        after_s=max(0.0, (wanted.holds_from - view.cluster.now).total_seconds()),
        seed=wanted.id.int % 2**63,
        is_over=lambda: time.monotonic() - began > question.time_s,
    )


def build_reservation_query(
    view: ForecastInputs, wanted: Reservation, standing: Sequence[Reservation]
) -> ReservationQuery:
    """Build the inputs for judging a reservation, given the open reservations.

    The view already contains the room that is kept for open reservations. The room of
    reservations that end before the new one begins is made free.
    """
    overlap = [
        (each, max(0, each.count - each.used - each.held))
        for each in standing
        if each.starts_at < wanted.ends_at and each.ends_at > wanted.starts_at
    ]
    vm_types = {name: view.demand[key] for key, name in view.vm_types.items()}
    names = [*(each.vm_type for each, _ in overlap), wanted.vm_type]
    # Of the past only the lifetimes are needed.
    over = {each.id for each in standing if each.ends_at <= wanted.starts_at}
    bare = dataclasses.replace(view, cluster=_release_kept_room(view.cluster, over), inputs=None)
    return ReservationQuery(
        view=bare,
        reservation=wanted,
        before=tuple(overlap),
        demand=tuple(vm_types[name] for name in names),
    )


def _release_kept_room(cluster: ClusterView, over: Collection[UUID]) -> ClusterView:
    """Return the cluster with the kept room of some reservations made free."""
    kept = () if cluster.reserved is None else cluster.reserved.reservations
    less: defaultdict[UUID, list[int]] = defaultdict(lambda: [0] * len(cluster.resources))
    for each in kept:
        for host, count in each.holds if each.asks.id in over else ():
            for place, amount in enumerate(each.asks.demand):
                less[host][place] += count * amount
    if not less:
        return cluster
    hosts = tuple(
        dataclasses.replace(host, committed=tuple(map(int.__sub__, host.committed, less[host.id])))
        if host.id in less
        else host
        for host in cluster.hosts
    )
    return dataclasses.replace(cluster, hosts=hosts)


def to_reservation_decision(wanted: Reservation, judged: ReservationVerdict) -> ReservationDecision:
    """Return the decision on a reservation: accepted if the verdict says that all VMs fit."""
    if judged.samples:
        found = f"{judged.samples_with_room} of {judged.samples}"
        by = f"in {found} samples of which VMs will have ended"
    elif wanted.holds_from <= wanted.created_at:
        by = "judged by what is free now, as its room is kept from now on"
    else:
        why = "too little time for samples" if judged.hurried else "too little is known of lives"
        by = f"judged as if no VM that runs ends by then: {why}"
    if judged.fits >= wanted.count:
        return ReservationDecision(
            message=f"there will be room ({by})",
            fits=wanted.count,
            samples=judged.samples,
            carried=judged.samples_with_room,
        )
    # In steps, because tenants read it: exact numbers would reveal each VM of others.
    fits = round_down_to_step(judged.fits)
    rest = f"at least {fits} would be accepted" if fits else "not one VM would"
    return ReservationDecision(
        reason="no_room",
        message=f"there may be too little room for {wanted.count} VMs ({by}); {rest}",
        fits=fits,
        samples=judged.samples,
        carried=judged.samples_with_room,
    )


def _reservation_demand(
    reservation: Reservation, count: int, demand: tuple[int, ...], hosts: tuple[HostView, ...]
) -> ReservationDemand:
    """Return the demand of VMs of a reservation, and the hosts that they may use."""
    request = RequestView(
        id=reservation.id,
        name=reservation.name,
        tenant_id=reservation.id,
        vm_type=reservation.vm_type,
        demand=demand,
        count=count,
        min_count=1,
        requires=reservation.requires,
        hosts=None,
        avoid=(),
        age=0,
        created_at=reservation.created_at,
        rules=NO_RULES,
    )
    allowed: BoolArray = np.array(
        [host.accepts and is_host_allowed(request, host) for host in hosts], dtype=np.bool_
    )
    return ReservationDemand(demand=np.array(demand, dtype=np.int64), allowed=allowed, count=count)
