"""Typing on a console: a caller, a worker that holds it on a host, and what lies between."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

import pytest

from controller.queries.consoles import wait_for_output
from hypervisor import HostUnreachableError
from registry import ClaimLostError, ConflictError, ConsoleState, InvalidError, NotFoundError
from registry.consoles import MAX_TYPED_BYTES, ConsoleOutput
from tests.integration.workers.world import OneHost, World, eventually
from tests.raw_sql import RawSql
from tests.register import add_request
from workers.console_threads import ConsoleThreads
from workers.consoles import attach_console, hold_console
from workers.context import TaskOutcome, WorkerContext

LEASE_S = 60.0


class Workers:
    """A broker with one worker behind it."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context

    def send(self, task: str, row_id: UUID) -> bool:
        assert task == "workers.attach_console"
        attach_console(row_id, self._context)
        return True


class NoOne:
    """A broker that loses everything."""

    def send(self, task: str, row_id: UUID) -> bool:
        return True


@pytest.fixture
def vm_id(world: World) -> UUID:
    assignment_id = world.built()
    return world.vm_of(assignment_id).id


@pytest.fixture
def context(world: World) -> Iterator[WorkerContext]:
    context = world.worker()
    yield context
    context.stopping.set()


@contextmanager
def workers_of(world: World, context: WorkerContext) -> Iterator[Workers]:
    """A worker whose threads have ended when the block has."""
    threads = ConsoleThreads(OneHost(world.host), limit=4)
    try:
        yield Workers(dataclasses.replace(context, consoles=threads))
    finally:
        context.stopping.set()
        threads.join(within_s=60)


def open_one(world: World, vm_id: UUID, *, force: bool = False) -> UUID:
    return world.registry.console_sessions.open(vm_id, actor="cli", force=force).id


def past(raw: RawSql, seconds: int) -> str:
    return (
        f"datetime('now', '-{seconds} seconds')"
        if raw.dialect == "sqlite"
        else f"now() - interval '{seconds} seconds'"
    )


def look(world: World, vm_id: UUID, key: UUID, after: int = 0) -> ConsoleOutput:
    return world.registry.console_sessions.output(vm_id, key, after=after)


def test_what_is_typed_reaches_the_guest_and_its_answer_comes_back(
    world: World, vm_id: UUID, context: WorkerContext, raw: RawSql
) -> None:
    sessions = world.registry.console_sessions
    key = open_one(world, vm_id)

    with workers_of(world, context) as queue:
        sessions.store_input(vm_id, key, 1, b"hel")
        sessions.store_input(vm_id, key, 2, b"lo\r")
        sessions.store_input(vm_id, key, 2, b"lo\r")  # the answer to the first was lost

        def said() -> bytes:
            output = wait_for_output(world.registry, queue, vm_id, key, after=0, wait_s=0)
            return output.content

        answer = eventually(said)
        assert answer == b"LAB-GUEST-HEARD hello\r\n"
        assert raw.value("SELECT count(*) FROM console_inputs") == 0
        sessions.record_reader(vm_id, key, after=len(answer))
        assert raw.value("SELECT count(*) FROM console_outputs") == 0
        assert world.host.held_console == str(vm_id)

        sessions.close(vm_id, key, actor="cli")
        eventually(lambda: world.host.held_console is None)

    events = world.registry.events.list(subject_id=str(vm_id), limit=100)
    event = [(e.kind, e.to_state) for e in events if e.kind.startswith("console")]
    assert event == [
        ("console_opened", None),
        ("console_state", "attached"),
        ("console_state", "ended"),
    ]
    assert "hello" not in str(events)


def test_one_types_at_a_time_unless_by_force(world: World, vm_id: UUID) -> None:
    first = open_one(world, vm_id)

    with pytest.raises(ConflictError, match=r"in use since .* can be taken by force"):
        open_one(world, vm_id)
    second = open_one(world, vm_id, force=True)

    over = look(world, vm_id, first).session
    assert (over.state, over.reason) == (ConsoleState.ENDED, "another session took the console")
    with pytest.raises(ConflictError, match="another session took"):
        world.registry.console_sessions.store_input(vm_id, first, 1, b"x")
    assert look(world, vm_id, second).session.state is ConsoleState.WAITING


def test_who_is_not_heard_of_any_more_loses_the_console(
    world: World, vm_id: UUID, raw: RawSql
) -> None:
    first = open_one(world, vm_id)
    world.registry.console_sessions.store_input(vm_id, first, 1, b"secret")
    raw.run(f"UPDATE console_sessions SET heartbeat_at = {past(raw, 61)}")

    world.registry.assignments.send_due_tasks()

    assert look(world, vm_id, first).session.reason == "no client or worker was heard from for 60 s"
    assert raw.value("SELECT count(*) FROM console_inputs") == 0
    open_one(world, vm_id)
    raw.run(f"UPDATE console_sessions SET heartbeat_at = {past(raw, 660)} WHERE state = 'ended'")
    world.registry.assignments.send_due_tasks()
    with pytest.raises(NotFoundError):
        look(world, vm_id, first)


def test_when_its_worker_dies_another_takes_the_console_up(
    world: World, vm_id: UUID, context: WorkerContext, raw: RawSql
) -> None:
    holds = world.registry.console_holds
    key = open_one(world, vm_id)
    dead = holds.claim(key, "dead", LEASE_S)
    assert dead is not None
    holds.mark_attached(dead.claim)
    world.host.open_console(str(vm_id), force=False)  # its stream is still there
    assert holds.claim(key, "too early", LEASE_S) is None
    raw.run(f"UPDATE console_sessions SET lease_until = {past(raw, 1)}")

    with workers_of(world, context) as queue:
        world.registry.console_sessions.store_input(vm_id, key, 1, b"still there?\r")

        def said() -> bytes:
            return wait_for_output(world.registry, queue, vm_id, key, after=0, wait_s=0).content

        assert eventually(said) == b"LAB-GUEST-HEARD still there?\r\n"
        for late in (
            lambda: holds.take_input(dead.claim),
            lambda: holds.store_output(dead.claim, b"late"),
            lambda: holds.extend_claim(dead.claim, LEASE_S),
            lambda: holds.has_input(dead.claim),
        ):
            with pytest.raises(ClaimLostError, match="another has it"):
                late()


def test_a_host_that_does_not_answer_is_tried_again(
    world: World, vm_id: UUID, context: WorkerContext
) -> None:
    key = open_one(world, vm_id)
    world.host.fail_at("open_console", HostUnreachableError(world.host.uri, "no answer"))
    work = world.registry.console_holds.claim(key, "w1", LEASE_S)
    assert work is not None

    assert hold_console(work, context, OneHost(world.host)) is TaskOutcome.FAILED

    waits = look(world, vm_id, key).session
    assert waits.state is ConsoleState.WAITING
    assert "no answer" in str(waits.reason)
    assert world.registry.console_holds.claim(key, "w2", LEASE_S) is not None


def test_the_session_ends_with_the_guest(world: World, vm_id: UUID, context: WorkerContext) -> None:
    key = open_one(world, vm_id)
    work = world.registry.console_holds.claim(key, "w1", LEASE_S)
    assert work is not None
    world.host.before("exchange_console", lambda: world.host.destroy(str(vm_id)))

    assert hold_console(work, context, OneHost(world.host)) is TaskOutcome.DONE

    assert "the guest is off" in str(look(world, vm_id, key).session.reason)


def test_a_guest_that_is_off_refuses(world: World, vm_id: UUID, context: WorkerContext) -> None:
    world.host.destroy(str(vm_id))
    key = open_one(world, vm_id)
    work = world.registry.console_holds.claim(key, "w1", LEASE_S)
    assert work is not None

    assert hold_console(work, context, OneHost(world.host)) is TaskOutcome.FAILED

    over = look(world, vm_id, key).session
    assert over.state is ConsoleState.ENDED
    assert "not running" in str(over.reason)


def test_a_worker_that_is_told_to_end_hands_the_console_back(world: World, vm_id: UUID) -> None:
    key = open_one(world, vm_id)
    stopping = threading.Event()
    context = world.worker(stopping=stopping)
    work = world.registry.console_holds.claim(key, "w1", LEASE_S)
    assert work is not None
    world.host.before("exchange_console", stopping.set)

    assert hold_console(work, context, OneHost(world.host)) is TaskOutcome.HANDED_BACK

    assert look(world, vm_id, key).session.state is ConsoleState.WAITING
    assert world.host.held_console is None


def test_of_what_nobody_reads_the_oldest_is_dropped(world: World, vm_id: UUID) -> None:
    holds = world.registry.console_holds
    key = open_one(world, vm_id)
    work = holds.claim(key, "w1", LEASE_S)
    assert work is not None
    holds.mark_attached(work.claim)

    for number in range(6):
        holds.store_output(work.claim, bytes([48 + number]) * 65_536)

    output = look(world, vm_id, key)
    assert (output.start, output.end) == (2 * 65_536, 6 * 65_536)
    assert output.content.startswith(b"22")
    assert look(world, vm_id, key, after=output.end - 3).content == b"555"
    assert look(world, vm_id, key, after=output.end).content == b""


def test_what_is_typed_is_small_in_order_and_bounded(world: World, vm_id: UUID) -> None:
    sessions = world.registry.console_sessions
    key = open_one(world, vm_id)

    for wrong in (b"", b"x" * (MAX_TYPED_BYTES + 1)):
        with pytest.raises(InvalidError, match="content"):
            sessions.store_input(vm_id, key, 1, wrong)
    with pytest.raises(ConflictError, match="piece 1 comes before piece 2"):
        sessions.store_input(vm_id, key, 2, b"x")
    for number in range(1, 17):
        sessions.store_input(vm_id, key, number, b"x" * MAX_TYPED_BYTES)
    with pytest.raises(ConflictError, match="did not reach the guest yet"):
        sessions.store_input(vm_id, key, 17, b"x")


def test_without_a_place_or_a_vm_there_is_nothing_to_type_on(world: World) -> None:
    request = add_request(world.registry)
    [vm] = world.registry.vms.list(request_id=request.id).items

    with pytest.raises(ConflictError, match="on no host"):
        open_one(world, vm.id)
    with pytest.raises(NotFoundError):
        open_one(world, uuid4())


def test_a_worker_whose_threads_are_taken_leaves_the_rest_to_others(
    world: World, vm_id: UUID, context: WorkerContext
) -> None:
    key = open_one(world, vm_id)
    full = ConsoleThreads(OneHost(world.host), limit=1)
    begun = threading.Event()
    assert full.begin("b", lambda: lambda: begun.wait(60))

    assert attach_console(key, dataclasses.replace(context, consoles=full)) is TaskOutcome.NOT_OURS

    begun.set()
    full.join(within_s=60)
    output = wait_for_output(world.registry, NoOne(), vm_id, key, after=0, wait_s=0)
    assert output.session.state is ConsoleState.WAITING
    assert "close another console" in (output.session.reason or "")


def test_the_consoles_of_one_tenant_leave_threads_to_the_next(
    world: World, vm_id: UUID, context: WorkerContext
) -> None:
    threads = ConsoleThreads(OneHost(world.host), limit=8)
    over = threading.Event()
    greedy = [threads.begin("greedy", lambda: lambda: over.wait(60)) for _ in range(20)]

    key = open_one(world, vm_id)
    outcome = attach_console(key, dataclasses.replace(context, consoles=threads))

    assert greedy == [True] * 4 + [None] * 16
    assert outcome is TaskOutcome.DONE
    eventually(
        lambda: (
            wait_for_output(world.registry, NoOne(), vm_id, key, after=0, wait_s=0).session.state
            is ConsoleState.ATTACHED
        )
    )
    over.set()
    context.stopping.set()
    threads.join(within_s=60)


def test_a_tenant_has_a_few_consoles_at_a_time_and_is_told_which(world: World) -> None:
    request = add_request(world.registry, 3)
    for _ in range(3):
        world.place(request.id)
    first, second, third = (vm.id for vm in world.registry.vms.list().items)
    sessions = world.registry.console_sessions
    sessions.open(first, actor="tenant:a", force=False, at_most=2)
    held = sessions.open(second, actor="tenant:a", force=False, at_most=2)

    with pytest.raises(ConflictError, match=r"has 2 consoles in use.*let go of one"):
        sessions.open(third, actor="tenant:a", force=False, at_most=2)

    sessions.open(second, actor="tenant:a", force=True, at_most=2)
    assert held.state is ConsoleState.WAITING
    sessions.open(third, actor="operator", force=False)
