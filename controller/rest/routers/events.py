"""/v1/events: events in order."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Security
from starlette.concurrency import run_in_threadpool

from controller.rest.dependencies import RegistryDep, ServicesDep, ViewerDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.redaction import redact_event
from controller.rest.schemas.operations import EventsPage, EventsQuery, EventStreamQuery
from controller.rest.schemas.values import MAX_BIGINT
from controller.rest.streams import EventStream
from controller.rest.streams.feed import EventFilter

router = APIRouter(
    prefix="/events", tags=["events"], dependencies=[Security(bearer)], route_class=BoundedRoute
)


@router.get("", response_model=EventsPage, responses=problem_responses(403))
def list_events(
    query: Annotated[EventsQuery, Query()],
    caller: AnyCaller,
    reader: ViewerDep,
    registry: RegistryDep,
) -> EventsPage:
    """List events after a number, or the newest, oldest first. Follow with `next`."""
    tenant = caller.tenant_to_list(query.tenant, registry)
    events = registry.events.list(
        after=query.after,
        subject_id=query.subject and registry.events.find_subjects(query.subject, tenant),
        kind=query.kind,
        tenant=tenant,
        since=query.since_moment(),
        newest=query.newest,
        limit=query.limit,
    )
    redacted = [redact_event(event, reader) for event in events]
    return EventsPage(items=redacted, next=events[-1].id if events else query.after)


@router.get(
    "/stream",
    response_class=EventStream,
    status_code=200,
    responses={200: {"description": "Server-sent events."}, **problem_responses(403)},
)
async def follow_events(
    query: Annotated[EventStreamQuery, Query()],
    caller: AnyCaller,
    reader: ViewerDep,
    services: ServicesDep,
    last_event_id: Annotated[
        int | None,
        Header(
            ge=0, le=MAX_BIGINT, description="Sent instead of `after` by a client that reconnects."
        ),
    ] = None,
) -> EventStream:
    """Follow events as server-sent events (`text/event-stream`).

    First comes `begin`, whose `after` is where the stream starts. Each event has its id and,
    as data, the object of `GET /v1/events`; with `brief` there is `changed` instead. Every
    15 s without news a comment comes. `end` says why the stream ends: the token is no longer
    valid, the API stops, or an hour is over. Connect again with the last id: nothing is skipped.
    429: too many streams are open; poll `GET /v1/events` and try again later.
    """
    registry = services.registry
    tenant = await run_in_threadpool(caller.tenant_to_list, query.tenant, registry)
    subjects = None
    if query.subject is not None:
        named = registry.events.find_subjects
        subjects = await run_in_threadpool(named, query.subject, tenant)
    wanted = EventFilter(reader=reader, tenant=tenant, subjects=subjects, kind=query.kind)
    after = query.after if last_event_id is None else last_event_id
    return EventStream(
        services.feed, services.streams, caller, wanted, after=after, brief=query.brief
    )
