"""Schemas of moves of VMs."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from pydantic import Field

from controller.rest.schemas.values import Input, Name, PageQuery, ReasonText
from registry.moves import MoveState

NO_REASON: Final = "requested by an operator"


class MoveInput(Input):
    """Move a VM to another host."""

    vm: UUID = Field(strict=False)
    host: Name | None = Field(
        None, description="Null: the host that suits the VM best, by its rules and its shape."
    )
    reason: ReasonText = Field(NO_REASON, description="Shown to the tenant and recorded.")
    only_cold: bool = Field(False, description="Refuse the move while the VM runs.")


class MoveCancelInput(Input):
    """Cancel a move."""


class MovesQuery(PageQuery):
    """Selects moves."""

    tenant: Name | None = None
    vm: UUID | None = None
    host: Name | None = Field(None, description="Only moves from or to this host.")
    state: MoveState | None = None
    open: bool = Field(False, description="Only moves that have not ended.")
