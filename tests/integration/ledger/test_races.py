"""Two writers meet halfway: one of them is held inside its transaction while the other goes on.

On SQLite the second waits until the first is over; on PostgreSQL it goes on
until it needs a row that the first has locked. What comes of it is the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import TypeAdapter
from sqlalchemy import Connection

from registry import (
    AnsweredBeforeError,
    CapacityExceededError,
    ClaimLostError,
    HostAdminEvent,
    Registry,
    RegistryUnavailableError,
    StaleEpochError,
)
from registry.audit import IdempotencyKey, IdempotentCall, parse_stored_record
from registry.db.engine import TransactionRolledBackError, retry_on_rollback
from registry.hosts import Host, Miss, MissPolicy
from registry.requests import Request
from registry.rounds import Placement
from registry.tenancy import Tenant
from tests.raw_sql import REFUSED, RawSql, raw_sql
from tests.register import (
    ACTOR,
    a_cluster,
    a_commit,
    a_report,
    add_host,
    add_request,
    add_vm_type,
    now,
    place,
    run_vm,
    take_lease,
)

Action = Callable[[], object]
#: The other one is at it by then; if not, one comes after the other, as is allowed.
HESITATION_S = 0.4
on_postgresql = pytest.mark.parametrize(
    "register_url", [pytest.param("postgresql", marks=pytest.mark.postgresql)], indirect=True
)


@pytest.fixture
def other(register_url: str) -> Iterator[Registry]:
    """The register center as another control centre has it open."""
    found = Registry.connect(register_url)
    yield found
    found.close()


@contextmanager
def held_before_its_end(registry: Registry) -> Iterator[Callable[[Action], Future[Any]]]:
    """Hand out a function: start an action and return when it is about to commit.

    It goes on when the block ends, or when the other one waits for it.
    """
    reached, go_on = threading.Event(), threading.Event()
    database: Any = registry._database
    write = database.write

    @contextmanager
    def hesitating() -> Iterator[Connection]:
        with write() as connection:
            yield connection
            reached.set()
            go_on.wait(HESITATION_S)

    with ThreadPoolExecutor(1) as pool:

        def start(action: Action) -> Future[Any]:
            database.write = hesitating
            future = pool.submit(action)
            assert reached.wait(30)
            database.write = write
            return future

        try:
            yield start
        finally:
            go_on.set()


def outcome(action: Action) -> object:
    """Return what an action returns or raises."""
    try:
        return action()
    except Exception as error:
        return error


def a_placement(registry: Registry, request_id: UUID, *hosts: str, count: int = 1) -> Any:
    """Return a commit, with the versions of now, that places VMs on each of these hosts."""
    found = [registry.hosts.get(name) for name in hosts]
    return a_commit(
        take_lease(registry),
        tuple(Placement(request_id=request_id, host_id=host.id, count=count) for host in found),
        {host.id: host.version for host in found},
    )


def test_two_control_centres_that_commit_to_a_host_at_once_place_once(
    register: Registry, other: Registry
) -> None:
    a_cluster(register)
    request = add_request(register, 10)
    commit = a_placement(register, request.id, "h1", count=10)

    with held_before_its_end(register) as start:
        first = start(lambda: register.rounds.commit_round(commit))
        second = other.rounds.commit_round(commit)

    assert len(first.result().assignment_ids) == 10
    assert [part.count for part in second.dropped] == [10]
    assert register.hosts.get("h1").inventories[0].committed == 10
    assert register.check() == []


def test_two_commits_of_one_vm_to_two_hosts_place_it_once(
    register: Registry, other: Registry
) -> None:
    a_cluster(register, hosts=2)
    request = add_request(register)
    one, two = (a_placement(register, request.id, name) for name in ("h1", "h2"))

    with held_before_its_end(register) as start:
        first = start(lambda: register.rounds.commit_round(one))
        second = other.rounds.commit_round(two)

    assert len(first.result().assignment_ids) == 1
    assert second.assignment_ids == ()
    assert [vm.host for vm in register.vms.list().items] == ["h1"]
    assert register.check() == []


def test_commits_to_the_same_hosts_in_another_order_do_not_lock_each_other_out(
    register: Registry, other: Registry
) -> None:
    a_cluster(register, hosts=4)
    names = [host.name for host in register.hosts.all()]
    # A VM of each commit fits on each host: none is dropped where they come one by one.
    add_vm_type(register, "tiny", memory_mib=64, disk_gib=1)
    requests = [add_request(register, 40, vm_type="tiny") for _ in range(2)]
    take_lease(register)

    def commit(number: int) -> object:
        registry, order = (register, names) if number % 2 else (other, names[::-1])
        commit = a_placement(registry, requests[number % 2].id, *order)
        return outcome(lambda: registry.rounds.commit_round(commit))

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(commit, range(16)))

    assert [each for each in done if isinstance(each, Exception)] == []
    assert register.check() == []


def test_a_deletion_during_a_commit_takes_the_new_assignment_along(
    register: Registry, other: Registry
) -> None:
    a_cluster(register)
    request = add_request(register, 2)
    commit = a_placement(register, request.id, "h1", count=2)

    with held_before_its_end(register) as start:
        first = start(lambda: register.rounds.commit_round(commit))
        deleted = other.requests.delete(request.id, actor=ACTOR)

    assert len(first.result().assignment_ids) == 2
    assert deleted.state == "released"
    assert register.hosts.get("h1").inventories[0].committed == 0
    assert register.check() == []


def test_a_commit_during_a_deletion_finds_no_vm(register: Registry, other: Registry) -> None:
    a_cluster(register)
    request = add_request(register, 2)
    commit = a_placement(register, request.id, "h1", count=2)

    with held_before_its_end(other) as start:
        first = start(lambda: other.requests.delete(request.id, actor=ACTOR))
        done = register.rounds.commit_round(commit)

    assert first.result().state == "cancelled"
    assert done.assignment_ids == ()
    assert [part.count for part in done.dropped] == [2]
    assert register.check() == []


def test_a_claim_and_a_deletion_at_once_agree(register: Registry, other: Registry) -> None:
    a_cluster(register)
    request = add_request(register)
    (key,) = place(register, request, register.hosts.get("h1")).assignment_ids

    with held_before_its_end(register) as start:
        claim = start(lambda: register.assignments.claim_build(key, "w1", 60))
        other.requests.delete(request.id, actor=ACTOR)

    build = claim.result()
    assert register.assignments.state(key) == "releasing"
    with pytest.raises(ClaimLostError):
        register.assignments.activate(build.claim)
    assert register.check() == []


def test_a_deletion_and_a_claim_at_once_agree(register: Registry, other: Registry) -> None:
    a_cluster(register)
    request = add_request(register)
    (key,) = place(register, request, register.hosts.get("h1")).assignment_ids

    with held_before_its_end(other) as start:
        start(lambda: other.requests.delete(request.id, actor=ACTOR))
        build = register.assignments.claim_build(key, "w1", 60)

    assert build is None
    assert register.assignments.state(key) == "released"
    assert register.check() == []


def test_workers_that_claim_at_once_keep_to_the_hosts_limit(
    register: Registry, other: Registry
) -> None:
    a_cluster(register)
    host = register.hosts.update("h1", max_builds=1, actor=ACTOR)
    one, two = place(register, add_request(register, 2), host, 2).assignment_ids

    with held_before_its_end(register) as start:
        first = start(lambda: register.assignments.claim_build(one, "w1", 60))
        second = other.assignments.claim_build(two, "w2", 60)

    assert first.result() is not None
    assert second is None


def test_workers_that_claim_one_assignment_at_once_get_it_once(
    register: Registry, other: Registry
) -> None:
    a_cluster(register)
    (key,) = place(register, add_request(register), register.hosts.get("h1")).assignment_ids

    with held_before_its_end(register) as start:
        first = start(lambda: register.assignments.claim_build(key, "w1", 60))
        second = other.assignments.claim_build(key, "w2", 60)

    assert first.result() is not None
    assert second is None


def test_a_report_and_an_activation_at_once_lose_no_vm(register: Registry, other: Registry) -> None:
    """The look began before: what it did not see may have been started meanwhile."""
    (host,) = a_cluster(register)
    (key,) = place(register, add_request(register), host).assignment_ids
    build = register.assignments.claim_build(key, "w1", 60)
    assert build is not None
    report = a_report(started_at=now() - timedelta(seconds=5))

    with held_before_its_end(register) as start:
        start(lambda: register.assignments.activate(build.claim))
        other.hosts.record_report(host.id, report)

    register.assignments.mark_running(build.claim)
    assert [vm.observed for vm in register.vms.list().items] == ["running"]
    assert register.check() == []


def test_vms_of_a_request_that_end_at_once_end_the_request(
    register: Registry, other: Registry
) -> None:
    a_cluster(register)
    request = add_request(register, 2)
    for key in place(register, request, register.hosts.get("h1"), 2).assignment_ids:
        run_vm(register, key)
    register.requests.delete(request.id, actor=ACTOR)
    claims = []
    for vm in register.vms.list().items:
        assert vm.assignment_id is not None
        removal = register.assignments.claim_removal(vm.assignment_id, "w1", 60)
        assert removal is not None
        claims.append(removal.claim)

    with held_before_its_end(register) as start:
        start(lambda: register.assignments.release(claims[0]))
        other.assignments.release(claims[1])

    assert register.requests.get(request.id).state == "released"
    assert register.check() == []


def test_a_host_is_not_retired_under_a_commit(register: Registry, other: Registry) -> None:
    a_cluster(register)
    commit = a_placement(register, add_request(register).id, "h1")

    with held_before_its_end(register) as start:
        start(lambda: register.rounds.commit_round(commit))
        retired = outcome(
            lambda: other.hosts.change_admin("h1", HostAdminEvent.RETIRE, actor=ACTOR)
        )

    assert "cannot be retired" in str(retired)
    assert register.check() == []


def test_a_takeover_waits_for_the_commit_and_fences_the_next(
    register: Registry, other: Registry
) -> None:
    a_cluster(register)
    request = add_request(register, 2)
    lease = take_lease(register, "one", 0.5)
    host = register.hosts.get("h1")
    part = Placement(request_id=request.id, host_id=host.id, count=1)
    commit = a_commit(lease, (part,), {host.id: host.version})

    with held_before_its_end(register) as start:
        first = start(lambda: register.rounds.commit_round(commit))
        while (taken := other.leases.acquire("control", "two", 60)) is None:
            pass

    assert len(first.result().assignment_ids) == 1
    assert taken.epoch == lease.epoch + 1
    with pytest.raises(StaleEpochError):
        register.rounds.commit_round(commit)


def test_a_host_and_a_resource_that_are_added_at_once_know_each_other(
    register: Registry, other: Registry
) -> None:
    with held_before_its_end(register) as start:
        start(lambda: add_host(register, "h1"))
        other.resources.add("gpu", "GPU", actor=ACTOR)

    assert [each.resource for each in register.hosts.get("h1").inventories][-1] == "gpu"
    assert register.check() == []


def test_the_same_key_used_twice_at_once_does_its_work_once(
    register: Registry, other: Registry
) -> None:
    key = IdempotencyKey(scope="s", key="k", fingerprint="f")
    one, two = (each.for_call(None, once=IdempotentCall(key)) for each in (register, other))

    with held_before_its_end(one) as start:
        first = start(lambda: one.tenants.add("c", weight=1.0, actor=ACTOR))
        second = outcome(lambda: two.tenants.add("c", weight=1.0, actor=ACTOR))

    assert isinstance(second, AnsweredBeforeError)
    assert parse_stored_record(TypeAdapter(Tenant), second.body) == first.result()


def test_a_key_that_makes_two_requests_at_once_makes_one_and_both_get_its_record(
    register: Registry, other: Registry
) -> None:
    a_cluster(register)
    key = IdempotencyKey(scope="tenant:a", key="k", fingerprint="f")

    with held_before_its_end(register) as start:
        first = start(lambda: add_request(register, name="web", idempotency=key))
        second = outcome(lambda: add_request(other, name="web", idempotency=key))

    assert isinstance(second, AnsweredBeforeError)
    assert parse_stored_record(TypeAdapter(Request), second.body) == first.result()
    assert len(register.requests.list().items) == 1


# ---- raw SQL around the code, halfway ---------------------------------------


def wait_until_somebody_waits(raw: RawSql, who: Future[Any]) -> None:
    while not raw.value("SELECT count(*) FROM pg_locks WHERE NOT granted"):
        assert not who.done()


@on_postgresql
def test_a_connection_that_the_server_ended_is_not_used_again(
    register: Registry, raw: RawSql
) -> None:
    a_cluster(register)
    register.hosts.get("h1")

    ended = "SELECT pid, pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
    mine = "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    assert raw.rows(f"{ended} {mine}")

    assert register.hosts.get("h1").name == "h1"
    assert add_request(register).count == 1


@on_postgresql
def test_amounts_added_by_two_prompts_at_once_do_not_exceed_the_host(
    register: Registry, register_url: str, raw: RawSql
) -> None:
    """Each sees room for its own; the second waits for the first and is refused."""
    host, *_ = a_cluster(register)
    request = add_request(register, 3)
    keys = place(register, request, host, 3).assignment_ids
    spare = register.requests.get(add_request(register, 2).id)
    vms = [vm.id for vm in register.vms.list(request_id=spare.id).items]
    like = raw.rows("SELECT * FROM assignments WHERE id = ?", keys[0])[0]
    added = [like | {"id": uuid4(), "vm_id": vm} for vm in vms]
    for row in added:
        raw.insert("assignments", row)
    amount = "INSERT INTO assignment_resources VALUES (?, 'vcpus', ?, 10)"

    with raw_sql(register_url) as one, raw_sql(register_url) as two, ThreadPoolExecutor(1) as pool:
        one.run("BEGIN")
        one.run(amount, added[0]["id"], host.id)
        adding = pool.submit(two.run, amount, added[1]["id"], host.id)
        wait_until_somebody_waits(raw, adding)
        one.run("COMMIT")
        with pytest.raises(REFUSED, match="over capacity"):
            adding.result(30)

    assert register.hosts.get("h1").inventories[0].committed == 13


@on_postgresql
def test_an_inventory_that_a_prompt_deletes_as_a_round_places_there_takes_no_amounts(
    register: Registry, register_url: str, raw: RawSql
) -> None:
    a_cluster(register)
    commit = a_placement(register, add_request(register).id, "h1")

    with raw_sql(register_url) as prompt, ThreadPoolExecutor(1) as pool:
        prompt.run("BEGIN")
        prompt.run("DELETE FROM inventories WHERE resource = 'vcpus'")
        committing = pool.submit(register.rounds.commit_round, commit)
        wait_until_somebody_waits(raw, committing)
        prompt.run("COMMIT")
        with pytest.raises(CapacityExceededError):
            committing.result(30)

    assert raw.value("SELECT count(*) FROM assignment_resources") == 0


@on_postgresql
def test_an_inventory_stays_that_a_round_placed_on_as_a_prompt_deletes_it(
    register: Registry, register_url: str, raw: RawSql
) -> None:
    host, *_ = a_cluster(register)
    (like,) = place(register, add_request(register), host).assignment_ids
    raw.run("UPDATE assignments SET state = 'released'")
    row = raw.rows("SELECT * FROM assignments WHERE id = ?", like)[0]
    row |= {"id": uuid4(), "generation": 2, "state": "reserved"}

    with raw_sql(register_url) as one, raw_sql(register_url) as two, ThreadPoolExecutor(1) as pool:
        one.run("BEGIN")
        one.insert("assignments", row)
        one.run("INSERT INTO assignment_resources VALUES (?, 'vcpus', ?, 1)", row["id"], host.id)
        deleting = pool.submit(two.run, "DELETE FROM inventories WHERE resource = 'vcpus'")
        wait_until_somebody_waits(raw, deleting)
        one.run("COMMIT")
        with pytest.raises(REFUSED, match="an inventory with committed capacity stays"):
            deleting.result(30)


@on_postgresql
def test_a_prompt_that_locks_backwards_costs_a_writer_a_second_try(
    register: Registry, register_url: str, raw: RawSql
) -> None:
    """A deadlock: the database takes the commit back, and it is tried again."""
    a_cluster(register, hosts=2)
    first, second = sorted(register.hosts.all(), key=lambda host: host.id)
    request = add_request(register, 2)
    commit = a_placement(register, request.id, first.name, second.name)
    lock = "SELECT 1 FROM hosts WHERE id = ? FOR UPDATE"

    with raw_sql(register_url) as prompt, ThreadPoolExecutor(1) as pool:
        prompt.run("SET deadlock_timeout = '20s'")  # so that it is the other who finds it
        prompt.run("BEGIN")
        prompt.run(lock, second.id)
        committing = pool.submit(register.rounds.commit_round, commit)
        wait_until_somebody_waits(raw, committing)
        prompt.run(lock, first.id)
        prompt.run("COMMIT")

        assert len(committing.result(30).assignment_ids) == 2
    assert register.check() == []


def miss_all(registry: Registry, hosts: Sequence[Host]) -> None:
    """Write that hosts do not answer."""
    policy = MissPolicy(unreachable_after=1, down_after=1)
    registry.hosts.record_misses({host.id: Miss("timeout") for host in hosts}, policy)


def report_silent_pools(registry: Registry, hosts: Sequence[Host]) -> None:
    """Write that hosts answer, and that their pools do not."""
    requested_at = now() - timedelta(seconds=60)
    reports = {
        host.id: replace(a_report(hostname=host.name), pool_silent_since=requested_at)
        for host in hosts
    }
    registry.hosts.record_reports(reports)


@on_postgresql
@pytest.mark.parametrize(
    ("fall_silent", "reason"),
    [
        (miss_all, "host {} is down, host {} is down"),
        (
            report_silent_pools,
            "the storage pool of host {} does not answer,"
            " the storage pool of host {} does not answer",
        ),
    ],
)
def test_hosts_that_fall_silent_together_are_locked_in_the_order_of_all_writers(
    register: Registry,
    register_url: str,
    raw: RawSql,
    fall_silent: Callable[[Registry, Sequence[Host]], None],
    reason: str,
) -> None:
    """Places before requests, of all hosts: who goes by that order meets no deadlock."""
    first, second = sorted(a_cluster(register, hosts=2), key=lambda host: host.id)
    lease = take_lease(register)
    requested = [add_request(register) for _ in range(2)]
    for request, host in zip(requested, (first, second), strict=True):
        place(register, request, host, lease=lease)

    with raw_sql(register_url) as prompt, ThreadPoolExecutor(1) as pool:
        prompt.run("SET deadlock_timeout = '50ms'")  # so that it is the prompt that finds one
        prompt.run("BEGIN")
        prompt.run("SELECT 1 FROM assignments WHERE host_id = ? FOR UPDATE", second.id)
        silent = pool.submit(fall_silent, register, (first, second))
        wait_until_somebody_waits(raw, silent)
        prompt.run("SELECT 1 FROM requests WHERE id = ? FOR UPDATE", requested[0].id)
        prompt.run("COMMIT")
        silent.result(30)

    assert {register.requests.get(each.id).state for each in requested} == {"pending"}
    reasons = {event.reason for event in register.events.list(kind="request_state") if event.reason}
    assert reason.format(first.name, second.name) in reasons
    assert register.check() == []


# ---- readers that tail ---------------------------------------------------------


@on_postgresql
def test_a_reader_that_tails_events_skips_none_that_comes_late(
    register: Registry, register_url: str, raw: RawSql
) -> None:
    add_host(register, "h1")
    seen = [event.id for event in register.events.list()]
    late = (
        "INSERT INTO events (at, actor, kind, subject_type, subject_id, data)"
        " VALUES (now(), 'x', 'late', 'host', 'h1', '{}')"
    )
    with raw_sql(register_url) as prompt:
        prompt.run("BEGIN")
        prompt.run(late)
        add_host(register, "h2")  # its ids are above, and it is over at once

        assert register.events.list(after=seen[-1]) == ()
        prompt.run("COMMIT")

    tail = register.events.list(after=seen[-1])
    assert tail[0].kind == "late"
    assert {event.kind for event in tail} == {"late", "host_added", "host_health"}


def test_tailing_while_many_write_sees_every_event_once(register: Registry) -> None:
    a_cluster(register)
    seen: list[int] = []

    def write(number: int) -> None:
        register.hosts.change_admin(
            "h1", list(HostAdminEvent)[number % 2], actor=ACTOR, reason=str(number)
        )
        add_request(register)

    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(write, number) for number in range(24)]
        while not all(each.done() for each in writing):
            seen += [event.id for event in register.events.list(after=seen[-1] if seen else 0)]
        for each in writing:
            each.result()
    seen += [event.id for event in register.events.list(after=seen[-1] if seen else 0, limit=500)]

    assert seen == [event.id for event in register.events.list(limit=500)]


# ---- what a caller is told ----------------------------------------------------------


def test_what_clashed_is_tried_again_and_given_up_at_last() -> None:
    tries: list[int] = []

    @retry_on_rollback
    def clash(times: int) -> str:
        tries.append(times)
        if len(tries) <= times:
            raise TransactionRolledBackError("deadlock detected")
        return "done"

    assert clash(2) == "done"
    tries.clear()
    with pytest.raises(RegistryUnavailableError):
        clash(99)
    assert len(tries) == 6


def test_a_capacity_that_is_exceeded_is_said_and_leaves_nothing(register: Registry) -> None:
    a_cluster(register)
    request = add_request(register, 20)

    with pytest.raises(CapacityExceededError):
        register.rounds.commit_round(a_placement(register, request.id, "h1", count=17))

    assert register.check() == []
