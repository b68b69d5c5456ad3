"""Spot VMs, from the request to their end, and who gets their room."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from controller.queries.request_explanation import explain_request
from controller.rest.schemas.operations import RoundDetail
from controller.rounds.replay import replay_round
from registry import Registry
from registry.errors import InvalidError
from registry.lifecycle import HostAdminEvent
from registry.requests import MembershipRule, Request, Rules
from tests.integration.moves.test_room import DecidesHere, run
from tests.integration.rounds.preemptions import GRACE_S, a_round, ending, let_time_pass, vms_of
from tests.integration.rounds.test_reservations import WhileOthersWrite
from tests.readers import a_tenant, an_operator
from tests.register import (
    RawSql,
    add_host,
    add_request,
    add_tenant,
    add_vm_type,
    now,
    remove_vm,
    run_vm,
)


@pytest.fixture
def full(register: Registry) -> Request:
    """Two hosts, full of spot VMs of tenant b that run; returns their request."""
    for name in ("h1", "h2"):
        add_host(register, name, vcpus=2, memory_mib=8192)
    add_vm_type(register, vcpus=1, memory_mib=1024)
    add_vm_type(register, "large", vcpus=2, memory_mib=2048)
    for tenant in ("a", "b"):
        add_tenant(register, tenant)
    request = add_request(register, 4, tenant="b", name="sweep", spot=True)
    a_round(register, 0)
    for vm in vms_of(register, request):
        run_vm(register, vm.assignment_id)
    return request


def test_a_round_ends_no_more_spot_vms_than_let_a_request_in_and_keeps_their_room_for_it(
    register: Registry, raw: RawSql, full: Request
) -> None:
    wanted = add_request(register, 1, vm_type="large", name="web")
    add_request(register, 1_000, vm_type="large", requires=["gpu"], tenant="b")

    decided = a_round(register, 60)

    ends = ending(register, full)
    assert len(ends) == 2
    assert {vm.ending_for for vm in ends} == {"a/web"}
    assert len({vm.host for vm in ends}) == 1
    waiting = explain_request(register, wanted.id, an_operator(register)).waiting
    assert waiting is not None
    assert waiting.reason == "spot_ending"
    assert "spot VMs or borrowed VMs end to make room" in waiting.message
    shown = RoundDetail.of(register.rounds.get(decided.number), None)
    assert {(each.vm, each.tenant, each.request) for each in shown.spot_preemptions} == {
        (vm.name, "a", "web") for vm in ends
    }
    assert replay_round(register, decided.number).identical
    # The next round tells nobody else, and gives the room to no other spot VM.
    a_round(register, 120)
    assert ending(register, full) == ends

    let_time_pass(raw)
    assert set(register.requests.end_spot_vms()) == {vm.id for vm in ends}
    for vm in ends:
        remove_vm(register, vm.assignment_id)
    other = add_request(register, 2, tenant="b", spot=True)
    last = a_round(register, 180)

    assert [vm.host for vm in vms_of(register, wanted)] == [ends[0].host]
    assert register.requests.get(other.id).vms_placed == 0
    assert replay_round(register, last.number).identical
    assert register.requests.get(full.id).count == 2
    assert raw.value("SELECT count(*) FROM spot_room_holds") == 0
    assert register.check() == []


def test_room_that_is_kept_on_a_host_grows_by_what_a_later_round_lets_in_there(
    register: Registry, raw: RawSql, full: Request
) -> None:
    register.hosts.change_admin("h2", HostAdminEvent.DRAIN, actor="cli")
    wanted = add_request(register, 1, name="web")
    a_round(register, 60)
    register.requests.change(wanted.id, count=2, actor="cli")

    a_round(register, 120)
    a_round(register, 180)

    assert raw.value("SELECT count FROM spot_room_holds") == 2
    assert len(ending(register, full)) == 2


def test_spot_vms_are_in_no_share_and_count_for_quotas(register: Registry, full: Request) -> None:
    accounts = register.cluster_queries.accounts()

    held = {tenant.name: tenant.held for tenant in accounts.tenants}

    assert held == {"a": (0,) * len(accounts.resources), "b": (0,) * len(accounts.resources)}
    register.quotas.set("b", {"vms": 4}, actor="cli")
    with pytest.raises(Exception, match="quota"):
        add_request(register, 1, tenant="b", spot=True)


def test_a_tenant_is_told_of_its_own_requests_alone(register: Registry, full: Request) -> None:
    add_request(register, 1, name="web")
    add_request(register, 1, tenant="b", name="own")
    a_round(register, 60)

    vms = explain_request(register, full.id, a_tenant(register, "b")).vms

    assert sorted(str(vm.ending_for) for vm in vms if vm.ends_at) == ["None", "b/own"]
    event = [each.data for each in register.events.list(tenant="b", kind="spot_ending")]
    assert sorted("for" in data for data in event) == [False, True]


@pytest.mark.parametrize("how", ["deleted", "placed elsewhere", "lost its place"])
def test_an_end_is_withdrawn_once_nobody_needs_it(
    register: Registry, raw: RawSql, full: Request, how: str
) -> None:
    wanted = add_request(register, 1, name="web")
    a_round(register, 60)
    assert len(ending(register, full)) == 1
    if how == "deleted":
        register.requests.delete(wanted.id, actor="cli")
    elif how == "placed elsewhere":
        add_host(register, "h3", vcpus=2, memory_mib=8192)
        a_round(register, 120)
        assert register.requests.get(wanted.id).vms_placed == 1
    else:
        let_time_pass(raw)
        raw.run("UPDATE spot_preemptions SET host_id = request_id")

    assert register.requests.end_spot_vms() == ()

    assert ending(register, full) == []
    assert len(vms_of(register, full)) == 4
    [event] = register.events.list(kind="spot_ending")[-1:]
    assert (event.from_state, event.to_state) == ("ending", "stays")


def test_no_more_spot_vms_end_than_vms_still_wait_for_their_room(
    register: Registry, raw: RawSql, full: Request
) -> None:
    wanted = add_request(register, 3, name="web")
    a_round(register, 60)
    assert len(ending(register, full)) == 3
    register.requests.change(wanted.id, count=2, actor="cli")
    let_time_pass(raw)

    assert len(register.requests.end_spot_vms()) == 2


def test_where_a_host_takes_no_vms_any_more_none_ends_and_nobody_waits_for_its_room(
    register: Registry, raw: RawSql, full: Request
) -> None:
    add_request(register, 1, name="web")
    a_round(register, 60)
    [first] = ending(register, full)
    assert first.host is not None
    register.hosts.change_admin(first.host, HostAdminEvent.DRAIN, actor="cli")
    let_time_pass(raw)
    a_round(register, 120)

    assert {vm.host for vm in ending(register, full)} == {"h1", "h2"}
    let_time_pass(raw)
    [ended] = register.requests.end_spot_vms()

    assert ended != first.id
    assert raw.value("SELECT count(*) FROM spot_room_holds") == 1


def test_a_spot_vm_that_its_tenant_deletes_first_is_ended_once(
    register: Registry, raw: RawSql, full: Request
) -> None:
    add_request(register, 1, name="web")
    a_round(register, 60)
    [vm] = ending(register, full)
    register.vms.delete(vm.id, actor="tenant:b")
    let_time_pass(raw)

    assert register.requests.end_spot_vms() == ()

    assert register.requests.get(full.id).count == 3
    assert raw.value("SELECT count(*) FROM spot_preemptions") == 0


def test_room_that_nobody_took_is_kept_for_a_time_alone(
    register: Registry, raw: RawSql, full: Request
) -> None:
    add_request(register, 1, name="web")
    a_round(register, 60)
    raw.run("UPDATE spot_room_holds SET until = ?", now() - timedelta(seconds=1))

    register.requests.end_spot_vms()

    assert raw.value("SELECT count(*) FROM spot_room_holds") == 0


def test_ends_on_hosts_that_changed_meanwhile_are_decided_again(
    register: Registry, raw: RawSql, full: Request
) -> None:
    add_request(register, 1, name="web")

    run(register, 60, decider=WhileOthersWrite(raw), spot_grace_s=GRACE_S)
    doubtful = ending(register, full)
    a_round(register, 120)

    assert doubtful == []
    assert len(ending(register, full)) == 1


def test_the_check_of_the_register_finds_ends_and_rooms_that_are_overdue(
    register: Registry, raw: RawSql, full: Request
) -> None:
    wanted = add_request(register, 1, name="web")
    a_round(register, 60)
    [vm] = ending(register, full)
    assert register.check() == []
    last = raw.value("SELECT max(slot_start_at) FROM rounds")
    late = "2022-12-01 00:00:00+00:00"
    raw.run("UPDATE spot_preemptions SET ends_at = ?", late)
    raw.run("UPDATE spot_room_holds SET until = ?", late)
    # Nothing was decided since: nobody was there to end it.
    raw.run("UPDATE slot_loop SET last_slot_at = ?", late)
    assert register.check() == []

    raw.run("UPDATE slot_loop SET last_slot_at = ?", last)

    assert register.check() == [
        f"spot VM {vm.id} was to end at 2022-12-01 00:00:00 UTC",
        f"room is kept on host {vm.host} for request {wanted.id} beyond its time,"
        " 2022-12-01 00:00:00 UTC",
    ]
    assert register.check(history=False) == register.check()
    register.requests.end_spot_vms()
    assert register.check() == []


def test_the_check_of_the_register_finds_ends_and_rooms_of_what_is_not_there(
    register: Registry, raw: RawSql, full: Request
) -> None:
    add_request(register, 1, name="web")
    a_round(register, 60)
    [vm] = ending(register, full)
    raw.run("UPDATE spot_preemptions SET vm_id = host_id")
    raw.run("UPDATE spot_room_holds SET request_id = host_id")

    found = register.check()

    wrong = UUID(str(raw.value("SELECT host_id FROM spot_preemptions")))
    assert found == [
        f"spot VM {wrong} is to end, and is not found",
        f"room is kept on host {vm.host} for request {wrong}, which is not found",
    ]


def test_spot_vms_are_in_no_vm_group(register: Registry) -> None:
    add_tenant(register)
    add_vm_type(register)

    with pytest.raises(InvalidError, match="no VM group"):
        add_request(register, spot=True, rules=Rules(affinity=MembershipRule(group="g")))


def test_shares_tell_of_no_spot_vms(register: Registry) -> None:
    add_host(register)
    add_vm_type(register)
    add_tenant(register, "c")
    add_request(register, 2, tenant="c", spot=True)
    add_request(register, 1, tenant="c")

    decided = a_round(register, 60)

    record = register.rounds.get(decided.number)
    [share] = [each for each in record.shares if each["tenant"] == "c"]
    assert (record.placed, share["asked"], share["given"]) == (3, 1, 1)


def test_an_ordinary_vm_starts_at_once_on_what_new_spot_vms_leave_free(register: Registry) -> None:
    for name in ("h1", "h2"):
        add_host(register, name, vcpus=2, memory_mib=8192)
    add_vm_type(register, vcpus=1, memory_mib=1024)
    for tenant in ("a", "b"):
        add_tenant(register, tenant)
    sweep = add_request(register, 4, tenant="b", spot=True)
    first = run(register, 0, decider=DecidesHere(), spot_margin=0.25)
    assert register.requests.get(sweep.id).vms_placed == 3
    web = add_request(register, 1, name="web")

    run(register, 60, decider=DecidesHere(), spot_margin=0.25)

    assert register.requests.get(web.id).vms_placed == 1
    assert ending(register, sweep) == []
    assert replay_round(register, first.number).identical
