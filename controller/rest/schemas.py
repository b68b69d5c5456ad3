"""The models that the API reads and writes.

Input is strict: no conversions, no unknown names, everything bounded, no control
characters. Output is the register center's records as they are, so most of it needs
no second description; only what differs from a record is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from controller.host_names import HostAlias
from controller.questions.lateness import What
from controller.questions.standings import Effect, Standing
from controller.rest.problems import patterns
from registry import InvalidError, QuotaExcess, RequestState, SlotLoopState, VmState
from registry.consoles import MAX_TYPED_BYTES, ConsoleSession
from registry.ground import MAX_TTL_S
from registry.hosts import Difference
from registry.images import ImageCopy
from registry.journal import Event
from registry.ledger import MAX_TIMEOUT_S
from registry.requests import MembershipRule, Rules
from registry.rounds import MAX_REASON_LENGTH, DecidedBy, RoundRecord, ShadowRound
from registry.tenancy import MoveTo, Token

MAX_BIGINT: Final = 2**63 - 1
LABELS_SAID: Final = "KEY=VALUE; all given labels must match."

Name = Annotated[str, StringConstraints(pattern=patterns.NAME, max_length=63)]
ImageReference = Annotated[str, StringConstraints(pattern=patterns.REFERENCE, max_length=73)]
Label = Annotated[
    str,
    StringConstraints(pattern=patterns.HOST_LABEL, max_length=128),
]
LibvirtName = Annotated[str, StringConstraints(pattern=patterns.LIBVIRT_NAME, max_length=128)]
Uri = Annotated[str, StringConstraints(pattern=patterns.URI, max_length=500)]
Count = Annotated[int, Field(ge=1, le=10_000)]
Amount = Annotated[int, Field(ge=0, le=1_000_000_000_000)]
Amounts = Annotated[dict[Name, Amount], Field(max_length=32)]
Ratio = Annotated[int, Field(ge=1, le=1_000_000, description="Over-commit ratio, in thousandths.")]
Ratios = Annotated[dict[Name, Ratio], Field(max_length=32)]
Labels = Annotated[list[Label], Field(max_length=64)]
AddressText = Annotated[str, StringConstraints(pattern=patterns.ADDRESS, max_length=40)]
ReasonText = Annotated[
    str,
    StringConstraints(pattern=patterns.REASON, min_length=1, max_length=MAX_REASON_LENGTH),
]
PublicKey = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
SshHostKeys = Annotated[
    list[PublicKey],
    Field(max_length=8, description="Accepted SSH host keys; the host must show one of them."),
]
UserDataText = Annotated[str, StringConstraints(pattern=patterns.BASE64, max_length=87_384)]
Weight = Annotated[float, Field(ge=0.000001, le=1_000_000, allow_inf_nan=False)]

#: A number would be one to Pydantic, too, and a year 0001 east of Greenwich is before all time.
MomentText = Annotated[
    str,
    StringConstraints(
        pattern=patterns.MOMENT,
        max_length=40,
    ),
]

LabelKey = Annotated[str, StringConstraints(pattern=patterns.KEY, max_length=63)]
LabelValue = Annotated[str, StringConstraints(pattern=patterns.VALUE, max_length=63)]
LabelFilter = Annotated[
    list[Annotated[str, StringConstraints(pattern=patterns.LABEL_FILTER, max_length=127)]],
    Field(max_length=32),
]
OwnLabels = Annotated[dict[LabelKey, LabelValue], Field(max_length=32)]
LabelChanges = Annotated[dict[LabelKey, LabelValue | None], Field(max_length=64)]
TtlSeconds = Annotated[int, Field(ge=1, le=MAX_TTL_S)]

T = TypeVar("T")


class Input(BaseModel):
    """A body that the API accepts."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class MembershipInput(Input):
    """Membership in a VM group of the tenant; the first member creates the group."""

    group: Name
    soft: bool = Field(False, description="Apply the rule only while there is room.")

    def as_rule(self) -> MembershipRule:
        """Return what the register center keeps."""
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
        """Return what the register center keeps."""
        return Rules(
            forbids=tuple(self.forbids),
            prefers=tuple(self.prefers),
            zone=self.zone,
            anti_affinity=None if self.anti_affinity is None else self.anti_affinity.as_rule(),
            affinity=None if self.affinity is None else self.affinity.as_rule(),
            spread=self.spread,
        )


class RequestInput(Input):
    """Ask for ``count`` VMs of one type."""

    vm_type: Name
    count: Count
    min_count: Count = Field(
        1,
        description="Minimum number placed in the first round that places any; at most count.",
    )
    name: Name | None = None
    tenant: Name | None = Field(
        None, description="Required for operators; a tenant may name itself."
    )
    image: ImageReference | None = Field(
        None,
        description="Disk image, NAME or NAME:REVISION; null: the site's default.",
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


class RequestChange(Input):
    """Change a request; omitted fields stay as they are."""

    count: Count | None = Field(
        None, description="New number of VMs. Additional VMs wait for placement."
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
    """Shut down."""

    timeout_s: Annotated[int, Field(ge=0, le=MAX_TIMEOUT_S)] | None = Field(
        None, description="Time for the guest before the power is cut; null: the site's default."
    )
    force: bool = Field(False, description="Cut the power without a clean shutdown.")


class StartInput(Input):
    """Start."""


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


class VmTypeInput(Input):
    """Add a VM type."""

    name: Name
    resources: Annotated[Amounts, Field(min_length=1)]
    limits: Amounts = Field(
        default_factory=dict,
        description="Limits of a VM on its host: `disk_iops` (reads and writes per"
        " second) and `disk_mib_s` (MiB per second) of all its disks, `net_mbps` (Mbit per second,"
        " each way) of its network card. Others are unlimited. Limits are not resources:"
        " the ledger does not count them.",
    )


class TenantInput(Input):
    """Create a tenant or a group of tenants."""

    name: Name
    weight: Weight = Field(1.0, description="Relative to its siblings.")
    parent: Name | None = Field(None, description="Parent group; null: none.")
    is_group: bool = Field(
        False, description="Create a group: its tenants request VMs, it does not."
    )


class TenantChange(Input):
    """Change a tenant or group; omitted fields stay as they are."""

    weight: Weight | None = Field(None, description="Relative to its siblings.")
    parent: Name | None = Field(None, description="New parent group; null: none.")

    @field_validator("weight")
    @classmethod
    def _is_given(cls, weight: float | None) -> float:
        if weight is None:
            raise ValueError("a number, or omit it")
        return weight

    @property
    def move(self) -> MoveTo | None:
        """The new parent group, if it moves."""
        return MoveTo(parent=self.parent) if "parent" in self.model_fields_set else None


class QuotaChange(Input):
    """Change the quota of a tenant or group; omitted fields stay as they are."""

    limits: Annotated[dict[Name, Amount | None], Field(max_length=64)] = Field(
        default={}, description="By resource, `vms` for the number of VMs; null removes a limit."
    )
    over_quota: Literal["refuse", "wait", "inherit"] | None = Field(
        None,
        description="What happens to requests above a quota; inherit: as in the nearest group "
        "above, or as set by the site.",
    )


class Rehearsal(BaseModel):
    """Whether to apply a change, or only to show its effect."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dry_run: bool = Field(False, description="Change nothing; return the effect on shares.")


class Effects(BaseModel):
    """The effect of a change that was not applied, groups before their members."""

    applied: Literal[False] = False
    tenants: list[Effect]


class Standings(BaseModel):
    """Shares of tenants and groups, groups before their members."""

    items: list[Standing]


class HostInput(Input):
    """Register a host. It is ``enrolling`` until the monitor reaches it."""

    name: Name
    uri: Uri
    credential: Name | None = Field(
        None,
        description="Name of its TLS or SSH credential on the machines of monitor and "
        "workers; SSH needs one.",
    )
    ssh_host_keys: SshHostKeys = []
    labels: Labels = []
    overrides: Amounts = Field(
        default={}, description="Capacity to use instead of the detected one."
    )
    reserved: Amounts = Field(
        default={},
        description="Reserved for the host itself; default, for resources without "
        "an override: set by the site.",
    )
    ratios: Ratios = {}
    domain_type: Literal["kvm", "qemu", "test"] = "kvm"
    pool: LibvirtName = "default"
    network: LibvirtName = "default"
    base_volume: LibvirtName | None = None
    memory_backing_mib: Annotated[int, Field(ge=16, le=1_000_000_000)] | None = None
    max_builds: Annotated[int, Field(ge=1, le=1000)] = 2
    fence_target: Annotated[str, Field(pattern=patterns.FENCE_TARGET)] | None = Field(
        None, description="Argument of the site's fencing command, such as a BMC address."
    )


class HostChange(Input):
    """Change a host; omitted fields stay as they are."""

    admin: Literal["active", "draining", "maintenance"] | None = None
    labels: Labels | None = None
    overrides: Annotated[dict[Name, Amount | None], Field(max_length=32)] | None = Field(
        None, description="By resource; null removes an override."
    )
    reserved: Amounts | None = None
    ratios: Annotated[dict[Name, Ratio | None], Field(max_length=32)] | None = Field(
        None, description="By resource, in thousandths; null: the ratio of the host's labels."
    )
    max_builds: Annotated[int, Field(ge=1, le=1000)] | None = None
    fence_target: Annotated[str, Field(pattern=patterns.FENCE_TARGET_OR_NONE)] | None = Field(
        None, description="Empty: removes it."
    )
    credential: Name | None = Field(
        None, description="Null: the credentials that libvirt finds by itself."
    )
    ssh_host_keys: SshHostKeys | None = Field(None, description="Replaces all labels.")


class FenceInput(Input):
    """Fence a host that is down."""

    by_hand: bool = Field(
        False,
        description="Confirm that you switched the host off and keep it off: fuga runs no command.",
    )


class RepairInput(Input):
    """Selects a difference of a host."""

    difference: Annotated[Difference, Field(strict=False)]
    subject: Annotated[str, Field(pattern=patterns.PRINTABLE)]


class SshKeyInput(Input):
    """Add a public key of a tenant."""

    name: Name
    public_key: PublicKey
    tenant: Name | None = Field(None, description="Required for operators.")


class NetworkSourceInput(Input):
    """The name of a network on a host: a libvirt network or a bridge."""

    kind: Literal["network", "bridge"] = "network"
    name: LibvirtName


class SubnetInput(Input):
    """The addresses for VMs of a network."""

    cidr: AddressText = Field(description="IPv4, /16 to /30.")
    gateway: AddressText | None = None
    dns: Annotated[list[AddressText], Field(max_length=8)] = []
    excluded: Annotated[list[AddressText], Field(max_length=64)] = Field(
        default=[], description="Addresses not to assign: 10.0.0.2 or 10.0.0.2-10.0.0.9."
    )


OfferedTo = Annotated[list[Name], Field(max_length=1000)]


class NetworkInput(Input):
    """Add a network."""

    name: Name
    default: NetworkSourceInput | None = Field(
        None, description="For hosts that `hosts` does not name; null: they do not have it."
    )
    hosts: Annotated[dict[Name, NetworkSourceInput], Field(max_length=1000)] = {}
    subnet: SubnetInput | None = Field(None, description="Null: guests use DHCP.")
    tenant: Name | None = Field(
        None,
        description="Only tenant or group that sees and uses it; null: it belongs to the"
        " operators.",
    )
    offered_to: OfferedTo | None = Field(
        None, description="Tenants and groups that may use it; null: all."
    )
    isolated: bool | None = Field(
        None, description="Separate the VMs; null: if several tenants may use it."
    )
    filtered: bool = Field(True, description="Restrict VMs to their own MAC and IP addresses.")


class NetworkChange(Input):
    """Change a network; omitted fields stay as they are. VMs follow at their next start."""

    hosts: Annotated[dict[Name, NetworkSourceInput | None], Field(max_length=1000)] = Field(
        default={}, description="Its name by host; null: its default."
    )
    offered_to: OfferedTo | None = Field(
        None, description="Tenants and groups that may use it; an explicit null: all."
    )
    isolated: bool | None = Field(None, description="Separate the VMs; null: unchanged.")
    filtered: bool | None = Field(
        None, description="Restrict VMs to their own MAC and IP addresses; null: unchanged."
    )

    @model_validator(mode="after")
    def _changes_something(self) -> NetworkChange:
        if not (self.hosts or self.model_fields_set & {"offered_to", "isolated", "filtered"}):
            raise ValueError("nothing to change")
        return self


class LabelRatios(Input):
    """Over-commit ratios of hosts with a label, unless they have their own."""

    label: Label
    ratios: Ratios = Field(description="By resource, in thousandths; an empty object removes them.")


class ResourceInput(Input):
    """Add a resource that hosts offer and VMs hold, such as GPUs."""

    name: Name
    unit: str = Field(
        "units",
        min_length=1,
        max_length=32,
        pattern=r"^[!-~]([ -~]*[!-~])?$",
        description="What one of it is, such as `GPUs` or `Mbit/s`; amounts are whole numbers.",
    )


class ResourceChange(Input):
    """Change a resource."""

    overhead_per_vm: Amount = Field(description="Amount that each VM holds beyond its type.")


class TokenInput(Input):
    """Create a token for a tenant, or for an operator."""

    role: Literal["operator", "tenant"]
    name: Name
    tenant: Name | None = None
    read_only: bool = Field(False, description="Allow reading only.")
    ttl_s: Annotated[int, Field(ge=1, le=MAX_TTL_S)] | Literal["never"] | None = Field(
        None,
        description="Seconds until it expires; null: an operator's token as set by"
        " `FUGA_OPERATOR_TOKEN_DAYS`, a tenant's never.",
    )


class PageQuery(BaseModel):
    """Selects a part of a list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, Field(ge=1, le=500)] = 100
    cursor: Annotated[str, Field(pattern=patterns.CURSOR)] | None = Field(
        None, description="The `next` of the previous page."
    )


class RequestsQuery(PageQuery):
    """Selects requests."""

    tenant: Name | None = None
    state: RequestState | None = None
    name: Name | None = None
    label: LabelFilter = Field(default=[], description=LABELS_SAID)


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
        """Return the rules that a request would have."""

        def hard(group: str | None) -> MembershipRule | None:
            return None if group is None else MembershipRule(group=group)

        return Rules(
            forbids=tuple(self.forbids),
            zone=self.zone,
            anti_affinity=hard(self.anti_affinity),
            affinity=hard(self.affinity),
            spread=self.spread,
        )


class VmsQuery(PageQuery):
    """Selects VMs."""

    request: UUID | None = None
    tenant: Name | None = None
    host: Name | None = None
    name: Annotated[str, Field(pattern=patterns.VM_NAME)] | None = None
    state: VmState | None = Field(
        None, description="Observed state; unknown: its host does not answer."
    )
    label: LabelFilter = Field(default=[], description=LABELS_SAID)
    include_deleted: bool = False


class ConsoleQuery(BaseModel):
    """Selects a part of a console's output."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bytes: Annotated[int, Field(ge=1, le=65_536)] = 65_536
    after: Annotated[int, Field(ge=0, le=MAX_BIGINT)] = Field(
        0, description="Return output after this byte: the `end` of the previous call."
    )


class ConsoleSessionInput(BaseModel):
    """Attaches to a console."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    force: bool = Field(False, description="Take it from its current user.")


class ConsoleSaidQuery(BaseModel):
    """Selects a part of a session's output, and the time to wait for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: Annotated[int, Field(ge=0, le=MAX_BIGINT)] = Field(
        0, description="The `end` of the previous call."
    )
    wait_s: Annotated[float, Field(ge=0, le=5)] = Field(
        0, description="Time to wait if there is no new output."
    )


class ConsoleTyped(BaseModel):
    """Typed input."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    content: Annotated[str, Field(min_length=1, max_length=4 * -(-MAX_TYPED_BYTES // 3))] = Field(
        description=f"Base64 of 1 to {MAX_TYPED_BYTES} bytes, passed to the guest unchanged."
    )


class VmGroupsQuery(PageQuery):
    """Selects VM groups."""

    tenant: Name | None = None


class SshKeysQuery(PageQuery):
    """Selects public keys."""

    tenant: Name | None = None


class HostAliasQuery(BaseModel):
    """Selects a host by a tenant's name for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tenant: Name
    name: Name = Field(description="The tenant's name for the host, or the host's own name.")


class HostAliases(BaseModel):
    """Hosts with this name or alias: usually one or none; two if a host's name equals an alias."""

    items: list[HostAlias]


class HostsQuery(PageQuery):
    """Selects hosts."""

    include_retired: bool = False


class ImagesQuery(PageQuery):
    """Selects images."""

    name: Name | None = None
    include_removed: bool = False


#: Lines of printable characters; what they say is looked at by whoever checks them.
ImageSignature = Annotated[str, Field(pattern=patterns.SIGNATURE)]


class ImageUpload(BaseModel):
    """Describes an uploaded image."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    format: Literal["qcow2", "raw"]
    seed_kind: Literal["none", "nocloud"] = "none"
    min_memory_mib: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    sha256: Annotated[str, Field(pattern=patterns.SHA256)] | None = Field(
        None, description="Expected SHA-256 of the content."
    )
    source: Annotated[str, Field(pattern=patterns.PRINTABLE)] = Field(
        "uploaded", description="Origin to show, such as a file name."
    )
    signature: ImageSignature | None = Field(
        None, description="Contents of the signature file, by minisign or `cosign sign-blob`."
    )


class ImageInput(Input):
    """Have a worker download an image."""

    name: Name
    url: Uri = Field(description="Must be within the URLs that the operator allows.")
    sha256: Annotated[str, Field(pattern=patterns.SHA256)] = Field(
        description="Expected SHA-256 of the content."
    )
    signature: ImageSignature | None = Field(
        None,
        description="Contents of the signature file, by minisign or `cosign sign-blob`. If"
        " images must be"
        " signed, null downloads it from beside the image (.minisig or .sig).",
    )
    format: Literal["qcow2", "raw"] = "qcow2"
    seed_kind: Literal["none", "nocloud"] = "none"
    min_memory_mib: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0


class ImageCopies(BaseModel):
    """All copies of an image: at most one per host."""

    items: list[ImageCopy]


class EventsQuery(BaseModel):
    """Selects events: those after a number, oldest first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, Field(ge=1, le=500)] = 100
    after: Annotated[int, Field(ge=0, le=MAX_BIGINT)] = 0
    subject: Annotated[str, Field(pattern=patterns.SUBJECT)] | None = Field(
        None, description="Id of the request, VM, host or other subject."
    )
    kind: Annotated[str, Field(pattern=patterns.EVENT_KIND)] | None = None
    tenant: Name | None = None
    since: MomentText | None = Field(None, description="Only since this time.")
    newest: bool = Field(
        False, description="Return the newest events instead, still oldest first within the page."
    )

    def since_moment(self) -> datetime | None:
        """Return the time; `InvalidError` for a date that does not exist."""
        return _moment("since", self.since)


class MomentsQuery(PageQuery):
    """Selects a part of a list and a period."""

    since: MomentText | None = None
    until: MomentText | None = Field(None, description="Only before this time.")

    def moments(self) -> dict[str, datetime | None]:
        """Return both times; `InvalidError` for a date that does not exist."""
        return {name: _moment(name, getattr(self, name)) for name in ("since", "until")}


def _moment(name: str, given: str | None) -> datetime | None:
    if given is None:
        return None
    try:
        return datetime.fromisoformat(given)
    except ValueError:
        raise InvalidError(name, given, "an existing date and time") from None


class AuditQuery(MomentsQuery):
    """Selects calls that could change something."""

    token: Name | None = Field(None, description="Name of the token.")
    tenant: Name | None = Field(None, description="Tenant of the token; null: all.")
    method: Literal["POST", "PATCH", "PUT", "DELETE"] | None = None
    status: Annotated[int, Field(ge=100, le=599)] | None = None
    refused: bool = Field(False, description="Only calls answered with 401, 403 or 429.")
    subject: Annotated[str, Field(pattern=patterns.SUBJECT)] | None = Field(
        None, description="Id of the subject."
    )
    request_id: Annotated[str, Field(pattern=patterns.HTTP_REQUEST_ID)] | None = Field(
        None, description="The `X-Request-Id` of the answer."
    )


class PageOf(BaseModel, Generic[T]):
    """A part of a list."""

    items: list[T]
    next: str | None = Field(description="`cursor` of the next page; null: this is the last.")


class ConsoleRead(BaseModel):
    """The last output of a guest on its serial console."""

    vm: UUID
    content: str = Field(description="Base64 of the unchanged bytes.")
    end: int = Field(description="Total bytes written: `after` of the next call.")


class ConsoleSaid(BaseModel):
    """The output of a guest since a console was attached."""

    session: ConsoleSession
    start: int = Field(
        description="If greater than `after`, the bytes between were not read in time."
    )
    content: str = Field(description="Base64 of the unchanged bytes.")
    end: int = Field(description="`after` of the next call.")


class EventsPage(BaseModel):
    """Events in order. ``next`` is never null, because more events will come."""

    items: list[Event]
    next: int = Field(description="`after` of the next call.")


class RoundSummary(BaseModel):
    """A round in a list."""

    model_config = ConfigDict(from_attributes=True)

    number: int
    slot_start_at: datetime
    slot_length_s: float
    policy: str
    decided_by: DecidedBy
    fallback_reason: str | None
    placed: int | None = Field(description="VMs of all tenants (operators only).")
    left_out: int | None = Field(description="VMs of all tenants (operators only).")
    dropped: int | None = Field(description="VMs of all tenants (operators only).")
    cut: bool
    work: int | None = Field(description="Operators only.")
    shares: list[Mapping[str, Any]]
    bound: float | None
    fair_distance: float | None
    timings: Mapping[str, float] = Field(description="Operators only.")
    engine_version: str
    seed: int
    inputs_digest: str
    created_at: datetime
    group_shares: list[Mapping[str, Any]] = Field(description="Operators only.")


class RoundDetail(BaseModel):
    """A round with its parameters and outcome; its inputs stay in the register center."""

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
    group_shares: list[Mapping[str, Any]] = Field(description="Operators only.")
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
    replayable: bool = Field(False, description="Whether its inputs are still kept for a replay.")
    shadow: ShadowRound | None = Field(
        None,
        description="Decision of the second policy. Operators only.",
    )

    @classmethod
    def of(cls, record: RoundRecord, shadow: ShadowRound | None) -> RoundDetail:
        """Return a round as the API shows it."""
        stored = record.stored
        told = {
            "outcome": None if stored is None else stored.outcome,
            "replayable": stored is not None,
            "shadow": shadow,
        }
        return cls.model_validate(record).model_copy(update=told)


class TokenCreated(BaseModel):
    """A new token. Only this answer holds the secret: fuga stores its hash."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    name: str
    role: Literal["operator", "tenant"]
    tenant: str | None
    read_only: bool
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    secret: str | None = Field(description="Null in an answer repeated for its Idempotency-Key.")

    @classmethod
    def of(cls, token: Token, secret: str) -> TokenCreated:
        """Join a token and its secret."""
        return cls(
            id=token.id,
            name=token.name,
            role=token.role,
            tenant=token.tenant,
            read_only=token.read_only,
            created_at=token.created_at,
            expires_at=token.expires_at,
            revoked_at=token.revoked_at,
            last_used_at=token.last_used_at,
            secret=secret,
        )

    def without_secret(self) -> TokenCreated:
        """Return the part that may be stored."""
        return self.model_copy(update={"secret": None})


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """The database answers and its schema matches."""

    status: Literal["ok"] = "ok"
    last_round: int | None = Field(description="Number of the newest round.")
    last_round_age_s: float | None = Field(
        description="Seconds since its slot began. Idle slots leave no round."
    )
    nobody: list[What] = Field(
        description="Work that no process does: decide, build or look (poll hosts)."
    )


class LateThing(BaseModel):
    """Work that is overdue."""

    what: What
    nobody: bool = Field(description="No process does it; else one process of several is late.")
    since: datetime | None = Field(description="Null: always, or no known time.")
    message: str


class ProcessHeard(BaseModel):
    """A control centre, worker or monitor, and the time of its last heartbeat."""

    kind: str
    name: str
    started_at: datetime
    heard_at: datetime
    late: bool
    trouble: str | None = Field(description="Why it was not ready at its last heartbeat.")


class HostsInView(BaseModel):
    """Summary of hosts."""

    active: int
    up: int
    longest_silent_at: datetime | None = Field(
        description="Oldest last poll among the hosts that are up."
    )


class Status(BaseModel):
    """Whether control centre, workers and monitors do their work."""

    at: datetime
    well: bool = Field(description="Whether nothing is late.")
    late: list[LateThing]
    leader: str | None = Field(description="Operators only; null: no leader.")
    leads_since: datetime | None
    paused: bool
    last_slot_at: datetime | None = Field(
        description="Start of the last decided slot, including slots without work."
    )
    slot_length_s: float | None
    last_round: int | None
    last_round_at: datetime | None = Field(description="Start of its slot.")
    processes: list[ProcessHeard] = Field(description="Operators only.")
    hosts: HostsInView | None = Field(description="Operators only.")
    oldest_unbuilt_at: datetime | None = Field(
        description="Creation time of the oldest placed VM that no worker has started. Operators"
        " only."
    )


class ProblemError(BaseModel):
    """One faulty place of the input."""

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
