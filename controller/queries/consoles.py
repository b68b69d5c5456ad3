"""Reads and writes serial consoles through workers, which reach the hosts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final
from uuid import UUID

from controller.errors import ConsoleUnreadError
from controller.worker_queue import TaskQueue
from registry import ConsoleState, Registry
from registry.consoles import ConsoleAnswer, ConsoleOutput
from registry.tasks import ATTACH_CONSOLE, READ_CONSOLE

WAIT_S: Final = 20.0  #: longer than a worker waits for a host that hangs
_RESEND_AFTER_S: Final = 5.0  #: a broker may lose a message
_POLL_S: Final = 0.05
_HEARD_EVERY_S: Final = 2.0


def read_console(
    registry: Registry,
    queue: TaskQueue,
    vm_id: UUID,
    *,
    max_bytes: int,
    after: int = 0,
    wait_s: float = WAIT_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> ConsoleAnswer:
    """Return the last bytes of a VM's serial console that come after byte ``after``.

    Raises
    ------
    ConflictError
        If the VM is on no host.
    ConsoleUnreadError
        If no worker or host answered in time.
    """
    key = registry.console_reads.request(vm_id, max_bytes=max_bytes, after=after)
    started = clock()
    sent_at = None
    try:
        while (now := clock()) < started + wait_s:
            if sent_at is None or now >= sent_at + _RESEND_AFTER_S:
                queue.send(READ_CONSOLE, key)
                sent_at = now
            answer = registry.console_reads.find_answer(key)
            if answer is None:
                sleep(_POLL_S)
            elif answer.error is not None:
                raise ConsoleUnreadError(vm_id, answer.error)
            else:
                return answer
    finally:
        registry.console_reads.delete_question(key)
    raise ConsoleUnreadError(vm_id, f"no worker answered within {wait_s:g} s")


def wait_for_output(
    registry: Registry,
    queue: TaskQueue,
    vm_id: UUID,
    session_id: UUID,
    *,
    after: int,
    wait_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> ConsoleOutput:
    """Return the output of a guest in a console session; wait for it up to ``wait_s``.

    Also returns when the session's state changes. The call counts as a heartbeat of the session.
    While no worker is attached to the console, a worker is sent a message.
    """
    sessions = registry.console_sessions
    ends = clock() + wait_s
    heartbeat_at: float | None = None
    state: ConsoleState | None = None
    while True:
        now = clock()
        if heartbeat_at is None or now >= heartbeat_at + _HEARD_EVERY_S:
            if sessions.record_reader(vm_id, session_id, after=after):
                queue.send(ATTACH_CONSOLE, session_id)
            heartbeat_at = now
        output = sessions.output(vm_id, session_id, after=after)
        found = output.session.state
        if output.content or found is ConsoleState.ENDED or found is not (state or found):
            return output
        if now >= ends:
            return output
        state = found
        sleep(_POLL_S)
