"""Workers hold claims; whoever lost one finds out before it does harm."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from registry import (
    AssignmentState,
    ClaimLostError,
    HostHealth,
    IllegalTransitionError,
    Registry,
    RequestState,
    VmObserved,
)
from registry.tasks import Build, Claim
from tests.raw_sql import RawSql
from tests.register import (
    ACTOR,
    a_cluster,
    a_domain,
    a_report,
    add_request,
    place,
    remove_vm,
    run_vm,
    take_lease,
)

CREATE, DELETE = "workers.create_vm", "workers.delete_vm"


class Clock:
    """Moves what the database stored into the past."""

    def __init__(self, raw: RawSql) -> None:
        self._raw = raw

    def _shift(self, table: str, column: str, seconds: int) -> None:
        shifted = self._raw.before(column, f"{seconds} seconds")
        self._raw.run(f"UPDATE {table} SET {column} = {shifted} WHERE {column} IS NOT NULL")

    def claims_run_out(self) -> None:
        self._shift("assignments", "lease_until", 100_000)

    def sendings_grow_old(self) -> None:
        self._shift("assignments", "sent_at", 1000)

    def hold_back_ends(self) -> None:
        self._shift("hosts", "backoff_until", 10_000)

    def builds_last(self) -> None:
        self._shift("assignments", "build_began_at", 1000)

    def avoiding_ends(self) -> None:
        self._shift("build_failures", "avoid_until", 10_000)


@pytest.fixture
def clock(raw: RawSql) -> Clock:
    return Clock(raw)


@pytest.fixture
def assignments(register: Registry) -> tuple[UUID, ...]:
    """Three VMs of one request, reserved on h1."""
    (host,) = a_cluster(register)
    return place(register, add_request(register, 3), host, 3).assignment_ids


def claimed(register: Registry, key: UUID, owner: str = "w1") -> Build:
    build = register.assignments.claim_build(key, owner, 60)
    assert build is not None
    return build


def state_of(register: Registry, key: UUID) -> AssignmentState | None:
    return register.assignments.state(key)


def test_a_claim_says_all_that_a_worker_needs(
    register: Registry, assignments: tuple[UUID, ...]
) -> None:
    build = claimed(register, assignments[0])

    vm = register.vms.get(build.vm_id)
    assert (build.state, build.generation, build.round) == (AssignmentState.CREATING, 1, 1)
    assert (build.vm_name, build.tenant, build.failed_before) == (vm.name, "a", 0)
    assert build.resources == {"vcpus": 1, "memory_mib": 3072, "disk_gib": 15}
    assert build.host.name == "h1"
    assert build.host.uri == "test+unix:///h1"
    assert state_of(register, assignments[0]) == AssignmentState.CREATING


def test_a_live_claim_keeps_others_away(register: Registry, assignments: tuple[UUID, ...]) -> None:
    claimed(register, assignments[0])

    assert register.assignments.claim_build(assignments[0], "w2", 60) is None
    assert register.assignments.claim_removal(assignments[0], "w2", 60) is None


def test_a_claim_that_ran_out_is_taken_over_and_the_first_finds_out(
    register: Registry, assignments: tuple[UUID, ...], clock: Clock
) -> None:
    first = claimed(register, assignments[0])
    clock.claims_run_out()
    second = claimed(register, assignments[0], "w2")

    assert second.claim.token != first.claim.token
    for call in (
        lambda: register.assignments.activate(first.claim),
        lambda: register.assignments.extend(first.claim, 60),
        lambda: register.assignments.mark_running(first.claim),
        lambda: register.assignments.record_failure(first.claim, "x", transient=True),
        lambda: register.assignments.release(first.claim),
        lambda: register.assignments.yield_claim(first.claim, None),
    ):
        with pytest.raises(ClaimLostError, match="w2 has it"):
            call()
    register.assignments.activate(second.claim)
    assert state_of(register, assignments[0]) == AssignmentState.ACTIVE


def test_a_claim_that_ran_out_but_nobody_took_is_still_good(
    register: Registry, assignments: tuple[UUID, ...], clock: Clock
) -> None:
    build = claimed(register, assignments[0])
    clock.claims_run_out()

    register.assignments.extend(build.claim, 60)

    assert register.assignments.claim_build(assignments[0], "w2", 60) is None
    register.assignments.activate(build.claim)


def test_a_claim_on_what_does_not_exist_is_none_or_lost(register: Registry) -> None:
    key = uuid4()

    assert register.assignments.claim_build(key, "w1", 60) is None
    assert register.assignments.claim_removal(key, "w1", 60) is None
    assert register.assignments.state(key) is None
    with pytest.raises(ClaimLostError, match="does not exist"):
        register.assignments.activate(Claim(assignment_id=key, token=key))


def test_the_way_of_a_vm_that_runs(register: Registry, assignments: tuple[UUID, ...]) -> None:
    build = claimed(register, assignments[0])
    register.assignments.activate(build.claim)
    assert register.vms.get(build.vm_id).observed == VmObserved.ABSENT
    register.assignments.mark_running(build.claim)

    vm = register.vms.get(build.vm_id)
    assert (vm.observed, vm.assignment_state) == (VmObserved.RUNNING, AssignmentState.ACTIVE)
    assert register.requests.get(vm.request_id).vms_running == 1
    assert register.assignments.claim_build(assignments[0], "w2", 60) is None
    with pytest.raises(ClaimLostError, match="no worker has it"):
        register.assignments.mark_running(build.claim)


def test_a_resume_that_is_missing_is_finished_by_another(
    register: Registry, assignments: tuple[UUID, ...], clock: Clock
) -> None:
    first = claimed(register, assignments[0])
    register.assignments.activate(first.claim)  # and dies
    clock.claims_run_out()

    second = claimed(register, assignments[0], "w2")

    assert second.state == AssignmentState.ACTIVE
    with pytest.raises(ClaimLostError, match="active"):
        register.assignments.activate(second.claim)
    register.assignments.mark_running(second.claim)


def test_a_host_builds_only_so_many_at_once(
    register: Registry, assignments: tuple[UUID, ...], clock: Clock
) -> None:
    first, _ = claimed(register, assignments[0]), claimed(register, assignments[1])
    assert register.assignments.claim_build(assignments[2], "w3", 60) is None  # max_builds is 2

    register.assignments.activate(first.claim)
    assert register.assignments.claim_build(assignments[2], "w3", 60) is None
    register.assignments.mark_running(first.claim)

    assert register.assignments.claim_build(assignments[2], "w3", 60) is not None


def test_nobody_builds_on_a_host_out_of_reach(
    register: Registry, assignments: tuple[UUID, ...]
) -> None:
    host = register.hosts.get("h1")
    register.hosts.record_miss(host.id, "no answer", unreachable_after=1, down_after=9)

    assert register.assignments.claim_build(assignments[0], "w1", 60) is None
    assert register.assignments.send_due_tasks() == ()

    register.hosts.record_report(host.id, a_report())
    assert register.assignments.claim_build(assignments[0], "w1", 60) is not None


def test_what_nobody_claimed_on_a_host_that_goes_down_is_decided_again(
    register: Registry, assignments: tuple[UUID, ...]
) -> None:
    claimed(register, assignments[0])
    host = register.hosts.get("h1")

    host = register.hosts.record_miss(host.id, "dead", unreachable_after=1, down_after=1)

    assert host.health == HostHealth.DOWN
    assert [state_of(register, key) for key in assignments] == [
        AssignmentState.CREATING,
        AssignmentState.RELEASED,
        AssignmentState.RELEASED,
    ]
    view = register.rounds.read_cluster(take_lease(register))
    assert view.requests[0].count == 2
    assert register.check() == []


# ---- failures ---------------------------------------------------------------


def test_a_passing_failure_is_tried_again_up_to_five_times(
    register: Registry, assignments: tuple[UUID, ...]
) -> None:
    for attempt in range(4):
        build = claimed(register, assignments[0])
        assert build.failed_before == attempt
        register.assignments.record_failure(build.claim, "host busy", transient=True)
        assert state_of(register, assignments[0]) == AssignmentState.CREATING
    vm = register.vms.get(build.vm_id)
    assert vm.last_error == "host busy"

    build = claimed(register, assignments[0])
    register.assignments.record_failure(build.claim, "host busy", transient=True)

    assert state_of(register, assignments[0]) == AssignmentState.QUARANTINED


def test_a_failed_build_keeps_its_capacity_until_its_absence_is_proven(
    register: Registry, assignments: tuple[UUID, ...], clock: Clock
) -> None:
    build = claimed(register, assignments[0])
    register.assignments.record_failure(build.claim, "no such network", transient=False)
    lease = take_lease(register)
    request = register.requests.list().items[0]

    assert state_of(register, assignments[0]) == AssignmentState.QUARANTINED
    assert register.hosts.get("h1").inventories[0].committed == 3
    assert register.rounds.read_cluster(lease).requests == ()
    assert request.state == RequestState.PLACED
    assert register.assignments.claim_build(assignments[0], "w2", 60) is None

    removal = register.assignments.claim_removal(assignments[0], "w2", 60)
    assert removal is not None
    assert removal.quarantined
    assert (removal.vm_id, removal.generation) == (build.vm_id, 1)
    register.assignments.release(removal.claim)

    assert register.hosts.get("h1").inventories[0].committed == 2
    view = register.rounds.read_cluster(lease)
    assert view.requests[0].count == 1
    assert view.requests[0].avoid == (build.host.id,)
    assert not view.hosts[0].accepts  # held back
    clock.hold_back_ends()
    clock.avoiding_ends()
    view = register.rounds.read_cluster(lease)
    assert view.requests[0].avoid == ()
    assert view.hosts[0].accepts

    again = place(register, request, register.hosts.get("h1"), 1, lease)
    assert claimed(register, again.assignment_ids[0]).generation == 2
    assert register.check() == []


def test_a_build_that_takes_too_long_is_ended_and_decided_again_elsewhere(
    register: Registry, assignments: tuple[UUID, ...], clock: Clock
) -> None:
    build = claimed(register, assignments[0])
    assert register.assignments.end_overdue(900) == ()
    clock.builds_last()
    younger = claimed(register, assignments[1])

    assert register.assignments.end_overdue(900) == (assignments[0],)

    assert state_of(register, assignments[0]) == AssignmentState.QUARANTINED
    assert state_of(register, assignments[1]) == AssignmentState.CREATING
    with pytest.raises(ClaimLostError, match="no worker has it, and it is quarantined"):
        register.assignments.extend(build.claim, 60)
    register.assignments.extend(younger.claim, 60)
    [events] = [
        event
        for event in register.events.list(subject_id=str(assignments[0]))
        if event.to_state == "quarantined"
    ]
    assert (events.actor, events.reason) == ("control", "its build took longer than 900 s")
    assert register.vms.get(build.vm_id).last_error == events.reason
    lease = take_lease(register)
    assert register.rounds.read_cluster(lease).requests == ()  # its absence is not proven
    assert (DELETE, assignments[0]) in [
        (due.task, due.id) for due in register.assignments.send_due_tasks()
    ]
    removal = register.assignments.claim_removal(assignments[0], "w2", 60)
    assert removal is not None
    register.assignments.release(removal.claim)
    view = register.rounds.read_cluster(lease)
    assert (view.requests[0].count, view.requests[0].avoid) == (1, (build.host.id,))
    assert not view.hosts[0].accepts  # held back
    assert register.check() == []


def test_the_time_of_a_build_goes_on_whoever_takes_it_up_again(
    register: Registry, assignments: tuple[UUID, ...], clock: Clock
) -> None:
    build = claimed(register, assignments[0])
    register.assignments.record_failure(build.claim, "no answer", transient=True)
    clock.builds_last()
    claimed(register, assignments[0], "w2")

    assert register.assignments.end_overdue(900) == (assignments[0],)
    assert register.assignments.end_overdue(900) == ()


def test_what_is_started_or_not_begun_is_no_overdue_build(
    register: Registry, assignments: tuple[UUID, ...], clock: Clock
) -> None:
    started = claimed(register, assignments[0])
    register.assignments.activate(started.claim)
    deleted = claimed(register, assignments[1])
    delete_vm_of(register, deleted)
    clock.builds_last()

    assert register.assignments.end_overdue(0.001) == ()


def test_a_host_that_fails_builds_is_held_back_longer_each_time(
    register: Registry, assignments: tuple[UUID, ...]
) -> None:
    waits = []
    for key in assignments:
        build = claimed(register, key)
        before = register.now()
        register.assignments.record_failure(build.claim, "x", transient=False)
        until = register.hosts.get("h1").backoff_until
        assert until is not None
        waits.append(round((until - before) / timedelta(seconds=30)))

    assert waits == [1, 2, 4]


def test_a_build_that_succeeds_ends_the_row_of_failures(
    register: Registry, assignments: tuple[UUID, ...]
) -> None:
    register.assignments.record_failure(
        claimed(register, assignments[0]).claim, "x", transient=False
    )
    run_vm(register, assignments[1])
    before = register.now()
    register.assignments.record_failure(
        claimed(register, assignments[2]).claim, "x", transient=False
    )

    until = register.hosts.get("h1").backoff_until
    assert until is not None
    assert until - before < timedelta(seconds=45)


def test_a_vm_seen_running_meanwhile_is_no_failed_build(
    register: Registry, assignments: tuple[UUID, ...]
) -> None:
    build = claimed(register, assignments[0])
    register.assignments.activate(build.claim)
    seen = a_domain(build, "running")
    register.hosts.record_report(build.host.id, a_report(seen))

    register.assignments.record_failure(build.claim, "resume timed out", transient=False)

    assert state_of(register, assignments[0]) == AssignmentState.ACTIVE
    assert register.vms.get(build.vm_id).observed == VmObserved.RUNNING


# ---- deletions that cross ---------------------------------------------------


def delete_vm_of(register: Registry, build: Build) -> None:
    register.vms.delete(build.vm_id, actor=ACTOR)


def test_deleting_a_reserved_vm_releases_it_at_once(
    register: Registry, assignments: tuple[UUID, ...]
) -> None:
    vm = next(vm for vm in register.vms.list().items if vm.assignment_id == assignments[0])

    gone = register.vms.delete(vm.id, actor=ACTOR)

    assert gone.deleted_at is not None
    assert (gone.assignment_id, gone.host) == (None, None)
    assert state_of(register, assignments[0]) == AssignmentState.RELEASED
    assert register.hosts.get("h1").inventories[0].committed == 2
    assert register.assignments.claim_build(assignments[0], "w1", 60) is None


def test_a_vm_deleted_while_it_is_created_loses_the_compare_and_set(
    register: Registry, assignments: tuple[UUID, ...]
) -> None:
    build = claimed(register, assignments[0])
    delete_vm_of(register, build)
    assert state_of(register, assignments[0]) == AssignmentState.RELEASING

    with pytest.raises(ClaimLostError, match="releasing"):
        register.assignments.activate(build.claim)
    assert register.assignments.claim_removal(assignments[0], "w2", 60) is None

    # The loser destroyed what it made: it has proof, and the claim to say so.
    register.assignments.release(build.claim)
    assert state_of(register, assignments[0]) == AssignmentState.RELEASED
    assert register.vms.get(build.vm_id).deleted_at is not None
    assert register.check() == []


def test_a_build_that_fails_after_the_delete_stays_releasing(
    register: Registry, assignments: tuple[UUID, ...]
) -> None:
    build = claimed(register, assignments[0])
    delete_vm_of(register, build)

    register.assignments.record_failure(build.claim, "no such network", transient=False)

    assert state_of(register, assignments[0]) == AssignmentState.RELEASING
    assert register.hosts.get("h1").backoff_until is None
    remove_vm(register, assignments[0])


def test_a_vm_deleted_between_activate_and_resume_is_removed(
    register: Registry, assignments: tuple[UUID, ...]
) -> None:
    build = claimed(register, assignments[0])
    register.assignments.activate(build.claim)
    delete_vm_of(register, build)
    register.assignments.mark_running(build.claim)

    assert state_of(register, assignments[0]) == AssignmentState.RELEASING
    remove_vm(register, assignments[0])
    vm = register.vms.get(build.vm_id)
    assert (vm.observed, vm.assignment_id) == (VmObserved.ABSENT, None)
    assert register.check() == []


def test_deleting_a_quarantined_vm_has_it_removed(
    register: Registry, assignments: tuple[UUID, ...]
) -> None:
    build = claimed(register, assignments[0])
    register.assignments.record_failure(build.claim, "x", transient=False)
    delete_vm_of(register, build)

    removal = register.assignments.claim_removal(assignments[0], "w1", 60)

    assert removal is not None
    assert not removal.quarantined
    register.assignments.release(removal.claim)
    assert register.vms.get(build.vm_id).deleted_at is not None


def test_an_active_vm_is_not_released_without_a_removal(
    register: Registry, assignments: tuple[UUID, ...]
) -> None:
    build = claimed(register, assignments[0])
    register.assignments.activate(build.claim)

    with pytest.raises(IllegalTransitionError):
        register.assignments.release(build.claim)

    assert state_of(register, assignments[0]) == AssignmentState.ACTIVE


# ---- the sweep --------------------------------------------------------------


def test_the_sweep_sends_each_task_once_and_again_when_nobody_took_it(
    register: Registry, assignments: tuple[UUID, ...], clock: Clock
) -> None:
    register.hosts.update("h1", max_builds=3, actor=ACTOR)
    first = register.assignments.send_due_tasks()
    assert {(each.task, each.id) for each in first} == {(CREATE, key) for key in assignments}
    assert register.assignments.send_due_tasks() == ()

    claimed(register, assignments[0])
    clock.sendings_grow_old()
    assert {each.id for each in register.assignments.send_due_tasks()} == set(assignments[1:])

    clock.claims_run_out()
    clock.sendings_grow_old()
    assert {each.id for each in register.assignments.send_due_tasks()} == set(assignments)


def test_the_sweep_sends_no_more_than_its_limit_and_what_waits_longest_first(
    register: Registry, assignments: tuple[UUID, ...], clock: Clock
) -> None:
    first = register.assignments.send_due_tasks(limit=1)
    clock.sendings_grow_old()
    second = register.assignments.send_due_tasks(limit=2)

    assert [len(first), len(second)] == [1, 2]
    assert not {each.id for each in first} & {each.id for each in second}


def test_the_sweep_sends_removals_and_missing_resumes_but_not_vms_that_run(
    register: Registry, assignments: tuple[UUID, ...], clock: Clock
) -> None:
    run_vm(register, assignments[0])
    resumeless = claimed(register, assignments[1])
    register.assignments.activate(resumeless.claim)
    failed = claimed(register, assignments[2])
    register.assignments.record_failure(failed.claim, "x", transient=False)
    clock.claims_run_out()

    sent = {(each.task, each.id) for each in register.assignments.send_due_tasks()}

    assert sent == {(CREATE, assignments[1]), (DELETE, assignments[2])}


def test_a_removal_that_is_given_back_is_sent_again_later(
    register: Registry, assignments: tuple[UUID, ...], clock: Clock
) -> None:
    run_vm(register, assignments[0])
    register.requests.delete(register.requests.list().items[0].id, actor=ACTOR)
    removal = register.assignments.claim_removal(assignments[0], "w1", 60)
    assert removal is not None

    register.assignments.yield_claim(removal.claim, "host does not answer")

    assert register.assignments.send_due_tasks() == ()
    clock.sendings_grow_old()
    assert [each.task for each in register.assignments.send_due_tasks()] == [DELETE]
    remove_vm(register, assignments[0])
    assert register.requests.list().items[0].state == RequestState.RELEASED
    assert register.check() == []
