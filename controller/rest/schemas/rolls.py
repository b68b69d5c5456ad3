"""Rolls over hosts, as the API takes and shows them."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StringConstraints

from controller.rest.problems import patterns
from controller.rest.schemas.values import Input, Name, PageQuery
from registry.moves import RollLimits, RollState

_LIMITS: Final = RollLimits()
Selector = Annotated[str, StringConstraints(pattern=patterns.SELECTOR, max_length=134)]
OneLine = Annotated[str, StringConstraints(pattern=patterns.ONE_LINE, min_length=1, max_length=500)]
Within = Annotated[int, Field(ge=1, le=604_800)]


class RollDriver(Input):
    """The driver of a roll, and the command that it runs."""

    command: OneLine = Field(description="As it was typed: it is shown, and runs at its driver's.")
    driver: OneLine = Field(description="The process that runs it, for people.")
    skipped: Annotated[list[Name], Field(max_length=500)] = Field(
        default_factory=list, description="Hosts over which the roll does not go."
    )


class RollInput(RollDriver):
    """A roll to begin: its driver runs the command for hosts in turn, each once it is empty."""

    hosts: Annotated[list[Selector], Field(min_length=1, max_length=500)] = Field(
        description="Each the name of a host, `label=LABEL`, or `all`."
    )
    at_once: Annotated[int, Field(ge=1, le=500)] = 1
    empty_within_s: Within = _LIMITS.empty_within_s
    run_within_s: Within = _LIMITS.run_within_s
    up_within_s: Within = _LIMITS.up_within_s


class CommandEndInput(Input):
    """The end of the command on a host."""

    host: Name
    error: OneLine | None = Field(None, description="None: it succeeded.")


class RollStepInput(Input):
    """The report of a roll's driver since its last step."""

    begun: Annotated[list[Name], Field(max_length=500)] = Field(
        default_factory=list, description="Hosts for which it begins the command right after."
    )
    ended: Annotated[list[CommandEndInput], Field(max_length=500)] = Field(default_factory=list)
    stop: OneLine | None = Field(None, description="Why nothing more is to begin.")
    leave: bool = Field(False, description="Do not wait for what goes on, either.")


class RollCancelInput(Input):
    """End a roll."""


class RollsQuery(PageQuery):
    """Selects rolls."""

    state: RollState | None = None


class RollHostsQuery(PageQuery):
    """Selects hosts of a roll."""
