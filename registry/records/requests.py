"""Requests, their VMs, and their pending changes: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from registry.lifecycle import (
    AssignmentState,
    CopyState,
    PowerState,
    RequestState,
    VmDesired,
    VmObserved,
    VmState,
)
from registry.records.fields import Observed, Settable


@dataclass(frozen=True, slots=True, kw_only=True)
class UserData:
    """The visible part of a request's user data, which may hold secrets."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestAccess:
    """The SSH keys and user data by which a tenant can log in to a guest."""

    ssh_keys: tuple[str, ...]
    user_data: bytes | None = field(repr=False)  #: never to be logged
    ignored: str | None = None  #: why cloud-init will ignore the user data


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingStatus:
    """Why VMs of a request wait. ``round`` and ``since`` are filled in by the store."""

    count: int
    reason: str
    round: int | None = None
    since: datetime | None = None  #: when the request began to wait
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipRule:
    """The membership of a request's VMs in a VM group of its tenant."""

    group: str
    soft: bool = False  #: only as far as there is room for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Placement rules of a request, in addition to its required labels and hosts."""

    forbids: tuple[str, ...] = ()  #: labels that a host must not carry
    prefers: tuple[str, ...] = ()  #: hosts with all of these labels are taken first
    zone: str | None = None
    anti_affinity: MembershipRule | None = None  #: one VM of the group on a host at most
    affinity: MembershipRule | None = None  #: all VMs of the group on one host
    spread: str | None = None  #: ``zone``: as many VMs in each zone as in any other


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVolume:
    """A volume that a request creates for each of its VMs."""

    name: str  #: of a single VM; of several with the VM's number: data-1
    size_gib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A tenant's request of ``count`` VMs of one type."""

    id: Observed[UUID]
    name: Settable[str]
    tenant: Settable[str]
    vm_type: Settable[str]
    count: Settable[int]
    min_count: Settable[int]
    requires: Settable[tuple[str, ...]]
    hosts: Settable[tuple[str, ...] | None]
    state: Observed[RequestState]
    waiting: Observed[WaitingStatus | None]
    #: VMs that are not being deleted: `count`, until the request is deleted or ends
    vms_wanted: Observed[int]
    vms_placed: Observed[int]  #: wanted VMs with an unreleased assignment
    vms_running: Observed[int]  #: wanted VMs that run on hosts that answer
    created_at: Observed[datetime]
    updated_at: Observed[datetime]
    vms_unknown: Observed[int] = 0  #: wanted VMs on hosts that no longer answer
    vms_leaving: Observed[int] = 0  #: VMs that are being deleted and still hold a place
    labels: Settable[Mapping[str, str]] = field(default_factory=dict)  #: the tenant's own words
    #: end of the request's lifetime; None: it has none
    expires_at: Settable[datetime | None] = None
    #: reference of the image; None: the base volume of each host
    image: Settable[str | None] = None
    network: Settable[str | None] = None  #: None: that of each host's own settings
    ssh_keys: Settable[tuple[str, ...]] = ()  #: fingerprints of the keys that came with it
    user_data: Settable[UserData | None] = None
    #: host name of a single VM, or the stem of several; None: the VMs' names
    hostname: Settable[str | None] = None
    rules: Settable[Rules] = Rules()
    #: priority among the tenant's requests; the highest is placed first
    priority: Settable[int] = 0
    #: its VMs are placed on what is left over, and end when the room is needed
    spot: Settable[bool] = False
    reservation: Settable[UUID | None] = None  #: reservation that the request draws on
    volumes: Settable[tuple[str, ...]] = ()  #: names of the volumes that its VM starts with
    #: volumes that were created with it, for each of its VMs
    new_volumes: Settable[tuple[NewVolume, ...]] = ()
    #: VMs at most, of which those beyond ``count`` are borrowed; None: none are
    max_count: Settable[int | None] = None
    vms_borrowed: Observed[int] = 0  #: borrowed VMs among those that are placed
    warnings: Observed[tuple[str, ...]] = ()  #: warnings about the request


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """A pending power change of a VM."""

    state: PowerState
    requested_by: str
    requested_at: datetime
    timeout_s: int  #: seconds for the guest to shut down; 0: it is forced at once
    force_at: datetime | None  #: when the guest is forced off; None: it was not signalled yet
    waits_for: str | None  #: why workers cannot act yet
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageWait:
    """An image that is not yet on the host where a VM is to be built."""

    image: str  #: reference of the image
    state: CopyState
    uploaded_bytes: int
    size_bytes: int
    held: bool = False  #: whether the image is on hold until an operator releases it


@dataclass(frozen=True, slots=True, kw_only=True)
class VmCount:
    """The number of VMs with equal properties; ``placed`` ones have a host, others wait."""

    vm_type: str
    spot: bool
    borrowed: bool
    state: VmState
    placed: bool
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCount:
    """The number of requests in one state."""

    state: RequestState
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The counts of all VMs and requests that are not gone."""

    vms: tuple[VmCount, ...]
    requests: tuple[RequestCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vm:
    """One virtual machine. Host, assignment and round are of its unreleased assignment."""

    id: Observed[UUID]
    name: Settable[str]
    request_id: Settable[UUID]
    tenant: Settable[str]
    vm_type: Settable[str]
    host: Observed[str | None]
    desired: Settable[VmDesired]
    observed: Observed[VmObserved]
    assignment_id: Observed[UUID | None]
    assignment_state: Observed[AssignmentState | None]
    round: Observed[int | None]
    generation: Observed[int]  #: number of the latest assignment; 0 if never placed
    last_error: Observed[str | None]
    power: Observed[Power | None] = None  #: None if no change is pending
    labels: Settable[Mapping[str, str]] = field(default_factory=dict)  #: the tenant's own words
    created_at: Observed[datetime]
    deleted_at: Observed[datetime | None]  #: when the VM was deleted and proven gone
    network: Settable[str | None] = None  #: None: that of its host's own settings
    mac: Observed[str | None] = None
    address: Observed[str | None] = None  #: address from the network's subnet
    #: host name of the guest; None: made from the VM's name
    hostname: Settable[str | None] = None
    #: None: it is there, or the VM has no image or host
    waits_for_image: Observed[ImageWait | None] = None
    #: Since when its host is not heard: ``observed`` is what was seen last. None: its host answers.
    unknown_since: Observed[datetime | None] = None
    #: Since when its host has its guest paused, which its tenant did not ask for. None: it has not.
    paused_since: Observed[datetime | None] = None
    spot: Settable[bool] = False
    #: whether it is beyond its request's number, and ends for tenants with smaller shares
    borrowed: Observed[bool] = False
    #: announced end of a spot or borrowed VM whose room is needed
    ends_at: Observed[datetime | None] = None
    #: for which request it ends, TENANT/NAME; to tenants for one of their own alone
    ending_for: Observed[str | None] = None
    #: the host where it is to arrive; None: it does not move
    moving_to: Observed[str | None] = None
    move_id: Observed[UUID | None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VmGroup:
    """A group of a tenant's VMs with affinity or anti-affinity."""

    id: UUID
    name: str
    tenant: str
    rule: Literal["anti_affinity", "affinity"]
    soft: bool  #: only as far as there is room
    requests: tuple[str, ...]  #: names of its members that are not over
    vms: int  #: of its members, placed or not
    hosts: Mapping[str, int]  #: how many of them have their place where
    created_at: datetime
