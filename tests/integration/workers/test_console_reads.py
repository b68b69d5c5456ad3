"""A console from the question of a caller to the worker's answer, and back."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from controller.errors import ConsoleUnreadError
from controller.queries.consoles import read_console
from hypervisor import HostUnreachableError
from registry import ConflictError, NotFoundError
from registry.consoles import ConsoleAnswer
from tests.integration.workers.world import World
from tests.raw_sql import RawSql
from tests.register import add_request
from workers import consoles
from workers.context import TaskOutcome


class Workers:
    """A broker and a worker behind it, which may lose messages."""

    def __init__(self, world: World, *, lost: int = 0) -> None:
        self._world = world
        self._lost = lost
        self.outcomes: list[TaskOutcome] = []

    def send(self, task: str, row_id: UUID) -> bool:
        assert task == "workers.read_console"
        if self._lost:
            self._lost -= 1
        else:
            self.outcomes.append(consoles.read_console(row_id, self._world.worker()))
        return True


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def vm_id(world: World) -> UUID:
    """A VM that runs, and has written a little."""
    assignment_id = world.built()
    vm = world.vm_of(assignment_id).id
    world.host.consoles[str(vm)] = b"one\ntwo\n"
    return vm


def read(world: World, vm_id: UUID, *, lost: int = 0, **asked: int) -> ConsoleAnswer:
    clock = Clock()
    asked = {"max_bytes": 65_536, **asked}
    workers = Workers(world, lost=lost)
    return read_console(world.registry, workers, vm_id, clock=clock, sleep=clock.sleep, **asked)


def test_a_worker_reads_what_a_caller_asked_for(world: World, vm_id: UUID, raw: RawSql) -> None:
    whole = read(world, vm_id)

    assert (whole.content, whole.end) == (b"one\ntwo\n", 8)
    assert read(world, vm_id, max_bytes=4).content == b"two\n"
    assert raw.value("SELECT count(*) FROM console_reads") == 0


def test_whoever_follows_gets_only_what_is_new(world: World, vm_id: UUID) -> None:
    end = read(world, vm_id).end
    assert read(world, vm_id, after=end).content == b""

    world.host.consoles[str(vm_id)] += b"three\n"
    assert read(world, vm_id, after=end) == ConsoleAnswer(content=b"three\n", end=14, error=None)

    world.host.consoles[str(vm_id)] = b"again\n"  # built again, on another host
    assert read(world, vm_id, after=14).content == b"again\n"


def test_a_lost_message_is_sent_again(world: World, vm_id: UUID) -> None:
    assert read(world, vm_id, lost=2).content == b"one\ntwo\n"


def test_without_a_worker_the_caller_is_told_in_the_end(
    world: World, vm_id: UUID, raw: RawSql
) -> None:
    with pytest.raises(ConsoleUnreadError, match="no worker answered within 20 s"):
        read(world, vm_id, lost=1000)
    assert raw.value("SELECT count(*) FROM console_reads") == 0


def test_a_host_that_does_not_answer_is_an_answer(world: World, vm_id: UUID) -> None:
    world.host.fail_at("console_tail", HostUnreachableError(world.host.uri, "no answer"))

    with pytest.raises(ConsoleUnreadError, match="no answer"):
        read(world, vm_id)


def test_a_vm_without_a_host_has_no_console(world: World) -> None:
    request = add_request(world.registry)
    [vm] = world.registry.vms.list(request_id=request.id).items

    with pytest.raises(ConflictError, match="on no host"):
        read(world, vm.id)
    with pytest.raises(NotFoundError):
        read(world, uuid4())


def test_a_message_that_comes_late_finds_nobody_waiting(world: World, vm_id: UUID) -> None:
    reads = world.registry.console_reads
    key = reads.request(vm_id)
    reads.delete_question(key)

    assert consoles.read_console(key, world.worker()) is TaskOutcome.NOT_OURS
    assert ("console_tail", str(vm_id)) not in world.host.log


def test_the_first_answer_counts(world: World, vm_id: UUID) -> None:
    reads = world.registry.console_reads
    key = reads.request(vm_id)

    for content in (b"first", b"second"):
        reads.store_answer(key, ConsoleAnswer(content=content, end=0, error=None))

    assert reads.question(key) is None
    answer = reads.find_answer(key)
    assert answer is not None
    assert answer.content == b"first"


def test_what_a_caller_left_behind_goes_with_a_later_question(
    world: World, vm_id: UUID, raw: RawSql
) -> None:
    reads = world.registry.console_reads
    reads.request(vm_id)
    past = "datetime('now', '-1 hour')" if raw.dialect == "sqlite" else "now() - interval '1 hour'"
    raw.run(f"UPDATE console_reads SET requested_at = {past}")

    reads.request(vm_id)

    assert raw.value("SELECT count(*) FROM console_reads") == 1
