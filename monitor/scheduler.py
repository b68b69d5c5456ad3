"""Schedules polls: every host at the same interval, each in its own phase."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Final, Protocol

import structlog

#: Idle time after which a thread ends.
_IDLE_S: Final = 30.0


class PollerThreads:
    """Runs each piece of work in a thread at once, even while other work hangs.

    Threads are daemons, so a hung poll does not keep the process from ending. One thread exists
    from the beginning until `close`: if no further thread can start, work waits for this one.

    Raises
    ------
    RuntimeError
        If not even that one thread can start.
    """

    def __init__(self, idle_s: float = _IDLE_S) -> None:
        self._idle_s = idle_s
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._counting = threading.Lock()
        self._idle = 1  #: waiting threads, less queued work
        self._unserved = 0  #: queued work without a thread of its own
        self._is_closed = False
        self._start_thread(stays=True)

    def submit(self, work: Callable[[], None]) -> None:
        """Run a function, which must not raise, in a thread at once."""
        with self._counting:
            has_idle = self._idle > 0
            if has_idle:
                self._idle -= 1
        self._work.put(work)
        if not has_idle:
            try:
                self._start_thread(stays=False)
            except RuntimeError:  # no further thread can start
                with self._counting:
                    self._unserved += 1

    def close(self) -> None:
        """End the idle threads of polls."""
        self._is_closed = True

    def _start_thread(self, *, stays: bool) -> None:
        """Start a thread that runs submitted work; one that ``stays`` never ends by idling."""
        threading.Thread(target=self._run_thread, args=(stays,), name="poll", daemon=True).start()

    def _run_thread(self, stays: bool) -> None:
        """Run submitted work until this thread is idle for too long."""
        while True:
            try:
                work = self._work.get(timeout=self._idle_s)
            except Empty:
                with self._counting:
                    if self._idle > 0 and (self._is_closed or not stays):
                        self._idle -= 1
                        return
                continue  # the permanent thread, or work came just now
            try:
                work()
            except Exception:  # work must not raise; an error would end the thread
                log.exception("work_failed")
            finally:
                del work  # free its objects before waiting for the next
            with self._counting:
                if self._unserved > 0:
                    self._unserved -= 1
                else:
                    self._idle += 1


log: Final = structlog.get_logger(__name__)

#: Time between the first polls of hosts that are added together.
_APART_S: Final = 0.005
_MAX_OF_PERIOD: Final = 0.5


class PeriodicTask(Protocol):
    """Polling of one host, repeated by the scheduler."""

    def poll(self) -> None:
        """Poll the host once. Must not raise."""

    def stop(self) -> None:
        """Stop polling the host; a poll under way ends by itself."""

    def close(self) -> None:
        """Close the host's connection, once no poll is under way."""


@dataclass(slots=True, eq=False)
class _TaskEntry:
    """A host's polling in the scheduler: when it is due, and whether it runs or is over."""

    task: PeriodicTask
    due_at: float
    ended_at: float  #: end of its latest poll; at first, when it was added
    is_polling: bool = False
    is_over: bool = False
    is_closed: bool = False


@dataclass(order=True, slots=True)
class _DueTime:
    """When a poll is due; a heap has the earliest first."""

    at: float
    number: int
    entry: _TaskEntry = field(compare=False)


class PollScheduler:
    """Starts due polls in `PollerThreads`; a long poll delays only itself."""

    def __init__(self, period_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._period_s = period_s
        self._monotonic = monotonic
        self._threads = PollerThreads()
        self._changed = threading.Condition()
        self._entries: dict[int, _TaskEntry] = {}
        self._due_times: list[_DueTime] = []
        self._numbers = itertools.count()
        self._stopped = False
        self._thread = threading.Thread(
            target=self._start_due_polls, name="poll-scheduler", daemon=True
        )

    def start(self) -> None:
        """Start the thread that schedules polls."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread that schedules polls runs."""
        return self._thread.is_alive()

    def add_tasks(self, tasks: Sequence[PeriodicTask]) -> None:
        """Schedule the polling of these hosts: the first at once, the others spread out."""
        now = self._monotonic()
        apart_s = min(_APART_S, self._period_s * _MAX_OF_PERIOD / max(1, len(tasks)))
        with self._changed:
            for position, task in enumerate(tasks):
                entry = _TaskEntry(task, due_at=now + position * apart_s, ended_at=now)
                self._entries[id(task)] = entry
                self._schedule_poll(entry)
            self._changed.notify()

    def remove_task(self, task: PeriodicTask) -> None:
        """Stop the polling of a host, and close its connection once no poll is under way."""
        task.stop()
        with self._changed:
            entry = self._entries.pop(id(task))
            entry.is_over = True
            closes_now = not entry.is_polling
        if closes_now:
            self._threads.submit(lambda: self._close_task(entry))

    def count_late(self, after_s: float) -> int:
        """Return how many hosts have finished no poll within ``after_s``."""
        oldest = self._monotonic() - after_s
        with self._changed:
            return sum(entry.ended_at < oldest for entry in self._entries.values())

    def shut_down(self, within_s: float) -> None:
        """Stop all polling, and wait a while for polls under way. Hung polls are abandoned."""
        with self._changed:
            self._stopped = True
            entries = list(self._entries.values())
            self._changed.notify_all()
        for entry in entries:
            self.remove_task(entry.task)
        with self._changed:
            self._changed.wait_for(
                lambda: all(entry.is_closed for entry in entries), timeout=within_s
            )
        self._threads.close()

    def _start_due_polls(self) -> None:
        """Start each poll when it is due, until the scheduler is shut down."""
        while True:
            with self._changed:
                while not self._stopped and not self._is_poll_due():
                    self._changed.wait(self._seconds_until_due())
                if self._stopped:
                    return
                entry = heapq.heappop(self._due_times).entry
                if entry.is_over:
                    continue
                entry.is_polling = True
            self._threads.submit(lambda entry=entry: self._run_poll(entry))  # type: ignore[misc]

    def _run_poll(self, entry: _TaskEntry) -> None:
        """Poll a host, and schedule its next poll unless its polling is over."""
        try:
            entry.task.poll()
        except Exception:
            log.exception("turn_failed")  # the host is polled again all the same
        with self._changed:
            now = entry.ended_at = self._monotonic()
            entry.is_polling = False
            is_over = entry.is_over
            if not is_over:
                entry.due_at = next_poll_time(entry.due_at, self._period_s, now)
                self._schedule_poll(entry)
            self._changed.notify_all()
        if is_over:
            self._close_task(entry)

    def _close_task(self, entry: _TaskEntry) -> None:
        """Close the connection of a host whose polling is over."""
        entry.task.close()
        with self._changed:
            entry.is_closed = True
            self._changed.notify_all()

    def _schedule_poll(self, entry: _TaskEntry) -> None:
        """Put a host's next poll into the heap of due times."""
        heapq.heappush(self._due_times, _DueTime(entry.due_at, next(self._numbers), entry))

    def _is_poll_due(self) -> bool:
        """Return whether the earliest poll is due."""
        return bool(self._due_times) and self._due_times[0].at <= self._monotonic()

    def _seconds_until_due(self) -> float | None:
        """Return the seconds until the earliest poll is due; None without polls."""
        return max(0.0, self._due_times[0].at - self._monotonic()) if self._due_times else None


def next_poll_time(last: float, period_s: float, now: float) -> float:
    """Return the next time of a periodic poll after ``last`` that is in the future."""
    missed = max(0, int((now - last) // period_s))
    return last + (missed + 1) * period_s
