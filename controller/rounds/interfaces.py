"""The settings, dependencies and report of a round, which `controller.rounds.round` runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

from controller.rounds.policy_process import Ideal, PolicyAnswer
from placement.catalog.zone_policies import NamedPolicy
from registry.moves import RunningView
from registry.rounds import ClusterView, CommittedRound, Lease, RoundCommit

#: The fallback's own time, whatever the policy was given: late is better than nothing.
FALLBACK_TIME_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """An interval of time, named by its start."""

    start_at: datetime
    length_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChoice:
    """The policy that decides, and its parameters."""

    name: str
    parameters: Mapping[str, Any]
    budget_units: int | None
    decision_time_s: float
    seed: int | None = None  #: None: the start of the slot, in whole seconds
    zones: Mapping[str, NamedPolicy] = field(default_factory=dict)  #: policies of their own
    spare: str | None = None  #: what may fail, as `domains_of` reads it; None: nothing is kept
    spot_grace_s: int = 120  #: from the announcement of a spot VM's end to the end
    spot_margin: float = 0  #: part of each resource that new spot VMs leave free
    room_hold_s: float = 600  #: so much longer rounds keep its room for whom it ends

    @property
    def max_time_s(self) -> float:
        """What deciding a round may take: by the policy, by the fallback, and for the bound."""
        return 2 * self.decision_time_s + FALLBACK_TIME_S


class RoundStore(Protocol):
    """What a round needs of the register center."""

    def read_cluster(self, lease: Lease) -> ClusterView:
        """One consistent read."""
        ...

    def commit_round(self, commit: RoundCommit) -> CommittedRound:
        """Decision and record in one transaction."""
        ...


class RunningStore(Protocol):
    """What a round that keeps spare needs besides."""

    def read_running(self, lease: Lease) -> RunningView:
        """One consistent read of the cluster and of what runs on it."""
        ...


class RoundDecider(Protocol):
    """Runs a policy on encoded inputs within a time; see `PolicyProcess`."""

    def decide(self, data: bytes, *, policy: str, deadline_s: float) -> PolicyAnswer:
        """Raises `PolicyFailedError` when it does not decide in time."""
        ...

    def ideal(self, data: bytes, *, resource: int, deadline_s: float) -> Ideal:
        """What could be placed of one resource at most, and what is fair."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """One summary of a round, for the log line."""

    number: int
    decided_by: str
    placed: int
    left_out: int
    dropped: int
    fallback_reason: str | None
    games: tuple[Mapping[str, Any], ...]  #: between hosts, as the policy records them
    phases_s: Mapping[str, float]  #: read, policy, bound and commit
    duration_s: float
    assignments: Mapping[UUID, tuple[UUID, ...]]  #: by request
