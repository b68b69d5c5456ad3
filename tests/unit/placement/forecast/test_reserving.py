"""Room at a time: exact where every VM lives as long, and in most samples where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from placement.forecast.lifetimes import Lifetimes, ObservedLifetimes
from placement.forecast.reservation_forecast import (
    MIN_SAMPLES,
    REQUIRED_PART,
    ReservationDemand,
    reservation_verdict,
)
from tests.unit.placement.forecast.test_run_ahead import a_present, ending, every_life, some_lives

FEW = 10
NOTHING_LIVED = Lifetimes(
    ObservedLifetimes(
        groups=np.zeros((0, 1), dtype=np.int64), age_s=np.zeros(0), ended=np.ones(0, dtype=np.bool_)
    )
)


def wanted(count: int, vcpus: int = 4) -> ReservationDemand:
    demand = np.array([vcpus, 1024 * vcpus], dtype=np.int64)
    return ReservationDemand(demand=demand, allowed=np.ones(3, dtype=np.bool_), count=count)


def judged(
    count: int, *, after_s: float, waits: int = 0, lives: Lifetimes | None = None, **more: Any
):
    present = a_present([100.0, 250.0, 300.0], demand=((4, 4096),), tenant=(0,), count=(waits,))
    before = more.pop("before", ())
    lives = every_life(600.0) if lives is None else lives
    return reservation_verdict(
        present, lives, before, wanted(count), after_s=after_s, seed=1, **more
    )


@pytest.mark.parametrize(("after_s", "fits"), [(299.0, 0), (360.0, 2), (500.0, 3)])
def test_what_ends_by_then_is_room(after_s: float, fits: int) -> None:
    found = judged(3, after_s=after_s)

    assert found.fits == fits
    assert found.samples_with_room == (found.samples if fits == 3 else 0)
    assert found.samples >= MIN_SAMPLES


def test_a_vm_whose_request_ends_by_then_is_room_also_where_nothing_is_known_of_lives() -> None:
    present = a_present([100.0] * 3, demand=((4, 4096),), tenant=(0,), count=(0,))
    present = ending(present, running_s=[500.0, 501.0, np.inf])

    found = reservation_verdict(present, NOTHING_LIVED, (), wanted(3), after_s=500.0, seed=1)

    assert found.fits == 1
    assert found.samples >= MIN_SAMPLES


def test_who_waits_and_what_is_reserved_have_their_room_first() -> None:
    assert judged(3, after_s=500.0, waits=1).fits == 2
    assert judged(3, after_s=500.0, before=(wanted(1, vcpus=2), wanted(3, vcpus=2))).fits == 1


def test_it_is_promised_only_where_nearly_all_samples_have_room() -> None:
    for after_s in (60.0, 300.0, 900.0, 3600.0, 36_000.0):
        found = judged(1, after_s=after_s, lives=some_lives())
        assert (found.fits == 1) == (found.samples_with_room >= REQUIRED_PART * found.samples)


def test_without_time_or_knowledge_nothing_is_taken_to_end() -> None:
    requested = iter(range(1000))
    hurried = judged(3, after_s=500.0, is_over=lambda: next(requested) >= FEW)
    unknown = judged(3, after_s=500.0, lives=NOTHING_LIVED)

    assert (hurried.fits, hurried.samples, hurried.hurried) == (0, 0, True)
    assert (unknown.fits, unknown.samples, unknown.hurried) == (0, 0, False)
