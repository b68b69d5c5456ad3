"""Refused calls in the audit: one row per caller and minute, for all kinds of refusal.

The first refusal gets its row at once. Further refusals of that minute are counted in memory and
added to the row when the minute or the process ends. A process that is killed loses the counts of
at most a minute, and no row.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from starlette.concurrency import run_in_threadpool

from controller.rest.metrics import METHODS, NO_ROUTE
from controller.rest.middleware.peer_addresses import network_of
from registry import Registry
from registry.audit import AuditedCall

PERIOD_S: Final = 60.0
#: Callers without a token that get a row each in a period; the rest share one.
MAX_STRANGERS: Final = 100
#: Kinds of refusals (route and answer) that one row counts separately.
MAX_KINDS: Final = 100
_OTHERS: Final = "other"

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _CallerRefusals:
    """The refused calls of one caller since the first."""

    call: AuditedCall
    status: int | None
    since: float
    last: float
    counts: Counter[str] = field(default_factory=Counter)
    row: int | None = None

    def count(self, call: AuditedCall, status: int | None, now: float) -> None:
        """Count a refused call by its kind."""
        kind = _refusal_kind(call, status)
        if kind not in self.counts and len(self.counts) >= MAX_KINDS:
            kind = _OTHERS
        self.counts[kind] += 1
        self.last = now


class Refusals:
    """Counts refused calls by caller and writes them to the audit."""

    def __init__(self, registry: Registry, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._clock = clock
        self._lock = threading.Lock()
        self._of_callers: dict[Hashable, _CallerRefusals] = {}
        self._strangers = 0
        self._sweeper: asyncio.Task[None] | None = None

    async def add(self, call: AuditedCall, status: int | None) -> None:
        """Record a refused call; return once it is written or counted."""
        now = self._clock()
        with self._lock:
            overdue = self._pop_due_refusals(lambda each: now - each.since >= PERIOD_S)
            key = self._caller_key(call)
            found = self._of_callers.get(key)
            first = None
            if found is None:
                found = first = _CallerRefusals(call, status, now, now)
                self._of_callers[key] = found
                self._strangers += call.token_id is None
            found.count(call, status, now)
        if first is not None:
            # An empty context: the preconditions of the call must not apply to this write.
            await run_in_threadpool(contextvars.Context().run, self._write_first_refusal, first)
        elif self._sweeper is None or self._sweeper.done():
            loop = asyncio.get_running_loop()
            self._sweeper = loop.create_task(
                self._flush_periodically(), context=contextvars.Context()
            )
        if overdue:
            await run_in_threadpool(contextvars.Context().run, self._write_counts, overdue)

    def flush(self) -> None:
        """Write all counts of refused calls to the audit before the process ends."""
        with self._lock:
            taken = self._pop_due_refusals(lambda _: True)
        self._write_counts(taken)

    def _caller_key(self, call: AuditedCall) -> Hashable:
        """Return under what a caller's refusals are counted: its token, else its network."""
        if call.token_id is not None:
            return call.token_id
        network = network_of(call.address)
        crowded = self._strangers >= MAX_STRANGERS and network not in self._of_callers
        return _OTHERS if crowded else network

    def _pop_due_refusals(
        self, due: Callable[[_CallerRefusals], bool]
    ) -> Sequence[_CallerRefusals]:
        """Remove the callers whose counts are due, and return them."""
        taken = {key: each for key, each in self._of_callers.items() if due(each)}
        for key, each in taken.items():
            del self._of_callers[key]
            self._strangers -= each.call.token_id is None
        return tuple(taken.values())

    async def _flush_periodically(self) -> None:
        """Write due counts to the audit until none is left."""
        while self._of_callers:
            await asyncio.sleep(PERIOD_S / 6)
            now = self._clock()
            with self._lock:
                overdue = self._pop_due_refusals(lambda each: now - each.since >= PERIOD_S)  # noqa: B023
            await run_in_threadpool(self._write_counts, overdue)

    def _write_first_refusal(self, gathered: _CallerRefusals) -> None:
        """Write the audit row of a caller's first refused call."""
        try:
            gathered.row = self._registry.audit.finish(gathered.call, gathered.status)
        except Exception as error:  # the refusal must reach its caller
            values = {key: str(value) for key, value in gathered.call.values().items()}
            payload = values | {"status": gathered.status, "error": str(error)}
            log.error("audit_failed", **payload)

    def _write_counts(self, callers: Sequence[_CallerRefusals]) -> None:
        """Add the counts of further refused calls to the audit rows of their callers."""
        for caller in callers:
            if caller.counts.total() == 1:
                continue
            try:
                if caller.row is None:  # the database did not answer before
                    caller.row = self._registry.audit.finish(caller.call, caller.status)
                ago_s = max(0.0, self._clock() - caller.last)
                self._registry.audit.add_refusals(caller.row, caller.counts, last_ago_s=ago_s)
            except Exception as error:
                token = caller.call.token or caller.call.address
                log.error("audit_failed", caller=token, refused=caller.counts, error=str(error))


def _refusal_kind(call: AuditedCall, status: int | None) -> str:
    """Return the kind by which a refused call is counted: status, method and route."""
    method = call.method if call.method in METHODS else "OTHER"
    answer = "no answer" if status is None else str(status)
    return f"{answer} {method} {call.route or NO_ROUTE}"
