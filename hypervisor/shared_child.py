"""Client of a child process that polls many hosts; used by many threads at once."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from typing import Any, Final

from hypervisor import wire
from hypervisor.child_process import MAX_ANSWER_BYTES, ChildProcess, SilentError

#: -P: modules in the current folder are ignored.
COMMAND: Final = (sys.executable, "-P", "-m", "hypervisor.child.multi_host_child")
#: Limits glibc's memory arenas, which many threads would multiply.
_ENVIRONMENT: Final = {"MALLOC_ARENA_MAX": "2"}
#: Time without a heartbeat after which the process counts as stalled, and time for its start.
_STALLED_AFTER_S: Final = 5.0
_STARTED_WITHIN_S: Final = 30.0
_GOODBYE_S: Final = 1.0  #: for a process to end by itself


class TooLateError(Exception):
    """One poll was not answered in time, while the process works."""


class NotBegunError(Exception):
    """The process is retired and did not begin this poll."""


class ChildLostError(Exception):
    """The process died or stalled; all its polls are lost."""


class SharedChild:
    """One process of ``python -m hypervisor.child.multi_host_child``.

    Parameters
    ----------
    closes_at : float, optional
        Monotonic time after which the process begins no new poll.
    """

    def __init__(
        self, command: tuple[str, ...] = COMMAND, *, closes_at: float | None = None
    ) -> None:
        self.hosts: set[int] = set()  #: keys of the hosts that it polls
        self._process = ChildProcess(command, environment=_ENVIRONMENT)
        self._closes_at = closes_at
        self._changing = threading.Lock()
        self._write_lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._under_way: dict[int, Future[dict[str, Any]]] = {}
        self._abandoned: set[int] = set()
        self._retired = False
        self._lost: str | None = None
        # Only this thread closes the pipe that it reads: otherwise the descriptor may be reused.
        self._reader = threading.Thread(target=self._read_answers, name="shared-child", daemon=True)
        self._reader.start()

    @property
    def is_open(self) -> bool:
        """Whether the child process may begin a poll."""
        with self._changing:
            return not self._retired and self._lost is None and not self._is_past_close()

    @property
    def is_gone(self) -> bool:
        """Whether the child process has ended."""
        return not self._reader.is_alive()

    @property
    def abandoned_polls(self) -> int:
        """The number of polls under way whose callers gave up."""
        return len(self._abandoned)

    def ask(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:
        """Send a poll request, wait for its answer, and return it.

        Raises `TooLateError`, `ChildLostError` or `NotBegunError`.
        """
        answer: Future[dict[str, Any]] = Future()
        with self._changing:
            if self._lost is not None or self._retired:
                raise NotBegunError
            number = next(self._numbers)
            self._under_way[number] = answer
        try:
            self._send_message({"id": number, **request})
            return answer.result(max(0.0, deadline - time.monotonic()))
        except NotYetError:
            with self._changing:
                if number in self._under_way:  # no answer came until now
                    self._abandoned.add(number)
            raise TooLateError from None
        finally:
            with self._changing:
                self._under_way.pop(number, None)
            self._end_if_done()

    def forget(self, key: int) -> None:
        """Request the child to close its connections to a host."""
        try:
            self._send_message({"forget": key})
        except ChildLostError:
            return

    def retire(self) -> None:
        """Begin no more polls, and end the child process once none is running."""
        with self._changing:
            self._retired = True
        self._end_if_done()

    def end(self, why: str = "it was closed") -> None:
        """End the child process; running polls are lost."""
        self._mark_lost(why)
        self._close_input()
        self._reader.join(_GOODBYE_S)
        if self._reader.is_alive():
            self._process.kill_group()
            self._reader.join(_GOODBYE_S)

    def _send_message(self, message: Mapping[str, Any]) -> None:
        """Send the child a message, or raise `ChildLostError`."""
        try:
            with self._write_lock:
                self._process.send(wire.encode(message))
        except (SilentError, OSError, ValueError) as error:
            self._mark_lost(str(error))
            raise ChildLostError(str(error)) from None

    def _is_past_close(self) -> bool:
        """Return whether the time has come after which no poll begins."""
        return self._closes_at is not None and time.monotonic() >= self._closes_at

    def _end_if_done(self) -> None:
        """End a retired child process if no poll is under way."""
        with self._changing:
            done = (self._retired or self._is_past_close()) and not self._under_way
            if not done or self._lost is not None:
                return
            self._lost = "it was retired"
        self._close_input()

    def _close_input(self) -> None:
        """Close the child's input, so that it ends, even with hung polls."""
        if self._write_lock.acquire(timeout=_GOODBYE_S):
            try:
                self._process.close_input()
            finally:
                self._write_lock.release()
        else:
            self._process.kill_group()  # it has stopped reading

    def _mark_lost(self, why: str) -> None:
        """Record why the child is lost; all polls under way raise `ChildLostError`."""
        with self._changing:
            self._lost = self._lost or why
            waiting = list(self._under_way.values())
            self._under_way.clear()
        for answer in waiting:
            answer.set_exception(ChildLostError(why))

    def _read_answers(self) -> None:
        """Read the child's answers and pass them to their callers, until it ends or stalls."""
        patience_s = _STARTED_WITHIN_S
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                heard = self._process.read(patience_s)
                if heard is None:
                    raise SilentError(f"it stood still for {patience_s:g} s")  # noqa: TRY301
                patience_s = _STALLED_AFTER_S
                *lines, rest = heard.split(b"\n")
                for line in lines:
                    self._deliver_answer(b"".join((*parts, line)))
                    parts, size = [], 0
                parts.append(rest)
                size += len(rest)
                if size > MAX_ANSWER_BYTES:
                    raise SilentError(f"an answer of more than {MAX_ANSWER_BYTES >> 20} MiB")  # noqa: TRY301
        except (SilentError, OSError, ValueError) as error:
            self._mark_lost(str(error))
            self._process.kill()

    def _deliver_answer(self, line: bytes) -> None:
        """Pass an answer of the child to the caller that waits for it."""
        answer = wire.decode(line)
        number = answer["id"]
        with self._changing:
            self._abandoned.discard(number)
            waiting = self._under_way.pop(number, None)
        if waiting is not None:
            waiting.set_result(answer)
