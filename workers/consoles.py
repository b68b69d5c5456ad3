"""Read a guest's serial console on its host, for a caller who waits."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import structlog

from hypervisor import HostUnreachableError, OperationFailedError
from registry.consoles import ConsoleAnswer
from workers.context import Outcome, WorkerContext
from workers.errors import HostBusyError

log: Final = structlog.get_logger(__name__)


def read(read_id: UUID, context: WorkerContext) -> Outcome:
    """Answer one read. An error is an answer, too: its caller decides what to do."""
    question = context.registry.console_reads.question(read_id)
    if question is None or context.stopping.is_set():
        return Outcome.NOT_OURS
    try:
        with context.hosts.enter(question.host) as host:
            tail = host.console_tail(
                str(question.vm_id),
                question.max_bytes,
                after=question.after,
                deadline_s=context.look_deadline_s,
            )
        answer = ConsoleAnswer(content=tail.content, end=tail.end, error=None)
    except (HostBusyError, HostUnreachableError, OperationFailedError) as failure:
        answer = ConsoleAnswer(content=b"", end=question.after, error=str(failure))
        log.warning("console_unread", vm_id=str(question.vm_id), error=answer.error)
    context.registry.console_reads.answer(read_id, answer)
    return Outcome.DONE if answer.error is None else Outcome.FAILED
