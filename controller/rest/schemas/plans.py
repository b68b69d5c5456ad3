"""Schemas of plans of moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import BaseModel, Field, model_validator

from controller.rest.schemas.values import Input, Name, PageQuery
from registry.moves import PlanKind, PlanMove, PlanState


class PlanInput(Input):
    """A plan of moves to decide."""

    kind: Literal["evacuate", "repair", "balance", "pack", "room"]
    hosts: Annotated[list[Name], Field(max_length=500)] = Field(
        default_factory=list, description="Hosts to evacuate; only with `evacuate`."
    )
    request: Annotated[UUID, Field(strict=False)] | None = Field(
        None, description="Request that is to be let in; only with `room`."
    )
    approve: bool = Field(False, description="Carry it out as soon as it is decided.")

    @model_validator(mode="after")
    def _check_hosts(self) -> Self:
        if bool(self.hosts) != (self.kind == "evacuate"):
            raise ValueError("hosts: name one at least with evacuate, and none with another kind")
        return self

    @model_validator(mode="after")
    def _check_request(self) -> Self:
        if (self.request is not None) != (self.kind == "room"):
            raise ValueError("request: name one with room, and none with another kind")
        return self

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of the plan, as the register center stores them."""
        if self.request is not None:
            return {"request": str(self.request)}
        return {"hosts": sorted(set(self.hosts))} if self.hosts else {}


class PlanStep(Input):
    """Approve or cancel a plan."""


class PlansQuery(PageQuery):
    """Selects plans."""

    kind: PlanKind | None = None
    state: PlanState | None = None


class PlanMoves(BaseModel):
    """The moves of a plan in their order, and the state of each."""

    plan: UUID
    items: list[PlanMove]


class PlanReplay(BaseModel):
    """Whether a stored plan was decided again to the bit."""

    plan: UUID
    identical: bool
    seconds: float
