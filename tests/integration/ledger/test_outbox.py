"""What is due is sent: each kind has its share of a sweep, whatever else waits."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from registry import Registry, SettingsError
from registry.lifecycle import VmDesiredEvent
from registry.tasks.queues import (
    CREATE,
    DELETE,
    FENCE_HOST,
    QUEUE_OF,
    READ_CONSOLE,
    SWITCH_POWER,
    UPLOAD_IMAGE,
    WorkQueue,
)
from service import ProcessMetrics
from service.broker.inbox import Inbox
from service.settings_names import load_settings
from tests.integration.registry.test_images import add_image
from tests.raw_sql import RawSql
from tests.register import ACTOR, a_cluster, add_request, place, run_vm, running, take_lease
from tests.strange_messages import a_message
from tests.work import work
from workers.settings import WorkerSettings
from workers.tasks import allowed_messages_of_queue


@pytest.fixture
def limit() -> int:
    """Of one sweep, far below what waits."""
    return 2


def sweep(register: Registry, limit: int) -> Counter[str]:
    return Counter(each.task for each in register.assignments.send_due_tasks(limit))


def test_a_sweep_full_of_image_copies_still_sends_the_fence(register: Registry, limit: int) -> None:
    h1, *others = a_cluster(register, 2 + limit)
    register.hosts.update("h1", fence_target="bmc-1", actor=ACTOR)
    add_image(register)
    lease = take_lease(register)
    (key,) = place(register, add_request(register), h1, lease=lease).assignment_ids
    run_vm(register, key)
    for host in others:
        place(register, add_request(register, image="debian"), host, lease=lease)
    register.hosts.record_miss(h1.id, "timeout", unreachable_after=1, down_after=1)
    register.fencing.request("h1", actor=ACTOR)

    first, second = sweep(register, limit), sweep(register, limit)

    assert first == {FENCE_HOST: 1, UPLOAD_IMAGE: limit}
    assert second == {UPLOAD_IMAGE: 1}


def test_a_stop_and_a_removal_are_sent_while_more_builds_wait_than_a_sweep_sends(
    register: Registry, limit: int
) -> None:
    (h1,) = a_cluster(register)
    stopped, deleted = running(register, h1), running(register, h1)
    for _ in range(limit + 1):
        place(register, add_request(register), h1)
    register.vms.change_power(stopped.vm_id, VmDesiredEvent.STOP, actor=ACTOR)
    register.vms.delete(deleted.vm_id, actor=ACTOR)

    assert sweep(register, limit) == {SWITCH_POWER: 1, DELETE: 1, CREATE: limit}


def test_no_more_is_sent_than_workers_will_soon_take(register: Registry) -> None:
    hosts = a_cluster(register, 20)
    lease = take_lease(register)
    for host in hosts:
        place(register, add_request(register, 2), host, 2, lease=lease)

    def sent(in_queue: int) -> int:
        return len(register.assignments.send_due_tasks(waiting={WorkQueue.BUILD: in_queue}))

    assert sent(17) == 0  # more than half of what may wait
    assert sent(16) == 16
    assert sent(0) == 24  # all that is left


def test_removals_in_hand_make_no_room_for_builds(register: Registry, raw: RawSql) -> None:
    hosts = a_cluster(register, 30)
    lease = take_lease(register)
    for host in hosts:
        going = place(register, add_request(register, 2), host, 2, lease=lease).assignment_ids
        for key in going:
            run_vm(register, key)
    raw.run(
        "UPDATE assignments SET state = 'releasing', lease_owner = 'w',"
        " lease_until = '9999-01-01 00:00:00'"
    )
    for host in hosts:
        place(register, add_request(register, 2), host, 2, lease=lease)

    sent = register.assignments.send_due_tasks(waiting=dict.fromkeys(WorkQueue, 20))

    assert not sent  # for builds nobody has anything in hand, so 20 are enough


def test_a_sweep_costs_what_is_due_not_what_runs(register: Registry, raw: RawSql) -> None:
    def sweeping(running: int) -> int:
        hosts = a_cluster(register, running // 10) if running else ()
        lease = take_lease(register)
        for host in hosts:
            place(register, add_request(register, 10), host, 10, lease=lease)
        raw.run("UPDATE assignments SET state = 'active'")
        raw.run("UPDATE vms SET observed = 'running'")
        if raw.dialect == "postgresql":
            raw.run("VACUUM ANALYZE")
        register.assignments.send_due_tasks()
        with work() as done:
            assert not register.assignments.send_due_tasks()
        return done.units

    none, many = sweeping(0), sweeping(320)

    # SQLite steps over the entry of each in an index, and looks at none of the rows.
    most = 15 * 320 if raw.dialect == "sqlite" else 320 / 10
    assert many - none < most, f"{none} where nothing runs, {many} where 320 VMs do"


def test_a_host_is_sent_as_many_builds_as_it_takes(register: Registry) -> None:
    (host,) = a_cluster(register)
    register.hosts.update("h1", max_builds=2, actor=ACTOR)
    keys = place(register, add_request(register, 4), host, 4).assignment_ids

    assert sweep(register, 10) == {CREATE: 2}
    assert sweep(register, 10) == {}
    begun = register.assignments.claim_build(keys[0], "w1", 60)
    assert begun is not None
    assert len(register.assignments.send_due_tasks(resend_after_s=0)) == 1


def test_what_was_begun_goes_before_what_was_never_sent(register: Registry, raw: RawSql) -> None:
    first, second = a_cluster(register, 2)
    lease = take_lease(register)
    (begun,) = place(register, add_request(register), second, lease=lease).assignment_ids
    assert register.assignments.claim_build(begun, "w1", 60) is not None
    register.assignments.send_due_tasks()
    place(register, add_request(register), first, lease=lease)
    raw.run("UPDATE assignments SET lease_until = build_began_at")

    [due] = register.assignments.send_due_tasks(limit=1, resend_after_s=0)

    assert due.id == begun


def test_messages_of_a_queue_whose_threads_are_busy_stay_there() -> None:
    urgent, build = (
        allowed_messages_of_queue(WorkQueue.URGENT, 1),
        allowed_messages_of_queue(WorkQueue.BUILD, 1),
    )
    inbox = Inbox([urgent, build], ProcessMetrics("test"))
    message = json.dumps(a_message(CREATE)).encode()

    taken = inbox.check_message("fuga", message)

    assert taken is not None
    assert inbox.readable_queues() == ["fuga-urgent"]
    inbox.record_done(taken["properties"]["delivery_tag"])
    assert inbox.readable_queues() == ["fuga-urgent", "fuga"]


def test_builds_do_not_come_by_the_queue_of_what_is_urgent() -> None:
    inbox = Inbox([allowed_messages_of_queue(WorkQueue.URGENT, 1)], ProcessMetrics("test"))

    assert inbox.check_message("fuga-urgent", json.dumps(a_message(CREATE)).encode()) is None
    assert (
        inbox.check_message("fuga-urgent", json.dumps(a_message(SWITCH_POWER)).encode()) is not None
    )


def test_fences_hold_no_thread_of_power_and_consoles() -> None:
    """A command may take a minute, and a rack of hosts fails at once."""
    threads = WorkerSettings(state_dir=Path("/x")).threads
    inbox = Inbox(
        [allowed_messages_of_queue(*each) for each in threads.items()], ProcessMetrics("test")
    )
    taken = 0
    while (queue := QUEUE_OF[FENCE_HOST].broker_name) in inbox.readable_queues():
        taken += inbox.check_message(queue, json.dumps(a_message(FENCE_HOST)).encode()) is not None

    assert taken == threads[QUEUE_OF[FENCE_HOST]]
    for task in (SWITCH_POWER, READ_CONSOLE):
        assert QUEUE_OF[task].broker_name in inbox.readable_queues()


def test_every_task_has_a_queue() -> None:
    assert set(QUEUE_OF) == set(allowed_messages_of_queue(WorkQueue.BUILD, 1).tasks)


def test_a_worker_reads_the_queues_that_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUGA_QUEUES", "remove, urgent")
    monkeypatch.setenv("FUGA_CONCURRENCY", "3")

    threads = load_settings(WorkerSettings).threads

    assert list(threads.items()) == [(WorkQueue.URGENT, 3), (WorkQueue.REMOVE, 3)]


def test_a_queue_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUGA_QUEUES", "urgent,slow")

    with pytest.raises(
        SettingsError, match="fence, urgent, remove, build, moves, images are known"
    ):
        load_settings(WorkerSettings)
