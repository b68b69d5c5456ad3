"""What the API reads and writes.

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
from registry import (
    MAX_REASON_LENGTH,
    MAX_TIMEOUT_S,
    MAX_TTL_S,
    MAX_TYPED_BYTES,
    ConsoleSession,
    DecidedBy,
    Difference,
    Event,
    ImageCopy,
    InvalidError,
    MembershipRule,
    MoveTo,
    QuotaExcess,
    RequestState,
    RoundRecord,
    Rules,
    ShadowRound,
    SlotLoopState,
    Token,
    VmState,
)

MAX_BIGINT: Final = 2**63 - 1
LABELS_SAID: Final = "KEY=VALUE; all that are given must be there."

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
Ratio = Annotated[int, Field(ge=1, le=1_000_000, description="Over-commit, in thousandths.")]
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
    Field(max_length=8, description="Public keys of the host, of which it must show one for SSH."),
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
    """The VMs belong to a group of the tenant's; its first member makes it."""

    group: Name
    soft: bool = Field(False, description="Only as far as there is room for it.")

    def as_rule(self) -> MembershipRule:
        """Return what the register center keeps."""
        return MembershipRule(group=self.group, soft=self.soft)


class RulesInput(Input):
    """Where VMs may be, beside the labels and hosts that they require."""

    forbids: Labels = Field(default=[], description="Labels that a host must not carry.")
    prefers: Labels = Field(
        default=[], description="Hosts with all of these labels are taken first."
    )
    zone: Label | None = Field(None, description="Only on hosts with the label zone=THIS.")
    anti_affinity: MembershipInput | None = Field(
        None, description="At most one VM of the group on a host."
    )
    affinity: MembershipInput | None = Field(None, description="All VMs of the group on one host.")
    spread: Literal["zone"] | None = Field(
        None, description="In each zone at most as many of the VMs as divided evenly, rounded up."
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
        description="At least that many at once or none, in the first round that places any; "
        "at most count.",
    )
    name: Name | None = None
    tenant: Name | None = Field(
        None, description="Operators must say for whom; a tenant may name itself."
    )
    image: ImageReference | None = Field(
        None,
        description="Image that their disks start from, NAME or NAME:REVISION; "
        "null: the installation's default.",
    )
    requires: Labels = Field(default=[], description="Labels that a host must carry.")
    hosts: Annotated[list[Name], Field(min_length=1, max_length=1000)] | None = Field(
        None, description="Hosts that may be used; null: all."
    )
    network: Name | None = Field(None, description="Null: that of each host's own settings.")
    labels: OwnLabels = Field(
        default={}, description="Words of the tenant's own, for its lists; its VMs get them, too."
    )
    ttl_s: TtlSeconds | None = Field(
        None, description="After so many seconds it ends, with all its VMs; null: never."
    )
    ssh_keys: Annotated[list[PublicKey], Field(max_length=64)] = Field(
        default=[], description="Public keys that these VMs let in, beside the tenant's own."
    )
    user_data: UserDataText | None = Field(
        None, description="For cloud-init, base64 of 65536 bytes at most. Never shown again."
    )
    hostname: Annotated[str, Field(min_length=1, max_length=240)] | None = Field(
        None,
        description="What the guest calls itself (RFC 1123). Of several VMs each has its number "
        "after the first part of it: web-1.example.org. Null: the name of the VM.",
    )
    rules: RulesInput = RulesInput()


class RequestChange(Input):
    """Change a request; what is not named stays as it is."""

    count: Count | None = Field(None, description="Of VMs. More wait for a place.")
    remove: Annotated[list[Annotated[UUID, Field(strict=False)]], Field(max_length=5_000)] = Field(
        default=[],
        description="VMs to go first when there are to be fewer; then those without a place, "
        "then the newest.",
    )
    labels: LabelChanges | None = Field(None, description="By key; null takes one away.")
    ttl_s: TtlSeconds | Literal["never"] | None = Field(
        None, description="It ends so many seconds from now, or never; null: as before."
    )


class VmChange(Input):
    """Change a VM."""

    labels: LabelChanges = Field(description="By key; null takes one away.")


class ShutdownInput(Input):
    """Shut down, and how patiently."""

    timeout_s: Annotated[int, Field(ge=0, le=MAX_TIMEOUT_S)] | None = Field(
        None, description="Given to the guest before it is forced; null: the site's default."
    )
    force: bool = Field(False, description="At once, without a word to the guest.")


class StartInput(Input):
    """Start. There is nothing to choose."""


class PauseInput(Input):
    """Decide no slot."""

    reason: ReasonText = Field(description="Read by whoever waits meanwhile, and kept.")


class ResumeInput(Input):
    """Decide slots again."""

    reason: ReasonText | None = None


class SlotLoop(BaseModel):
    """Whether slots are decided."""

    state: SlotLoopState
    reason: str | None = Field(description="Of the last change.")
    changed_by: str | None = Field(description="Told to operators only.")
    changed_at: datetime | None = Field(description="Null: it was never paused.")


class VmTypeInput(Input):
    """Offer a VM type."""

    name: Name
    resources: Annotated[Amounts, Field(min_length=1)]
    limits: Amounts = Field(
        default_factory=dict,
        description="What a VM may take of its host at most: `disk_iops` (reads and writes a"
        " second) and `disk_mib_s` (MiB a second) of all its disks, `net_mbps` (Mbit a second,"
        " each way) of its card. What is not named is not limited. Limits are no resources:"
        " nothing of them is counted.",
    )


class TenantInput(Input):
    """Admit a tenant, or make a group of tenants."""

    name: Name
    weight: Weight = Field(1.0, description="Against its siblings.")
    parent: Name | None = Field(None, description="The group that it is part of; null: none.")
    is_group: bool = Field(False, description="A group asks for nothing itself: its tenants do.")


class TenantChange(Input):
    """Change a tenant or group; what is not named stays as it is."""

    weight: Weight | None = Field(None, description="Against its siblings.")
    parent: Name | None = Field(None, description="The group to move it to; null: to the top.")

    @field_validator("weight")
    @classmethod
    def _is_given(cls, weight: float | None) -> float:
        if weight is None:
            raise ValueError("a number, or leave it out")
        return weight

    @property
    def move(self) -> MoveTo | None:
        """Where to, if it is to move."""
        return MoveTo(parent=self.parent) if "parent" in self.model_fields_set else None


class QuotaChange(Input):
    """Change the quota of a tenant or group; what is not named stays as it is."""

    limits: Annotated[dict[Name, Amount | None], Field(max_length=64)] = Field(
        default={}, description="By resource, `vms` for their number; null takes a limit back."
    )
    over_quota: Literal["refuse", "wait", "inherit"] | None = Field(
        None,
        description="What becomes of requests above a quota; inherit: as the nearest group "
        "above says, or the installation.",
    )


class Rehearsal(BaseModel):
    """Whether to apply a change, or only to tell what it would do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dry_run: bool = Field(False, description="Change nothing; answer what it does to shares.")


class Effects(BaseModel):
    """What a change that was not applied would do, groups before their members."""

    applied: Literal[False] = False
    tenants: list[Effect]


class Standings(BaseModel):
    """Where tenants and groups stand, groups before their members."""

    items: list[Standing]


class HostInput(Input):
    """Register a host. It is ``enrolling`` until the monitor has reached it."""

    name: Name
    uri: Uri
    credential: Name | None = Field(
        None,
        description="Name of the files that open it for TLS or SSH, on the machines of monitor and "
        "workers; SSH needs one.",
    )
    ssh_host_keys: SshHostKeys = []
    labels: Labels = []
    overrides: Amounts = Field(default={}, description="Capacity to assume, not what is detected.")
    reserved: Amounts = Field(
        default={},
        description="Kept for the host itself; of resources without an override, where this does "
        "not say, the site's default.",
    )
    ratios: Ratios = {}
    domain_type: Literal["kvm", "qemu", "test"] = "kvm"
    pool: LibvirtName = "default"
    network: LibvirtName = "default"
    base_volume: LibvirtName | None = None
    memory_backing_mib: Annotated[int, Field(ge=16, le=1_000_000_000)] | None = None
    max_builds: Annotated[int, Field(ge=1, le=1000)] = 2
    fence_target: Annotated[str, Field(pattern=patterns.FENCE_TARGET)] | None = Field(
        None, description="What the site's fencing command is told, such as a BMC's address."
    )


class HostChange(Input):
    """Change a host; what is not named stays as it is."""

    admin: Literal["active", "draining", "maintenance"] | None = None
    labels: Labels | None = None
    overrides: Annotated[dict[Name, Amount | None], Field(max_length=32)] | None = Field(
        None, description="By resource; null takes an override back."
    )
    reserved: Amounts | None = None
    ratios: Annotated[dict[Name, Ratio | None], Field(max_length=32)] | None = Field(
        None, description="By resource, in thousandths; null: what the host's labels say."
    )
    max_builds: Annotated[int, Field(ge=1, le=1000)] | None = None
    fence_target: Annotated[str, Field(pattern=patterns.FENCE_TARGET_OR_NONE)] | None = Field(
        None, description="Empty: none from now on."
    )
    credential: Name | None = Field(
        None, description="Null: what libvirt finds on the machines of monitor and workers."
    )
    ssh_host_keys: SshHostKeys | None = Field(None, description="All of them from now on.")


class FenceInput(Input):
    """Have a host that is down fenced."""

    by_hand: bool = Field(
        False,
        description="You have made sure that it is off, and that it stays off until it is "
        "switched on: no command is run.",
    )


class RepairInput(Input):
    """Which difference of a host."""

    difference: Annotated[Difference, Field(strict=False)]
    subject: Annotated[str, Field(pattern=patterns.PRINTABLE)]


class SshKeyInput(Input):
    """Add a public key of a tenant."""

    name: Name
    public_key: PublicKey
    tenant: Name | None = Field(None, description="Operators must say whose key it is.")


class NetworkSourceInput(Input):
    """What a host calls a network: a network of its libvirt, or a bridge."""

    kind: Literal["network", "bridge"] = "network"
    name: LibvirtName


class SubnetInput(Input):
    """Addresses that VMs of a network are given."""

    cidr: AddressText = Field(description="IPv4, /16 to /30.")
    gateway: AddressText | None = None
    dns: Annotated[list[AddressText], Field(max_length=8)] = []
    excluded: Annotated[list[AddressText], Field(max_length=64)] = Field(
        default=[], description="Addresses not to be given: 10.0.0.2 or 10.0.0.2-10.0.0.9."
    )


OfferedTo = Annotated[list[Name], Field(max_length=1000)]


class NetworkInput(Input):
    """Add a network."""

    name: Name
    default: NetworkSourceInput | None = Field(
        None, description="Of hosts that `hosts` does not name; null: they do not have it."
    )
    hosts: Annotated[dict[Name, NetworkSourceInput], Field(max_length=1000)] = {}
    subnet: SubnetInput | None = Field(None, description="Null: guests ask by DHCP.")
    tenant: Name | None = Field(
        None, description="The tenant or group that alone sees and uses it; null: the operators'."
    )
    offered_to: OfferedTo | None = Field(
        None, description="Tenants and groups that may use it; null: all."
    )
    isolated: bool | None = Field(
        None, description="VMs do not reach each other; null: so where tenants share it."
    )
    filtered: bool = Field(
        True, description="VMs speak from their own MAC and address alone; false: from any."
    )


class NetworkChange(Input):
    """Change a network; what is not named stays as it is. VMs have it from their next start."""

    hosts: Annotated[dict[Name, NetworkSourceInput | None], Field(max_length=1000)] = Field(
        default={}, description="What hosts call it; null: as its default says."
    )
    offered_to: OfferedTo | None = Field(
        None, description="Tenants and groups that may use it; null, if it is named: all."
    )
    isolated: bool | None = Field(None, description="VMs do not reach each other; null: as before.")
    filtered: bool | None = Field(
        None, description="VMs speak from their own MAC and address alone; null: as before."
    )

    @model_validator(mode="after")
    def _changes_something(self) -> NetworkChange:
        if not (self.hosts or self.model_fields_set & {"offered_to", "isolated", "filtered"}):
            raise ValueError("nothing is named that is to be changed")
        return self


class LabelRatios(Input):
    """Over-commit of hosts with a label that have no ratio of their own."""

    label: Label
    ratios: Ratios = Field(description="By resource, in thousandths; none: no default any more.")


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

    overhead_per_vm: Amount = Field(description="What each VM holds of it beyond its type.")


class TokenInput(Input):
    """Make a token: for a tenant, or with role operator for none."""

    role: Literal["operator", "tenant"]
    name: Name
    tenant: Name | None = None
    read_only: bool = Field(False, description="It sees what its role sees, and changes nothing.")
    ttl_s: Annotated[int, Field(ge=1, le=MAX_TTL_S)] | Literal["never"] | None = Field(
        None,
        description="It opens nothing after so long; null: an operator's as long as is usual"
        " here (`FUGA_OPERATOR_TOKEN_DAYS`), a tenant's, as with `never`, until it is revoked.",
    )


class PageQuery(BaseModel):
    """Which part of a list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, Field(ge=1, le=500)] = 100
    cursor: Annotated[str, Field(pattern=patterns.CURSOR)] | None = Field(
        None, description="The `next` of the page before."
    )


class RequestsQuery(PageQuery):
    """Which requests."""

    tenant: Name | None = None
    state: RequestState | None = None
    name: Name | None = None
    label: LabelFilter = Field(default=[], description=LABELS_SAID)


class CapacityQuery(BaseModel):
    """Which VMs are to fit: a type, and what a request for them would say."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    vm_type: Name
    tenant: Name | None = Field(None, description="Whose groups are meant; for operators.")
    requires: Labels = []
    hosts: Annotated[list[Name], Field(max_length=1000)] = []
    forbids: Labels = []
    zone: Label | None = None
    anti_affinity: Name | None = Field(None, description="A group that keeps apart.")
    affinity: Name | None = Field(None, description="A group that keeps together.")
    spread: Literal["zone"] | None = None

    def as_rules(self) -> Rules:
        """Return what a request would say."""

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
    """Which VMs."""

    request: UUID | None = None
    tenant: Name | None = None
    host: Name | None = None
    name: Annotated[str, Field(pattern=patterns.VM_NAME)] | None = None
    state: VmState | None = Field(
        None, description="What is known of it; unknown: its host does not answer any more."
    )
    label: LabelFilter = Field(default=[], description=LABELS_SAID)
    include_deleted: bool = False


class ConsoleQuery(BaseModel):
    """How much of a console."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bytes: Annotated[int, Field(ge=1, le=65_536)] = 65_536
    after: Annotated[int, Field(ge=0, le=MAX_BIGINT)] = Field(
        0, description="Only what came after so many bytes: the `end` of the call before."
    )


class ConsoleSessionInput(BaseModel):
    """How a console is taken hold of."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    force: bool = Field(False, description="Also from whoever types there now.")


class ConsoleSaidQuery(BaseModel):
    """How much of a session, and how long to wait for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: Annotated[int, Field(ge=0, le=MAX_BIGINT)] = Field(
        0, description="The `end` of the call before."
    )
    wait_s: Annotated[float, Field(ge=0, le=5)] = Field(
        0, description="How long to wait for more, if there is nothing."
    )


class ConsoleTyped(BaseModel):
    """Something typed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    content: Annotated[str, Field(min_length=1, max_length=4 * -(-MAX_TYPED_BYTES // 3))] = Field(
        description=f"Base64 of 1 to {MAX_TYPED_BYTES} bytes, which reach the guest as they are."
    )


class VmGroupsQuery(PageQuery):
    """Which groups of VMs."""

    tenant: Name | None = None


class SshKeysQuery(PageQuery):
    """Which public keys."""

    tenant: Name | None = None


class HostAliasQuery(BaseModel):
    """Which host, and to whom."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tenant: Name
    name: Name = Field(description="The tenant's name of the host, or the host's own.")


class HostAliases(BaseModel):
    """Hosts that a name may mean: one, or none; two if a host has a name like an alias."""

    items: list[HostAlias]


class HostsQuery(PageQuery):
    """Which hosts."""

    include_retired: bool = False


class ImagesQuery(PageQuery):
    """Which images."""

    name: Name | None = None
    include_removed: bool = False


#: Lines of printable characters; what they say is looked at by whoever checks them.
ImageSignature = Annotated[str, Field(pattern=patterns.SIGNATURE)]


class ImageUpload(BaseModel):
    """What is said of an image that is sent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    format: Literal["qcow2", "raw"]
    seed_kind: Literal["none", "nocloud"] = "none"
    min_memory_mib: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    sha256: Annotated[str, Field(pattern=patterns.SHA256)] | None = Field(
        None, description="What the content's hash must be."
    )
    source: Annotated[str, Field(pattern=patterns.PRINTABLE)] = Field(
        "uploaded", description="Where it is from, such as a file's name, for people."
    )
    signature: ImageSignature | None = Field(
        None, description="Of minisign or `cosign sign-blob`, as it is in its file."
    )


class ImageInput(Input):
    """Have an image fetched."""

    name: Name
    url: Uri = Field(description="Within the addresses that the operator allows.")
    sha256: Annotated[str, Field(pattern=patterns.SHA256)] = Field(
        description="What the content's hash must be."
    )
    signature: ImageSignature | None = Field(
        None,
        description="Of minisign or `cosign sign-blob`, as it is in its file. Where images are"
        " signed and none is given, it is fetched from beside the image (.minisig or .sig).",
    )
    format: Literal["qcow2", "raw"] = "qcow2"
    seed_kind: Literal["none", "nocloud"] = "none"
    min_memory_mib: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0


class ImageCopies(BaseModel):
    """An image's copies, all of them: at most one per host."""

    items: list[ImageCopy]


class EventsQuery(BaseModel):
    """Which events: those after a number, oldest first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, Field(ge=1, le=500)] = 100
    after: Annotated[int, Field(ge=0, le=MAX_BIGINT)] = 0
    subject: Annotated[str, Field(pattern=patterns.SUBJECT)] | None = Field(
        None, description="Id of the request, VM, host or whatever it is about."
    )
    kind: Annotated[str, Field(pattern=patterns.EVENT_KIND)] | None = None
    tenant: Name | None = None
    since: MomentText | None = Field(None, description="Only from then on.")
    newest: bool = Field(
        False, description="The newest of them instead, still oldest first within the page."
    )

    def since_moment(self) -> datetime | None:
        """Return the time; `InvalidError` for a day that there is not."""
        return _moment("since", self.since)


class MomentsQuery(PageQuery):
    """Which part of a list, and of which time."""

    since: MomentText | None = None
    until: MomentText | None = Field(None, description="Only before it.")

    def moments(self) -> dict[str, datetime | None]:
        """Return both times; `InvalidError` for a day that there is not."""
        return {name: _moment(name, getattr(self, name)) for name in ("since", "until")}


def _moment(name: str, given: str | None) -> datetime | None:
    if given is None:
        return None
    try:
        return datetime.fromisoformat(given)
    except ValueError:
        raise InvalidError(name, given, "a day and a time that there are") from None


class AuditQuery(MomentsQuery):
    """Which calls that could change something."""

    token: Name | None = Field(None, description="Name of the token.")
    tenant: Name | None = Field(None, description="Whose token it was; null: everybody's.")
    method: Literal["POST", "PATCH", "PUT", "DELETE"] | None = None
    status: Annotated[int, Field(ge=100, le=599)] | None = None
    refused: bool = Field(False, description="Only what was answered 401, 403 or 429.")
    subject: Annotated[str, Field(pattern=patterns.SUBJECT)] | None = Field(
        None, description="Id of what it was about."
    )
    request_id: Annotated[str, Field(pattern=patterns.HTTP_REQUEST_ID)] | None = Field(
        None, description="The `X-Request-Id` of the answer."
    )


class PageOf(BaseModel, Generic[T]):
    """A part of a list."""

    items: list[T]
    next: str | None = Field(description="`cursor` of the next page; null: this is the last.")


class ConsoleRead(BaseModel):
    """The last of what a guest wrote on its serial console."""

    vm: UUID
    content: str = Field(description="Base64 of the bytes as they are.")
    end: int = Field(description="Of all that it wrote: `after` of the next call.")


class ConsoleSaid(BaseModel):
    """What a guest wrote since a console was attached."""

    session: ConsoleSession
    start: int = Field(description="Beyond `after`: what lies between nobody read in time.")
    content: str = Field(description="Base64 of the bytes as they are.")
    end: int = Field(description="`after` of the next call.")


class EventsPage(BaseModel):
    """Events in order. There are always more some day, so ``next`` is never null."""

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
    placed: int | None = Field(description="Of everybody's VMs; told to operators only.")
    left_out: int | None = Field(description="The same.")
    dropped: int | None = Field(description="The same.")
    cut: bool
    work: int | None = Field(description="Told to operators only.")
    shares: list[Mapping[str, Any]]
    bound: float | None
    fair_distance: float | None
    timings: Mapping[str, float] = Field(description="Told to operators only.")
    engine_version: str
    seed: int
    inputs_digest: str
    created_at: datetime
    group_shares: list[Mapping[str, Any]] = Field(description="Told to operators only.")


class RoundDetail(BaseModel):
    """A round with its parameters and outcome; its inputs stay in the register center."""

    model_config = ConfigDict(from_attributes=True)

    number: int
    slot_start_at: datetime
    slot_length_s: float
    policy: str
    decided_by: str
    fallback_reason: str | None
    placed: int | None = Field(description="Of everybody's VMs; told to operators only.")
    left_out: int | None = Field(description="The same.")
    dropped: int | None = Field(description="The same.")
    cut: bool
    work: int | None = Field(description="Told to operators only.")
    shares: list[Mapping[str, Any]]
    group_shares: list[Mapping[str, Any]] = Field(description="Told to operators only.")
    bound: float | None
    fair_distance: float | None = Field(
        description="Mean |share - fair target| of the tenants per mean target."
    )
    timings: Mapping[str, float] = Field(description="Told to operators only.")
    engine_version: str
    seed: int
    inputs_digest: str
    created_at: datetime
    parameters: Mapping[str, Any]
    budget_units: int | None
    outcome: Mapping[str, Any] | None = Field(
        None, description="Told to operators only, and while it is kept."
    )
    replayable: bool = Field(
        False, description="Whether its inputs are still kept, so that it can be decided again."
    )
    shadow: ShadowRound | None = Field(
        None,
        description="What a second policy would have decided. Told to operators only.",
    )

    @classmethod
    def of(cls, record: RoundRecord, shadow: ShadowRound | None) -> RoundDetail:
        """Return what the API tells of a round."""
        stored = record.stored
        told = {
            "outcome": None if stored is None else stored.outcome,
            "replayable": stored is not None,
            "shadow": shadow,
        }
        return cls.model_validate(record).model_copy(update=told)


class TokenCreated(BaseModel):
    """A new token. This answer alone holds the secret: only its hash is stored."""

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
    secret: str | None = Field(description="Null when an answer is given again for its key.")

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
        """Return what may be stored."""
        return self.model_copy(update={"secret": None})


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """The database answers and its schema fits."""

    status: Literal["ok"] = "ok"
    last_round: int | None = Field(description="Number of the newest round.")
    last_round_age_s: float | None = Field(
        description="Since its slot began. Idle slots leave no round."
    )
    nobody: list[What] = Field(
        description="What nobody does although this process serves: decide, build or look at hosts."
    )


class LateThing(BaseModel):
    """Something that should have happened by now."""

    what: What
    nobody: bool = Field(description="Nobody does it at all; else one process of several is late.")
    since: datetime | None = Field(description="Null: it never was otherwise, or of no time.")
    message: str


class ProcessHeard(BaseModel):
    """A control centre, worker or monitor, and when it was heard."""

    kind: str
    name: str
    started_at: datetime
    heard_at: datetime
    late: bool
    trouble: str | None = Field(description="What it was not ready for when it was heard.")


class HostsInView(BaseModel):
    """What monitors see."""

    active: int
    up: int
    longest_silent_at: datetime | None = Field(
        description="When that one of those that are up was heard which is silent for longest."
    )


class Status(BaseModel):
    """Whether anybody decides, builds and looks at hosts."""

    at: datetime
    well: bool = Field(description="Nothing is late.")
    late: list[LateThing]
    leader: str | None = Field(description="Told to operators only; null: nobody leads.")
    leads_since: datetime | None
    paused: bool
    last_slot_at: datetime | None = Field(
        description="Start of the last slot that was decided, if only that nothing was to be done."
    )
    slot_length_s: float | None
    last_round: int | None
    last_round_at: datetime | None = Field(description="Start of its slot.")
    processes: list[ProcessHeard] = Field(description="Told to operators only.")
    hosts: HostsInView | None = Field(description="Told to operators only.")
    oldest_unbuilt_at: datetime | None = Field(
        description="Of what is placed and no worker took up yet. Told to operators only."
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
    """For what a token would have to be good, and for what it is."""

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
    incident: str | None = Field(None, description="Under which a 500 was logged.")
    current_version: str | None = Field(
        None, description="Of what a 412 is about; its ETag, for the next If-Match."
    )
    scope: Scopes | None = Field(
        None, description="With `forbidden`: which token would be needed, and which was sent."
    )
    quota: list[QuotaExcess] | None = Field(
        None, description="With `quota_exceeded`: every limit that stands in the way."
    )
