"""One ailing host must not hold every thread of a worker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from hypervisor import HostUnreachableError, OperationFailedError
from registry.db import uuid7
from registry.hosts import HostAccess
from workers.errors import HostBusyError
from workers.host_limits import HostLimits


def a_host(name: str) -> HostAccess:
    return HostAccess(
        id=uuid7(),
        name=name,
        uri=f"qemu+tcp://{name}/system",
        domain_type="qemu",
        pool="default",
        network="default",
        base_volume=None,
        memory_backing_mib=None,
    )


ONE, OTHER = a_host("one"), a_host("other")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class AnyHosts:
    """Lends a driver that no test here calls."""

    @contextmanager
    def use(self, host: HostAccess) -> Iterator[Any]:
        yield object()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gate(clock: Clock) -> HostLimits:
    return HostLimits(AnyHosts(), max_threads=2, pause_s=15, wait_s=0, clock=clock)


def test_a_host_gets_as_many_threads_as_it_may_have_and_others_are_not_affected(
    gate: HostLimits,
) -> None:
    with gate.use(ONE, pool=True), gate.use(ONE, pool=True):
        with pytest.raises(HostBusyError, match="2 threads"), gate.use(ONE, pool=True):
            pass

        with gate.use(OTHER, pool=True):
            pass

    with gate.use(ONE, pool=True):
        pass


def test_a_host_that_did_not_answer_gets_no_thread_for_a_while(
    gate: HostLimits, clock: Clock
) -> None:
    go_silent(gate, ONE)

    clock.now = 14.9
    with pytest.raises(HostBusyError, match="did not answer"), gate.use(ONE, pool=True):
        pass
    with gate.use(OTHER, pool=True):
        pass

    clock.now = 15.1
    with gate.use(ONE, pool=True):
        pass


def test_after_silence_one_thread_goes_first_and_its_success_lets_the_others_in(
    gate: HostLimits, clock: Clock
) -> None:
    go_silent(gate, ONE)
    clock.now = 16

    with (
        gate.use(ONE, pool=True),
        pytest.raises(HostBusyError, match="1 threads"),
        gate.use(ONE, pool=True),
    ):
        pass

    with gate.use(ONE, pool=True), gate.use(ONE, pool=True):
        pass


def test_what_needs_no_storage_has_a_thread_that_storage_never_takes(gate: HostLimits) -> None:
    with gate.use(ONE, pool=True), gate.use(ONE, pool=True):
        with gate.use(ONE), pytest.raises(HostBusyError, match="3 threads"), gate.use(ONE):
            pass
        with gate.use(ONE):
            pass


def test_storage_that_did_not_answer_keeps_nothing_else_waiting(gate: HostLimits) -> None:
    go_silent(gate, ONE)

    with pytest.raises(HostBusyError, match="did not answer"), gate.use(ONE, pool=True):
        pass
    with gate.use(ONE), gate.use(ONE), gate.use(ONE):
        pass


def test_storage_that_is_known_to_be_silent_is_not_asked(gate: HostLimits) -> None:
    hung = replace(ONE, pool_silent=True)

    with pytest.raises(HostBusyError, match="pool 'default' does not"), gate.use(hung, pool=True):
        pass
    with gate.use(hung):
        pass


def test_a_host_that_refuses_an_operation_has_answered(gate: HostLimits) -> None:
    with pytest.raises(OperationFailedError), gate.use(ONE, pool=True):
        raise OperationFailedError("define", "no")

    with gate.use(ONE, pool=True), gate.use(ONE, pool=True):
        pass


def test_a_thread_waits_a_moment_for_its_turn(clock: Clock) -> None:
    gate = HostLimits(AnyHosts(), max_threads=1, pause_s=15, wait_s=30, clock=clock)
    inside, leave, entered = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with gate.use(ONE, pool=True):
            inside.set()
            assert leave.wait(30)

    def second() -> None:
        with gate.use(ONE, pool=True):
            entered.set()

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(30)
    threads[1].start()
    assert not entered.is_set()
    leave.set()

    assert entered.wait(30)
    for thread in threads:
        thread.join(30)


def test_who_waits_for_a_turn_learns_at_once_that_the_host_fell_silent(clock: Clock) -> None:
    gate = HostLimits(AnyHosts(), max_threads=1, pause_s=15, wait_s=3600, clock=clock)
    inside, fall_silent = threading.Event(), threading.Event()
    refused = []

    def first() -> None:
        with suppress(HostUnreachableError), gate.use(ONE, pool=True):
            inside.set()
            assert fall_silent.wait(30)
            raise HostUnreachableError(ONE.uri, "no answer within 10 s")

    def second() -> None:
        try:
            with gate.use(ONE, pool=True):
                pass
        except HostBusyError as error:
            refused.append(error.reason)

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(30)
    threads[1].start()
    fall_silent.set()
    for thread in threads:
        thread.join(30)

    assert refused == ["it did not answer a moment ago"]


def test_a_thread_may_enter_again_whatever_happened_in_it(gate: HostLimits) -> None:
    for _ in range(5):
        with pytest.raises(ZeroDivisionError), gate.use(ONE, pool=True):
            raise ZeroDivisionError

    with gate.use(ONE, pool=True), gate.use(ONE, pool=True):
        pass


def test_the_maximum_holds_when_many_threads_come_at_once(gate: HostLimits) -> None:
    inside, most, lock = 0, 0, threading.Lock()
    barrier = threading.Barrier(8)

    def visit() -> None:
        nonlocal inside, most
        barrier.wait()
        for _ in range(200):
            try:
                with gate.use(ONE, pool=True):
                    with lock:
                        inside += 1
                        most = max(most, inside)
                    with lock:
                        inside -= 1
            except HostBusyError:
                continue

    threads = [threading.Thread(target=visit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 1 <= most <= 2


def go_silent(gate: HostLimits, host: HostAccess) -> None:
    with pytest.raises(HostUnreachableError), gate.use(host, pool=True):
        raise HostUnreachableError(host.uri, "no answer within 10 s")
