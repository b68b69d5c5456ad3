"""Threads that poll hosts: as many as there are simultaneous polls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

import structlog

log: Final = structlog.get_logger(__name__)

#: A thread that had nothing to do for so long ends.
_IDLE_S: Final = 30.0


class Hands:
    """Runs work at once, whatever else hangs.

    Its threads are daemons: a look that hangs keeps no process from ending. One is there
    from the beginning and stays until `close`: where the machine gives no more of them,
    work waits for it, and not for a thread that never comes.

    Raises
    ------
    RuntimeError
        If the machine gives not even that one.
    """

    def __init__(self, idle_s: float = _IDLE_S) -> None:
        self._idle_s = idle_s
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._counting = threading.Lock()
        self._idle = 1  #: threads that wait, less those that work was given for
        self._unserved = 0  #: work that waits until a thread has done other work
        self._is_closed = False
        self._start(stays=True)

    def do(self, work: Callable[[], None]) -> None:
        """Run a function, which must not raise, in a thread."""
        with self._counting:
            has_idle = self._idle > 0
            if has_idle:
                self._idle -= 1
        self._work.put(work)
        if not has_idle:
            try:
                self._start(stays=False)
            except RuntimeError:  # the machine lets us have no more of them
                with self._counting:
                    self._unserved += 1

    def close(self) -> None:
        """End idle threads."""
        self._is_closed = True

    def _start(self, *, stays: bool) -> None:
        threading.Thread(target=self._run, args=(stays,), name="look", daemon=True).start()

    def _run(self, stays: bool) -> None:
        while True:
            try:
                work = self._work.get(timeout=self._idle_s)
            except Empty:
                with self._counting:
                    if self._idle > 0 and (self._is_closed or not stays):
                        self._idle -= 1
                        return
                continue  # it stays, or there is work for us, just now
            try:
                work()
            except Exception:  # it must not, and would take the thread with it
                log.exception("work_failed")
            finally:
                del work  # what it holds is not to wait for the next
            with self._counting:
                if self._unserved > 0:
                    self._unserved -= 1
                else:
                    self._idle += 1
