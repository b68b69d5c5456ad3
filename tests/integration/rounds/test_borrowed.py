"""Borrowed VMs, from the request to their end, and who gets their room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection

from controller.rounds.policy_process import PolicyAnswer
from controller.rounds.replay import replay_round
from registry import Registry
from registry.admin import BorrowedTotals
from registry.errors import InvalidError
from registry.ledger.deletion import delete_vms
from registry.requests import MembershipRule, Request, Rules, Vm
from registry.requests import requests as requests_module
from registry.requests import vms as vms_module
from registry.requests.spot_preemptions import borrowed_without_place
from tests.integration.moves.test_room import DecidesHere, run
from tests.integration.rounds.preemptions import GRACE_S, a_round, ending, let_time_pass, vms_of
from tests.register import RawSql, add_host, add_request, add_tenant, add_vm_type, remove_vm, run_vm


@pytest.fixture
def elastic(register: Registry) -> Request:
    """Two hosts of four cores, and a request of tenant b for 2 to 20 VMs of one core each."""
    for name in ("h1", "h2"):
        add_host(register, name, vcpus=4, memory_mib=16_384)
    add_vm_type(register, vcpus=1, memory_mib=1024)
    for tenant in ("a", "b"):
        add_tenant(register, tenant)
    return add_request(register, 2, tenant="b", name="sweep", max_count=20)


def grown(register: Registry, request: Request) -> list[Vm]:
    """Decide two rounds, after which the request has filled both hosts; return its VMs."""
    a_round(register, 0)
    assert register.requests.get(request.id).vms_placed == 2
    a_round(register, 60)
    for vm in vms_of(register, request):
        run_vm(register, vm.assignment_id)
    return vms_of(register, request)


def test_a_request_borrows_all_room_once_its_own_vms_are_placed_and_does_not_wait_for_more(
    register: Registry, elastic: Request
) -> None:
    vms = grown(register, elastic)

    assert [vm.borrowed for vm in vms] == [False] * 2 + [True] * 6
    found = register.requests.get(elastic.id)
    assert (found.count, found.max_count, found.vms_placed, found.vms_borrowed) == (2, 20, 8, 6)
    assert (found.state, found.waiting) == ("placed", None)
    record = register.rounds.list().items[0]
    assert (record.left_out, record.placed) == (0, 6)
    [share] = [each for each in register.rounds.get(record.number).shares if each["tenant"] == "b"]
    assert (share["after"], share["asked"], share["given"]) == (1.0, 0, 0)
    a_round(register, 120)
    assert a_round(register, 180) is None  # nothing waits, and nothing changed
    assert replay_round(register, record.number).identical
    assert register.check() == []


def test_borrowed_vms_end_for_a_smaller_share_alone_and_are_not_borrowed_again(
    register: Registry, raw: RawSql, elastic: Request
) -> None:
    grown(register, elastic)
    wanted = add_request(register, 6, name="web")

    decided = a_round(register, 120)

    ends = ending(register, elastic)
    assert len(ends) == 4  # four each then
    assert register.borrowed_totals() == (
        BorrowedTotals(
            tenant="b",
            vms=6,
            ending=4,
            first_end_at=ends[0].ends_at,
            amounts={"vcpus": 6, "memory_mib": 6 * 1024, "disk_gib": 90},
        ),
    )
    assert all(vm.borrowed for vm in ends)
    assert {vm.ending_for for vm in ends} == {"a/web"}
    assert replay_round(register, decided.number).identical
    a_round(register, 180)
    assert ending(register, elastic) == ends
    let_time_pass(raw)
    assert set(register.requests.end_spot_vms()) == {vm.id for vm in ends}
    assert register.requests.get(elastic.id).count == 2
    for vm in ends:
        remove_vm(register, vm.assignment_id)
    a_round(register, 240)
    a_round(register, 300)
    assert register.requests.get(wanted.id).vms_placed == 4
    assert register.requests.get(elastic.id).vms_placed == 4
    assert ending(register, elastic) == []
    assert raw.value("SELECT count(*) FROM spot_room_holds") == 0
    assert register.check() == []


def test_a_larger_share_gets_no_borrowed_vm(register: Registry, elastic: Request) -> None:
    add_host(register, "h3", vcpus=8, memory_mib=16_384)
    add_request(register, 8, name="first")
    for at in (0, 60):
        a_round(register, at)
    assert register.requests.get(elastic.id).vms_borrowed == 6
    add_request(register, 1, name="web")

    a_round(register, 180)

    assert ending(register, elastic) == []


def test_the_number_is_raised_with_borrowed_vms_and_lowered_to_borrowed_ones(
    register: Registry, elastic: Request
) -> None:
    before = grown(register, elastic)

    raised = register.requests.change(elastic.id, count=4, actor="cli")

    assert (raised.count, raised.max_count, raised.vms_borrowed) == (4, 20, 4)
    assert [vm.borrowed for vm in vms_of(register, elastic)] == [False] * 4 + [True] * 4
    lowered = register.requests.change(elastic.id, count=2, max_count=5, actor="cli")
    assert (lowered.count, lowered.max_count, lowered.vms_borrowed) == (2, 5, 3)
    wanted = [vm.id for vm in vms_of(register, elastic) if vm.desired == "running"]
    assert wanted == [vm.id for vm in before[:5]]  # the newest are deleted
    fixed = register.requests.change(elastic.id, count=3, max_count=3, actor="cli")
    assert (fixed.count, fixed.max_count, fixed.vms_borrowed) == (3, None, 0)
    assert register.check() == []


def test_a_deleted_vm_is_not_borrowed_again(register: Registry, elastic: Request) -> None:
    vms = grown(register, elastic)

    register.vms.delete(vms[-1].id, actor="tenant:b")
    register.vms.delete(vms[0].id, actor="tenant:b")

    found = register.requests.get(elastic.id)
    assert (found.count, found.max_count, found.vms_wanted) == (1, 18, 6)
    register.requests.delete(elastic.id, actor="tenant:b")
    for vm in vms:
        remove_vm(register, vm.assignment_id)
    assert register.requests.get(elastic.id).state == "released"
    assert a_round(register, 180) is None
    assert register.check() == []


def test_a_request_whose_last_borrowed_vm_is_deleted_is_not_elastic(
    register: Registry, elastic: Request
) -> None:
    vms = grown(register, elastic)
    register.requests.change(elastic.id, max_count=len(vms), actor="cli")

    for vm in vms[2:]:
        register.vms.delete(vm.id, actor="tenant:b")

    found = register.requests.get(elastic.id)
    assert (found.count, found.max_count, found.vms_wanted) == (2, None, 2)


def test_a_borrowed_vm_that_cannot_be_built_ends_and_its_request_does_not_wait(
    register: Registry, elastic: Request
) -> None:
    for at in (0, 60):
        a_round(register, at)
    failed = vms_of(register, elastic)[-1].assignment_id
    build = register.assignments.claim_build(failed, "w1", 60)
    register.assignments.record_failure(build.claim, "no such pool", transient=False)
    remove_vm(register, failed)

    register.requests.end_spot_vms()

    assert len(vms_of(register, elastic)) == 7
    found = register.requests.get(elastic.id)
    assert (found.state, found.vms_wanted, found.max_count) == ("placed", 7, 20)
    assert register.check() == []


class Meanwhile(DecidesHere):
    """Decides once something else was done."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def decide(self, data: bytes, *, policy: str, deadline_s: float) -> PolicyAnswer:
        self._act()
        return super().decide(data, policy=policy, deadline_s=deadline_s)


@pytest.mark.parametrize("when", ["while the round decides", "after it"])
def test_a_vm_that_is_borrowed_no_longer_does_not_end(
    register: Registry, raw: RawSql, elastic: Request, when: str
) -> None:
    grown(register, elastic)
    add_request(register, 6, name="web")

    def raise_the_number() -> None:
        register.requests.change(elastic.id, count=8, actor="tenant:b")

    if when == "after it":
        a_round(register, 120)
        raise_the_number()
    else:
        run(register, 120, decider=Meanwhile(raise_the_number), spot_grace_s=GRACE_S)
    let_time_pass(raw)

    assert register.requests.end_spot_vms() == ()

    assert [vm.desired for vm in vms_of(register, elastic)] == ["running"] * 8
    assert register.requests.get(elastic.id).count == 8
    assert ending(register, elastic) == []
    event = [each.event for each in register.events.list(kind="spot_ending")]
    assert event == ["announced"] * 4 + ["withdrawn"] * 4
    assert raw.value("SELECT count(*) FROM spot_room_holds") == 0
    assert register.check() == []


def test_a_vm_without_a_place_that_becomes_an_ordinary_one_waits_for_another(
    register: Registry, elastic: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in (0, 60):
        a_round(register, at)
    failed = vms_of(register, elastic)[-1]
    build = register.assignments.claim_build(failed.assignment_id, "w1", 60)
    register.assignments.record_failure(build.claim, "no such pool", transient=False)
    remove_vm(register, failed.assignment_id)

    def read_before_the_change(connection: Connection, at_once: int) -> Sequence[UUID]:
        found = borrowed_without_place(connection, at_once)
        register.requests.change(elastic.id, count=8, actor="tenant:b")
        return found

    monkeypatch.setattr(requests_module, "borrowed_without_place", read_before_the_change)
    register.requests.end_spot_vms()

    assert register.vms.get(failed.id).desired == "running"
    found = register.requests.get(elastic.id)
    assert (found.count, found.vms_wanted, found.state) == (8, 8, "partly_placed")
    assert register.check() == []


@pytest.mark.parametrize(
    "register_url", [pytest.param("postgresql", marks=pytest.mark.postgresql)], indirect=True
)
def test_a_vm_that_becomes_borrowed_while_it_is_deleted_is_counted_as_borrowed(
    register: Registry, elastic: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    register.requests.change(elastic.id, max_count=2, actor="tenant:b")
    a_round(register, 0)
    last = vms_of(register, elastic)[-1]

    def made_elastic_before(connection: Connection, *given: Any, **more: Any) -> int:
        register.requests.change(elastic.id, count=1, max_count=2, actor="tenant:b")
        return delete_vms(connection, *given, **more)

    monkeypatch.setattr(vms_module, "delete_vms", made_elastic_before)
    register.vms.delete(last.id, actor="tenant:b")

    found = register.requests.get(elastic.id)
    assert (found.count, found.max_count, found.vms_wanted) == (1, None, 1)
    assert register.check() == []


def test_quotas_count_borrowed_vms(register: Registry, elastic: Request) -> None:
    register.quotas.set("b", {"vms": 5}, actor="cli")

    vms = grown(register, elastic)

    assert len(vms) == 5


@pytest.mark.parametrize(
    "other",
    [
        {"spot": True},
        {"rules": Rules(affinity=MembershipRule(group="g"))},
        {"rules": Rules(spread="zone")},
        {"network": "n"},
        {"max_count": 1},
    ],
)
def test_what_does_not_go_with_borrowed_vms_is_refused(register: Registry, other) -> None:
    add_tenant(register)
    add_vm_type(register)

    with pytest.raises(InvalidError, match="max_count"):
        add_request(register, 2, **{"max_count": 4} | other)
