"""Records polls in batches: those that end at about the same time share a transaction.

A transaction costs much more than one poll adds to it. So the first watch with a result waits for a
moment, and then writes the results of the other watches, too. Missed polls are batched as well:
when a rack loses power, they come by the hundred.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import structlog

from registry import Registry
from registry.hosts import Host, HostReport, Miss, MissPolicy

log: Final = structlog.get_logger(__name__)

#: Maximum hosts of a transaction; the commit of a round waits for its row locks.
MAX_AT_ONCE: Final = 50


@dataclass(slots=True)
class _PendingPoll:
    """A poll to record, and the future that its watch waits for."""

    poll: HostReport | Miss
    written: Future[Host] = field(default_factory=Future)


class PollRecorder:
    """Records the polls of many watches; each waits until its poll is recorded."""

    def __init__(self, registry: Registry, gather_s: float, policy: MissPolicy) -> None:
        self._registry = registry
        self._policy = policy
        self._gather_s = gather_s
        self._gathering = threading.Lock()
        self._pending: dict[UUID, _PendingPoll] = {}
        self._writing = threading.Lock()

    def record(self, host_id: UUID, report: HostReport) -> Host:
        """Record the report of a poll; raise the errors of `Hosts.record_report`."""
        return self._record_with_others(host_id, report)

    def record_miss(self, host_id: UUID, miss: Miss) -> Host:
        """Record a missed poll of a host."""
        return self._record_with_others(host_id, miss)

    def _record_with_others(self, host_id: UUID, poll: HostReport | Miss) -> Host:
        """Record a poll together with those that end soon; return the host after it."""
        with self._gathering:
            is_first = not self._pending
            mine = self._pending.setdefault(host_id, _PendingPoll(poll))
            mine.poll = poll  # a second watch of the host polled later
        if is_first:
            time.sleep(self._gather_s)
            with self._writing:
                self._write_pending_polls()
        return mine.written.result()

    def _write_pending_polls(self) -> None:
        """Write the polls that are pending; each waiting watch gets its result or the error."""
        with self._gathering:
            pending, self._pending = self._pending, {}
        try:
            self._write_batches(list(pending.items()))
        except Exception as error:
            # Whatever fails, even logging: no watch may wait for ever.
            for each in pending.values():
                if not each.written.done():
                    each.written.set_exception(error)

    def _write_batches(self, polls: Sequence[tuple[UUID, _PendingPoll]]) -> None:
        """Write polls in batches; those of a failed batch one by one."""
        for start in range(0, len(polls), MAX_AT_ONCE):
            some = polls[start : start + MAX_AT_ONCE]
            if len(some) == 1:
                self._write_single_poll(some[0])
                continue
            try:
                self._write_polls(some)
            except Exception as error:
                log.warning("looks_not_recorded_together", hosts=len(some), error=str(error))
                for each in some:  # an error in one report concerns no other host
                    self._write_single_poll(each)

    def _write_single_poll(self, pending: tuple[UUID, _PendingPoll]) -> None:
        """Write one poll in its own transaction; its watch gets an error."""
        try:
            self._write_polls([pending])
        except Exception as error:
            pending[1].written.set_exception(error)

    def _write_polls(self, polls: Sequence[tuple[UUID, _PendingPoll]]) -> None:
        """Write polls and missed polls, and give each watch the host after it."""
        hosts = self._registry.hosts
        reports = {
            host_id: pending.poll
            for host_id, pending in polls
            if not isinstance(pending.poll, Miss)
        }
        misses = {
            host_id: pending.poll for host_id, pending in polls if isinstance(pending.poll, Miss)
        }
        found: dict[UUID, Host | Exception] = {}
        if reports:
            found |= hosts.record_reports(reports)
        if misses:
            found |= hosts.record_misses(misses, self._policy)
        for host_id, pending in polls:
            outcome = found[host_id]
            if isinstance(outcome, Exception):
                pending.written.set_exception(outcome)
            else:
                pending.written.set_result(outcome)
