"""Who draws on reserved room, and where it is kept: small cases by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from placement import Allowance
from placement.round.model import Snapshot
from placement.round.reserved import Reserved, Settled, settle
from tests.builders import a_snapshot


def kept_and_drawn(
    asked: int, *, min_count: int = 1, quota: int | None = None, **fields: Any
) -> Settled:
    """Two hosts of 4 cores; room for 2 VMs is kept on the first; one request draws."""
    snapshot: Snapshot = a_snapshot(
        capacity=((4, 4096), (4, 4096)),
        free=((2, 2048), (4, 4096)),
        demand=((1, 1024),),
        count=(asked,),
        min_count=(min_count,),
    )
    if quota is not None:
        allowance = Allowance(tenants=(0,), resource=None, room=quota)
        snapshot = dataclasses.replace(snapshot, allowances=(allowance,))
    known: dict[str, Any] = {
        "tenant": snapshot.tenant,
        "demand": snapshot.demand,
        "eligible": snapshot.eligible,
        "count": np.array([2]),
        "in_force": np.array([True]),
        "draws": np.array([0]),
        "holds": ((0, 0, 2),),
    }
    return settle(snapshot, Reserved(**known | fields))


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
