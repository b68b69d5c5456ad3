"""Reservations as the control centre decides them: one after another, and none for ever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from controller.control_center.reservation_decider import ReservationDecider
from controller.errors import PolicyFailedError
from controller.queries.reservation_decision import ReservationQuery, judge_reservation
from controller.rounds.policy_process import PolicyProcess
from registry import Registry
from registry.reservations import ReservationState
from registry.rounds import Lease
from tests.integration.rounds.test_reservations import a_round, accepted, ask
from tests.register import add_host, add_request, add_tenant, add_vm_type, take_lease


@pytest.fixture(autouse=True)
def one_host(register: Registry) -> None:
    add_host(register, vcpus=4, memory_mib=8192)
    add_vm_type(register, vcpus=1, memory_mib=1024)
    add_tenant(register, "a")


@pytest.fixture
def process() -> Iterator[PolicyProcess]:
    found = PolicyProcess()
    yield found
    found.close()


class FailsFor:
    """Judges here, but for one reservation."""

    def __init__(self, key: UUID, error: Exception) -> None:
        self._key, self._error = key, error

    def judge_reservation(self, question: object, *, deadline_s: float) -> Any:
        assert isinstance(question, ReservationQuery)
        if question.reservation.id == self._key:
            raise self._error
        return judge_reservation(question)


def reserving(register: Registry, process: Any, lease: Lease | None) -> ReservationDecider:
    return ReservationDecider(register, lambda: lease, process, interval_s=1)


def test_the_policies_process_judges_it(register: Registry, process: PolicyProcess) -> None:
    fits, too_many = ask(register, 3), ask(register, 2)

    decided = reserving(register, process, take_lease(register)).decide_pending()

    found = [register.reservations.get(each.id) for each in (fits, too_many)]
    assert decided == 2
    assert [each.state for each in found] == [ReservationState.ACCEPTED, ReservationState.REFUSED]
    assert found[1].decision is not None
    assert found[1].decision.fits == 1


@pytest.mark.parametrize("error", [PolicyFailedError("x", "killed"), KeyError("no such type")])
def test_one_that_cannot_be_judged_holds_up_no_other_and_is_refused_in_the_end(
    register: Registry, error: Exception
) -> None:
    first, second = ask(register, 1), ask(register, 1)
    centre = reserving(register, FailsFor(first.id, error), take_lease(register))

    looks = [centre.decide_pending() for _ in range(3)]

    assert looks == [1, 0, 1]
    refused = register.reservations.get(first.id)
    assert register.reservations.get(second.id).state is ReservationState.ACCEPTED
    assert refused.state is ReservationState.REFUSED
    assert refused.decision is not None
    assert refused.decision.reason == "failed"


def test_who_does_not_lead_decides_nothing(register: Registry, process: PolicyProcess) -> None:
    requested = ask(register, 1)

    assert reserving(register, process, None).decide_pending() == 0
    assert register.reservations.get(requested.id).state is ReservationState.PENDING


def test_rounds_read_no_requests_that_drew_long_ago(register: Registry) -> None:
    reservation = accepted(register, 4)
    a_round(register, 60)
    placed = add_request(register, 2, tenant="a", reservation=reservation.id)
    a_round(register, 120)
    waits = add_request(register, 1, tenant="a", reservation=reservation.id)

    view = register.rounds.read_cluster(take_lease(register))

    assert register.requests.get(placed.id).state == "placed"
    assert view.reserved is not None
    assert view.reserved.draws == {waits.id: reservation.id}


def test_who_asks_for_many_holds_up_nobody_else(register: Registry) -> None:
    add_tenant(register, "b")
    many = [ask(register, 1) for _ in range(12)]
    one = ask(register, 1, tenant="b")

    found = [each.id for each in register.reservations.list_pending()]

    assert found == [many[0].id, one.id, *(each.id for each in many[1:7])]
