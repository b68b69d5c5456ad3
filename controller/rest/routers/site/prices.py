"""/v1/prices: what usage costs, from which day on."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Final

from fastapi import APIRouter, Query, Security
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter
from starlette.responses import Response

from controller.rest.dependencies import RegistryDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.problems import patterns
from controller.rest.schemas.values import DayText, Input, Name, parse_day_field
from registry.usage import Currency, Price, PriceList

router = APIRouter(
    prefix="/prices", tags=["tenants"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_ADAPTER: Final = TypeAdapter(Price)
_UsageName = Annotated[str, StringConstraints(pattern=patterns.USAGE_NAME, max_length=72)]
_OF_TYPE: Final = "Only for VMs of this type, in all its revisions; omitted: of all types."


class CurrencyInput(Input):
    """Set what prices and costs are in."""

    name: Annotated[str, StringConstraints(pattern=patterns.CURRENCY, max_length=16)]
    minor_digits: Annotated[int, Field(ge=0, le=6)] | None = Field(
        None, description="Decimal places of costs; null: those of ISO 4217, or 2."
    )


class PriceInput(Input):
    """Set a price from a day on."""

    resource: _UsageName = Field(
        description="A resource, or `vms` for the VMs themselves; of borrowed VMs such as "
        "`borrowed:vcpus`."
    )
    price: Annotated[str, StringConstraints(pattern=patterns.PRICE, max_length=26)] | None = Field(
        description="Of one unit for an hour; null: none from that day on."
    )
    since: DayText | None = Field(
        None, description="The price holds from the begin of this day (UTC); null: of today."
    )
    vm_type: Name | None = Field(None, description=_OF_TYPE)


class VersionQuery(BaseModel):
    """Selects the subject of a price."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    vm_type: Name | None = Field(None, description=_OF_TYPE)


@router.get("", response_model=PriceList)
def list_prices(caller: AnyCaller, registry: RegistryDep) -> PriceList:
    """List all versions of all prices: those that held, hold, and will hold."""
    return registry.prices.list()


@router.put("/currency", response_model=Currency, responses=problem_responses(403, 409))
def set_currency(body: CurrencyInput, caller: Operator, registry: RegistryDep) -> Currency:
    """Set what prices and costs are in. It is refused once a month is closed."""
    return registry.prices.set_currency(
        body.name, minor_digits=body.minor_digits, actor=caller.actor
    )


@router.post("", status_code=201, response_model=Price, responses=problem_responses(403, 409))
def set_price(body: PriceInput, caller: Operator, creation: IdempotencyDep) -> Response:
    """Add a version of a price. It holds from its day until that of the next version."""
    price = None if body.price is None else Decimal(body.price)
    since = None if body.since is None else parse_day_field("since", body.since)
    return creation.answer(
        body,
        lambda registry: registry.prices.set(
            body.resource, price, since=since, vm_type=body.vm_type, actor=caller.actor
        ),
        status=201,
        adapter=_ADAPTER,
    )


@router.delete(
    "/{resource}/{since}", response_model=Price, responses=problem_responses(403, 404, 409)
)
def remove_price(
    resource: _UsageName,
    since: DayText,
    query: Annotated[VersionQuery, Query()],
    caller: Operator,
    registry: RegistryDep,
) -> Price:
    """Remove a version of a price. The version before it then holds on."""
    return registry.prices.remove(
        resource, parse_day_field("since", since), vm_type=query.vm_type, actor=caller.actor
    )
