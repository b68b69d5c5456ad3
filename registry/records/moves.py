"""Moves of VMs from host to host: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal
from uuid import UUID

from registry.lifecycle import OPEN_MOVES, MoveState, PlanState
from registry.records.hosts import HostAccess
from registry.records.rounds import ClusterView, RequestView, VmGroupView
from registry.records.work import Build

#: The actor that creates and approves automatic plans.
STANDING_RULE: Final = "standing rule"


class PlanKind(StrEnum):
    """The purpose of a plan."""

    EVACUATE = "evacuate"  #: hosts are to be empty
    BALANCE = "balance"
    PACK = "pack"
    ROOM = "room"  #: a request that waits is to be let in
    REPAIR = "repair"  #: rules that are broken, and hosts with more than they have


class MoveObstacle(StrEnum):
    """An obstacle to the move of a VM, or to its move to one host."""

    DELETED = "deleted"
    NOT_BUILT = "not_built"  #: it waits for a place, is being built, or is lost
    RUNS = "runs"  #: and is to be moved while it is off
    MOVES_ALREADY = "moves_already"
    LEFT_BEHIND = "left_behind"  #: what it left on another host is not gone yet
    LABEL = "label"  #: its tenant's label `moves=never` or `moves=cold`
    SAME_HOST = "same_host"
    HOST_SILENT = "host_silent"  #: where it is, or where it goes
    HOST_CLOSED = "host_closed"  #: drained, in maintenance, or failing builds
    HYPERVISOR = "hypervisor"  #: another kind, or one that cannot copy a disk
    NOT_ALLOWED = "not_allowed"  #: by labels, zone or hosts that its request names
    GROUP = "group"  #: by its group, or by the spread over zones
    NO_NETWORK = "no_network"
    NO_ROOM = "no_room"
    NO_ROOM_FOR_IMAGE = "no_room_for_image"
    SILENT_POOL = "silent_pool"
    NOWHERE = "nowhere"  #: no host was named, and none takes it


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The move of one VM from host to host, under way or over."""

    id: UUID
    vm_id: UUID
    vm_name: str
    tenant: str
    from_host: str
    to_host: str
    kind: Literal["live", "cold"]
    state: MoveState
    reason: str
    requested_by: str
    requested_at: datetime
    cancelled_by: str | None
    began_at: datetime | None
    ended_at: datetime | None
    downtime_ms: int | None  #: downtime of the guest
    total_bytes: int | None  #: of memory and disk, as far as known
    remaining_bytes: int | None
    rate_bytes_s: int | None
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningVm:
    """A VM on its host, as a plan of moves sees it."""

    id: UUID
    request_id: UUID
    host_id: UUID
    amounts: tuple[int, ...]  #: that its place holds, on the axis of resources
    runs: bool
    obstacle: str | None  #: label, moving, unsettled or host_silent; None: it can move
    rests: bool  #: it moved lately, or a move of it was refused


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningView:
    """The cluster and its running VMs, in one consistent read."""

    cluster: ClusterView
    requests: tuple[RequestView, ...]  #: of the VMs, by creation
    vm_groups: tuple[VmGroupView, ...]  #: of these requests
    vms: tuple[RunningVm, ...]  #: by id


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMove:
    """One move of a plan."""

    vm_id: UUID
    from_host_id: UUID
    to_host_id: UUID
    wave: int
    why: str
    transfer_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMove:
    """One move of a plan, with its outcome."""

    position: int
    wave: int
    vm_id: UUID
    vm_name: str
    tenant: str
    from_host: str
    to_host: str
    why: str
    transfer_mib: int
    move_id: UUID | None  #: None: it is not created yet, or it was refused
    state: MoveState | None
    refused: str | None
    leaves: bool  #: it has arrived, and what it left behind still holds its room

    @property
    def is_over(self) -> bool:
        """Whether the move ended or was refused."""
        return self.refused is not None or (self.state is not None and self.state not in OPEN_MOVES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan: moves in waves, their reason, and their gain."""

    id: UUID
    kind: PlanKind
    state: PlanState
    arguments: Mapping[str, Any]
    requested_by: str
    requested_at: datetime
    approved_by: str | None
    approved_at: datetime | None
    ended_at: datetime | None
    before: Mapping[str, Any] | None  #: measures of the cluster; None: it is not decided yet
    after: Mapping[str, Any] | None
    not_moved: tuple[Mapping[str, Any], ...]  #: VMs that should move and have no place
    #: of a plan that makes room: ``hosts`` that VMs of the request are let in on and how many on
    #: each, how many of it were ``waiting``, and how many wait all the same and why
    admitted: Mapping[str, Any] | None
    moves: int
    waves: int
    ended: int  #: moves that are over, or were refused
    failed: int  #: of these
    moved_gib: float
    gain: float | None  #: of the potential, by balancing or packing
    effect: str | None  #: what balancing or packing makes better and what worse, in one sentence
    cut: bool
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveClaim:
    """A lease on a move. A takeover sets another token."""

    move_id: UUID
    token: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveProgress:
    """The progress of a move."""

    total_bytes: int
    remaining_bytes: int
    rate_bytes_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveStep:
    """A move to carry out, or one whose state a worker has to find out."""

    claim: MoveClaim
    kind: Literal["live", "cold"]
    begun: bool  #: another worker began it
    attempts: int  #: of workers, with this one
    stop: str | None  #: why it is to end with the VM where it was; None: it goes on
    fenced: bool  #: the host where the VM was is proven to be off
    lost: bool  #: the host where it was to arrive was proven to be off, with what had come of it
    vm_id: UUID
    from_id: UUID  #: the assignment that it leaves
    from_host: HostAccess
    back: Build  #: what it was where it was, to be started there again from its disk
    to: Build  #: what it becomes where it arrives; its claim is of the arriving assignment
    address: str | None = None  #: at which its host receives, by its label; None: its libvirt's


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLimits:
    """The numbers of moves that run at the same time."""

    per_host: int  #: in and out
    everywhere: int
