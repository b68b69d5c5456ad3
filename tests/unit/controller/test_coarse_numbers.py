"""Numbers in steps: never above what there is, or never below what is wanting."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from controller.queries.coarse_numbers import round_down_to_step, round_up_to_step
from controller.queries.reservation_decision import to_reservation_decision
from placement.forecast.reservation_forecast import ReservationVerdict
from registry.reservations import Reservation

NUMBERS = st.integers(0, 10**15)


def test_the_steps():
    assert [round_down_to_step(n) for n in (0, 1, 2, 3, 4, 5, 9, 10, 19, 20, 49, 50, 99, 3072)] == [
        *(0, 1, 2, 2, 2, 5, 5, 10, 10, 20, 20, 50, 50, 2000)
    ]
    assert [round_up_to_step(n) for n in (0, 1, 2, 3, 5, 6, 11, 51, 3072)] == [
        *(0, 1, 2, 5, 5, 10, 20, 100, 5000)
    ]


@given(NUMBERS)
def test_a_number_is_between_its_steps(number: int):
    below, above = round_down_to_step(number), round_up_to_step(number)

    assert below <= number <= above
    assert 2 * above <= 5 * below
    assert {round_down_to_step(below), round_up_to_step(below)} == {below}
    assert {round_down_to_step(above), round_up_to_step(above)} == {above}


def test_a_refused_reservation_shows_the_free_room_in_steps_only() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    wanted = cast(Reservation, SimpleNamespace(holds_from=now, created_at=now, count=40))

    decisions = {
        to_reservation_decision(
            wanted, ReservationVerdict(fits=fits, samples=0, samples_with_room=0, hurried=False)
        )
        for fits in range(20, 40)
    }

    [decision] = decisions
    assert decision.fits == 20
    assert "at least 20 would be accepted" in decision.message
