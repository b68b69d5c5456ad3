"""One read, one commit: what moved meanwhile is dropped and waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from registry import (
    HostAdminEvent,
    InvalidError,
    NotFoundError,
    Registry,
    RequestState,
    SlotLoopPausedError,
    StaleEpochError,
)
from registry.requests import WaitingStatus
from registry.rounds import Placement
from tests.register import (
    ACTOR,
    a_cluster,
    a_commit,
    add_host,
    add_request,
    add_tenant,
    add_vm_type,
    place,
    remove_vm,
    run_vm,
    take_lease,
)
from tests.work import work


def test_an_empty_cluster_is_a_view_too(register: Registry) -> None:
    view = register.rounds.read_cluster(take_lease(register))

    assert view.resources == ("vcpus", "memory_mib", "disk_gib")
    assert view.hosts == view.tenants == view.requests == ()


def test_the_view_shows_hosts_by_name_and_which_accept(register: Registry) -> None:
    for name in ("b", "a", "d", "c", "e"):
        add_host(register, name, vcpus=4, labels=("ssd",) if name == "a" else ())
    add_host(register, "new", up=False)
    register.hosts.change_admin("b", HostAdminEvent.DRAIN, actor=ACTOR)
    register.hosts.change_admin("d", HostAdminEvent.RETIRE, actor=ACTOR)
    register.hosts.record_miss(
        register.hosts.get("c").id, "gone", unreachable_after=1, down_after=2
    )

    view = register.rounds.read_cluster(take_lease(register))

    assert [(host.name, host.accepts) for host in view.hosts] == [
        ("a", True),
        ("b", False),
        ("c", False),
        ("e", True),
        ("new", False),
    ]
    assert view.hosts[0].labels == ("ssd",)
    assert view.hosts[0].capacity == (4, 32_768, 300)
    assert view.hosts[-1].capacity == (0, 0, 0)


def test_the_view_counts_what_waits_and_what_is_held(register: Registry) -> None:
    (host,) = a_cluster(register)
    first = add_request(register, 5, name="first", requires=["ssd"], hosts=["h1"])
    second = add_request(register, 2, name="second", tenant="b")
    lease = take_lease(register)
    place(register, first, host, 3, lease)
    register.vms.delete(register.vms.list(request_id=first.id).items[-1].id, actor=ACTOR)

    view = register.rounds.read_cluster(lease)

    assert [tenant.held for tenant in view.tenants] == [(3, 9216, 45), (0, 0, 0)]
    assert view.hosts[0].committed == (3, 9216, 45)
    assert [(each.name, each.count) for each in view.requests] == [("first", 1), ("second", 2)]
    seen = view.requests[0]
    assert seen.id == first.id
    assert seen.demand == (1, 3072, 15)
    assert (seen.requires, seen.hosts) == (("ssd",), ("h1",))
    assert view.requests[1].id == second.id
    assert view.requests[1].hosts is None


def test_a_new_resource_is_on_every_axis(register: Registry) -> None:
    a_cluster(register)
    register.resources.add("gpu", "GPU", actor=ACTOR)
    register.hosts.update("h1", overrides={"gpu": 2}, actor=ACTOR)
    add_vm_type(register, "fast", gpu=1)
    add_request(register, vm_type="fast")

    view = register.rounds.read_cluster(take_lease(register))

    assert view.resources == ("vcpus", "memory_mib", "disk_gib", "gpu")
    assert view.hosts[0].capacity[3] == 2
    assert view.requests[0].demand == (1, 3072, 15, 1)
    assert view.tenants[0].held == (0, 0, 0, 0)


def test_a_commit_places_the_oldest_vms_and_records_the_round(register: Registry) -> None:
    (host,) = a_cluster(register)
    request = add_request(register, 3, name="web")
    lease = take_lease(register)
    done = place(register, request, host, 2, lease)

    vms = register.vms.list(request_id=request.id).items
    assert [(vm.name, vm.host, vm.round, vm.generation) for vm in vms] == [
        ("web-1", "h1", 1, 1),
        ("web-2", "h1", 1, 1),
        ("web-3", None, None, 0),
    ]
    assert [vm.assignment_id for vm in vms[:2]] == list(done.assignment_ids)
    assert done.dropped == ()
    assert register.requests.get(request.id).state == RequestState.PARTLY_PLACED
    record = register.rounds.get(done.number)
    assert (record.placed, record.left_out, record.dropped) == (2, 0, 0)
    assert record.decision().inputs == b"inputs"
    assert record.parameters == {"eta": 5}
    assert record.budget_units == 1000
    assert record.shares == ({"tenant": "a", "share": 0.1, "given": 2},)
    last = register.rounds.last()
    assert last is not None
    assert (last.number, last.placed, last.inputs_digest) == (done.number, 2, record.inputs_digest)
    assert register.check() == []


def test_parts_on_hosts_that_moved_are_dropped_and_wait(register: Registry) -> None:
    moved, stayed = a_cluster(register, hosts=2)
    request = add_request(register, 4)
    lease = take_lease(register)
    view = register.rounds.read_cluster(lease)
    versions = {host.id: host.version for host in view.hosts}
    register.hosts.update("h1", reserved={"vcpus": 1}, actor=ACTOR)
    parts = (
        Placement(request_id=request.id, host_id=moved.id, count=3),
        Placement(request_id=request.id, host_id=stayed.id, count=1),
    )

    done = register.rounds.commit_round(a_commit(lease, parts, versions))

    assert done.dropped == parts[:1]
    assert len(done.assignment_ids) == 1
    after = register.requests.get(request.id)
    assert after.state == RequestState.PARTLY_PLACED
    assert after.waiting is not None
    assert (after.waiting.reason, after.waiting.count) == ("host_moved", 3)
    assert after.waiting.round == done.number
    assert after.waiting.detail == {"dropped": 3}
    assert register.rounds.get(done.number).dropped == 3
    again = register.rounds.read_cluster(lease)
    assert (again.requests[0].count, again.requests[0].age) == (3, 1)


def test_a_request_whose_every_part_was_dropped_stays_pending(register: Registry) -> None:
    (host,) = a_cluster(register)
    request = add_request(register)
    part = Placement(request_id=request.id, host_id=host.id, count=1)
    lease = take_lease(register)
    version = register.hosts.get("h1").version
    register.hosts.change_admin("h1", HostAdminEvent.DRAIN, actor=ACTOR)

    done = register.rounds.commit_round(a_commit(lease, (part,), {host.id: version}))

    assert done.assignment_ids == ()
    after = register.requests.get(request.id)
    assert after.state == RequestState.PENDING
    assert after.waiting is not None
    assert after.waiting.reason == "host_moved"


def test_a_host_whose_version_the_round_does_not_name_counts_as_moved(register: Registry) -> None:
    (host,) = a_cluster(register)
    part = Placement(request_id=add_request(register).id, host_id=host.id, count=1)

    done = register.rounds.commit_round(a_commit(take_lease(register), (part,), {}))

    assert done.dropped == (part,)


def test_parts_for_vms_that_were_deleted_meanwhile_are_dropped(register: Registry) -> None:
    (host,) = a_cluster(register)
    request, gone = add_request(register, 3), add_request(register, 2)
    lease = take_lease(register)
    versions = {host.id: register.rounds.read_cluster(lease).hosts[0].version}
    register.vms.delete(register.vms.list(request_id=request.id).items[0].id, actor=ACTOR)
    register.requests.delete(gone.id, actor=ACTOR)
    parts = (
        Placement(request_id=request.id, host_id=host.id, count=3),
        Placement(request_id=gone.id, host_id=host.id, count=2),
    )

    done = register.rounds.commit_round(a_commit(lease, parts, versions))

    assert [part.count for part in done.dropped] == [1, 2]
    assert len(done.assignment_ids) == 2
    after = register.requests.get(request.id)
    assert (after.state, after.waiting) == (RequestState.PLACED, None)
    assert register.requests.get(gone.id).state == RequestState.CANCELLED
    assert register.check() == []


def test_reasons_for_waiting_are_written_kept_and_cleared(register: Registry) -> None:
    (host,) = a_cluster(register)
    request = add_request(register, 2)
    lease = take_lease(register)
    why = WaitingStatus(count=2, reason="no_room", detail={"shortages": [{"resource": "vcpus"}]})

    register.rounds.commit_round(a_commit(lease, waiting={request.id: why}))
    first = register.requests.get(request.id).waiting
    register.rounds.commit_round(a_commit(lease, waiting={request.id: why}))
    second = register.requests.get(request.id).waiting

    assert first is not None
    assert second is not None
    assert (first.count, first.reason, first.round) == (2, "no_room", 1)
    assert first.detail == why.detail
    assert second.round == 2
    assert second.since == first.since
    assert register.rounds.read_cluster(lease).requests[0].age == 2
    assert register.rounds.last().left_out == 2  # type: ignore[union-attr]

    place(register, request, host, 2, lease)
    assert register.requests.get(request.id).waiting is None


def test_who_waits_gets_older_in_slots_that_leave_no_round(register: Registry) -> None:
    a_cluster(register)
    lease, early = take_lease(register), add_request(register, 2)
    why = WaitingStatus(count=2, reason="no_room")
    register.rounds.commit_round(a_commit(lease, waiting={early.id: why}))
    late = add_request(register, 1)

    for slot in range(3):  # each would have repeated the round
        start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=slot)
        register.slot_loop.record_decided_slot(start, 60)

    assert [each.age for each in register.rounds.read_cluster(lease).requests] == [4, 0]
    assert register.room_plans.requests_lacking_room(rounds=4, rest_s=0) == {early.id}
    assert register.room_plans.requests_lacking_room(rounds=5, rest_s=0) == frozenset()
    both = {early.id: why, late.id: replace(why, count=1)}
    register.rounds.commit_round(a_commit(lease, waiting=both))
    assert [each.age for each in register.rounds.read_cluster(lease).requests] == [5, 1]


def test_a_request_that_ended_meanwhile_gets_no_reason_to_wait(register: Registry) -> None:
    a_cluster(register)
    request = add_request(register)
    lease = take_lease(register)
    register.requests.delete(request.id, actor=ACTOR)

    why = WaitingStatus(count=1, reason="no_room")
    register.rounds.commit_round(a_commit(lease, waiting={request.id: why}))

    assert register.requests.get(request.id).waiting is None


def test_the_same_decision_committed_twice_places_no_vm_twice(register: Registry) -> None:
    (host,) = a_cluster(register)
    request = add_request(register, 2)
    lease = take_lease(register)
    version = register.hosts.get("h1").version
    part = Placement(request_id=request.id, host_id=host.id, count=2)
    commit = a_commit(lease, (part,), {host.id: version})

    register.rounds.commit_round(commit)
    again = register.rounds.commit_round(commit)

    assert again.assignment_ids == ()
    assert again.dropped == (part,)


def test_a_commit_notes_its_slot_and_one_that_is_refused_does_not(register: Registry) -> None:
    lease = take_lease(register)
    commit = a_commit(lease, slot_start_at=datetime(2026, 1, 2, tzinfo=UTC), slot_length_s=7.0)

    register.rounds.commit_round(commit)
    with pytest.raises(StaleEpochError):
        register.rounds.commit_round(a_commit(lease, epoch=lease.epoch + 1))
    register.slot_loop.pause("inventory", actor=ACTOR)
    with pytest.raises(SlotLoopPausedError, match="inventory"):
        register.rounds.commit_round(a_commit(lease))

    noted = register.slot_loop.get()
    assert (noted.last_slot_at, noted.slot_length_s) == (commit.slot_start_at, 7.0)


def test_rounds_are_listed_newest_first_in_pages(register: Registry) -> None:
    lease = take_lease(register)
    for _ in range(5):
        register.rounds.commit_round(a_commit(lease))

    first = register.rounds.list(limit=2)
    second = register.rounds.list(limit=2, cursor=first.next)
    third = register.rounds.list(limit=2, cursor=second.next)

    numbers = [[summary.number for summary in page.items] for page in (first, second, third)]
    assert numbers == [[5, 4], [3, 2], [1]]
    assert third.next is None


@pytest.mark.parametrize("number", [0, -1, 99, 2**70])
def test_a_round_that_never_was_is_not_found(register: Registry, number: int) -> None:
    with pytest.raises(NotFoundError, match="round"):
        register.rounds.get(number)


def test_a_cursor_of_another_list_is_refused(register: Registry) -> None:
    add_tenant(register, "a")
    add_tenant(register, "b")
    cursor = register.tenants.list(limit=1).next

    with pytest.raises(InvalidError, match="cursor"):
        register.rounds.list(cursor=cursor)


def test_a_seed_that_no_column_holds_is_refused(register: Registry) -> None:
    with pytest.raises(InvalidError, match="seed"):
        register.rounds.commit_round(a_commit(take_lease(register), seed=2**64))


def test_a_gang_that_a_moved_host_leaves_too_small_is_dropped_whole(register: Registry) -> None:
    moved, stayed = a_cluster(register, hosts=2)
    gang = add_request(register, 5, min_count=4)
    single = add_request(register, 1)
    lease = take_lease(register)
    versions = {host.id: host.version for host in register.rounds.read_cluster(lease).hosts}
    register.hosts.update("h1", reserved={"vcpus": 1}, actor=ACTOR)
    parts = (
        Placement(request_id=gang.id, host_id=moved.id, count=2),
        Placement(request_id=gang.id, host_id=stayed.id, count=3),
        Placement(request_id=single.id, host_id=stayed.id, count=1),
    )

    done = register.rounds.commit_round(a_commit(lease, parts, versions))

    assert done.dropped == parts[:2]
    assert len(done.assignment_ids) == 1
    after = register.requests.get(gang.id)
    assert after.state == RequestState.PENDING
    assert after.waiting is not None
    assert (after.waiting.reason, after.waiting.count) == ("host_moved", 5)
    assert register.rounds.get(done.number).dropped == 5
    assert register.rounds.read_cluster(lease).requests[0].min_count == 4
    assert register.check() == []


def test_a_gang_that_is_whole_without_the_dropped_part_stands(register: Registry) -> None:
    moved, stayed = a_cluster(register, hosts=2)
    gang = add_request(register, 5, min_count=3)
    lease = take_lease(register)
    versions = {host.id: host.version for host in register.rounds.read_cluster(lease).hosts}
    register.hosts.change_admin("h1", HostAdminEvent.DRAIN, actor=ACTOR)
    parts = (
        Placement(request_id=gang.id, host_id=moved.id, count=2),
        Placement(request_id=gang.id, host_id=stayed.id, count=3),
    )

    done = register.rounds.commit_round(a_commit(lease, parts, versions))

    assert done.dropped == parts[:1]
    assert len(done.assignment_ids) == 3


def test_min_count_binds_only_the_first_round_that_places_the_request(register: Registry) -> None:
    (host,) = a_cluster(register)
    gang = add_request(register, 5, min_count=3)
    lease = take_lease(register)
    assert register.rounds.read_cluster(lease).requests[0].min_count == 3

    done = place(register, gang, host, 3, lease)

    assert register.rounds.read_cluster(lease).requests[0].min_count == 1
    for assignment_id in done.assignment_ids:
        run_vm(register, assignment_id)
    for vm in register.vms.list(request_id=gang.id).items[:3]:
        register.vms.delete(vm.id, actor=ACTOR)
    for assignment_id in done.assignment_ids:
        remove_vm(register, assignment_id)
    seen = register.rounds.read_cluster(lease).requests[0]
    assert (seen.count, seen.min_count) == (2, 1)


def test_a_gang_whose_tenant_wants_fewer_asks_for_no_more_at_once(register: Registry) -> None:
    (host,) = a_cluster(register)
    gang = add_request(register, 4, min_count=4)
    lease = take_lease(register)
    version = register.rounds.read_cluster(lease).hosts[0].version
    register.vms.delete(register.vms.list(request_id=gang.id).items[0].id, actor=ACTOR)
    part = Placement(request_id=gang.id, host_id=host.id, count=4)
    seen = register.rounds.read_cluster(lease).requests[0]

    done = register.rounds.commit_round(a_commit(lease, (part,), {host.id: version}))

    assert (seen.count, seen.min_count) == (3, 3)
    assert len(done.assignment_ids) == 3


def test_the_last_round_is_known_without_the_shares_of_all_tenants(register: Registry) -> None:
    lease = take_lease(register)
    register.rounds.commit_round(a_commit(lease, shares=[{"tenant": "a", "after": 0.5}]))

    with work() as done:
        assert register.rounds.last() is not None

    assert not any("shares" in statement for statement in done.statements)
