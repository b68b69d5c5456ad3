"""Moves of VMs from host to host: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal
from uuid import UUID

from registry.lifecycle import OPEN_MOVES, MoveState, PlanState
from registry.records.cluster import ClusterView, RequestView, VmGroupView
from registry.records.hosts import HostAccess
from registry.records.work import Build

#: The actor that creates and approves automatic plans.
STANDING_RULE: Final = "standing rule"


class PlanKind(StrEnum):
    """The purpose of a plan."""

    EVACUATE = "evacuate"  #: empty hosts
    BALANCE = "balance"
    PACK = "pack"
    ROOM = "room"  #: make room for a waiting request
    REPAIR = "repair"  #: restore violated rules and over-committed hosts


class MoveObstacle(StrEnum):
    """An obstacle to the move of a VM, or to its move to one host."""

    DELETED = "deleted"
    NOT_BUILT = "not_built"  #: it waits for a place, is being built, or is lost
    RUNS = "runs"  #: the VM runs, and only a cold move is allowed
    MOVES_ALREADY = "moves_already"
    LEFT_BEHIND = "left_behind"  #: remains of an earlier move are not removed yet
    LABEL = "label"  #: the label `moves=never` or `moves=cold` of its tenant
    SAME_HOST = "same_host"
    HOST_SILENT = "host_silent"  #: the source or the destination does not answer
    HOST_CLOSED = "host_closed"  #: drained, in maintenance, or failing builds
    HYPERVISOR = "hypervisor"  #: another kind of hypervisor, or one that cannot copy a disk
    NOT_ALLOWED = "not_allowed"  #: labels, zone or hosts of the request exclude the host
    GROUP = "group"  #: the VM group or the spread over zones excludes the host
    NO_NETWORK = "no_network"
    NO_ROOM = "no_room"
    NO_ROOM_FOR_IMAGE = "no_room_for_image"
    SILENT_POOL = "silent_pool"
    LOCAL_VOLUME = "local_volume"  #: it has volumes, which stay in their pool
    NOWHERE = "nowhere"  #: no destination was given, and no host can take the VM


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
    total_bytes: int | None  #: bytes of memory and disk, as far as known
    remaining_bytes: int | None
    rate_bytes_s: int | None
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningVm:
    """A VM on its host, as a plan of moves sees it."""

    id: UUID
    request_id: UUID
    host_id: UUID
    amounts: tuple[int, ...]  #: amounts that its place holds, on the resource axis
    runs: bool
    obstacle: str | None  #: as `placement.rebalancing` names it; None: it can move
    rests: bool  #: whether it moved recently, or a move of it was refused


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningView:
    """The cluster and its running VMs, in one consistent read."""

    cluster: ClusterView
    requests: tuple[RequestView, ...]  #: requests of the VMs, by creation
    vm_groups: tuple[VmGroupView, ...]  #: VM groups of these requests
    vms: tuple[RunningVm, ...]  #: by id


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMove:
    """One move that a planner decided, with what it gains and costs."""

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
    move_id: UUID | None  #: None if the move is not created yet, or was refused
    state: MoveState | None
    refused: str | None
    leaves: bool  #: whether the VM has arrived and its remains still hold room on the source

    @property
    def is_over(self) -> bool:
        """Whether the planned move ended or was refused."""
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
    before: Mapping[str, Any] | None  #: measures of the cluster; None until the plan is decided
    after: Mapping[str, Any] | None
    not_moved: tuple[Mapping[str, Any], ...]  #: VMs that should move and have no destination
    #: of a plan that makes room: ``hosts`` that VMs of the request are let in on and how many on
    #: each, how many of it were ``waiting``, and how many wait all the same and why
    admitted: Mapping[str, Any] | None
    moves: int
    waves: int
    ended: int  #: moves that are over or were refused
    failed: int  #: how many of the ended moves failed
    moved_gib: float  #: by all its moves; once the plan ended, by those that moved
    gain: float | None  #: gain of the potential by balancing or packing
    effect: str | None  #: effect of balancing or packing, better and worse, in one sentence
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
    begun: bool  #: whether another worker began the move
    attempts: int  #: attempts of workers, including this one
    stop: str | None  #: why the move must end with the VM on the source; None: it continues
    fenced: bool  #: whether the source is proven to be off
    lost: bool  #: whether the destination was proven to be off after the move began
    last_error: str | None  #: of an earlier attempt
    vm_id: UUID
    from_id: UUID  #: assignment on the source
    from_host: HostAccess
    back: Build  #: the VM's build on the source, to start it there again from its disk
    to: Build  #: the VM's build on the destination, with the claim of the arriving assignment
    #: address at which the destination receives, by its label; None: libvirt's own
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLimits:
    """The numbers of moves that run at the same time."""

    per_host: int  #: maximum of moves from and to a host
    everywhere: int
