"""/v1/what-ifs: the site simulated with something changed. For operators.

The simulation runs apart from the API, in processes of low priority. It changes nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Body, Query, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.rest.dependencies import RegistryDep, ServicesDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.routers.rounds import check_policy
from controller.rest.schemas.values import PageOf
from controller.rest.schemas.what_ifs import (
    WhatIfCancelInput,
    WhatIfDetail,
    WhatIfInput,
    WhatIfsQuery,
    WhatIfSummary,
)
from registry import InvalidError, NotFoundError, Registry, UnknownNameError
from registry.admin import WhatIf
from registry.db import Page

router = APIRouter(
    prefix="/what-ifs", tags=["what-ifs"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_ADAPTER: Final = TypeAdapter(WhatIf)
_ALL: Final = "all"


@router.post(
    "", status_code=201, response_model=WhatIfSummary, responses=problem_responses(403, 409)
)
def ask_what_if(
    body: WhatIfInput, caller: Operator, services: ServicesDep, creation: IdempotencyDep
) -> Response:
    """Simulate the site with something changed, and as it is. The site does not change.

    One runs at a time; three others wait for it, more are refused.
    """

    def create(registry: Registry) -> WhatIf:
        changes = _validated_changes(registry, body)
        return registry.what_ifs.create(changes, services.what_ifs.executor_id, actor=caller.actor)

    def shown(made: WhatIf) -> bytes:
        services.what_ifs.start(made.id, made.arguments)  # again: the first call may have died
        return _summary_json(made)

    return creation.answer(body, create, status=201, adapter=_ADAPTER, shown=shown)


@router.get("", response_model=PageOf[WhatIfSummary], responses=problem_responses(403))
def list_what_ifs(
    query: Annotated[WhatIfsQuery, Query()], caller: Operator, registry: RegistryDep
) -> Page[WhatIfSummary]:
    """List what-ifs, newest first. The newest 50 are kept."""
    page = registry.what_ifs.list(state=query.state, limit=query.limit, cursor=query.cursor)
    return Page(tuple(_what_if_summary(each) for each in page.items), page.next)


@router.get("/{id}", response_model=WhatIfDetail, responses=problem_responses(403, 404))
def show_what_if(id: UUID, caller: Operator, registry: RegistryDep) -> WhatIfDetail:  # noqa: A002
    """Show a what-if with its progress and its report."""
    return WhatIfDetail.model_validate(registry.what_ifs.get(id), from_attributes=True)


@router.post(
    "/{id}/cancel",
    status_code=202,
    response_model=WhatIfSummary,
    responses=problem_responses(403, 404, 409),
)
def cancel_what_if(
    id: UUID,  # noqa: A002
    body: Annotated[WhatIfCancelInput, Body(default_factory=WhatIfCancelInput)],
    caller: Operator,
    creation: IdempotencyDep,
) -> Response:
    """End a what-if that waits or runs."""
    return creation.answer(
        body,
        lambda registry: registry.what_ifs.cancel(id, actor=caller.actor),
        status=202,
        adapter=_ADAPTER,
        shown=_summary_json,
    )


def _what_if_summary(found: WhatIf) -> WhatIfSummary:
    return WhatIfSummary.model_validate(found, from_attributes=True)


def _summary_json(found: WhatIf) -> bytes:
    return _what_if_summary(found).model_dump_json().encode()


def _validated_changes(registry: Registry, body: WhatIfInput) -> dict[str, Any]:
    """Return the input as JSON values, after checking that everything it names exists."""
    if body.parameters and body.policy is None:
        raise InvalidError("parameters", "those of no policy", "none, or a policy with them")
    changes = (body.add_hosts, body.remove_hosts, body.policy, body.weights)
    remembers = body.fairness_memory_s is not None
    if not any(changes) and not remembers:
        known = "one of add_hosts, remove_hosts, policy, weights, fairness_memory_s"
        raise InvalidError("what-if", "nothing that differs from the site as it is", known)
    if body.policy is not None:
        check_policy(body.policy, body.parameters)
    if _ALL in body.remove_hosts:
        raise InvalidError("remove_hosts", _ALL, "names of hosts, or label=LABEL")
    registry.rolls.targets(body.remove_hosts)
    if body.add_hosts is not None:
        _check_added_hosts(registry, body)
    for name in body.weights:
        try:
            registry.tenants.get(name)
        except NotFoundError:
            hint = "`fuga tenant list` lists them"
            raise UnknownNameError("weights", "tenant", name, hint=hint) from None
    return body.model_dump(mode="json")


def _check_added_hosts(registry: Registry, body: WhatIfInput) -> None:
    """Refuse added hosts without a size, and unknown names of hosts or resources."""
    added = body.add_hosts
    assert added is not None  # noqa: S101 the caller has checked
    if added.like is None and not any((added.capacity or {}).values()):
        raise InvalidError("add_hosts", "hosts of no size", "like, or a capacity above 0")
    if added.like is not None:
        registry.rolls.targets([added.like])
    names = [each.name for each in registry.resources.all()]
    for name in added.capacity or {}:
        if name not in names:
            raise UnknownNameError("add_hosts.capacity", "resource", name, known=names)
