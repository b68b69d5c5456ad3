"""Schemas of recomputed rounds: step by step, and as decided by another policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from controller.rest.schemas.values import Input, Name

#: Maximum number of steps in one answer.
MAX_STEPS = 2_000


class GameQuery(BaseModel):
    """How much of a round's game to list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: Annotated[int, Field(ge=1, le=MAX_STEPS)] = Field(500, description="Most steps.")


class GameHost(BaseModel):
    """A host as the round found it."""

    name: str
    capacity: Mapping[str, int]
    free: Mapping[str, int]


class GameRequest(BaseModel):
    """A request as the round found it."""

    id: str
    name: str
    tenant: str
    vm_type: str
    demand: Mapping[str, int] = Field(description="Of one VM.")
    count: int = Field(description="VMs that it waited for.")
    borrowed: bool = Field(False, description="It waits for none: these would be borrowed VMs.")


class GameTenant(BaseModel):
    """A tenant's dominant shares."""

    name: str
    before: float
    after: float
    target: float = Field(description="What would be fair.")


class CombinationVms(BaseModel):
    """VMs of one request in a combination."""

    request: int = Field(description="Place in `requests`.")
    count: int


class Combination(BaseModel):
    """A combination of VMs that a host could take: one of its strategies in the game."""

    vms: list[CombinationVms] = Field(
        description="In large rounds all VMs of one size are listed as of the first such request."
    )
    utility: float = Field(description="`fairness` less `skewness`: the highest is chosen.")
    fairness: float = Field(description="v(A) at the end that the combination leads to.")
    skewness: float = Field(description="How unevenly the host's resources are used then.")
    minimum_utilization: float = Field(
        description="Of the ranking resources, of what was free before the game. The order of"
        " play follows from it."
    )
    chosen: bool


class GameRow(BaseModel):
    """VMs that a step places; below 0: takes back."""

    request: int = Field(description="Place in `requests`.")
    host: int = Field(description="Place in `hosts`.")
    count: int


class GameShare(BaseModel):
    """A dominant share after a step that changed it."""

    tenant: int = Field(description="Place in `tenants`.")
    share: float


class GameStep(BaseModel):
    """One step of a round."""

    kind: Literal[
        "before", "game", "move", "handed_out", "best_fit", "gang", "exchange", "rest"
    ] = Field(
        description="`before`: placed by Best-Fit before the games (gangs, VMs that limits bind)."
        " `game`: a game begins. `move`: a host chose. `handed_out`: the VMs of a game go to"
        " requests. `best_fit`, `gang`: placed after the games. `exchange`: VMs of one request"
        " made room for one of another. `rest`: what rules outside the game changed, and steps"
        " that are not listed."
    )
    game: int | None = Field(None, description="Number of the game, from 1.")
    host: int | None = Field(None, description="Who moves, or where: place in `hosts`.")
    how: str | None = Field(
        None,
        description="Of a game: `exact`, `sweeps`, `sequential`. Of a move: `exact` and `last_two`"
        " foresee what others answer; `sequential`: Algorithm 1 of the paper; `sweeps`: another"
        " choice is better now.",
    )
    players: int | None = Field(None, description="Of a game.")
    vms: int | None = Field(None, description="Offered in a game.")
    moves: int | None = Field(None, description="Of a game, listed or not.")
    order: list[int] = Field([], description="Of a game: the order of play, places in `hosts`.")
    combinations: list[Combination] = Field([], description="What a move weighed.")
    fairness: float | None = Field(None, description="v(A) after the step; 0 is fairest.")
    skewness: float | None = Field(None, description="Of all players together, after the step.")
    potential: float | None = Field(None, description="`fairness` less `skewness`.")
    rows: list[GameRow]
    rows_left_out: int
    shares: list[GameShare]
    fair_distance: float | None = Field(description="As of a round, after the step.")


class RoundGame(BaseModel):
    """A stored round, computed again and shown step by step."""

    round: int
    policy: str = Field(description="Who decided; policies other than `fuga` record no moves.")
    decided_by: str
    identical: bool = Field(description="Whether the same was decided again, bit for bit.")
    differences: list[str]
    resources: list[str]
    ranking: list[str] = Field(description="Resources that rank combinations.")
    hosts: list[GameHost] = Field(
        description="Those that steps speak of, in order of play, then others up to 300."
    )
    hosts_left_out: int
    requests: list[GameRequest] = Field(description="Those that steps speak of, and up to 500.")
    requests_left_out: int
    tenants: list[GameTenant] = Field(description="Up to 100; of more, those with requests.")
    tenants_left_out: int
    fair_distance: float | None = Field(description="Before the first step.")
    steps: list[GameStep]
    steps_left_out: int


class PolicySummary(BaseModel):
    """A policy by which a stored round can be decided again."""

    name: str
    summary: str | None = Field(description="Null: a plugin of another distribution.")


class SecondPolicyInput(Input):
    """Another policy for a stored round."""

    policy: Name
    parameters: Annotated[dict[Name, Any], Field(max_length=32)] = Field(
        default_factory=dict, description="What differs from the policy's defaults."
    )


class PolicyResult(BaseModel):
    """The result of a policy."""

    placed: int
    left_out: int
    used: Mapping[str, float] = Field(description="Part of each resource in use afterwards.")
    fair_distance: float | None


class SecondShares(BaseModel):
    """A tenant's dominant shares by both policies."""

    tenant: str
    before: float
    first: float
    second: float
    asked: int
    placed_first: int
    placed_second: int
    agreed: int = Field(description="VMs that both place on the same host.")


class SecondRequest(BaseModel):
    """A request that the policies served differently."""

    id: str
    name: str
    tenant: str
    vm_type: str
    asked: int
    placed_first: int
    placed_second: int
    agreed: int = Field(description="VMs that both place on the same host.")


class SecondDecision(BaseModel):
    """A stored round as another policy would have decided it. The result is not stored."""

    round: int
    first_policy: str
    policy: str
    parameters: Mapping[str, Any]
    seconds: float
    cut: bool
    first: PolicyResult
    decided: PolicyResult
    agreed: int = Field(description="VMs that both place on the same host.")
    shares: list[SecondShares] = Field(description="Of tenants for whom either placed something.")
    requests: list[SecondRequest] = Field(
        description="That differ, up to 200, those that differ most first."
    )
