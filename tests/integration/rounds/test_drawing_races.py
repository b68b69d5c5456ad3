"""Who draws on a reservation while a round places VMs that draw on it, on PostgreSQL."""

from __future__ import annotations

import pytest

from registry import Registry
from registry.errors import ReservationError
from registry.tenancy import reservation_use
from tests.integration.rounds.test_reservations import a_round, accepted, two_hosts
from tests.register import add_request

__all__ = ["two_hosts"]


@pytest.mark.parametrize(
    "register_url", [pytest.param("postgresql", marks=pytest.mark.postgresql)], indirect=True
)
def test_what_a_round_places_meanwhile_is_not_left(
    register: Registry, monkeypatch: pytest.MonkeyPatch, two_hosts: None
) -> None:
    reservation = accepted(register, 4)
    a_round(register, 60)
    add_request(register, 3, tenant="a", reservation=reservation.id)
    count_waiting_vms = reservation_use.count_waiting_vms

    def after_a_round(*given):  # whoever asks in two statements sees two moments
        a_round(register, 120)
        return count_waiting_vms(*given)

    monkeypatch.setattr(reservation_use, "count_waiting_vms", after_a_round)
    with pytest.raises(ReservationError) as refused:
        add_request(register, 2, tenant="a", reservation=reservation.id)

    assert refused.value.why == "not_enough_left"
