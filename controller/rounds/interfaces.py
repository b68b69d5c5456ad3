"""The settings, dependencies and report of a round, which `controller.rounds.round` runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

from controller.rounds.holding_memory import MemoryStore
from controller.rounds.policy_process import Ideal, PolicyAnswer
from placement.catalog.zone_policies import NamedPolicy
from registry.moves import RunningView
from registry.rounds import ClusterView, CommittedRound, Lease, RoundCommit

#: Time limit of the fallback policy, independent of the policy's: late is better than nothing.
FALLBACK_TIME_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """An interval of time, named by its start."""

    start_at: datetime
    length_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChoice:
    """The policy that decides rounds, with its parameters and those of the round."""

    name: str
    parameters: Mapping[str, Any]
    budget_units: int | None
    decision_time_s: float
    seed: int | None = None  #: None: the start of the slot, in whole seconds
    zones: Mapping[str, NamedPolicy] = field(default_factory=dict)  #: by zone with its own
    spare: str | None = None  #: failure domain to keep spare for (see `failure_domains_of`)
    spot_grace_s: int = 120  #: from the announcement of a spot VM's end to the end
    spot_margin: float = 0  #: part of each resource that new spot VMs leave free
    room_hold_s: float = 600  #: time after it ended for which its room is kept for the request

    memory_s: int = 0  #: half-life of past holdings; 0: they do not count
    makes_room: bool = False  #: whether plans of moves make room without an operator's request

    @property
    def max_time_s(self) -> float:
        """Maximum time of a round's decision: by the policy, by the fallback, and for the bound."""
        return 2 * self.decision_time_s + FALLBACK_TIME_S


class RoundStore(MemoryStore, Protocol):
    """Reads and writes of the register center that a round needs."""

    def read_cluster(self, lease: Lease) -> ClusterView:
        """Read hosts, tenants and waiting requests in one transaction."""
        ...

    def commit_round(self, commit: RoundCommit) -> CommittedRound:
        """Write a round's assignments and its record in one transaction."""
        ...


class RunningStore(Protocol):
    """Reads of the register center that a round with spare also needs."""

    def read_running(self, lease: Lease) -> RunningView:
        """Read the cluster and its running VMs in one transaction."""
        ...


class RoundDecider(Protocol):
    """Runs a policy on encoded inputs within a time; see `PolicyProcess`."""

    def decide(self, data: bytes, *, policy: str, deadline_s: float) -> PolicyAnswer:
        """Return the decision; raise `PolicyFailedError` if the policy fails or takes too long."""
        ...

    def ideal(self, data: bytes, *, resource: int, deadline_s: float) -> Ideal:
        """Return the bound on one resource, and the fair shares."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """The summary of a round for logs and metrics."""

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
