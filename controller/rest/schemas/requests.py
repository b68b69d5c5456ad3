"""Schemas of requests and VMs."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from controller.rest.problems import patterns
from controller.rest.schemas.values import (
    LABELS_SAID,
    Count,
    ImageReference,
    Input,
    Label,
    LabelChanges,
    LabelFilter,
    Labels,
    MomentText,
    Name,
    OwnLabels,
    PageQuery,
    PublicKey,
    SearchQuery,
    TtlSeconds,
    UserDataText,
    parse_moment_field,
)
from controller.settings import FAILURE_DOMAIN
from registry import RequestState, VmState
from registry.ledger import MAX_TIMEOUT_S
from registry.requests import MAX_PRIORITY, MembershipRule, NewVolume, Rules
from registry.volumes import MAX_ATTACHED, MAX_SIZE_GIB


class MembershipInput(Input):
    """Membership in a VM group of the tenant; the first member creates the group."""

    group: Name
    soft: bool = Field(False, description="Apply the rule only while there is room.")

    def as_rule(self) -> MembershipRule:
        """Return the membership as a rule of a request."""
        return MembershipRule(group=self.group, soft=self.soft)


class RulesInput(Input):
    """Placement rules, in addition to required labels and hosts."""

    forbids: Labels = Field(default=[], description="Labels that a host must not have.")
    prefers: Labels = Field(default=[], description="Hosts with all of these labels come first.")
    zone: Label | None = Field(None, description="Only hosts with the label zone=THIS.")
    anti_affinity: MembershipInput | None = Field(
        None, description="At most one VM of the group per host."
    )
    affinity: MembershipInput | None = Field(None, description="All VMs of the group on one host.")
    spread: Literal["zone"] | None = Field(
        None, description="Spread the VMs over zones: at most an even part, rounded up, in each."
    )

    def as_rules(self) -> Rules:
        """Return the placement rules of a request, as the register center stores them."""
        return Rules(
            forbids=tuple(self.forbids),
            prefers=tuple(self.prefers),
            zone=self.zone,
            anti_affinity=None if self.anti_affinity is None else self.anti_affinity.as_rule(),
            affinity=None if self.affinity is None else self.affinity.as_rule(),
            spread=self.spread,
        )


class NewVolumeInput(Input):
    """A volume to create for each VM of a request."""

    name: Name = Field(description="With several VMs each volume has its VM's number: data-1.")
    size_gib: Annotated[int, Field(ge=1, le=MAX_SIZE_GIB)]

    def as_volume(self) -> NewVolume:
        """Return the volume as a request has it."""
        return NewVolume(name=self.name, size_gib=self.size_gib)


class RequestInput(Input):
    """Ask for ``count`` VMs of one type."""

    vm_type: Name
    count: Count
    max_count: Count | None = Field(
        None,
        description="With borrowed VMs up to this number: placed after all ordinary requests, "
        "counted in the share, and ended, announced before, for tenants that then hold no more. "
        "Not with spot VMs, a reservation, VM groups, a spread or a network.",
    )
    min_count: Count = Field(
        1, description="Minimum number placed in the first round that places any; at most count."
    )
    name: Name | None = None
    tenant: Name | None = Field(
        None, description="Required for operators; a tenant may name itself."
    )
    image: ImageReference | None = Field(
        None, description="Disk image, NAME or NAME:REVISION; null: the site's default."
    )
    requires: Labels = Field(default=[], description="Labels that a host must have.")
    hosts: Annotated[list[Name], Field(min_length=1, max_length=1000)] | None = Field(
        None, description="Allowed hosts; null: all."
    )
    network: Name | None = Field(None, description="Null: each host's default network.")
    labels: OwnLabels = Field(
        default={}, description="Labels for filtering lists; the VMs get them, too."
    )
    ttl_s: TtlSeconds | None = Field(
        None, description="Seconds until the request ends with all its VMs; null: never."
    )
    ssh_keys: Annotated[list[PublicKey], Field(max_length=64)] = Field(
        default=[], description="Public keys for these VMs, in addition to the tenant's keys."
    )
    user_data: UserDataText | None = Field(
        None, description="cloud-init user data, base64 of at most 65536 bytes. Never shown again."
    )
    hostname: Annotated[str, Field(min_length=1, max_length=240)] | None = Field(
        None,
        description="Hostname of the guest (RFC 1123). With several VMs each has its number "
        "after the first part: web-1.example.org. Null: the name of the VM.",
    )
    rules: RulesInput = RulesInput()
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = Field(
        0,
        description="Among the tenant's own requests the highest goes first. It does not count "
        "between tenants.",
    )
    spot: bool = Field(
        False,
        description="Spot VMs: placed on what is left over, in no share, and ended, announced "
        "before, when others need the room. Not in VM groups.",
    )
    reservation: Annotated[UUID, Field(strict=False)] | None = Field(
        None, description="Reservation of the tenant to draw on, from its beginning to its end."
    )
    volumes: Annotated[list[Name], Field(max_length=MAX_ATTACHED)] = Field(
        default=[],
        description="Names of volumes that its only VM starts with, where their files are.",
    )
    new_volumes: Annotated[list[NewVolumeInput], Field(max_length=MAX_ATTACHED)] = Field(
        default=[], description="Volumes to create for each VM; their size is part of its demand."
    )


class RequestChange(Input):
    """Change a request; omitted fields stay as they are."""

    count: Count | None = Field(
        None, description="New number of VMs. Additional VMs wait for placement."
    )
    max_count: Count | None = Field(
        None,
        description="New number with borrowed VMs; the number of VMs: none are borrowed; null:"
        " unchanged.",
    )
    remove: Annotated[list[Annotated[UUID, Field(strict=False)]], Field(max_length=5_000)] = Field(
        default=[],
        description="VMs to remove first if the number shrinks; then unplaced VMs, "
        "then the newest.",
    )
    labels: LabelChanges | None = Field(None, description="By key; null removes a label.")
    ttl_s: TtlSeconds | Literal["never"] | None = Field(
        None, description="Seconds from now until the request ends, or never; null: unchanged."
    )


class VmChange(Input):
    """Change a VM."""

    labels: LabelChanges = Field(description="By key; null removes a label.")


class ShutdownInput(Input):
    """Shut VMs down."""

    timeout_s: Annotated[int, Field(ge=0, le=MAX_TIMEOUT_S)] | None = Field(
        None, description="Time for the guest before the power is cut; null: the site's default."
    )
    force: bool = Field(False, description="Cut the power without a clean shutdown.")


class StartInput(Input):
    """Start VMs."""


class RequestsQuery(SearchQuery):
    """Selects requests."""

    tenant: Name | None = None
    state: RequestState | None = None
    name: Name | None = None
    label: LabelFilter = Field(default=[], description=LABELS_SAID)


#: 64 labels of 128 characters, with commas.
HostClassName = Annotated[str, Field(pattern=patterns.HOST_CLASS, max_length=64 * 129)]
_HOST_CLASS: Final = (
    "Labels of the hosts, joined by commas; `no labels` and `others` are classes, too. Omitted: all"
    " hosts."
)


class CapacityQuery(BaseModel):
    """The VMs to fit: a type, and the rules of a request for them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    vm_type: Name
    tenant: Name | None = Field(None, description="Tenant whose VM groups apply (operators).")
    requires: Labels = []
    hosts: Annotated[list[Name], Field(max_length=1000)] = []
    forbids: Labels = []
    zone: Label | None = None
    anti_affinity: Name | None = Field(None, description="A VM group with at most one VM per host.")
    affinity: Name | None = Field(None, description="A VM group with all VMs on one host.")
    spread: Literal["zone"] | None = None

    def as_rules(self) -> Rules:
        """Return the rules of a request with these fields."""

        def hard(group: str | None) -> MembershipRule | None:
            return None if group is None else MembershipRule(group=group)

        return Rules(
            forbids=tuple(self.forbids),
            zone=self.zone,
            anti_affinity=hard(self.anti_affinity),
            affinity=hard(self.affinity),
            spread=self.spread,
        )


class CapacityHistoryQuery(PageQuery):
    """Selects a period, and the class of hosts and resource."""

    since: MomentText
    until: MomentText | None = Field(
        None, description="Now, if it is omitted or later; at most two years after `since`."
    )
    step: Literal["hour", "day"] = "hour"
    host_class: HostClassName | None = Field(None, description=_HOST_CLASS)
    resource: Name | None = None

    def period(self) -> dict[str, Any]:
        """Return both times; raise `InvalidError` for a date that does not exist."""
        return {name: parse_moment_field(name, getattr(self, name)) for name in ("since", "until")}


class CapacityTrendsQuery(BaseModel):
    """Selects a period, and the class of hosts and resource."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    days: Annotated[int, Field(ge=1, le=731)] = Field(30, description="Days before today (UTC).")
    host_class: HostClassName | None = Field(None, description=_HOST_CLASS)
    resource: Name | None = None


class SurvivalQuery(BaseModel):
    """Selects the kind of failure domain."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    domain: Annotated[str, Field(pattern=FAILURE_DOMAIN, max_length=80)] = Field(
        "host", description="host, zone, or label:KEY: all hosts of one label KEY=value together."
    )


class VmsQuery(SearchQuery):
    """Selects VMs."""

    request: UUID | None = None
    tenant: Name | None = None
    host: Name | None = None
    name: Annotated[str, Field(pattern=patterns.VM_NAME)] | None = None
    state: VmState | None = Field(
        None, description="Observed state; unknown: its host does not answer."
    )
    address: Annotated[str, Field(max_length=15)] | None = Field(
        None, description="IPv4 address that fuga gave to it."
    )
    mac: Annotated[str, Field(max_length=17)] | None = Field(
        None, description="MAC of its interface, also of a VM that is gone (with include_deleted)."
    )
    label: LabelFilter = Field(default=[], description=LABELS_SAID)
    include_deleted: bool = False
    deleted_since: MomentText | None = Field(
        None, description="Only VMs that are gone, since this time."
    )


class VmGroupsQuery(PageQuery):
    """Selects VM groups."""

    tenant: Name | None = None
