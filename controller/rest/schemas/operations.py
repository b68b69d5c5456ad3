"""Schemas of the slot loop, rounds, events, the audit, health and problems."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from controller.queries.overdue_work import OverdueWork, Work
from controller.rest.problems import patterns
from controller.rest.schemas.values import (
    MAX_BIGINT,
    Input,
    MomentsQuery,
    MomentText,
    Name,
    PageQuery,
    ReasonText,
    parse_moment_field,
)
from controller.rounds.damaged_rounds import reporting_damage
from controller.rounds.side_effects import (
    RoundReservation,
    SpotPreemption,
    stored_reservations,
    stored_spot_preemptions,
)
from controller.rounds.solved_games import (
    FillingComparisonView,
    GameView,
    filling_comparisons,
    solved_games,
)
from registry import QuotaExcess, SlotLoopState
from registry.audit import Event
from registry.moves import MoveObstacle
from registry.rounds import DecidedBy, RoundRecord, ShadowRound, SiteKey


class PauseInput(Input):
    """Pause the slot loop."""

    reason: ReasonText = Field(description="Shown to waiting tenants and recorded.")


class ResumeInput(Input):
    """Resume the slot loop."""

    reason: ReasonText | None = None


class SlotLoop(BaseModel):
    """The state of the slot loop."""

    state: SlotLoopState
    reason: str | None = Field(description="Reason of the last change.")
    changed_by: str | None = Field(description="Operators only.")
    changed_at: datetime | None = Field(description="Null: never paused.")


class EventsQuery(BaseModel):
    """Selects events: those after a number, oldest first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, Field(ge=1, le=500)] = 100
    after: Annotated[int, Field(ge=0, le=MAX_BIGINT)] = 0
    subject: Annotated[str, Field(pattern=patterns.SUBJECT)] | None = Field(
        None,
        description="Id or name of a request, VM, host or volume, also a gone one; id of others.",
    )
    kind: Annotated[str, Field(pattern=patterns.EVENT_KIND)] | None = None
    tenant: Name | None = None
    since: MomentText | None = Field(None, description="Only since this time.")
    newest: bool = Field(
        False, description="Return the newest events instead, still oldest first within the page."
    )

    def since_moment(self) -> datetime | None:
        """Return ``since`` as a time; raise `InvalidError` for a date that does not exist."""
        return parse_moment_field("since", self.since)


class EventStreamQuery(BaseModel):
    """Selects events to follow."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: Annotated[int, Field(ge=0, le=MAX_BIGINT)] | None = Field(
        None, description="Last known id; null: only events still to come."
    )
    subject: Annotated[str, Field(pattern=patterns.SUBJECT)] | None = Field(
        None,
        description="Id or name of a request, VM, host or volume, also a gone one; id of others.",
    )
    kind: Annotated[str, Field(pattern=patterns.EVENT_KIND)] | None = None
    tenant: Name | None = None
    brief: bool = Field(
        False, description="Report only that there are new events, at most once a second."
    )


class AuditQuery(MomentsQuery):
    """Selects calls that could change something."""

    token: Name | None = Field(None, description="Name of the token.")
    tenant: Name | None = Field(None, description="Tenant of the token; null: all.")
    method: Literal["POST", "PATCH", "PUT", "DELETE"] | None = None
    status: Annotated[int, Field(ge=100, le=599)] | None = None
    refused: bool = Field(False, description="Only calls answered with 401, 403 or 429.")
    subject: Annotated[str, Field(pattern=patterns.SUBJECT)] | None = Field(
        None,
        description="Id or name of a request, VM, host or volume, also a gone one; id of others.",
    )
    request_id: Annotated[str, Field(pattern=patterns.HTTP_REQUEST_ID)] | None = Field(
        None, description="The `X-Request-Id` of the answer."
    )


class EventsPage(BaseModel):
    """Events in order. ``next`` is never null, because more events will come."""

    items: list[Event]
    next: int = Field(description="`after` of the next call.")


class ProofsQuery(PageQuery):
    """Selects a tenant's rows."""

    tenant: Name = Field(description="Whose rows.")


class SiteKeys(BaseModel):
    """The public keys that sign rounds, the oldest first."""

    keys: list[SiteKey] = Field(
        description="Compare the present key with one that you got on another way."
    )


class ClassPrices(BaseModel):
    """Prices of a class of hosts: what one more unit of each resource there was worth."""

    labels: list[str]
    hosts: int
    capacity: Mapping[str, int] = Field(description="Of one host.")
    room: Mapping[str, int] = Field(description="Free when the round began, and not in pieces.")
    price: Mapping[str, float] = Field(description="Of one unit: of one MiB of memory_mib.")


class RoundPrices(BaseModel):
    """The prices of the resources that a round was short of, in units of one resource."""

    resource: str = Field(description="The first ranking resource; all of it is in its units.")
    most: float | None = Field(description="Most that could be placed if shares did not count.")
    fair: float | None = Field(description="Most of that within everybody's fair target.")
    of_fairness: float | None = Field(description="The price of fairness: most less fair.")
    classes: list[ClassPrices] = Field(description="The dearest that have a price above 0.")
    classes_left_out: int
    error: str | None = Field(description="Why there are none.")


class _RoundHead(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    number: int
    slot_start_at: datetime
    slot_length_s: float
    policy: str
    decided_by: str
    fallback_reason: str | None
    placed: int | None = Field(description="VMs of all tenants (operators only).")
    left_out: int | None = Field(description="VMs of all tenants (operators only).")
    dropped: int | None = Field(description="VMs of all tenants (operators only).")
    cut: bool
    work: int | None = Field(description="Operators only.")
    shares: list[Mapping[str, Any]]


class RoundSummary(_RoundHead):
    """A round in a list."""

    decided_by: DecidedBy
    bound: float | None = Field(description="Operators only.")
    fair_distance: float | None = Field(description="Operators only.")
    timings: Mapping[str, float] = Field(description="Operators only.")
    engine_version: str
    seed: int
    inputs_digest: str
    created_at: datetime
    group_shares: list[Mapping[str, Any]] = Field(description="Operators only.")
    prices: RoundPrices | None = Field(
        description="Operators only. Null in rounds that were decided before there were prices."
    )


class RoundDetail(_RoundHead):
    """A round with its parameters and outcome; its inputs stay in the register center."""

    group_shares: list[Mapping[str, Any]] = Field(description="Operators only.")
    prices: RoundPrices | None = Field(
        description="Operators only. Null in rounds that were decided before there were prices."
    )
    bound: float | None
    fair_distance: float | None = Field(
        description="Mean of |share - fair target| over tenants, divided by the mean target."
    )
    timings: Mapping[str, float] = Field(description="Operators only.")
    engine_version: str
    seed: int
    inputs_digest: str
    created_at: datetime
    parameters: Mapping[str, Any]
    budget_units: int | None
    outcome: Mapping[str, Any] | None = Field(None, description="Operators only, while it is kept.")
    games: list[GameView] = Field(
        [], description="How each game was solved. Operators only, while it is kept."
    )
    comparisons: list[FillingComparisonView] = Field(
        [],
        description="Of games with filling alone, where a single resource ranked. Operators only, "
        "while it is kept.",
    )
    spot_preemptions: list[SpotPreemption] = Field(
        [],
        description="Spot and borrowed VMs that the round ended, and for which requests. "
        "Operators only, while it is kept.",
    )
    reservations: list[RoundReservation] = Field(
        [],
        description="Reservations for which the round kept room. Operators only, while it is kept.",
    )
    replayable: bool = Field(False, description="Whether its inputs are still kept for a replay.")
    shadow: ShadowRound | None = Field(
        None, description="Decision of the second policy. Operators only."
    )

    @classmethod
    def of(cls, record: RoundRecord, shadow: ShadowRound | None) -> RoundDetail:
        """Return a round as the API shows it; raise `RoundDamagedError` for damaged bytes."""
        fields: dict[str, Any] = {"replayable": False, "shadow": shadow}
        if record.stored is not None or record.damaged:
            stored = record.decision()
            with reporting_damage(record.number):
                fields |= {
                    "outcome": stored.outcome,
                    "games": list(solved_games(stored.outcome["details"])),
                    "comparisons": list(filling_comparisons(stored.outcome["details"])),
                    "spot_preemptions": list(stored_spot_preemptions(stored)),
                    "reservations": list(stored_reservations(stored)),
                    "replayable": True,
                }
        return cls.model_validate(record).model_copy(update=fields)


class Liveness(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """Answer of the readiness check: given only if the database answers and its schema matches."""

    status: Literal["ok"] = "ok"
    last_round: int | None = Field(description="Number of the newest round.")
    last_round_age_s: float | None = Field(
        description="Seconds since its slot began. Idle slots leave no round."
    )
    unattended: list[Work] = Field(
        description="Work that no process does: decide, build or poll (hosts)."
    )
    disks: list[str] = Field(
        description="A sentence about each disk without room that the API writes to."
    )


class ProcessStatus(BaseModel):
    """A control centre, worker or monitor, and the time of its last heartbeat."""

    kind: str
    name: str
    started_at: datetime
    heartbeat_at: datetime
    late: bool
    trouble: str | None = Field(description="Why it was not ready at its last heartbeat.")
    release: str | None = Field(description="Version and commit. Null: it is older than that.")


class HostsInView(BaseModel):
    """Summary of hosts."""

    active: int
    up: int
    longest_silent_at: datetime | None = Field(
        description="Oldest last poll among the hosts that are up."
    )


class ObservedClockStep(BaseModel):
    """A step of the database's clock."""

    at: datetime = Field(description="When it was noticed, on the clock as it is since.")
    back_s: float = Field(description="Size of a step back at least, in seconds.")
    ahead_s: float = Field(description="Size of a step ahead, in seconds.")


class BorrowedInStatus(BaseModel):
    """The borrowed VMs of all tenants."""

    vms: int
    ending: int = Field(description="Of these, VMs whose end is announced.")
    first_end_at: datetime | None = Field(description="The first announced end.")


class Status(BaseModel):
    """Whether control centre, workers and monitors do their work."""

    at: datetime
    release: str | None = Field(
        description="Version and commit of the API that answers. Operators only."
    )
    healthy: bool = Field(description="Whether nothing is late and each disk has room.")
    late: list[OverdueWork]
    disks: list[str] = Field(
        description="A sentence about each disk without room that the API writes to."
    )
    leader: str | None = Field(description="Operators only; null: no leader.")
    leads_since: datetime | None
    paused: bool
    last_slot_at: datetime | None = Field(
        description="Start of the last decided slot, including slots without work."
    )
    slot_length_s: float | None
    last_round: int | None
    last_round_at: datetime | None = Field(description="Start of its slot.")
    processes: list[ProcessStatus] = Field(description="Operators only.")
    hosts: HostsInView | None = Field(description="Operators only.")
    borrowed: BorrowedInStatus | None = Field(description="Operators only; null: there are none.")
    oldest_unbuilt_at: datetime | None = Field(
        description="Creation time of the oldest placed VM that no worker has started. Operators"
        " only."
    )
    clock_ahead_s: float | None = Field(
        description="Seconds by which the newest heartbeat or poll lies ahead of the database's"
        " clock. Operators only."
    )
    clock_step: ObservedClockStep | None = Field(
        description="Last step of the database's clock, if it was noticed within a day."
        " Operators only."
    )


class ProblemError(BaseModel):
    """One error of the input, and its place."""

    model_config = ConfigDict(extra="forbid")

    in_: Literal["body", "query", "path", "header"] = Field(alias="in")
    pointer: str | None = Field(None, description="JSON pointer into the body.")
    parameter: str | None = Field(None, description="Name of the parameter or header.")
    detail: str
    found: str | int | float | bool | None
    allowed: str


class Scopes(BaseModel):
    """The scope that a call needs, and the token's scope."""

    needed: str
    given: str


class ProblemDocument(BaseModel):
    """RFC 9457 problem."""

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable name of the kind, for programs.")
    errors: list[ProblemError]
    incident: str | None = Field(None, description="Name of a 500 in the log.")
    current_version: str | None = Field(
        None, description="With 412: the current ETag, for the next If-Match."
    )
    scope: Scopes | None = Field(
        None, description="With `forbidden`: the needed scope and the given one."
    )
    quota: list[QuotaExcess] | None = Field(
        None, description="With `quota_exceeded`: every exceeded limit."
    )
    obstacle: MoveObstacle | None = Field(
        None, description="With `move_refused`: the reason, for programs."
    )
