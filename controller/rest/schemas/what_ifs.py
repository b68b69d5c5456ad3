"""Schemas of what-ifs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import BaseModel, Field, StringConstraints

from controller.rest.problems import patterns
from controller.rest.schemas.rolls import Selector
from controller.rest.schemas.values import Amounts, Input, Name, PageQuery, Weight
from registry.admin import WhatIfState

#: A week: older requests say little about future ones.
MAX_HOURS: Final = 168
MAX_HOSTS: Final = 10_000


class AddedHosts(Input):
    """Equal hosts to add."""

    count: Annotated[int, Field(ge=1, le=MAX_HOSTS)]
    like: Name | None = Field(
        None, description="A host that they are like, in capacity and labels."
    )
    capacity: Amounts | None = Field(
        None, description="What one offers, by resource; with `like`, what differs."
    )
    zone: Annotated[str, StringConstraints(pattern=patterns.VALUE, max_length=63)] | None = Field(
        None, description="Their zone, if not that of `like`."
    )


class WhatIfInput(Input):
    """The changes to simulate, and the length of the simulation."""

    hours: Annotated[int, Field(ge=1, le=MAX_HOURS)] = Field(
        24, description="The requests of the last hours come again; as many hours are simulated."
    )
    add_hosts: AddedHosts | None = None
    remove_hosts: Annotated[list[Selector], Field(max_length=500)] = Field(
        default_factory=list,
        description="Each the name of a host, or `label=LABEL`. Their VMs wait for a place.",
    )
    policy: Name | None = Field(
        None, description="Decides instead of the policy in force; zones keep theirs."
    )
    parameters: Annotated[dict[Name, Any], Field(max_length=32)] = Field(
        default_factory=dict, description="What differs from that policy's defaults."
    )
    weights: Annotated[dict[Name, Weight], Field(max_length=500)] = Field(
        default_factory=dict, description="Of tenants and groups."
    )
    fairness_memory_s: Annotated[int, Field(ge=0, le=315_360_000)] | None = Field(
        None, description="Half-life of what tenants held before; 0: only what they hold counts."
    )


class WhatIfCancelInput(Input):
    """End a what-if."""


class WhatIfsQuery(PageQuery):
    """Selects what-ifs."""

    state: WhatIfState | None = None


class WhatIfSummary(BaseModel):
    """The site simulated with something changed, compared with the site as it is."""

    id: UUID
    state: WhatIfState
    arguments: WhatIfInput
    requested_by: str
    requested_at: datetime
    began_at: datetime | None
    ended_at: datetime | None
    progress: float = Field(description="Part that is over, of both simulations; within [0, 1].")
    cancelled_by: str | None
    last_error: str | None = Field(description="Why it failed, or was interrupted.")


class WhatIfVms(BaseModel):
    """Numbers of VMs by outcome. VMs that ran at the beginning do not count as requested."""

    asked: int
    placed: int
    completed: int
    running: int
    waiting: int
    lost: int
    given_up: int
    at_the_beginning: int


class WhatIfWaits(BaseModel):
    """Waiting times of placed VMs in seconds; null if none was placed."""

    mean: float | None
    mean_so_far: float | None = Field(
        None, description="With VMs that wait at the end, as long as they have waited."
    )
    p50: float | None
    p90: float | None
    max: float | None


class WhatIfTenant(BaseModel):
    """A tenant in a simulation."""

    tenant: str
    asked: int
    placed: int
    waiting: int = Field(description="VMs, at the end.")
    mean_wait_s: float | None = Field(description="Of VMs that were placed.")
    mean_wait_so_far_s: float | None = Field(
        None, description="With VMs that wait at the end, as long as they have waited."
    )
    share: float = Field(description="Dominant share at the end.")


class WhatIfWaiting(BaseModel):
    """VMs of a tenant and a size that wait at the end."""

    tenant: str
    demand: Mapping[str, int]
    vms: int
    longest_wait_s: float


class WhatIfLines(BaseModel):
    """Means over equal intervals of time; null where not known."""

    at_s: Sequence[float | None]
    running: Sequence[float | None]
    waiting: Sequence[float | None]
    fair_distance: Sequence[float | None]
    used: Mapping[str, Sequence[float | None]]


class WhatIfRun(BaseModel):
    """The result of one of the two simulations."""

    policy: str
    hosts: int = Field(description="At the end.")
    vms: WhatIfVms
    placed_part: float | None = Field(description="VMs placed, of those requested.")
    placed_by_size: float | None = Field(
        default=None, description="As placed_part; each VM counts by its dominant share."
    )
    waiting_by_size_s: float | None = Field(
        default=None,
        description="Mean wait; each VM counts by its dominant share, also one not placed.",
    )
    wait_s: WhatIfWaits
    fair_distance: float | None = Field(description="Mean distance from fair shares.")
    used: Mapping[str, float | None] = Field(description="Mean part of each resource in use.")
    rounds: int
    fallbacks: int = Field(description="Rounds in which the policy failed.")
    seconds: float = Field(description="That the simulation took.")
    tenants: Sequence[WhatIfTenant] = Field(description="The 50 with the largest shares.")
    waiting: Sequence[WhatIfWaiting] = Field(description="What waits at the end, 20 rows at most.")
    lines: WhatIfLines


class WhatIfInputs(BaseModel):
    """The common inputs of both simulations."""

    at: datetime = Field(description="The site is as it was then.")
    since: datetime = Field(description="Requests from then on come again.")
    hours: int
    hosts: int
    vms_running: int
    vms_waiting: int
    vms_repeated: int
    lifetimes_known: bool = Field(
        description="False: too few VMs have ended to say how long others live; they run on."
    )
    slot_length_s: float
    policy: str
    decided_by: str = Field(description="Where the policy and its parameters are from.")


class WhatIfReport(BaseModel):
    """Two simulations of the same inputs with the same seeds."""

    inputs: WhatIfInputs
    as_it_is: WhatIfRun
    what_if: WhatIfRun
    cut: Sequence[str] = Field(description="What was left out for time or size, in sentences.")


class WhatIfDetail(WhatIfSummary):
    """A what-if with its report."""

    report: WhatIfReport | None = Field(description="Null: it did not finish.")
