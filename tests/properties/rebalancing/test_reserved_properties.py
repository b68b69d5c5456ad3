"""What reservations promise: their room stays, fits, and is found again from what is left."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement import QuotaHeadroom, check_allocation, decide, policy_by_name
from placement.model.reservations import (
    Reservations,
    check_reservations,
    place_reservations,
    restore_reservations,
)
from placement.model.snapshot import Snapshot
from tests.properties.strategies import SEEDS, contended_snapshots


@st.composite
def with_reserved(draw: st.DrawFn) -> tuple[Snapshot, Reservations]:
    snapshot = draw(contended_snapshots(max_requests=6, open_part=0.95, gangs=draw(st.booleans())))
    kinds = draw(st.lists(st.integers(0, len(snapshot.count) - 1), min_size=1, max_size=4))
    free, holds = snapshot.free.copy(), []
    for number, kind in enumerate(kinds):
        demand, may = snapshot.demand[kind], snapshot.eligible[kind][snapshot.host_class]
        for host in range(len(free)):
            requested = draw(st.integers(0, 3)) if may[host] else 0
            count = min([requested, *(free[host][demand > 0] // demand[demand > 0]).tolist()])
            if count > 0:
                free[host] -= count * demand
                holds.append((number, host, count))
    draws = np.full(len(snapshot.count), -1, dtype=np.int64)
    for number, kind in enumerate(kinds):
        draws[kind] = number
    allowances = ()
    if draw(st.booleans()):
        allowances = (QuotaHeadroom(tenants=(0, 1), resource=None, room=draw(st.integers(0, 9))),)
    reserved = Reservations(
        tenant=snapshot.tenant[kinds],
        demand=snapshot.demand[kinds],
        eligible=snapshot.eligible[kinds],
        count=np.array([draw(st.integers(0, 6)) for _ in kinds], dtype=np.int64),
        in_force=np.array([draw(st.integers(0, 3)) > 0 for _ in kinds], dtype=np.bool_),
        draws=draws,
        holds=tuple(holds),
    )
    return dataclasses.replace(snapshot, free=free, allowances=allowances), reserved


@given(given_=with_reserved(), seed=SEEDS)
def test_room_stays_and_fits_and_whoever_is_placed_besides_fits_with_it(given_, seed):
    snapshot, reserved = given_

    settled = place_reservations(snapshot, reserved)

    check_reservations(snapshot, reserved, settled.drawn, settled.kept)
    found = decide(settled.rest, policy_by_name("fuga", {}), seed=seed, budget_units=None)
    check_allocation(settled.rest, found)
    held = snapshot.free.astype(np.int64)
    for number, host, count in reserved.holds:
        held[host] += count * reserved.demand[number]
    for request, host, count in (*settled.drawn, *found.placed.tolist()):
        held[host] -= count * snapshot.demand[request]
    for number, host, count in settled.kept:
        held[host] -= count * reserved.demand[number]
    assert (held >= 0).all()


@given(given_=with_reserved())
def test_what_is_left_and_what_was_chosen_tell_what_there_was(given_):
    snapshot, reserved = given_
    settled = place_reservations(snapshot, reserved)
    rooms = tuple(each.room for each in snapshot.allowances)

    before = restore_reservations(settled.rest, reserved, settled.drawn, settled.kept, rooms)

    np.testing.assert_array_equal(before.free, snapshot.free)
    np.testing.assert_array_equal(before.held, snapshot.held)
    again = place_reservations(before, reserved)
    assert (again.drawn, again.kept) == (settled.drawn, settled.kept)
