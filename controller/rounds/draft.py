"""A round in the making: each stage of `run_round` fills its part, the commit takes all of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from controller.rounds.inputs import RoundCache, RoundInputs, SpareInputs
from controller.rounds.interfaces import PolicyChoice, Slot
from controller.rounds.policy_process import Ideal
from controller.rounds.reservations import SettledReservations
from controller.rounds.snapshots import SnapshotNames
from placement import Allocation, Snapshot
from placement.catalog.zone_policies import RoundPolicies
from placement.model.reservations import Rows
from registry.moves import RunningView
from registry.requests import WaitingStatus
from registry.rounds import ClusterView, Lease, SpotCommit


@dataclass(slots=True, eq=False, kw_only=True)
class RoundDraft:
    """What a round has read, decided and found out so far, in the order of its stages.

    A stage reads the fields above its own and fills its own. To read a field that no stage has
    filled yet raises `AttributeError`.
    """

    slot: Slot
    lease: Lease
    choice: PolicyChoice
    kept: RoundCache
    started: float = field(default_factory=time.perf_counter, init=False)
    phases_s: dict[str, float] = field(default_factory=dict, init=False)

    # the rows
    view: ClusterView = field(init=False)
    running: RunningView | None = field(default=None, init=False)  #: None: no spare is kept
    # the same as arrays, less what reservations and the margin of spot VMs take
    snapshot: Snapshot = field(init=False)
    names: SnapshotNames = field(init=False)
    freed: tuple[tuple[int, int], ...] = field(init=False)
    spare: SpareInputs | None = field(default=None, init=False)
    reserved: SettledReservations | None = field(default=None, init=False)
    # who is to decide, and the digest of all that the decision depends on
    who: RoundPolicies = field(init=False)
    digest: str = field(init=False)
    # who decided in the end, on what, and how
    inputs: RoundInputs = field(init=False)
    data: bytes = field(init=False)  #: the inputs, encoded
    outcome: dict[str, Any] = field(init=False)  #: the allocation, as it is stored
    allocation: Allocation = field(init=False)
    fallback_reason: str | None = field(default=None, init=False)
    # what the record shows next to the decision
    ideal: Ideal | None = field(default=None, init=False)  #: None: it could not be had
    shares: tuple[dict[str, Any], ...] = field(init=False)
    group_shares: tuple[dict[str, Any], ...] = field(init=False)
    fair_distance: float | None = field(init=False)
    # what follows for spot VMs that run, and for requests that wait
    spot: SpotCommit = field(init=False)
    waiting: dict[UUID, WaitingStatus] = field(init=False)

    @property
    def drawn(self) -> Rows:
        """The VMs placed in the room of reservations, before the policy decided."""
        return () if self.reserved is None else self.reserved.inputs.drawn

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began."""
        return time.perf_counter() - self.started
