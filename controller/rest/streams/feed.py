"""The shared reader of new events in a process, and its listeners.

It reads while a stream is open. The latest events stay in memory, so that streams, including
interrupted ones, continue without a query. A stream that is further behind reads pages from the
database, one stream of a tenant at a time. No event is skipped: events are read up to an id below
which none is added any more (`Events.list`).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import structlog
from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool

from controller.host_aliases import HostNames, Viewer
from controller.rest.middleware.callers import MAX_TOKENS_PER_READ
from controller.rest.redaction import redact_event
from registry import Registry, RegistryError
from registry.audit import Event

#: Interval of reads: the maximum delay of events.
EVERY_S: Final = 0.5
#: Interval at which the tokens of streams are checked.
CHECK_EVERY_S: Final = 5.0
PAGE: Final = 500
#: Maximum number of events in memory: some 2 MiB.
KEPT_EVENTS: Final = 2_000
TOKEN_ENDED: Final = "the token is no longer valid"  # noqa: S105 - words, no token
SHUTDOWN: Final = "the API stops; connect again"
NO_DATABASE: Final = "the database does not answer; connect again"

log = structlog.get_logger(__name__)
_EVENT: Final = TypeAdapter(Event)
Tenant: TypeAlias = str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Selects the events of a stream."""

    reader: Viewer
    tenant: Tenant
    subjects: Collection[str] | None = None  #: ids; None: all
    kind: str | None = None

    def __contains__(self, event: Event) -> bool:
        return (
            self.tenant in (None, event.tenant)
            and (self.subjects is None or event.subject_id in self.subjects)
            and self.kind in (None, event.kind)
        )


@dataclass(frozen=True, slots=True)
class EventBatch:
    """A batch of consecutive events, with ids in (after, upto], read in one query."""

    after: int
    upto: int
    events: tuple[Event, ...]
    rendered: dict[Tenant, dict[int, bytes]] = field(default_factory=dict)

    def texts(self, reader: Viewer, ids: Sequence[int]) -> Sequence[tuple[int, bytes]]:
        """Return id and JSON of events for a reader; rendered once for a tenant's streams."""
        known = self.rendered.setdefault(reader.tenant, {})
        missing = {each for each in ids if each not in known}  # other threads may add to `known`
        viewer = fresh_viewer(reader)
        for event in self.events:
            if event.id in missing:
                known[event.id] = event_json(event, viewer)
        return [(each, known[each]) for each in ids]


def fresh_viewer(reader: Viewer) -> Viewer:
    """Return the reader with an empty cache of host names, because a stream outlasts the cache."""
    return dataclasses.replace(reader)


def event_json(event: Event, reader: Viewer) -> bytes:
    """Return an event as one line of JSON, redacted for its reader."""
    return _EVENT.dump_json(redact_event(event, reader))


class StreamListener:
    """Wakes one stream for new events, or ends it."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.woken = asyncio.Event()
        self.ends: str | None = None  #: the reason of its end; None: it continues

    def end(self, reason: str) -> None:
        """End the stream for a reason; the first reason counts."""
        self.ends = self.ends or reason
        self.woken.set()


class EventFeed:
    """Delivers new events to the streams of one event loop."""

    def __init__(
        self,
        registry: Registry,
        host_names: HostNames,
        *,
        every_s: float = EVERY_S,
        check_every_s: float = CHECK_EVERY_S,
    ) -> None:
        self._registry = registry
        self.host_names = host_names
        self._every_s = every_s
        self._check_every_s = check_every_s
        self._listeners: set[StreamListener] = set()
        self._batches: deque[EventBatch] = deque()
        self._reader: asyncio.Task[None] | None = None
        self._behind: defaultdict[Tenant, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.upto = 0  #: all events up to this id have been read

    async def join(self, listener: StreamListener) -> None:
        """Add a stream's listener; start to read events for the first. Raises `RegistryError`."""
        self._listeners.add(listener)
        try:
            if self._reader is None:
                newest = await run_in_threadpool(
                    lambda: self._registry.events.list(newest=True, limit=1)
                )
                if self._reader is None:  # else another thread was faster
                    self._batches.clear()
                    self.upto = newest[-1].id if newest else 0
                    self._reader = asyncio.create_task(self._read_continuously())
        except BaseException:
            self._listeners.discard(listener)
            raise

    def leave(self, listener: StreamListener) -> None:
        """Remove a stream's listener; the reader of events ends with the last one."""
        self._listeners.discard(listener)

    def has_matching(self, wanted: EventFilter, after: int) -> bool | None:
        """Return whether events above an id match; None if only the database can tell."""
        if after >= self.upto:
            return False
        if not self._batches or self._batches[0].after > after:
            return None
        return any(event.id > after and event in wanted for event in self._cached_events(after))

    async def events_after(
        self, wanted: EventFilter, after: int
    ) -> tuple[Sequence[tuple[int, bytes]], int]:
        """Return the matching events above an id, and the id up to which they are complete.

        Raises `RegistryError`.
        """
        upto = self.upto
        if after >= upto:
            return (), after
        if not self._batches or self._batches[0].after > after:
            return await self._read_from_database(wanted, after, upto)
        found: list[tuple[int, bytes]] = []
        for stretch in [each for each in self._batches if each.upto > after]:
            ids = [each.id for each in stretch.events if each.id > after and each in wanted]
            if ids:
                found += await run_in_threadpool(stretch.texts, wanted.reader, ids)
        return found, upto

    def _cached_events(self, after: int) -> Sequence[Event]:
        return [event for each in self._batches if each.upto > after for event in each.events]

    async def _read_from_database(
        self, wanted: EventFilter, after: int, upto: int
    ) -> tuple[Sequence[tuple[int, bytes]], int]:
        """Return a page of older events, which the shared reader no longer has."""

        def page() -> Sequence[tuple[int, bytes]]:
            events = self._registry.events.list(
                after=after,
                tenant=wanted.tenant,
                subject_id=wanted.subjects,
                kind=wanted.kind,
                limit=PAGE,
            )
            viewer = fresh_viewer(wanted.reader)
            return [(event.id, event_json(event, viewer)) for event in events]

        async with self._behind[wanted.reader.tenant]:
            found = await run_in_threadpool(page)
        last = found[-1][0] if found else after
        # A page that is not full is complete up to the id that was read before it.
        return found, last if len(found) == PAGE else max(last, upto)

    async def _read_continuously(self) -> None:
        """Read new events and check tokens until no listener is left; then end all streams."""
        clock: Callable[[], float] = asyncio.get_running_loop().time
        checked_at = clock()
        reason = SHUTDOWN
        try:
            while self._listeners:
                await asyncio.sleep(self._every_s)
                while await self._read_page():
                    pass
                if clock() - checked_at >= self._check_every_s:
                    await self._end_unauthorized()
                    checked_at = clock()
        except RegistryError as error:
            log.warning("event_streams_ended", error=str(error))
            reason = NO_DATABASE
        finally:
            self._reader = None
            for listener in list(self._listeners):
                listener.end(reason)

    async def _read_page(self) -> bool:
        """Read new events; return whether there may be more."""
        after = self.upto
        events = await run_in_threadpool(
            lambda: self._registry.events.list(after=after, limit=PAGE)
        )
        if not events:
            return False
        self._batches.append(EventBatch(after, events[-1].id, tuple(events)))
        while sum(len(each.events) for each in self._batches) > KEPT_EVENTS:
            self._batches.popleft()
        self.upto = events[-1].id
        for listener in self._listeners:
            listener.woken.set()
        return len(events) == PAGE

    async def _end_unauthorized(self) -> None:
        """End the streams whose token is no longer valid."""
        secrets = sorted({each.secret for each in self._listeners})
        for start in range(0, len(secrets), MAX_TOKENS_PER_READ):
            some = secrets[start : start + MAX_TOKENS_PER_READ]
            found = await run_in_threadpool(self._registry.tokens.authenticate_all, some)
            gone = {secret for secret, token in zip(some, found, strict=True) if token is None}
            for listener in self._listeners:
                if listener.secret in gone:
                    listener.end(TOKEN_ENDED)
