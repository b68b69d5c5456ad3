"""Who draws on reserved room, and where it is kept: small cases by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from placement import InfeasibleAllocationError, QuotaHeadroom
from placement.model.reservations import (
    ReservationPlacement,
    Reservations,
    check_reservations,
    place_reservations,
)
from placement.model.snapshot import Snapshot
from tests.builders import a_snapshot


def kept_and_drawn(
    asked: int,
    *,
    min_count: int = 1,
    quota: int | None = None,
    only_second: bool = False,
    **fields: Any,
) -> ReservationPlacement:
    """Two hosts of 4 cores; room for 2 VMs is kept on the first; one request draws."""
    snapshot, reserved = one_that_draws(
        asked, min_count=min_count, quota=quota, only_second=only_second, **fields
    )
    settled = place_reservations(snapshot, reserved)
    check_reservations(snapshot, reserved, settled.drawn, settled.kept)
    return settled


def one_that_draws(
    asked: int, *, min_count: int, quota: int | None, only_second: bool, **fields: Any
) -> tuple[Snapshot, Reservations]:
    snapshot: Snapshot = a_snapshot(
        capacity=((4, 4096), (4, 4096)),
        free=((2, 2048), (4, 4096)),
        demand=((1, 1024),),
        count=(asked,),
        min_count=(min_count,),
    )
    if quota is not None:
        allowance = QuotaHeadroom(tenants=(0,), resource=None, room=quota)
        snapshot = dataclasses.replace(snapshot, allowances=(allowance,))
    snapshot = dataclasses.replace(
        snapshot, host_class=np.array([0, 1]), eligible=np.array([[not only_second, True]])
    )
    known: dict[str, Any] = {
        "tenant": snapshot.tenant,
        "demand": snapshot.demand,
        "eligible": np.array([[True, True]]),
        "count": np.array([2]),
        "in_force": np.array([True]),
        "draws": np.array([0]),
        "holds": ((0, 0, 2),),
    }
    return snapshot, Reservations(**known | fields)


def test_who_draws_goes_where_room_is_kept() -> None:
    settled = kept_and_drawn(1)

    assert (settled.drawn, settled.kept) == (((0, 0, 1),), ((0, 0, 1),))
    assert settled.rest.count.tolist() == [0]
    assert settled.rest.free.tolist() == [[2, 2048], [4, 4096]]
    assert settled.rest.held.tolist() == [[2, 2048]]


def test_a_gang_draws_whole_or_not_at_all() -> None:
    assert kept_and_drawn(3, min_count=3).drawn == ()
    assert kept_and_drawn(3, min_count=2).drawn == ((0, 0, 2),)


def test_nobody_draws_beyond_a_quota() -> None:
    assert kept_and_drawn(2, quota=1).drawn == ((0, 0, 1),)
    assert kept_and_drawn(2, quota=0).drawn == ()


def test_nobody_draws_before_the_beginning_and_nothing_of_it_counts_yet() -> None:
    settled = kept_and_drawn(1, in_force=np.array([False]))

    assert (settled.drawn, settled.kept) == ((), ((0, 0, 2),))
    assert settled.rest.held.tolist() == [[0, 0]]


def test_what_is_short_goes_to_the_fullest_host_that_is_not_closed() -> None:
    fuller = kept_and_drawn(1, count=np.array([3]), draws=np.array([-1]))
    beside = kept_and_drawn(1, count=np.array([3]), draws=np.array([-1]), closed=(0,))
    assert fuller.kept == ((0, 0, 3),)
    assert beside.kept == ((0, 0, 2), (0, 1, 1))


def test_room_that_is_wanted_no_more_is_free() -> None:
    settled = kept_and_drawn(1, count=np.array([0]), draws=np.array([-1]))

    assert settled.kept == ()
    assert settled.rest.free.tolist() == [[4, 4096], [4, 4096]]


def test_who_may_not_use_the_hosts_with_its_room_draws_elsewhere_and_counts_once() -> None:
    settled = kept_and_drawn(1, only_second=True)

    assert (settled.drawn, settled.kept) == (((0, 1, 1),), ((0, 0, 1),))
    assert settled.rest.free.tolist() == [[3, 3072], [3, 3072]]
    assert settled.rest.held.tolist() == [[2, 2048]]
    assert kept_and_drawn(1, only_second=True, closed=(1,)).drawn == ()
    assert kept_and_drawn(2, only_second=True, quota=1).drawn == ((0, 1, 1),)


def test_as_much_is_kept_no_more_as_is_drawn_elsewhere() -> None:
    snapshot = dataclasses.replace(
        a_snapshot(
            capacity=((4, 4096),) * 3,
            free=((3, 3072), (3, 3072), (4, 4096)),
            demand=((1, 1024),),
            count=(1,),
        ),
        host_class=np.array([0, 1, 2]),
        eligible=np.array([[False, False, True]]),
    )
    reserved = Reservations(
        tenant=snapshot.tenant,
        demand=snapshot.demand,
        eligible=np.array([[True, True, True]]),
        count=np.array([2]),
        in_force=np.array([True]),
        draws=np.array([0]),
        holds=((0, 0, 1), (0, 1, 1)),
    )

    settled = place_reservations(snapshot, reserved)

    assert (settled.drawn, settled.kept) == (((0, 2, 1),), ((0, 1, 1),))


def test_who_draws_takes_room_that_is_not_kept_yet_in_the_same_round() -> None:
    settled = kept_and_drawn(4, count=np.array([5]))

    assert settled.drawn == ((0, 0, 4),)
    assert settled.kept == ((0, 1, 1),)
    assert settled.rest.count.tolist() == [0]


def test_a_gang_draws_on_what_is_kept_and_what_is_free_together() -> None:
    assert kept_and_drawn(3, min_count=3, count=np.array([3])).drawn == ((0, 0, 3),)


def test_room_may_go_only_for_what_is_drawn_elsewhere() -> None:
    snapshot, reserved = one_that_draws(1, min_count=1, quota=None, only_second=True)

    with pytest.raises(InfeasibleAllocationError, match="does not stay"):
        check_reservations(snapshot, reserved, ((0, 1, 1),), ())
    closed = dataclasses.replace(reserved, closed=(1,))
    with pytest.raises(InfeasibleAllocationError, match="more is drawn"):
        check_reservations(snapshot, closed, ((0, 1, 1),), ((0, 0, 1),))
