"""Turns come at a fixed cadence, and one that hangs delays no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from monitor.scheduler import PollerThreads, PollScheduler
from tests.servers.running import eventually

PERIOD_S = 0.05


class Looker:
    """Counts its looks; may hang or fail in them."""

    def __init__(self, does: Callable[[], object] = lambda: None) -> None:
        self.looks = 0
        self.stopped = self.closed = False
        self._does = does

    def poll(self) -> None:
        self.looks += 1
        self._does()

    def stop(self) -> None:
        self.stopped = True

    def close(self) -> None:
        assert not self.closed
        self.closed = True


@pytest.fixture
def rota() -> Iterator[PollScheduler]:
    made = PollScheduler(PERIOD_S)
    made.start()
    yield made
    made.shut_down(20)


def test_many_turns_that_hang_delay_no_other(rota: PollScheduler) -> None:
    released = threading.Event()
    hanging = [Looker(lambda: released.wait(60)) for _ in range(200)]
    well = [Looker() for _ in range(5)]

    rota.add_tasks([*hanging, *well])

    eventually(lambda: all(each.looks >= 5 for each in well))
    eventually(lambda: all(each.looks == 1 for each in hanging))
    released.set()


def test_a_turn_that_fails_is_given_again(rota: PollScheduler) -> None:
    def fail() -> None:
        raise RuntimeError("nobody thought of this")

    failing = Looker(fail)

    rota.add_tasks([failing])

    eventually(lambda: failing.looks >= 3)


def test_what_is_dropped_while_it_looks_is_closed_when_the_look_ends(rota: PollScheduler) -> None:
    released = threading.Event()
    looking = Looker(lambda: released.wait(60))
    rota.add_tasks([looking])
    eventually(lambda: looking.looks)

    rota.remove_task(looking)

    assert looking.stopped
    assert not looking.closed
    released.set()
    eventually(lambda: looking.closed)
    assert looking.looks == 1


def test_what_is_dropped_between_looks_is_closed_at_once(rota: PollScheduler) -> None:
    looker = Looker()
    rota.add_tasks([looker])
    eventually(lambda: looker.looks)

    rota.remove_task(looker)

    eventually(lambda: looker.closed)


def test_a_host_whose_look_hangs_is_told_to_be_late(rota: PollScheduler) -> None:
    released = threading.Event()
    rota.add_tasks([Looker(lambda: released.wait(60)), Looker()])

    eventually(lambda: rota.count_late(10 * PERIOD_S) == 1)
    released.set()
    eventually(lambda: rota.count_late(10 * PERIOD_S) == 0)


def test_threads_that_are_not_needed_end() -> None:
    before, hands = threading.active_count(), PollerThreads(idle_s=0.01)
    released, begun = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        begun.release()
        released.wait(60)

    for _ in range(20):
        hands.submit(work)
    for _ in range(20):
        assert begun.acquire(timeout=60)
    released.set()

    eventually(lambda: threading.active_count() <= before + 1)
    hands.submit(released.clear)  # and come back when they are
    eventually(lambda: not released.is_set())
    hands.close()
    eventually(lambda: threading.active_count() <= before)


def test_what_finds_no_thread_is_done_by_one_that_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    hands, released, done = PollerThreads(), threading.Event(), []
    hands.submit(lambda: released.wait(60))

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for number in range(3):
            hands.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    released.set()

    eventually(lambda: done == [0, 1, 2])


def test_what_finds_no_thread_at_all_is_done_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    hands, done = PollerThreads(idle_s=0.001), threading.Event()
    threading.Event().wait(0.05)  # whoever has nothing to do has gone by now

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    hands.submit(done.set)

    assert done.wait(60)


def test_work_that_raises_takes_no_thread_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hands, done = PollerThreads(), threading.Event()

    def fail() -> None:
        raise MemoryError

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    hands.submit(fail)
    hands.submit(done.set)

    assert done.wait(60)
