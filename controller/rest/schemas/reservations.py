"""Schemas of reservations."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from controller.rest.schemas.values import (
    Count,
    Input,
    Labels,
    MomentText,
    Name,
    PageQuery,
    parse_moment_field,
)
from registry.reservations import MAX_LENGTH_S, ReservationState


class ReservationInput(Input):
    """Reserve room for ``count`` VMs of one type."""

    vm_type: Name
    count: Count
    starts_at: MomentText | None = Field(
        None, description="Beginning, at most 30 days ahead; null: now."
    )
    for_s: Annotated[int, Field(ge=1, le=MAX_LENGTH_S)] = Field(
        description="Seconds from the beginning to the end."
    )
    name: Name | None = None
    tenant: Name | None = Field(
        None, description="Required for operators; a tenant may name itself."
    )
    requires: Labels = Field(default=[], description="Labels that a host must have.")

    def begins(self, now: datetime) -> datetime:
        """Return when the reservation begins; `InvalidError` for a date that does not exist."""
        return parse_moment_field("starts_at", self.starts_at) or now


class ReservationsQuery(PageQuery):
    """Selects reservations."""

    tenant: Name | None = None
    state: ReservationState | None = None
    open: bool | None = Field(
        None, description="true: only those that are not over; false: only those that are."
    )
    name: Name | None = None
