"""Schemas of serial consoles: output, sessions, input."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from controller.rest.schemas.values import MAX_BIGINT
from registry.consoles import MAX_TYPED_BYTES, ConsoleSession


class ConsoleQuery(BaseModel):
    """Selects a part of a console's output."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bytes: Annotated[int, Field(ge=1, le=65_536)] = 65_536
    after: Annotated[int, Field(ge=0, le=MAX_BIGINT)] = Field(
        0, description="Return output after this byte: the `end` of the previous call."
    )


class ConsoleSessionInput(BaseModel):
    """Attaches to a console."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    force: bool = Field(False, description="Take it from its current user.")


class ConsoleSaidQuery(BaseModel):
    """Selects a part of a session's output, and the time to wait for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: Annotated[int, Field(ge=0, le=MAX_BIGINT)] = Field(
        0, description="The `end` of the previous call."
    )
    wait_s: Annotated[float, Field(ge=0, le=5)] = Field(
        0, description="Time to wait if there is no new output."
    )


class ConsoleKeystrokes(BaseModel):
    """Typed input."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    content: Annotated[str, Field(min_length=1, max_length=4 * -(-MAX_TYPED_BYTES // 3))] = Field(
        description=f"Base64 of 1 to {MAX_TYPED_BYTES} bytes, passed to the guest unchanged."
    )


class ConsoleRead(BaseModel):
    """The last output of a guest on its serial console."""

    vm: UUID
    content: str = Field(description="Base64 of the unchanged bytes.")
    end: int = Field(description="Total bytes written: `after` of the next call.")


class ConsoleSessionOutput(BaseModel):
    """The output of a guest since a console was attached."""

    session: ConsoleSession
    start: int = Field(
        description="If greater than `after`, the bytes between were not read in time."
    )
    content: str = Field(description="Base64 of the unchanged bytes.")
    end: int = Field(description="`after` of the next call.")
