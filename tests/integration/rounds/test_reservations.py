"""Reservations, from what is asked to the end of their time."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from controller.control_center.purge import purge_all
from controller.queries.destinations import destination_hosts
from controller.queries.request_explanation import explain_request
from controller.queries.reservation_decision import (
    build_reservation_query,
    judge_reservation,
    to_reservation_decision,
)
from controller.queries.tenant_shares import tenant_shares
from controller.queries.vm_explanation import explain_vm
from controller.rest.schemas.operations import RoundDetail
from controller.rounds.policy_process import PolicyAnswer
from controller.rounds.replay import replay_round
from registry import MoveRefusedError, Registry
from registry.admin import Periods, PurgeCounts
from registry.db.ids import lowest_uuid7
from registry.errors import ConflictError, NotFoundError, ReservationError
from registry.lifecycle import HostAdminEvent, ReservationState
from registry.requests import Request, Vm
from registry.reservations import Reservation, ReservationDecision
from tests.integration.moves.test_room import DecidesHere, run
from tests.integration.moves.world import MovingWorld
from tests.readers import a_tenant
from tests.register import RawSql, add_host, add_request, add_tenant, add_vm_type, now, take_lease


@pytest.fixture
def two_hosts(register: Registry) -> None:
    for name in ("h1", "h2"):
        add_host(register, name, vcpus=4, memory_mib=8192)
    add_vm_type(register, vcpus=1, memory_mib=1024)
    add_vm_type(register, "large", vcpus=2, memory_mib=2048)
    for tenant in ("a", "b"):
        add_tenant(register, tenant)


def a_round(register: Registry, at: int):
    return run(register, at, decider=DecidesHere())


def ask(register: Registry, count: int, *, tenant: str = "a", in_s: int = 0) -> Reservation:
    return register.reservations.create(
        tenant=tenant,
        vm_type="small",
        count=count,
        starts_at=register.now() + timedelta(seconds=in_s),
        for_s=3600,
        actor=tenant,
    )


def decide(register: Registry, asked: Reservation) -> Reservation:
    view, standing = (
        register.cluster_queries.forecast_inputs(),
        register.reservations.list_accepted(),
    )
    decision = to_reservation_decision(
        asked, judge_reservation(build_reservation_query(view, asked, standing))
    )
    return register.reservations.decide(asked.id, decision, take_lease(register), actor="control")


def accepted(register: Registry, count: int, **given) -> Reservation:
    found = decide(register, ask(register, count, **given))
    assert found.state is ReservationState.ACCEPTED, found.decision
    register.reservations.begin_and_end_due()
    return register.reservations.get(found.id)


def placed(register: Registry, request: Request) -> list[Vm]:
    return [vm for vm in register.vms.list(request_id=request.id).items if vm.host is not None]


def test_room_is_kept_from_others_and_drawn_on_by_its_own(register: Registry, two_hosts) -> None:
    reservation = accepted(register, 5)

    a_round(register, 60)
    others = add_request(register, 8, tenant="b")
    a_round(register, 120)
    kept = register.reservations.get(reservation.id)
    own = add_request(register, 5, tenant="a", reservation=reservation.id)
    a_round(register, 180)

    assert (kept.held, kept.missing) == (5, 0)
    assert len(placed(register, others)) == 3
    assert len(placed(register, own)) == 5
    used = register.reservations.get(reservation.id)
    assert (used.used, used.held, used.left) == (5, 0, 0)
    assert register.check() == []
    assert [replay_round(register, number).identical for number in (1, 2, 3)] == [True] * 3
    shown = RoundDetail.of(register.rounds.get(3), None).reservations
    assert [(each.reservation, each.wanted, each.drawn, each.kept) for each in shown] == [
        (reservation.name, 5, 5, 0)
    ]
    why = explain_vm(register, placed(register, own)[0].id, a_tenant(register, "a"))
    assert (why.phase, "room was kept for the reservation" in why.message) == ("reservation", True)


def test_what_has_no_room_is_refused_with_what_would_fit(register: Registry, two_hosts) -> None:
    first = accepted(register, 3)

    refused = decide(register, ask(register, 6, tenant="b"))

    assert first.state is ReservationState.IN_FORCE
    assert refused.state is ReservationState.REFUSED
    assert refused.decision is not None
    assert (refused.decision.reason, refused.decision.fits) == ("no_room", 5)


def test_room_of_one_that_is_over_by_then_is_free_then(register: Registry, two_hosts) -> None:
    accepted(register, 8)
    a_round(register, 60)

    later = decide(register, ask(register, 8, tenant="b", in_s=7200))
    beside = decide(register, ask(register, 1, tenant="b", in_s=3000))
    too_many = decide(register, ask(register, 1, tenant="b", in_s=7200))

    assert later.state is ReservationState.ACCEPTED
    assert [each.state for each in (beside, too_many)] == [ReservationState.REFUSED] * 2


def test_quotas_carry_what_is_reserved(register: Registry, two_hosts) -> None:
    register.quotas.set("a", {"vms": 4}, actor="operator")
    accepted(register, 3)

    refused = decide(register, ask(register, 2))

    assert refused.decision is not None
    assert (refused.decision.reason, refused.decision.fits) == ("quota", 1)
    with pytest.raises(Exception, match="quota of a is 4 vms, 3 in use"):
        add_request(register, 2, tenant="a")


def test_it_is_drawn_on_by_its_tenant_and_type_in_its_time_as_far_as_it_goes(
    register: Registry, raw: RawSql, two_hosts
) -> None:
    reservation = accepted(register, 2)
    later = accepted(register, 2, in_s=1800)

    with pytest.raises(NotFoundError):
        add_request(register, 1, tenant="b", reservation=reservation.id)
    whys = []
    for count, key, vm_type in (
        (1, later.id, "small"),
        (1, reservation.id, "large"),
        (3, reservation.id, "small"),
    ):
        with pytest.raises(ReservationError) as refused:
            add_request(register, count, tenant="a", vm_type=vm_type, reservation=key)
        whys.append(refused.value.why)
    raw.run("UPDATE reservations SET starts_at = ?, keep_from = ?, ends_at = ?", *_past())
    register.reservations.begin_and_end_due()
    with pytest.raises(ReservationError) as refused:
        add_request(register, 1, tenant="a", reservation=reservation.id)

    assert whys == ["not_begun", "another_type", "not_enough_left"]
    assert refused.value.why == "not_in_force"
    assert register.reservations.get(reservation.id).state is ReservationState.ENDED


def _past():
    at = now() - timedelta(hours=2)
    return at, at, now() - timedelta(hours=1)


def test_room_moves_when_its_host_is_drained_and_the_tenant_hears_what_is_short(
    register: Registry, two_hosts
) -> None:
    reservation = accepted(register, 4)
    a_round(register, 60)

    register.hosts.change_admin("h1", HostAdminEvent.DRAIN, actor="operator")
    a_round(register, 120)
    moved = register.reservations.get(reservation.id)
    register.hosts.change_admin("h2", HostAdminEvent.DRAIN, actor="operator")
    a_round(register, 180)
    gone = register.reservations.get(reservation.id)

    assert (moved.held, moved.missing) == (4, 0)
    assert (gone.held, gone.missing) == (0, 4)
    [event] = register.events.list(kind="reservation_short", tenant="a")
    assert event.data["short"] == 4


def test_shares_count_it_from_its_beginning(register: Registry, two_hosts) -> None:
    accepted(register, 4)
    accepted(register, 2, tenant="b", in_s=300)

    a_round(register, 60)

    shares = {each.name: each.share for each in tenant_shares(register.cluster_queries.accounts())}
    assert shares == {"a": pytest.approx(0.5), "b": 0.0}
    [before] = [each for each in register.rounds.get(1).shares if each["tenant"] == "a"]
    assert before["after"] == pytest.approx(0.5)


def test_a_cancelled_one_gives_its_room_back_and_is_not_decided(
    register: Registry, two_hosts
) -> None:
    reservation = accepted(register, 8)
    requested = ask(register, 1)
    a_round(register, 60)

    register.reservations.cancel(reservation.id, actor="a")
    register.reservations.cancel(requested.id, actor="a")
    decision = ReservationDecision(message="room")
    late = register.reservations.decide(
        requested.id, decision, take_lease(register), actor="control"
    )
    others = add_request(register, 8, tenant="b")
    a_round(register, 120)

    assert late.state is ReservationState.CANCELLED
    assert len(placed(register, others)) == 8


class WhileOthersWrite(DecidesHere):
    """Decides while something else writes about every host."""

    def __init__(self, raw: RawSql) -> None:
        self._raw = raw

    def decide(self, data: bytes, *, policy: str, deadline_s: float) -> PolicyAnswer:
        self._raw.run("UPDATE hosts SET version = version + 1")
        return super().decide(data, policy=policy, deadline_s=deadline_s)


def test_on_a_host_that_changed_meanwhile_no_more_room_is_promised_than_before(
    register: Registry, raw: RawSql
) -> None:
    add_host(register, vcpus=4, memory_mib=8192)
    add_vm_type(register, vcpus=1, memory_mib=1024)
    add_tenant(register, "a")
    reservation = accepted(register, 4)
    # Of four VMs one has room in the first round, and three more in the second.
    [host] = register.hosts.list().items
    register.hosts.change_admin(host.name, HostAdminEvent.DRAIN, actor="operator")
    raw.run("INSERT INTO reservation_holds VALUES (?, ?, 1)", reservation.id.hex, host.id.hex)
    register.hosts.change_admin(host.name, HostAdminEvent.ACTIVATE, actor="operator")

    run(register, 60, decider=WhileOthersWrite(raw))
    moved = register.reservations.get(reservation.id)
    a_round(register, 120)

    assert (moved.held, moved.missing) == (1, 3)
    found = register.reservations.get(reservation.id)
    assert (found.held, found.missing) == (4, 0)


def test_one_that_is_held_after_a_step_ahead_of_the_clock_is_as_it_should_be(
    register: Registry, two_hosts, raw: RawSql
) -> None:
    accepted(register, 1)
    raw.run("UPDATE reservations SET starts_at = ?, keep_from = ?, ends_at = ?", *_past())
    assert [each for each in register.check() if "did not end" in each]

    register.clock_steps.record_step_ahead(7200)

    assert register.check() == []


def test_room_is_kept_until_a_reservation_ends_which_waits_after_a_step_ahead_of_the_clock(
    register: Registry, two_hosts, raw: RawSql
) -> None:
    reservation = accepted(register, 6)
    a_round(register, 60)
    raw.run("UPDATE reservations SET starts_at = ?, keep_from = ?, ends_at = ?", *_past())
    others = add_request(register, 8, tenant="b")

    a_round(register, 120)

    assert register.reservations.begin_and_end_due(by=register.now() - timedelta(days=1)) == ()
    assert register.reservations.get(reservation.id).held == 6
    assert len(placed(register, others)) == 2
    assert register.reservations.begin_and_end_due() == (reservation.id,)
    a_round(register, 180)
    assert len(placed(register, others)) == 8


def test_a_reservation_begins_by_the_present_time_and_ends_by_the_one_before_a_step_ahead(
    register: Registry, two_hosts, raw: RawSql
) -> None:
    reservation = decide(register, ask(register, 1))
    an_hour_ago = register.now() - timedelta(hours=1)

    assert register.reservations.begin_and_end_due(by=an_hour_ago) == (reservation.id,)

    assert register.reservations.get(reservation.id).state is ReservationState.IN_FORCE
    raw.run("UPDATE reservations SET ends_at = ?", register.now())
    assert register.reservations.begin_and_end_due(by=an_hour_ago) == ()
    assert register.reservations.begin_and_end_due() == (reservation.id,)
    assert register.reservations.get(reservation.id).state is ReservationState.ENDED


def test_a_move_by_hand_passes_over_room_that_is_reserved(register: Registry) -> None:
    world = MovingWorld(register)
    vm = world.running("h1")
    free = set(destination_hosts(register.moves.cluster_for_move(vm.id), vm.name))
    accepted(register, 29)  # all that is free

    a_round(register, 60)

    assert free
    with pytest.raises(MoveRefusedError):
        list(destination_hosts(register.moves.cluster_for_move(vm.id), vm.name))


def test_those_that_ended_long_ago_are_purged_and_those_that_hold_are_not(
    register: Registry, raw: RawSql, two_hosts
) -> None:
    ended, drawn_on, held = (accepted(register, 1) for _ in range(3))
    add_request(register, 1, tenant="a", reservation=drawn_on.id)
    long_ago = now() - timedelta(days=500)
    for each, state in ((ended, "ended"), (drawn_on, "ended"), (held, "in_force")):
        key = UUID(int=lowest_uuid7(long_ago).int + each.id.int % 2**80).hex
        raw.run(
            "UPDATE reservations SET id = ?, state = ?, keep_from = ?, starts_at = ?, ends_at = ?"
            " WHERE id = ?",
            *(key, state, long_ago, long_ago, long_ago + timedelta(hours=1), each.id.hex),
        )
        raw.run("UPDATE requests SET reservation_id = ? WHERE reservation_id = ?", key, each.id.hex)

    found = purge_all(register, Periods())

    assert found == PurgeCounts(reservations=1)
    kept = {each.name for each in register.reservations.list().items}
    assert kept == {drawn_on.name, held.name}


@pytest.mark.parametrize("is_decided", [True, False])
def test_a_tenant_with_a_reservation_is_not_removed(
    register: Registry, two_hosts, is_decided
) -> None:
    reservation = accepted(register, 2) if is_decided else ask(register, 2)

    with pytest.raises(ConflictError, match="1 reservation that is not over"):
        register.tenants.remove("a", actor="operator")

    a_round(register, 60)
    register.reservations.cancel(reservation.id, actor="operator")
    register.tenants.remove("a", actor="operator")
    a_round(register, 120)
    assert register.check() == []


def test_a_place_uses_it_up_and_a_vm_without_one_gives_it_back(
    register: Registry, two_hosts
) -> None:
    reservation = accepted(register, 4)
    a_round(register, 60)
    own = add_request(register, 2, tenant="a", reservation=reservation.id)
    a_round(register, 120)

    register.requests.change(own.id, count=4, actor="a")
    register.requests.change(own.id, count=3, actor="a")
    unplaced = register.reservations.get(reservation.id)
    a_round(register, 180)
    register.requests.change(own.id, count=1, actor="a")

    assert (unplaced.used, unplaced.waiting, unplaced.left) == (2, 1, 1)
    found = register.reservations.get(reservation.id)
    assert (found.used, found.waiting, found.left) == (3, 0, 1)
    with pytest.raises(ReservationError):
        register.requests.change(own.id, count=3, actor="a")
    assert [replay_round(register, number).identical for number in (1, 2, 3)] == [True] * 3


def test_metrics_tell_what_is_reserved_and_short(register: Registry, two_hosts) -> None:
    reservation = accepted(register, 4)
    ask(register, 1, tenant="b")
    for name in ("h1", "h2"):
        register.hosts.change_admin(name, HostAdminEvent.DRAIN, actor="operator")
    a_round(register, 60)

    fleet = register.fleet()

    assert fleet.reservations == {"pending": 1, "in_force": 1}
    assert fleet.reserved_short == 4
    open_ones = register.reservations.list(is_open=True).items
    register.reservations.cancel(reservation.id, actor="a")
    assert [each.name for each in register.reservations.list(is_open=False).items] == [
        open_ones[0].name
    ]


def test_whoever_draws_and_waits_hears_of_its_reservation(register: Registry, two_hosts) -> None:
    reservation = accepted(register, 4)
    own = add_request(register, 4, tenant="a", reservation=reservation.id)
    for name in ("h1", "h2"):
        register.hosts.change_admin(name, HostAdminEvent.DRAIN, actor="operator")
    a_round(register, 60)

    waiting = explain_request(register, own.id, a_tenant(register, "a")).waiting

    assert waiting is not None
    shown = f"its reservation {reservation.name}: kept room for 0 VMs, no room yet for 4"
    assert waiting.message.endswith(shown)
    register.reservations.cancel(reservation.id, actor="a")
    waiting = explain_request(register, own.id, a_tenant(register, "a")).waiting
    assert waiting is not None
    assert waiting.message.endswith("it is cancelled, so no room is kept for it")


def test_who_names_other_hosts_draws_there_and_counts_once(register: Registry, two_hosts) -> None:
    reservation = accepted(register, 4)
    register.quotas.set("a", {"vms": 4}, actor="operator")
    a_round(register, 60)
    [kept] = {host for host in ("h1", "h2") if _is_full(register, host)}
    [other] = {"h1", "h2"} - {kept}
    own = add_request(register, 3, tenant="a", reservation=reservation.id, hosts=[other])

    decided = a_round(register, 120)

    assert {vm.host for vm in placed(register, own)} == {other}
    assert len(placed(register, own)) == 3
    found = register.reservations.get(reservation.id)
    assert (found.used, found.held, found.left, found.missing) == (3, 1, 1, 0)
    [share] = [each for each in register.rounds.get(2).shares if each["tenant"] == "a"]
    assert share["after"] == pytest.approx(0.5)
    assert replay_round(register, decided.number).identical
    assert register.check() == []


def _is_full(register: Registry, name: str) -> bool:
    [host] = [
        each
        for each in register.cluster_queries.forecast_inputs().cluster.hosts
        if each.name == name
    ]
    return host.committed[0] == host.capacity[0]


def test_a_lowered_quota_is_told_with_what_is_used_and_kept(register: Registry, two_hosts) -> None:
    reservation = accepted(register, 3)
    a_round(register, 60)
    own = add_request(register, 3, tenant="a", reservation=reservation.id)
    other = add_request(register, 1, tenant="a", over_quota="wait")
    register.quotas.set("a", {"vms": 1}, actor="operator")

    a_round(register, 120)

    reader = a_tenant(register, "a")
    draws = explain_request(register, own.id, reader).waiting
    waits = explain_request(register, other.id, reader).waiting
    assert draws is not None
    assert waits is not None
    assert "the quota of a is 1 vms, 1 are in use and 1 more are needed" in draws.message
    assert "kept room for 2 VMs" in draws.message
    assert "the quota of a is 1 vms, 3 are in use and 1 more are needed" in waits.message
    assert [(each.kind, each.missing) for each in draws.obstacles] == [("quota", 1)]
    assert [(each.kind, each.missing) for each in waits.obstacles] == [("quota", 3)]


def test_one_that_begins_as_another_ends_is_not_short_before(
    register: Registry, raw: RawSql, two_hosts
) -> None:
    first = accepted(register, 8)
    a_round(register, 60)
    ends_at = register.now() + timedelta(seconds=300)
    raw.run("UPDATE reservations SET ends_at = ?", ends_at)
    second, third = ask(register, 6, tenant="b", in_s=300), ask(register, 2, tenant="b", in_s=300)
    for each in (second, third):
        raw.run("UPDATE reservations SET starts_at = ? WHERE id = ?", ends_at, each.id.hex)
        assert decide(register, each).state is ReservationState.ACCEPTED
    # A third beside them is short: its room is promised.
    raw.run("UPDATE reservations SET count = 3 WHERE id = ?", third.id.hex)

    a_round(register, 120)

    found = [register.reservations.get(each.id) for each in (first, second, third)]
    assert [(each.held, each.missing) for each in found] == [(8, 0), (0, 0), (0, 1)]
    assert len(register.events.list(kind="reservation_short", tenant="b")) == 1


def test_others_hear_that_room_is_kept_for_reservations(register: Registry, two_hosts) -> None:
    accepted(register, 6)
    a_round(register, 60)
    others = add_request(register, 2, vm_type="large", tenant="b")

    a_round(register, 120)

    waiting = explain_request(register, others.id, a_tenant(register, "b")).waiting
    assert waiting is not None
    assert {each.kind: each.only for each in waiting.obstacles} == {"reserved": 2}
    assert waiting.would_help == ("room on at least 2 hosts kept for reservations",)


def test_a_reservation_is_drawn_on_in_the_round_that_finds_its_room(
    register: Registry, two_hosts
) -> None:
    reservation = accepted(register, 6)
    own = add_request(register, 5, tenant="a", reservation=reservation.id)
    others = add_request(register, 8, tenant="b")

    a_round(register, 60)

    assert (len(placed(register, own)), len(placed(register, others))) == (5, 2)
    found = register.reservations.get(reservation.id)
    assert (found.used, found.held) == (5, 1)
    assert register.check() == []


def test_what_is_placed_without_kept_room_is_not_short(register: Registry, two_hosts) -> None:
    register.hosts.update("h1", labels=["gpu"], actor="operator")
    requested = register.reservations.create(
        tenant="a",
        vm_type="small",
        count=3,
        starts_at=register.now(),
        for_s=3600,
        requires=["gpu"],
        actor="a",
    )
    assert decide(register, requested).state is ReservationState.ACCEPTED
    register.reservations.begin_and_end_due()
    a_round(register, 60)
    own = add_request(register, 2, tenant="a", reservation=requested.id)
    register.hosts.update("h1", labels=[], actor="operator")

    a_round(register, 120)

    found = register.reservations.get(requested.id)
    assert len(placed(register, own)) == 2
    assert (found.used, found.left, found.held, found.missing) == (2, 1, 0, 1)
    [event] = register.events.list(kind="reservation_short", tenant="a")
    assert event.data["short"] == 1
