"""Reads of serial console logs, and held consoles of sessions.

A session lasts as long as a person uses it, so it has its own thread and connection, separate from
builds and removals.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final
from uuid import UUID

import structlog

from hypervisor import HostUnreachableError, HypervisorError, OperationFailedError
from registry import ClaimLostError, RegistryError
from registry.consoles import ConsoleAnswer, ConsoleWork
from workers.context import TaskOutcome, WorkerContext
from workers.driver import HostDriver, HostDrivers
from workers.errors import HostBusyError, StoppingError

#: Lease of a session; another worker may take it over afterwards.
_LEASE_S: Final = 10.0
_NO_THREAD: Final = (
    "the worker has no free thread for this console: its tenant, or all tenants together, use"
    " them all; close another console, or wait for the next attempt"
)
#: Maximum time until a typed key is noticed.
_WAIT_S: Final = 0.05


def attach_console(session_id: UUID, context: WorkerContext) -> TaskOutcome:
    """Hold the console of a session, if the claim succeeds and a thread is free."""
    threads = context.consoles
    holds = context.registry.console_holds
    tenant = None if threads is None else holds.tenant(session_id)
    if threads is None or tenant is None or context.stopping.is_set():
        return TaskOutcome.NOT_OURS

    def claim_session() -> Callable[[], object] | None:
        work = holds.claim(session_id, context.owner, _LEASE_S)
        return None if work is None else lambda: hold_console(work, context, threads.hosts)

    begun = threads.begin(tenant, claim_session)
    if begun is None:
        holds.record_wait_reason(session_id, _NO_THREAD)
    return TaskOutcome.DONE if begun else TaskOutcome.NOT_OURS


def hold_console(work: ConsoleWork, context: WorkerContext, hosts: HostDrivers) -> TaskOutcome:
    """Hold a VM's console until its session ends, its guest is off, or this process stops."""
    holds, bound = context.registry.console_holds, log.bind(vm_id=str(work.vm_id))
    try:
        try:
            with hosts.use(work.host) as host:
                host.open_console(
                    str(work.vm_id), force=work.force, deadline_s=context.lookup_deadline_s
                )
                try:
                    holds.mark_attached(work.claim)
                    _relay_console(work, context, host)
                finally:
                    with contextlib.suppress(HypervisorError):
                        host.release_console(deadline_s=context.lookup_deadline_s)
            holds.mark_ended(work.claim, "the guest is off, or its console was taken on the host")
        except StoppingError:
            holds.release_claim(work.claim, "its worker is stopping")
            return TaskOutcome.HANDED_BACK
        except HostUnreachableError as error:
            bound.warning("console_lost", error=str(error))
            holds.release_claim(work.claim, str(error))
            return TaskOutcome.FAILED
        except OperationFailedError as error:
            bound.info("console_refused", error=str(error))
            holds.mark_ended(work.claim, str(error))
            return TaskOutcome.FAILED
    except ClaimLostError:
        return TaskOutcome.CLAIM_LOST
    except RegistryError as error:
        bound.warning("console_lost", error=str(error))
        return TaskOutcome.FAILED
    return TaskOutcome.DONE


def _relay_console(work: ConsoleWork, context: WorkerContext, host: HostDriver) -> None:
    """Relay input to a held console and its output to the session, until one of both ends."""
    holds, typed = context.registry.console_holds, b""
    kept_at = time.monotonic()
    while True:
        if context.stopping.is_set():
            raise StoppingError
        if not typed and holds.has_input(work.claim):
            typed = holds.take_input(work.claim)
        came = host.exchange_console(typed, wait_s=_WAIT_S, deadline_s=context.lookup_deadline_s)
        typed = typed[came.taken :]
        if came.content:
            holds.store_output(work.claim, came.content)
        if came.ended:
            return
        if time.monotonic() - kept_at >= _LEASE_S / 3:
            holds.extend_claim(work.claim, _LEASE_S)
            kept_at = time.monotonic()


log: Final = structlog.get_logger(__name__)


def read_console(read_id: UUID, context: WorkerContext) -> TaskOutcome:
    """Answer one read of a console log, with the log's end or with an error."""
    question = context.registry.console_reads.question(read_id)
    if question is None or context.stopping.is_set():
        return TaskOutcome.NOT_OURS
    try:
        with context.hosts.use(question.host) as host:
            tail = host.console_tail(
                str(question.vm_id),
                question.max_bytes,
                after=question.after,
                deadline_s=context.lookup_deadline_s,
            )
        answer = ConsoleAnswer(content=tail.content, end=tail.end, error=None)
    except (HostBusyError, HostUnreachableError, OperationFailedError) as failure:
        answer = ConsoleAnswer(content=b"", end=question.after, error=str(failure))
        log.warning("console_unread", vm_id=str(question.vm_id), error=answer.error)
    context.registry.console_reads.store_answer(read_id, answer)
    return TaskOutcome.DONE if answer.error is None else TaskOutcome.FAILED
