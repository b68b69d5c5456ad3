"""The last of a guest's serial output: asked of a worker, who reaches the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final
from uuid import UUID

from controller.errors import ConsoleUnreadError
from controller.queue import TaskQueue
from registry import READ_CONSOLE, ConsoleAnswer, Registry

WAIT_S: Final = 20.0  #: longer than a worker looks at a host that hangs
_RESEND_AFTER_S: Final = 5.0  #: a broker may lose a message
_POLL_S: Final = 0.05


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
    """Return the last bytes that a VM wrote on its serial console, of those after ``after``.

    Raises
    ------
    ConflictError
        If the VM is on no host.
    ConsoleUnreadError
        If no worker answered in time, or its host did not.
    """
    key = registry.console_reads.ask(vm_id, max_bytes=max_bytes, after=after)
    started = clock()
    sent_at = None
    try:
        while (now := clock()) < started + wait_s:
            if sent_at is None or now >= sent_at + _RESEND_AFTER_S:
                queue.send(READ_CONSOLE, key)
                sent_at = now
            answer = registry.console_reads.look(key)
            if answer is None:
                sleep(_POLL_S)
            elif answer.error is not None:
                raise ConsoleUnreadError(vm_id, answer.error)
            else:
                return answer
    finally:
        registry.console_reads.forget(key)
    raise ConsoleUnreadError(vm_id, f"no worker answered within {wait_s:g} s")
