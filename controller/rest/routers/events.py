"""/v1/events: events in order."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Security

from controller.rest.callers.auth import AnyCaller, bearer
from controller.rest.callers.bodies import BoundedRoute
from controller.rest.dependencies import GivenReader, GivenRegistry
from controller.rest.pages.openapi import problems
from controller.rest.schemas.operating import EventsPage, EventsQuery
from controller.rest.telling import told_event

router = APIRouter(
    prefix="/events",
    tags=["events"],
    dependencies=[Security(bearer)],
    route_class=BoundedRoute,
)


@router.get("", response_model=EventsPage, responses=problems(403))
def list_events(
    query: Annotated[EventsQuery, Query()],
    caller: AnyCaller,
    reader: GivenReader,
    registry: GivenRegistry,
) -> EventsPage:
    """List events after a number, or the newest, oldest first. Follow with `next`."""
    events = registry.events.list(
        after=query.after,
        subject_id=query.subject,
        kind=query.kind,
        tenant=caller.tenant_to_list(query.tenant),
        since=query.since_moment(),
        newest=query.newest,
        limit=query.limit,
    )
    told = [told_event(event, reader) for event in events]
    return EventsPage(items=told, next=events[-1].id if events else query.after)
