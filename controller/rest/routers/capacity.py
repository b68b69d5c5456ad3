"""/v1/capacity: how many more VMs of a type fit now, and capacity over time."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Security

from controller.queries.capacity import Capacity, capacity_left, redact_capacity
from controller.queries.capacity_after_queue import CapacityInputs, capacity_in_turn
from controller.queries.capacity_trends import CapacityTrends, capacity_trends
from controller.queries.failure_survival import NICENESS, Survival, survival_in_child
from controller.rest.dependencies import RegistryDep, ServicesDep, ViewerDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.requests import (
    CapacityHistoryQuery,
    CapacityQuery,
    CapacityTrendsQuery,
    SurvivalQuery,
)
from controller.rest.schemas.values import PageOf
from controller.rounds.policy_process import PolicyProcess
from registry import ConflictError
from registry.capacity import CapacityPoint
from registry.db import Page

router = APIRouter(
    prefix="/capacity", tags=["requests"], dependencies=[Security(bearer)], route_class=BoundedRoute
)


@router.get("", response_model=Capacity, responses=problem_responses(403, 404))
def show_capacity(
    query: Annotated[CapacityQuery, Query()],
    caller: AnyCaller,
    reader: ViewerDep,
    services: ServicesDep,
) -> Capacity:
    """Show how many more VMs of a type fit, by class of hosts, and what runs out first.

    Tenants see the numbers rounded down to a step: 0, 1, 2, 5, 10, 20, 50 and so on.
    `in_turn` is null while it is computed for another caller, and if that takes too long.
    """
    rules = query.as_rules()
    named = [reader.resolve_name("hosts", name) for name in query.hosts] or None
    tenant = caller.tenant_to_list(query.tenant, services.registry)
    reckon = services.turns.take(caller.scope)
    try:
        view = services.registry.cluster_queries.capacity(
            query.vm_type, tenant=tenant, rules=rules, with_waiting=reckon
        )
        found = capacity_left(
            view, query.vm_type, requires=query.requires, named=named, rules=rules
        )
        question = CapacityInputs(
            view=view, found=found, tenant=tenant, requires=query.requires, named=named, rules=rules
        )
        found = capacity_in_turn(question, start=services.start_child)
    finally:
        if reckon:
            services.turns.give_back(caller.scope)
    return found if reader.is_operator else redact_capacity(found, named=named is not None)


@router.get("/history", response_model=PageOf[CapacityPoint], responses=problem_responses(403))
def list_capacity_history(
    query: Annotated[CapacityHistoryQuery, Query()], caller: Operator, registry: RegistryDep
) -> Page[CapacityPoint]:
    """List hours or days (UTC) with what was offered, committed, used and waited for.

    Each has mean and maximum of samples of each minute. Hours without samples are left out.
    """
    return registry.capacity_history.list(
        **query.period(),
        by_day=query.step == "day",
        host_class=query.host_class,
        resource=query.resource,
        limit=query.limit,
        cursor=query.cursor,
    )


@router.get("/trends", response_model=CapacityTrends, responses=problem_responses(403))
def show_capacity_trends(
    query: Annotated[CapacityTrendsQuery, Query()], caller: Operator, registry: RegistryDep
) -> CapacityTrends:
    """Show how fast committed amounts grow, and when capacity is full at that rate.

    Rates have an interval of 95 %. With less than 14 whole days there is none.
    """
    history = registry.capacity_history
    today = registry.now().replace(hour=0, minute=0, second=0, microsecond=0)
    points = history.read(
        since=today - timedelta(days=query.days),
        by_day=True,
        host_class=query.host_class,
        resource=query.resource,
    )
    return CapacityTrends(
        host_class=query.host_class,
        classes=history.classes(),
        trends=capacity_trends(points, today, what="the class" if query.host_class else "the site"),
    )


@router.get("/survival", response_model=Survival, responses=problem_responses(403, 409))
def show_survival(
    query: Annotated[SurvivalQuery, Query()], caller: Operator, services: ServicesDep
) -> Survival:
    """Show whether the VMs of any one host, zone or label would find room on other hosts."""
    if not services.replays.acquire(blocking=False):
        raise ConflictError("other replays are running; try again later")
    try:
        process = PolicyProcess(niceness=NICENESS, start=services.start_child)
        return survival_in_child(services.registry, query.domain, process=process)
    finally:
        services.replays.release()
