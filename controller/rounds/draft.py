"""The draft of a round: each stage of `run_round` fills its fields, and the commit uses all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from controller.rounds.holding_memory import RoundMemory
from controller.rounds.inputs import RoundCache, RoundInputs, SpareInputs
from controller.rounds.interfaces import PolicyChoice, Slot
from controller.rounds.policy_process import Ideal
from controller.rounds.reservations import SettledReservations
from controller.rounds.snapshots import SnapshotNames
from placement import Allocation, LeftOut, Snapshot
from placement.catalog.zone_policies import RoundPolicies
from placement.model.reservations import Rows
from registry.moves import RunningView
from registry.requests import WaitingStatus
from registry.rounds import ClusterView, Lease, RoundHoldings, SpotCommit


@dataclass(slots=True, eq=False, kw_only=True)
class RoundDraft:
    """The results of a round's stages so far, in their order.

    A stage reads the fields above its own and fills its own. Reading a field that is not filled yet
    raises `AttributeError`.
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
    # the rows as arrays, without the room of reservations and the margin of spot VMs
    snapshot: Snapshot = field(init=False)
    names: SnapshotNames = field(init=False)
    freed: tuple[tuple[int, int], ...] = field(init=False)
    spare: SpareInputs | None = field(default=None, init=False)
    reserved: SettledReservations | None = field(default=None, init=False)
    memory: RoundMemory | None = field(
        default=None, init=False
    )  #: None: past holdings do not count
    # the policies, and the digest of the inputs
    who: RoundPolicies = field(init=False)
    digest: str = field(init=False)
    # the inputs and the result of the decision
    inputs: RoundInputs = field(init=False)
    data: bytes = field(init=False)  #: the inputs, encoded
    outcome: dict[str, Any] = field(init=False)  #: the allocation, as it is stored
    allocation: Allocation = field(init=False)
    fallback_reason: str | None = field(default=None, init=False)
    # measures of the decision
    ideal: Ideal | None = field(default=None, init=False)  #: None: it could not be computed
    shares: tuple[dict[str, Any], ...] = field(init=False)
    group_shares: tuple[dict[str, Any], ...] = field(init=False)
    holdings: RoundHoldings = field(init=False)
    fair_distance: float | None = field(init=False)
    # consequences for running spot and borrowed VMs, and waiting requests
    spot: SpotCommit = field(init=False)
    waiting: dict[UUID, WaitingStatus] = field(init=False)

    @property
    def drawn(self) -> Rows:
        """The VMs placed in the room of reservations, before the policy decided."""
        return () if self.reserved is None else self.reserved.inputs.drawn

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """What the allocation left out of the requests that wait; what borrows does not wait."""
        borrowed = self.snapshot.borrowed
        left_out = self.allocation.left_out
        return (
            left_out
            if borrowed is None
            else [left for left in left_out if not borrowed.asks[left.request]]
        )

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began."""
        return time.perf_counter() - self.started
