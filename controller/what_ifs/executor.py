"""Runs what-ifs in the API process that accepted them: a thread with children for each."""

from __future__ import annotations

import contextlib
import json
import os
import select
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid4

import structlog

from controller.errors import ControllerError
from controller.fork_server.children import Child, StartChild, make_nice, start_interpreter
from controller.fork_server.client import ForkServerLateError
from registry import ClaimLostError, NotFoundError, Registry, RegistryError
from registry.admin import WhatIfEvent, WhatIfState

NICENESS: Final = 10
CHILD: Final = "controller.what_ifs.child"
#: The part of the progress that belongs to reading.
_READING: Final = 0.05
#: Time limit by the clock, as a multiple of the limit of processor time.
_TIMES_LONGER: Final = 4
_POLL_EVERY_S: Final = 0.25
_REPORT_EVERY_S: Final = 1.0
#: Time limit of one attempt to start a child: less than `WhatIfExecutor.close` waits and than a
#: what-if may be silent, more than a slow machine takes to fork.
_START_S: Final = 4.0
#: Time for which the register center may be away before the what-if fails.
_SILENT_S: Final = 15.0
_MAX_ANSWER_BYTES: Final = 8 << 20
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfBounds:
    """Limits of one what-if."""

    time_s: float = 300.0  #: processor time of both simulations
    memory_mib: int = 2048
    max_vms: int = 200_000  #: of past requests that are repeated


class WhatIfFailedError(ControllerError):
    """A what-if has no report."""


class _StoppedError(ControllerError):
    """The what-if was cancelled."""


class WhatIfExecutor:
    """Runs the what-ifs of one process. Safe to share between threads."""

    def __init__(
        self,
        registry: Registry,
        bounds: WhatIfBounds,
        otherwise: Mapping[str, Any],
        start_child: StartChild = start_interpreter,
    ) -> None:
        self._registry, self.bounds, self._otherwise = registry, bounds, otherwise
        self._start_child = start_child
        self.executor_id = uuid4()
        self._closing = threading.Event()
        self._threads: set[threading.Thread] = set()
        self._starting = threading.Lock()

    def start(self, id: UUID, changes: Mapping[str, Any]) -> None:  # noqa: A002
        """Start a what-if, unless it was started before or another process runs it."""
        thread = threading.Thread(
            target=self._carry_out_what_if, args=(id, changes), name=f"what-if {id}", daemon=True
        )
        with self._starting:
            if any(each.name == thread.name for each in self._threads):
                return
            self._threads.add(thread)
            thread.start()

    def close(self) -> None:
        """End all children of what-ifs; their what-ifs become `interrupted`."""
        self._closing.set()
        for thread in list(self._threads):
            thread.join(timeout=5.0)

    def _carry_out_what_if(self, id: UUID, changes: Mapping[str, Any]) -> None:  # noqa: A002
        """Run a what-if, and store its report, or why it has none."""
        event, report, error = WhatIfEvent.FINISHED, None, None
        try:
            report = self._make_report(
                _Heartbeat(self._registry, id, self.executor_id, self._closing), changes
            )
        except _StoppedError:
            if not self._closing.is_set():
                return
            event, error = WhatIfEvent.INTERRUPTED, "the API process that carried it was stopped"
        except WhatIfFailedError as failed:
            event, error = WhatIfEvent.FAILED, str(failed)
        except Exception as unknown:  # the row must get an end in any case
            log.exception("what_if_failed", what_if=str(id))
            event, error = WhatIfEvent.FAILED, f"{type(unknown).__name__}: {unknown}"
        finally:
            self._threads.discard(threading.current_thread())
        try:
            self._registry.what_ifs.end(id, self.executor_id, event, report=report, error=error)
        except (ClaimLostError, NotFoundError):
            return
        except RegistryError as lost:
            log.warning("what_if_end_not_stored", what_if=str(id), error=str(lost))

    def _make_report(self, heard: _Heartbeat, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Wait for the turn of the what-if, record the site, and simulate it twice."""
        while heard.report(0.0) is not WhatIfState.RUNNING:
            heard.pause(_REPORT_EVERY_S)
        with tempfile.TemporaryDirectory(
            prefix="fuga-what-if-", ignore_cleanup_errors=True
        ) as folder:
            inputs = self._run_child(
                {
                    "operation": "read",
                    "folder": folder,
                    "hours": changes["hours"],
                    "max_vms": self.bounds.max_vms,
                    "otherwise": self._otherwise,
                    "database_url": self._registry.database_url,
                },
                heard,
                lambda _: 0.0,
            )
            runs = self._run_child(
                {
                    "operation": "simulate",
                    "folder": folder,
                    "changes": changes,
                    "time_s": self.bounds.time_s,
                },
                heard,
                lambda part: _READING + (1 - _READING) * part,
            )
        cut = [*inputs["cut"], *runs["cut"]]
        return {"inputs": inputs, **runs, "cut": cut}

    def _run_child(
        self, job: Mapping[str, Any], heard: _Heartbeat, progress: Callable[[float], float]
    ) -> dict[str, Any]:
        """Run a job in a child process within the limits; return its result."""
        # A low-priority child on a busy machine gets little processor time, a hanging one none.
        deadline = time.monotonic() + _TIMES_LONGER * self.bounds.time_s
        part = 0.0
        with self._child_process(job, deadline, lambda: heard.report(progress(0.0))) as child:
            rest = b""
            while True:
                heard.report(progress(part))
                if select.select([child.stdout], [], [], _POLL_EVERY_S)[0]:
                    read = os.read(child.stdout.fileno(), 1 << 16)
                    if not read:
                        status = child.close()
                        # The API may be stopping, which ends its children.
                        heard.report(progress(part))
                        raise WhatIfFailedError(
                            f"its process ended with status {status} and without an answer"
                        )
                    *lines, rest = (rest + read).split(b"\n")
                    if len(rest) > _MAX_ANSWER_BYTES:
                        raise WhatIfFailedError("its answer is too long")
                    for line in lines:
                        said = json.loads(line)
                        if "failed" in said:
                            raise WhatIfFailedError(said["failed"])
                        if "done" in said:
                            found: dict[str, Any] = said["done"]
                            return found
                        part = float(said["progress"])
                self._check_bounds(child.pid, deadline)

    @contextmanager
    def _child_process(
        self, job: Mapping[str, Any], deadline: float, report: Callable[[], object]
    ) -> Iterator[Child]:
        """Start a child with its job; end it and its process group with the block."""
        child = self._start_child_with_retries(deadline, report)
        try:
            make_nice(child.pid, NICENESS)
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(json.dumps(job).encode() + b"\n")
            yield child
        finally:
            child.close()

    def _start_child_with_retries(self, deadline: float, report: Callable[[], object]) -> Child:
        """Start a child process; try again while the fork server is late."""
        while True:
            try:
                return self._start_child(CHILD, min(deadline, time.monotonic() + _START_S))
            except OSError as error:
                report()
                if not isinstance(error, ForkServerLateError) or time.monotonic() > deadline:
                    raise WhatIfFailedError(f"its process was not started: {error}") from error
                self._closing.wait(_POLL_EVERY_S)

    def _check_bounds(self, pid: int, deadline: float) -> None:
        """Raise `WhatIfFailedError` if a child exceeds the time or memory of a what-if."""
        if time.monotonic() > deadline:
            raise WhatIfFailedError(
                f"it is not over after {_TIMES_LONGER * self.bounds.time_s:g} s,"
                f" {_TIMES_LONGER} times FUGA_WHAT_IF_TIME_S; ask for fewer hours"
            )
        used = _memory_mib(pid)
        if used > self.bounds.memory_mib:
            raise WhatIfFailedError(
                f"its process used {used} MiB, FUGA_WHAT_IF_MEMORY_MIB is"
                f" {self.bounds.memory_mib}; ask for fewer hours, or allow more"
            )


class _Heartbeat:
    """Sends heartbeats of a running what-if, and detects its cancellation."""

    def __init__(
        self,
        registry: Registry,
        id: UUID,  # noqa: A002
        executor_id: UUID,
        closing: threading.Event,
    ) -> None:
        self._registry, self._id, self._executor_id = registry, id, executor_id
        self._closing = closing
        self._said_at = -_REPORT_EVERY_S
        self._heard_at = time.monotonic()
        self._state = WhatIfState.WAITING

    def report(self, progress: float) -> WhatIfState:
        """Send a heartbeat if due; return the state, or raise `_StoppedError` if cancelled."""
        if self._closing.is_set():
            raise _StoppedError
        now = time.monotonic()
        if now - self._said_at >= _REPORT_EVERY_S:
            self._said_at = now
            try:
                self._state = self._registry.what_ifs.report_progress(
                    self._id, self._executor_id, progress
                )
                self._heard_at = now
            except NotFoundError:
                raise _StoppedError from None
            except RegistryError as error:
                if now - self._heard_at > _SILENT_S:
                    raise WhatIfFailedError(str(error)) from error
        if self._state not in (WhatIfState.WAITING, WhatIfState.RUNNING):
            raise _StoppedError
        return self._state

    def pause(self, seconds: float) -> None:
        """Wait between two heartbeats, unless the process is closing."""
        self._closing.wait(seconds)


def _memory_mib(pid: int) -> int:
    """Return the resident memory of a process; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123 - four a second
            return int(file.read().split()[1]) * _PAGE >> 20
    except (OSError, IndexError, ValueError):
        return 0
