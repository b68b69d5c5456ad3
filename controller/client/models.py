"""Types of the API's inputs and answers (`make api-docs`)."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict


class AddedHosts(TypedDict):
    """Hosts that are not there yet, alike."""

    capacity: NotRequired[dict[str, Any] | None]
    count: int
    like: NotRequired[str | None]
    zone: NotRequired[str | None]


class Alive(TypedDict):
    """The process answers."""

    status: NotRequired[Literal["ok"]]


Answer: TypeAlias = Literal["repair", "note", "ask"]


AssignmentState: TypeAlias = Literal[
    "reserved", "creating", "active", "releasing", "released", "quarantined", "arriving", "leaving"
]


class AuditEntry(TypedDict):
    """A call that could change something, and how it ended."""

    address: str
    at: str
    id: int
    last_at: str | None
    method: str
    path: str
    refusals: dict[str, int] | None
    request_id: str
    route: str | None
    status: int | None
    subject: str | None
    tenant: str | None
    token: str | None
    token_id: str | None
    untold: int


class Capacity(TypedDict):
    """How many more VMs of a type fit now, and how many beside those that wait."""

    at_least: NotRequired[bool]
    classes: list[HostClass]
    demand: dict[str, int]
    fits: int
    hosts: int
    in_turn: NotRequired[int | None]
    open: int
    runs_out_first: str | None
    vm_type: str


class ClassPrices(TypedDict):
    """What one more unit of each resource would have brought on a class of hosts."""

    capacity: dict[str, int]
    hosts: int
    labels: list[str]
    price: dict[str, float]
    room: dict[str, int]


class ClockStepped(TypedDict):
    """A step back of the database's clock."""

    at: str
    back_s: float


class Combination(TypedDict):
    """What a host could take: one of its strategies in the game."""

    chosen: bool
    fairness: float
    minimum_utilization: float
    skewness: float
    utility: float
    vms: list[CombinationVms]


class CombinationVms(TypedDict):
    """VMs of one request in a combination."""

    count: int
    request: int


class CommandEndInput(TypedDict):
    """How the command ended on a host."""

    error: NotRequired[str | None]
    host: str


class ConsoleRead(TypedDict):
    """The last output of a guest on its serial console."""

    content: str
    end: int
    vm: str


class ConsoleSaid(TypedDict):
    """The output of a guest since a console was attached."""

    content: str
    end: int
    session: ConsoleSession
    start: int


class ConsoleSession(TypedDict):
    """A caller's hold on a VM's console."""

    id: str
    next_input: int
    reason: str | None
    state: ConsoleState
    vm: str


class ConsoleSessionInput(TypedDict):
    """Attaches to a console."""

    force: NotRequired[bool]


ConsoleState: TypeAlias = Literal["waiting", "attached", "ended"]


class ConsoleTyped(TypedDict):
    """Typed input."""

    content: str


CopyState: TypeAlias = Literal["absent", "uploading", "present", "failed", "removing"]


class Counts(TypedDict):
    """All VMs and requests that are not gone."""

    requests: list[RequestCount]
    vms: list[VmCount]


class Decided(TypedDict):
    """What one policy decided on a snapshot, measured the same way for both."""

    fair_distance: float | None
    left_out: int
    placed: int
    used: dict[str, float]
    zones: NotRequired[dict[str, str]]


Difference: TypeAlias = Literal[
    "vm_missing",
    "vm_lost_power",
    "vm_crashed",
    "vm_crashes",
    "vm_stopped",
    "vm_runs",
    "vm_paused",
    "vm_unfiltered",
    "stranger",
    "unknown_mark",
    "wrong_host",
    "disk_elsewhere",
    "stray_files",
    "older_generation",
    "leftover",
    "capacity_shrank",
    "another_machine",
    "same_machine",
    "silent",
]


class DomainReport(TypedDict):
    """One domain as the monitor saw it. Without an ``assignment_id`` it is a stranger."""

    assignment_id: NotRequired[str | None]
    cpu_time_ns: NotRequired[int | None]
    disk_gib: int
    filtered: NotRequired[bool | None]
    generation: NotRequired[int | None]
    memory_mib: int
    memory_used_mib: NotRequired[int | None]
    name: str
    off_reason: NotRequired[str | None]
    state: str
    uuid: str
    vcpus: int


class Effect(TypedDict):
    """What a change of the tree means for a tenant or group; None where it is not there."""

    entitlement_after: float | None
    entitlement_before: float | None
    is_group: bool
    name: str
    parent_after: str | None
    parent_before: str | None
    share: float
    target_after: float | None
    target_before: float | None


class Effects(TypedDict):
    """The effect of a change that was not applied, groups before their members."""

    applied: NotRequired[Literal[False]]
    tenants: list[Effect]


class Event(TypedDict):
    """Something that changed, who did it and why."""

    actor: str
    at: str
    data: dict[str, Any]
    event: str | None
    from_state: str | None
    id: int
    kind: str
    reason: str | None
    subject_id: str
    subject_name: NotRequired[str | None]
    subject_type: str
    tenant: str | None
    to_state: str | None


class Fence(TypedDict):
    """How far it has come that a host which is down is proven to be off."""

    again_at: str | None
    asked_at: str
    asked_by: str
    attempts: int
    fenced_at: str | None
    last_error: str | None
    state: FenceState


class FenceInput(TypedDict):
    """Fence a host that is down."""

    by_hand: NotRequired[bool]


FenceState: TypeAlias = Literal["idle", "asked", "running", "failed", "fenced"]


class GameHost(TypedDict):
    """A host as the round found it."""

    capacity: dict[str, int]
    free: dict[str, int]
    name: str


class GameRequest(TypedDict):
    """A request as the round found it."""

    count: int
    demand: dict[str, int]
    id: str
    name: str
    tenant: str
    vm_type: str


class GameRow(TypedDict):
    """VMs that a step places; below 0: takes back."""

    count: int
    host: int
    request: int


class GameShare(TypedDict):
    """A dominant share after a step that changed it."""

    share: float
    tenant: int


class GameStep(TypedDict):
    """One step of a round."""

    combinations: NotRequired[list[Combination]]
    fair_distance: float | None
    fairness: NotRequired[float | None]
    game: NotRequired[int | None]
    host: NotRequired[int | None]
    how: NotRequired[str | None]
    kind: Literal["before", "game", "move", "handed_out", "best_fit", "gang", "exchange", "rest"]
    moves: NotRequired[int | None]
    order: NotRequired[list[int]]
    players: NotRequired[int | None]
    potential: NotRequired[float | None]
    rows: list[GameRow]
    rows_left_out: int
    shares: list[GameShare]
    skewness: NotRequired[float | None]
    vms: NotRequired[int | None]


class GameTenant(TypedDict):
    """A tenant's dominant shares."""

    after: float
    before: float
    name: str
    target: float


class GameView(TypedDict):
    """One game between hosts, and how it was solved."""

    certified: bool | None
    game: int
    players: int
    solved: str
    subgames: int
    sweeps: int
    vms: int


class Host(TypedDict):
    """A physical machine running libvirt."""

    admin: HostAdmin
    base_volume: str | None
    can_filter: NotRequired[bool | None]
    created_at: str
    credential: str | None
    domain_type: str
    failed_builds: NotRequired[int]
    fence: NotRequired[Fence | None]
    fence_target: NotRequired[str | None]
    found_machine_uuid: NotRequired[str | None]
    health: HostHealth
    held_back_until: str | None
    id: str
    inventories: list[Inventory]
    labels: list[str]
    last_error: str | None
    last_polled_at: str | None
    machine_uuid: NotRequired[str | None]
    max_builds: int
    memory_backing_mib: int | None
    missed_polls: int
    name: str
    network: str
    pool: str
    pool_silent_since: NotRequired[str | None]
    returning_since: NotRequired[str | None]
    same_machine_as: NotRequired[str | None]
    security_model: NotRequired[str | None]
    shared_pool: NotRequired[str | None]
    shares_kept: NotRequired[bool | None]
    ssh_host_keys: list[str]
    uri: str
    version: int
    warnings: NotRequired[list[str]]


HostAdmin: TypeAlias = Literal["active", "draining", "maintenance", "retired"]


class HostAlias(TypedDict):
    """A host, and what a tenant calls it."""

    alias: str
    host: str
    tenant: str


class HostAliases(TypedDict):
    """Hosts with this name or alias: usually one or none; two if a host's name equals an alias."""

    items: list[HostAlias]


class HostChange(TypedDict):
    """Change a host; omitted fields stay as they are."""

    admin: NotRequired[Literal["active", "draining", "maintenance"] | None]
    credential: NotRequired[str | None]
    fence_target: NotRequired[str | None]
    labels: NotRequired[list[str] | None]
    max_builds: NotRequired[int | None]
    overrides: NotRequired[dict[str, Any] | None]
    ratios: NotRequired[dict[str, Any] | None]
    reserved: NotRequired[dict[str, Any] | None]
    ssh_host_keys: NotRequired[list[str] | None]


class HostClass(TypedDict):
    """Hosts alike in labels and capacity."""

    capacity: dict[str, int]
    fits: int
    hosts: int
    labels: list[str]
    open: int
    runs_out_first: str | None


class HostDifference(TypedDict):
    """One thing in which a host differs from the ledger, and what is done about it."""

    action: str
    answer: Answer
    assignment_id: NotRequired[str | None]
    difference: Difference
    host: str
    on_word: str | None
    subject: str
    vm_uuid: NotRequired[str | None]
    what: str
    why: str


HostHealth: TypeAlias = Literal["enrolling", "up", "unreachable", "down"]


class HostInput(TypedDict):
    """Register a host. It is ``enrolling`` until the monitor reaches it."""

    base_volume: NotRequired[str | None]
    credential: NotRequired[str | None]
    domain_type: NotRequired[Literal["kvm", "qemu", "test"]]
    fence_target: NotRequired[str | None]
    labels: NotRequired[list[str]]
    max_builds: NotRequired[int]
    memory_backing_mib: NotRequired[int | None]
    name: str
    network: NotRequired[str]
    overrides: NotRequired[dict[str, Any]]
    pool: NotRequired[str]
    ratios: NotRequired[dict[str, Any]]
    reserved: NotRequired[dict[str, Any]]
    ssh_host_keys: NotRequired[list[str]]
    uri: str


class HostMap(TypedDict):
    """Every host that is not retired, in columns: the nth of each is of the nth host."""

    admin: list[HostAdmin]
    at: str
    closed: list[str | None]
    health: list[HostHealth]
    held_by: list[list[list[Any]]]
    labels: list[str]
    labels_of: list[list[int]]
    names: list[str]
    resources: list[MappedResource]
    tenants: list[str]


class HostReport(TypedDict):
    """One look at a host. Consumption is None where the driver does not tell."""

    addresses: NotRequired[list[str]]
    can_filter: NotRequired[bool | None]
    cpu_busy_percent: float | None
    detected: dict[str, int]
    disk_used_gib: int | None
    domains: list[DomainReport]
    hostname: str
    interfaces: NotRequired[dict[str, str]]
    largest_console_bytes: NotRequired[int]
    machine_uuid: NotRequired[str | None]
    memory_used_mib: int | None
    polled_at: str
    pool_silent_since: NotRequired[str | None]
    security_model: NotRequired[str | None]
    shares_kept: NotRequired[bool | None]
    started_at: str
    took_ms: int
    unnamed: NotRequired[list[str]]
    volumes: list[str]


class HostsInView(TypedDict):
    """Summary of hosts."""

    active: int
    longest_silent_at: str | None
    up: int


class Image(TypedDict):
    """One revision of a disk image that VMs' disks rest on."""

    created_at: str
    format: Literal["qcow2", "raw"]
    held_at: NotRequired[str | None]
    held_reason: NotRequired[str | None]
    id: str
    last_error: str | None
    min_memory_mib: int
    name: str
    received_bytes: int
    removed_at: str | None
    revision: int
    seed_kind: Literal["none", "nocloud"]
    sha256: str
    signed_by: NotRequired[str | None]
    size_bytes: int | None
    source: str | None
    state: ImageState
    virtual_size_bytes: int | None


class ImageCopies(TypedDict):
    """All copies of an image: at most one per host."""

    items: list[ImageCopy]


class ImageCopy(TypedDict):
    """An image on one host."""

    attempts: int
    disk_gib: int
    host: str
    id: str
    image: str
    last_error: str | None
    present_at: str | None
    size_bytes: int
    state: CopyState
    uploaded_bytes: int


class ImageInput(TypedDict):
    """Have a worker download an image."""

    format: NotRequired[Literal["qcow2", "raw"]]
    min_memory_mib: NotRequired[int]
    name: str
    seed_kind: NotRequired[Literal["none", "nocloud"]]
    sha256: str
    signature: NotRequired[str | None]
    url: str


ImageState: TypeAlias = Literal["importing", "ready", "failed", "removed"]


class ImageWait(TypedDict):
    """An image that is not yet on the host where a VM is to be built."""

    held: NotRequired[bool]
    image: str
    size_bytes: int
    state: CopyState
    uploaded_bytes: int


class Inventory(TypedDict):
    """What one host offers of one resource."""

    capacity: int
    committed: int
    detected: int | None
    foreign: int
    override: int | None
    own_ratio_thousandths: int | None
    ratio_thousandths: int
    reserved: int
    resource: str


class LabelRatios(TypedDict):
    """Over-commit ratios of hosts with a label, unless they have their own."""

    label: str
    ratios: dict[str, Any]


class LackingDomain(TypedDict):
    """A failure domain whose VMs do not all find room on other hosts."""

    known: bool
    name: str
    vms: list[LackingVm]
    vms_lacking: int


class LackingVm(TypedDict):
    """A VM that finds no room elsewhere."""

    missing: dict[str, int]
    nearest_host: str | None
    vm: str
    why: str


class LateThing(TypedDict):
    """Work that is overdue."""

    message: str
    nobody: bool
    since: str | None
    what: Literal["decide", "build", "look"]


class LinkCreated(TypedDict):
    """A link's code. Only this answer holds it: fuga stores its hash."""

    code: str | None
    expires_at: str
    id: str
    read_only: bool


class LinkInput(TypedDict):
    """Make a link that logs in once, with the rights of the calling token or less."""

    read_only: NotRequired[bool]


class LoginInput(TypedDict):
    """Exchange what proves who you are for a token."""

    code: str
    redirect_uri: NotRequired[str | None]
    tenant: NotRequired[str | None]
    verifier: NotRequired[str | None]


class LoginWays(TypedDict):
    """How one may log in, apart from a token or a one-time link."""

    provider: ProviderWay | None


class MappedResource(TypedDict):
    """One resource on every host of a map, in its order."""

    capacity: list[int]
    committed: list[int]
    resource: str


class MembershipInput(TypedDict):
    """Membership in a VM group of the tenant; the first member creates the group."""

    group: str
    soft: NotRequired[bool]


class MembershipRule(TypedDict):
    """A request's VMs belong to a group of its tenant's."""

    group: str
    soft: NotRequired[bool]


class Move(TypedDict):
    """One VM on its way from host to host, or that was."""

    asked_at: str
    asked_by: str
    began_at: str | None
    cancelled_by: str | None
    downtime_ms: int | None
    ended_at: str | None
    from_host: str
    id: str
    kind: Literal["live", "cold"]
    last_error: str | None
    rate_bytes_s: int | None
    reason: str
    remaining_bytes: int | None
    state: MoveState
    tenant: str
    to_host: str
    total_bytes: int | None
    vm_id: str
    vm_name: str


class MoveCancelInput(TypedDict):
    """Cancel a move."""


class MoveInput(TypedDict):
    """Move a VM to another host."""

    host: NotRequired[str | None]
    only_cold: NotRequired[bool]
    reason: NotRequired[str]
    vm: str


MoveObstacle: TypeAlias = Literal[
    "deleted",
    "not_built",
    "runs",
    "moves_already",
    "left_behind",
    "label",
    "same_host",
    "host_silent",
    "host_closed",
    "hypervisor",
    "not_allowed",
    "group",
    "no_network",
    "no_room",
    "no_room_for_image",
    "silent_pool",
    "nowhere",
]


MoveState: TypeAlias = Literal["asked", "moving", "moved", "failed", "cancelled"]


class Network(TypedDict):
    """A network that VMs may be put on."""

    addresses: int
    addresses_used: int
    default: NetworkSource | None
    filtered: NotRequired[bool]
    hosts: dict[str, NetworkSource]
    isolated: NotRequired[bool]
    name: str
    offered_to: NotRequired[list[str] | None]
    subnet: Subnet | None
    tenant: NotRequired[str | None]
    warnings: NotRequired[list[str]]


class NetworkChange(TypedDict):
    """Change a network; omitted fields stay as they are. VMs follow at their next start."""

    filtered: NotRequired[bool | None]
    hosts: NotRequired[dict[str, Any]]
    isolated: NotRequired[bool | None]
    offered_to: NotRequired[list[str] | None]


class NetworkInput(TypedDict):
    """Add a network."""

    default: NotRequired[NetworkSourceInput | None]
    filtered: NotRequired[bool]
    hosts: NotRequired[dict[str, Any]]
    isolated: NotRequired[bool | None]
    name: str
    offered_to: NotRequired[list[str] | None]
    subnet: NotRequired[SubnetInput | None]
    tenant: NotRequired[str | None]


class NetworkSource(TypedDict):
    """What a host calls a network: a network of its libvirt, or a bridge."""

    kind: Literal["network", "bridge"]
    name: str


class NetworkSourceInput(TypedDict):
    """The name of a network on a host: a libvirt network or a bridge."""

    kind: NotRequired[Literal["network", "bridge"]]
    name: str


class ObstacleExplanation(TypedDict):
    """One reason why hosts take no VM of it; a host may have several."""

    hosts: int
    kind: str
    missing: int | None
    only: int
    only_hosts: list[str]
    until: NotRequired[str | None]
    what: str | None


class Outcome(TypedDict):
    """What a policy came to."""

    fair_distance: float | None
    left_out: int
    placed: int
    used: dict[str, float]


class PauseExplanation(TypedDict):
    """Nothing is decided at all: an operator wants that."""

    reason: str | None
    since: str | None


class PauseInput(TypedDict):
    """Pause the slot loop."""

    reason: str


class PlacedVm(TypedDict):
    """Where one VM of a request is."""

    ending_for: NotRequired[str | None]
    ends_at: NotRequired[str | None]
    host: str | None
    name: str
    observed: str
    paused_since: NotRequired[str | None]
    round: int | None
    unknown_since: NotRequired[str | None]
    vm: str
    waits_for_image: ImageWait | None


class Plan(TypedDict):
    """Moves in waves, why, and what they gain."""

    after: dict[str, Any] | None
    approved_at: str | None
    approved_by: str | None
    arguments: dict[str, Any]
    asked_at: str
    asked_by: str
    before: dict[str, Any] | None
    cut: bool
    effect: str | None
    ended: int
    ended_at: str | None
    failed: int
    gain: float | None
    id: str
    kind: PlanKind
    last_error: str | None
    let_in: dict[str, Any] | None
    moved_gib: float
    moves: int
    state: PlanState
    stays: list[dict[str, Any]]
    waves: int


class PlanInput(TypedDict):
    """A plan of moves to decide."""

    approve: NotRequired[bool]
    hosts: NotRequired[list[str]]
    kind: Literal["evacuate", "mend", "balance", "pack", "room"]
    request: NotRequired[str | None]


PlanKind: TypeAlias = Literal["evacuate", "balance", "pack", "room", "mend"]


class PlanMove(TypedDict):
    """One move of a plan, and what became of it."""

    carried_mib: int
    from_host: str
    leaves: bool
    move_id: str | None
    position: int
    refused: str | None
    state: MoveState | None
    tenant: str
    to_host: str
    vm_id: str
    vm_name: str
    wave: int
    why: str


class PlanMoves(TypedDict):
    """The moves of a plan in their order, and the state of each."""

    items: list[PlanMove]
    plan: str


class PlanReplay(TypedDict):
    """Whether a stored plan was decided again to the bit."""

    identical: bool
    plan: str
    seconds: float


PlanState: TypeAlias = Literal["asked", "proposed", "approved", "done", "cancelled", "failed"]


class PlanStep(TypedDict):
    """Approve or cancel a plan."""


class PolicyView(TypedDict):
    """A policy by which a stored round can be decided again."""

    name: str
    summary: str | None


class Power(TypedDict):
    """What is asked of a VM's power and not done yet."""

    asked_at: str
    asked_by: str
    force_at: str | None
    last_error: str | None
    state: PowerState
    timeout_s: int
    waits_for: str | None


PowerState: TypeAlias = Literal[
    "idle", "stopping", "shutting_down", "starting", "rebooting", "restarting"
]


class ProcessHeard(TypedDict):
    """A control centre, worker or monitor, and the time of its last heartbeat."""

    heard_at: str
    kind: str
    late: bool
    name: str
    release: str | None
    started_at: str
    trouble: str | None


class ProcessSettings(TypedDict):
    """The settings of a process that lives."""

    kind: str
    name: str
    settings: dict[str, str | None]


class ProofHeader(TypedDict):
    """What everybody may know of a round."""

    bound: float | None
    cut: bool
    decided_by: str
    engine_version: str
    fair_distance: float | None
    inputs_digest: str
    policy: str
    round: int
    seed: int
    slot_start_at: str


class ProofRow(TypedDict):
    """What a round told one tenant of itself."""

    after: float
    asked: int
    before: float
    given: int
    target: float | None
    tenant: str
    weight: float


class ProviderWay(TypedDict):
    """Log in by OpenID Connect: what a client needs to send a browser there (PKCE, S256)."""

    authorization_endpoint: str | None
    client_id: str
    issuer: str
    problem: str | None
    response_mode: Literal["fragment", "query"]
    scope: str


class Quota(TypedDict):
    """What a tenant or group may have at most, by its own limits and those of groups above."""

    limits: list[QuotaUse]
    over_quota: Literal["refuse", "wait"] | None
    tenant: str


class QuotaChange(TypedDict):
    """Change the quota of a tenant or group; omitted fields stay as they are."""

    limits: NotRequired[dict[str, Any]]
    over_quota: NotRequired[Literal["refuse", "wait", "inherit"] | None]


class QuotaExcess(TypedDict):
    """One limit that a request would exceed."""

    asked: int
    limit: int
    resource: str
    tenant: str
    used: int


class QuotaExplanation(TypedDict):
    """One quota that stood in the way of more VMs."""

    limit: int
    needed: int
    resource: str
    tenant: str
    used: int


class QuotaUse(TypedDict):
    """How much of one thing may be had at most, and how much of it is."""

    asked: int
    by_default: NotRequired[bool]
    held: int
    limit: int
    resource: str
    tenant: str


class Ready(TypedDict):
    """The database answers and its schema matches."""

    disks: list[str]
    last_round: int | None
    last_round_age_s: float | None
    nobody: list[Literal["decide", "build", "look"]]
    status: NotRequired[Literal["ok"]]


class RepairInput(TypedDict):
    """Selects a difference of a host."""

    difference: Difference
    subject: str


class ReplayResult(TypedDict):
    """Did the same inputs give the same outcome, to the bit?"""

    cut: bool
    decided_by: str
    differences: list[str]
    identical: bool
    policy: str
    round: int
    seconds: float


class Request(TypedDict):
    """A tenant asking for ``count`` VMs of one type."""

    count: int
    created_at: str
    expires_at: NotRequired[str | None]
    hostname: NotRequired[str | None]
    hosts: list[str] | None
    id: str
    image: NotRequired[str | None]
    labels: NotRequired[dict[str, str]]
    min_count: int
    name: str
    network: NotRequired[str | None]
    priority: NotRequired[int]
    requires: list[str]
    reservation: NotRequired[str | None]
    rules: NotRequired[Rules]
    spot: NotRequired[bool]
    ssh_keys: NotRequired[list[str]]
    state: RequestState
    tenant: str
    updated_at: str
    user_data: NotRequired[UserData | None]
    vm_type: str
    vms_placed: int
    vms_running: int
    vms_unknown: NotRequired[int]
    waiting: Waiting | None


class RequestChange(TypedDict):
    """Change a request; omitted fields stay as they are."""

    count: NotRequired[int | None]
    labels: NotRequired[dict[str, Any] | None]
    remove: NotRequired[list[str]]
    ttl_s: NotRequired[int | Literal["never"] | None]


class RequestCount(TypedDict):
    """How many requests are in one state."""

    count: int
    state: RequestState


class RequestExplanation(TypedDict):
    """The explanation of a request."""

    estimate: NotRequired[WaitingTime | None]
    name: str | None
    order: int | None
    placed: int
    request: str
    running: int
    state: str
    tenant: str
    unbuilt: NotRequired[str | None]
    unknown: NotRequired[int]
    vms: list[PlacedVm]
    waiting: WaitingExplanation | None
    wanted: int


class RequestInput(TypedDict):
    """Ask for ``count`` VMs of one type."""

    count: int
    hostname: NotRequired[str | None]
    hosts: NotRequired[list[str] | None]
    image: NotRequired[str | None]
    labels: NotRequired[dict[str, Any]]
    min_count: NotRequired[int]
    name: NotRequired[str | None]
    network: NotRequired[str | None]
    priority: NotRequired[int]
    requires: NotRequired[list[str]]
    reservation: NotRequired[str | None]
    rules: NotRequired[RulesInput]
    spot: NotRequired[bool]
    ssh_keys: NotRequired[list[str]]
    tenant: NotRequired[str | None]
    ttl_s: NotRequired[int | None]
    user_data: NotRequired[str | None]
    vm_type: str


RequestState: TypeAlias = Literal[
    "pending", "partly_placed", "placed", "released", "cancelled", "expired"
]


class Reservation(TypedDict):
    """Room for ``count`` VMs of one type that a tenant has from ``starts_at`` to ``ends_at``."""

    count: int
    created_at: str
    decided_at: str | None
    decision: ReservationDecision | None
    ends_at: str
    held: int
    id: str
    keep_from: str
    left: int
    name: str
    requires: list[str]
    short: int
    starts_at: str
    state: ReservationState
    tenant: str
    used: int
    vm_type: str
    waiting: int


class ReservationDecision(TypedDict):
    """What was decided of a reservation, and by what."""

    carried: NotRequired[int]
    fits: NotRequired[int | None]
    message: str
    reason: NotRequired[Literal["quota", "no_room", "no_host", "too_late", "failed"] | None]
    samples: NotRequired[int]


class ReservationInput(TypedDict):
    """Reserve room for ``count`` VMs of one type."""

    count: int
    for_s: int
    name: NotRequired[str | None]
    requires: NotRequired[list[str]]
    starts_at: NotRequired[str | None]
    tenant: NotRequired[str | None]
    vm_type: str


ReservationState: TypeAlias = Literal[
    "asked", "accepted", "refused", "in_force", "ended", "cancelled"
]


class ResourceChange(TypedDict):
    """Change a resource."""

    overhead_per_vm: int


class ResourceDef(TypedDict):
    """One resource: a name, its unit, and its place on the resource axis."""

    name: str
    overhead_per_vm: NotRequired[int]
    position: int
    unit: str


class ResourceInput(TypedDict):
    """Add a resource that hosts offer and VMs hold, such as GPUs."""

    name: str
    unit: NotRequired[str]


class ResumeInput(TypedDict):
    """Resume the slot loop."""

    reason: NotRequired[str | None]


class Roll(TypedDict):
    """An operator's command that goes over hosts, some at once."""

    at_once: int
    began_at: str
    began_by: str
    cancelled_by: str | None
    checked: int
    command: str
    done: int
    driven_until: str | None
    driver: str
    empty_within_s: int
    ended_at: str | None
    hosts: int
    id: str
    last_error: str | None
    left_out: int
    run_within_s: int
    state: RollState
    up_within_s: int


class RollCancelInput(TypedDict):
    """End a roll."""


class RollClaim(TypedDict):
    """A roll and the token by which its driver is known."""

    roll: Roll
    token: str


class RollDriver(TypedDict):
    """Who runs the command, and which."""

    command: str
    driver: str
    left_out: NotRequired[list[str]]


class RollHost(TypedDict):
    """One host of a roll, and where it is."""

    error: str | None
    host: str
    phase: RollPhase
    plan_id: str | None
    since: str
    turn: int
    was: HostAdmin | None


class RollInput(TypedDict):
    """A command to go over hosts."""

    at_once: NotRequired[int]
    command: str
    driver: str
    empty_within_s: NotRequired[int]
    hosts: list[str]
    left_out: NotRequired[list[str]]
    run_within_s: NotRequired[int]
    up_within_s: NotRequired[int]


RollPhase: TypeAlias = Literal[
    "waiting", "emptying", "empty", "at_work", "returning", "done", "left_out"
]


RollState: TypeAlias = Literal["going", "stopped", "done", "cancelled"]


class RollStepInput(TypedDict):
    """What the driver of a roll did since its last step."""

    begun: NotRequired[list[str]]
    ended: NotRequired[list[CommandEndInput]]
    leave: NotRequired[bool]
    stop: NotRequired[str | None]


class RollTurn(TypedDict):
    """A roll, and the hosts whose turn it is."""

    hosts: list[RollHost]
    roll: Roll


class RoundDetail(TypedDict):
    """A round with its parameters and outcome; its inputs stay in the register center."""

    bound: float | None
    budget_units: int | None
    created_at: str
    cut: bool
    decided_by: str
    dropped: int | None
    engine_version: str
    fair_distance: float | None
    fallback_reason: str | None
    games: NotRequired[list[GameView]]
    group_shares: list[dict[str, Any]]
    inputs_digest: str
    left_out: int | None
    number: int
    outcome: NotRequired[dict[str, Any] | None]
    parameters: dict[str, Any]
    placed: int | None
    policy: str
    prices: RoundPrices | None
    replayable: NotRequired[bool]
    reservations: NotRequired[list[ToldReservation]]
    seed: int
    shadow: NotRequired[ShadowRound | None]
    shares: list[dict[str, Any]]
    slot_length_s: float
    slot_start_at: str
    spot_endings: NotRequired[list[ToldEnding]]
    timings: dict[str, float]
    work: int | None


class RoundGame(TypedDict):
    """A stored round, computed again and told step by step."""

    decided_by: str
    differences: list[str]
    fair_distance: float | None
    hosts: list[GameHost]
    hosts_left_out: int
    identical: bool
    policy: str
    ranking: list[str]
    requests: list[GameRequest]
    requests_left_out: int
    resources: list[str]
    round: int
    steps: list[GameStep]
    steps_left_out: int
    tenants: list[GameTenant]
    tenants_left_out: int


class RoundPrices(TypedDict):
    """What a round was short of, in units of one resource."""

    classes: list[ClassPrices]
    classes_left_out: int
    error: str | None
    fair: float | None
    most: float | None
    of_fairness: float | None
    resource: str


class RoundProof(TypedDict):
    """How a round hangs on the chain, and what of it is one tenant's; digests in hexadecimal."""

    content: str
    header: NotRequired[ProofHeader | None]
    link: str
    path: NotRequired[list[list[Any]]]
    previous: str
    root: NotRequired[str | None]
    round: int
    row: NotRequired[ProofRow | None]
    salt: NotRequired[str | None]


class RoundSummary(TypedDict):
    """A round in a list."""

    bound: float | None
    created_at: str
    cut: bool
    decided_by: Literal["policy", "fallback"]
    dropped: int | None
    engine_version: str
    fair_distance: float | None
    fallback_reason: str | None
    group_shares: list[dict[str, Any]]
    inputs_digest: str
    left_out: int | None
    number: int
    placed: int | None
    policy: str
    prices: RoundPrices | None
    seed: int
    shares: list[dict[str, Any]]
    slot_length_s: float
    slot_start_at: str
    timings: dict[str, float]
    work: int | None


class Rules(TypedDict):
    """Where VMs of a request may be, beside the labels and hosts that it requires."""

    affinity: NotRequired[MembershipRule | None]
    anti_affinity: NotRequired[MembershipRule | None]
    forbids: NotRequired[list[str]]
    prefers: NotRequired[list[str]]
    spread: NotRequired[str | None]
    zone: NotRequired[str | None]


class RulesInput(TypedDict):
    """Placement rules, in addition to required labels and hosts."""

    affinity: NotRequired[MembershipInput | None]
    anti_affinity: NotRequired[MembershipInput | None]
    forbids: NotRequired[list[str]]
    prefers: NotRequired[list[str]]
    spread: NotRequired[Literal["zone"] | None]
    zone: NotRequired[str | None]


class Scopes(TypedDict):
    """The scope that a call needs, and the token's scope."""

    given: str
    needed: str


class SecondDecision(TypedDict):
    """A stored round as another policy would have decided it; nothing is kept of it."""

    agreed: int
    cut: bool
    decided: Outcome
    first: Outcome
    first_policy: str
    parameters: dict[str, Any]
    policy: str
    requests: list[SecondRequest]
    round: int
    seconds: float
    shares: list[SecondShares]


class SecondPolicyInput(TypedDict):
    """Another policy for a stored round."""

    parameters: NotRequired[dict[str, Any]]
    policy: str


class SecondRequest(TypedDict):
    """A request that the policies served differently."""

    agreed: int
    asked: int
    id: str
    name: str
    placed_first: int
    placed_second: int
    tenant: str
    vm_type: str


class SecondShares(TypedDict):
    """A tenant's dominant shares by both policies."""

    agreed: int
    asked: int
    before: float
    first: float
    placed_first: int
    placed_second: int
    second: float
    tenant: str


class SettingInForce(TypedDict):
    """One setting, its value in words, and where that is from."""

    description: str | None
    name: str
    source: Literal["environment", "file", "default"]
    value: str | None


class ShadowRound(TypedDict):
    """The same, as it is kept."""

    agreed: NotRequired[int | None]
    created_at: str
    cut: NotRequired[bool]
    decided: NotRequired[Decided | None]
    error: NotRequired[str | None]
    first: NotRequired[Decided | None]
    first_policy: str
    parameters: dict[str, Any]
    policy: str
    round: int
    seconds: NotRequired[float | None]
    shares: NotRequired[list[dict[str, Any]]]
    skipped: NotRequired[int]
    slot_start_at: str


class ShareExplanation(TypedDict):
    """What its tenant holds of the cluster after the round, and what would be fair."""

    above_fair: bool
    fair: float
    held: float


class ShortageExplanation(TypedDict):
    """One resource that stood in the way of one more VM."""

    hosts: int
    hosts_short: int
    missing: int
    nearest_host: str | None
    resource: str


class ShutdownInput(TypedDict):
    """Shut down."""

    force: NotRequired[bool]
    timeout_s: NotRequired[int | None]


class SlotLoop(TypedDict):
    """The state of the slot loop."""

    changed_at: str | None
    changed_by: str | None
    reason: str | None
    state: SlotLoopState


SlotLoopState: TypeAlias = Literal["running", "paused"]


class SshKey(TypedDict):
    """A public key of a tenant: it opens every VM built for that tenant from now on."""

    created_at: str
    fingerprint: str
    id: str
    name: str
    public_key: str
    tenant: str


class SshKeyInput(TypedDict):
    """Add a public key of a tenant."""

    name: str
    public_key: str
    tenant: NotRequired[str | None]


class Standing(TypedDict):
    """What a tenant or group holds now, and the part of the pool that is its own."""

    entitlement: float
    is_group: bool
    name: str
    parent: str | None
    share: float
    weight: float


class Standings(TypedDict):
    """Shares of tenants and groups, groups before their members."""

    items: list[Standing]


class StartInput(TypedDict):
    """Start."""


class Status(TypedDict):
    """Whether control centre, workers and monitors do their work."""

    at: str
    clock_ahead_s: float | None
    clock_step: ClockStepped | None
    disks: list[str]
    hosts: HostsInView | None
    last_round: int | None
    last_round_at: str | None
    last_slot_at: str | None
    late: list[LateThing]
    leader: str | None
    leads_since: str | None
    oldest_unbuilt_at: str | None
    paused: bool
    processes: list[ProcessHeard]
    release: str | None
    slot_length_s: float | None
    well: bool


class Subnet(TypedDict):
    """Addresses that a network's VMs are given, and what they need beside them."""

    cidr: str
    dns: NotRequired[list[str]]
    excluded: NotRequired[list[str]]
    gateway: NotRequired[str | None]


class SubnetInput(TypedDict):
    """The addresses for VMs of a network."""

    cidr: str
    dns: NotRequired[list[str]]
    excluded: NotRequired[list[str]]
    gateway: NotRequired[str | None]


class Survival(TypedDict):
    """What would become of VMs if one failure domain failed, whichever it is."""

    domain: str
    domains: int
    hold: int
    immovable: int
    lacking: list[LackingDomain]
    not_known: int


class Tenant(TypedDict):
    """A party whose share is accounted, or a group of such parties."""

    created_at: str
    id: str
    is_group: bool
    name: str
    parent: str | None
    removed_at: str | None
    weight: float


class TenantChange(TypedDict):
    """Change a tenant or group; omitted fields stay as they are."""

    parent: NotRequired[str | None]
    weight: NotRequired[float | None]


class TenantInput(TypedDict):
    """Create a tenant or a group of tenants."""

    is_group: NotRequired[bool]
    name: str
    parent: NotRequired[str | None]
    weight: NotRequired[float]


class Token(TypedDict):
    """Who may call the API. The secret itself is nowhere."""

    created_at: str
    expires_at: NotRequired[str | None]
    id: str
    last_used_at: NotRequired[str | None]
    login: NotRequired[Literal["link", "oidc"] | None]
    name: str
    read_only: NotRequired[bool]
    revoked_at: str | None
    role: Literal["operator", "tenant"]
    tenant: str | None


class TokenCreated(TypedDict):
    """A new token. Only this answer holds the secret: fuga stores its hash."""

    created_at: str
    expires_at: str | None
    id: str
    last_used_at: str | None
    login: NotRequired[Literal["link", "oidc"] | None]
    name: str
    read_only: bool
    revoked_at: str | None
    role: Literal["operator", "tenant"]
    secret: str | None
    tenant: str | None


class TokenInput(TypedDict):
    """Create a token for a tenant, or for an operator."""

    name: str
    read_only: NotRequired[bool]
    role: Literal["operator", "tenant"]
    tenant: NotRequired[str | None]
    ttl_s: NotRequired[int | Literal["never"] | None]


class ToldEnding(TypedDict):
    """A spot VM that a round ended, and for which request."""

    request: str
    request_id: str
    tenant: str
    vm: str
    vm_id: str


class ToldReservation(TypedDict):
    """A reservation for which a round kept room, in VMs."""

    drawn: int
    kept: int
    reservation: str
    reservation_id: str
    short: int
    tenant: str
    wanted: int


class UndecidedExplanation(TypedDict):
    """Nothing is decided at all, and nobody wants that: no control centre works."""

    since: str | None


class UserData(TypedDict):
    """What is told of a request's user-data, which may hold secrets."""

    bytes: int
    sha256: str


class Vm(TypedDict):
    """One virtual machine. Host, assignment and round are of its unreleased assignment."""

    address: NotRequired[str | None]
    assignment_id: str | None
    assignment_state: AssignmentState | None
    created_at: str
    deleted_at: str | None
    desired: VmDesired
    ending_for: NotRequired[str | None]
    ends_at: NotRequired[str | None]
    generation: int
    host: str | None
    hostname: NotRequired[str | None]
    id: str
    labels: NotRequired[dict[str, str]]
    last_error: str | None
    mac: NotRequired[str | None]
    move_id: NotRequired[str | None]
    moving_to: NotRequired[str | None]
    name: str
    network: NotRequired[str | None]
    observed: VmObserved
    paused_since: NotRequired[str | None]
    power: NotRequired[Power | None]
    request_id: str
    round: int | None
    spot: NotRequired[bool]
    tenant: str
    unknown_since: NotRequired[str | None]
    vm_type: str
    waits_for_image: NotRequired[ImageWait | None]


class VmChange(TypedDict):
    """Change a VM."""

    labels: dict[str, Any]


class VmCount(TypedDict):
    """How many VMs are alike; ``placed``: they hold a part of a host, or else wait."""

    count: int
    placed: bool
    spot: bool
    state: VmState
    vm_type: str


VmDesired: TypeAlias = Literal["running", "stopped", "deleted"]


class VmExplanation(TypedDict):
    """Why this host."""

    decided_by: str | None
    host: str | None
    last_move: NotRequired[Move | None]
    message: str
    moved_here: NotRequired[Move | None]
    name: str
    phase: str | None
    policy: str | None
    round: int | None
    slot_start_at: str | None
    utilities: list[WeighedCombination]
    vm: str
    waits_for_image: NotRequired[ImageWait | None]


class VmGroup(TypedDict):
    """VMs of a tenant that keep apart or together."""

    created_at: str
    hosts: dict[str, int]
    id: str
    name: str
    requests: list[str]
    rule: Literal["anti_affinity", "affinity"]
    soft: bool
    tenant: str
    vms: int


VmObserved: TypeAlias = Literal["absent", "running", "stopped", "lost"]


VmState: TypeAlias = Literal["absent", "running", "stopped", "lost", "unknown"]


class VmType(TypedDict):
    """A named resource vector on offer."""

    created_at: str
    id: str
    limits: NotRequired[dict[str, int]]
    name: str
    resources: dict[str, int]
    revision: int


class VmTypeInput(TypedDict):
    """Add a VM type."""

    limits: NotRequired[dict[str, Any]]
    name: str
    resources: dict[str, Any]


class Waiting(TypedDict):
    """Why VMs of a request wait. ``round`` and ``since`` are filled in by the store."""

    count: int
    detail: NotRequired[dict[str, Any]]
    reason: str
    round: NotRequired[int | None]
    since: NotRequired[str | None]


class WaitingExplanation(TypedDict):
    """Why VMs of a request were left out of the last round that looked at it."""

    count: int
    fit: NotRequired[int | None]
    freed_host_names: NotRequired[list[str] | None]
    gave_way_to: NotRequired[list[str]]
    held_back: NotRequired[int]
    held_host_names: NotRequired[list[str] | None]
    held_hosts: NotRequired[int]
    message: str
    moves_make_room: NotRequired[bool]
    needed: NotRequired[int | None]
    network: NotRequired[str | None]
    obstacles: NotRequired[list[ObstacleExplanation]]
    paused: NotRequired[PauseExplanation | None]
    plan: NotRequired[str | None]
    quotas: NotRequired[list[QuotaExplanation]]
    reason: str
    round: int | None
    share: NotRequired[ShareExplanation | None]
    shortages: list[ShortageExplanation]
    slot_start_at: str | None
    undecided: NotRequired[UndecidedExplanation | None]
    would_help: NotRequired[list[str]]


class WaitingTime(TypedDict):
    """How long a request may wait, from ``made_at`` on, for the last of its VMs."""

    from_s: NotRequired[float | None]
    half_s: NotRequired[float | None]
    horizon_s: NotRequired[float | None]
    made_at: NotRequired[str | None]
    message: str
    nine_in_ten_s: NotRequired[float | None]
    samples: NotRequired[int | None]
    to_s: NotRequired[float | None]
    why_none: (
        Literal[
            "being_made",
            "too_little_known",
            "too_large",
            "not_decided",
            "new",
            "failed",
            "not_deciding",
            "spot",
        ]
        | None
    )


class WeighedCombination(TypedDict):
    """One strategy of a host in the game: what it would have taken, and its worth to it."""

    chosen: bool
    combination: dict[str, int]
    minimum_utilization: float
    utility: float


class WhatIfCancelInput(TypedDict):
    """End a what-if."""


class WhatIfDetail(TypedDict):
    """A what-if with its report."""

    asked: WhatIfInput
    asked_at: str
    asked_by: str
    began_at: str | None
    cancelled_by: str | None
    ended_at: str | None
    id: str
    last_error: str | None
    progress: float
    report: WhatIfReport | None
    state: WhatIfState


class WhatIfInput(TypedDict):
    """What to change, and for how long."""

    add_hosts: NotRequired[AddedHosts | None]
    hours: NotRequired[int]
    parameters: NotRequired[dict[str, Any]]
    policy: NotRequired[str | None]
    remove_hosts: NotRequired[list[str]]
    weights: NotRequired[dict[str, Any]]


class WhatIfInputs(TypedDict):
    """What both simulations began with."""

    at: str
    decided_by: str
    hosts: int
    hours: int
    lifetimes_known: bool
    policy: str
    since: str
    slot_length_s: float
    vms_repeated: int
    vms_running: int
    vms_waiting: int


class WhatIfLines(TypedDict):
    """Means over equal stretches of time; null: not known there."""

    at_s: list[float | None]
    fair_distance: list[float | None]
    running: list[float | None]
    used: dict[str, list[float | None]]
    waiting: list[float | None]


class WhatIfReport(TypedDict):
    """Two simulations of the same inputs with the same seeds."""

    as_it_is: WhatIfRun
    cut: list[str]
    inputs: WhatIfInputs
    what_if: WhatIfRun


class WhatIfRun(TypedDict):
    """What one of the two simulations came to."""

    fair_distance: float | None
    fallbacks: int
    hosts: int
    lines: WhatIfLines
    placed_part: float | None
    policy: str
    rounds: int
    seconds: float
    tenants: list[WhatIfTenant]
    used: dict[str, float | None]
    vms: WhatIfVms
    wait_s: WhatIfWaits
    waiting: list[WhatIfWaiting]


WhatIfState: TypeAlias = Literal[
    "waiting", "running", "finished", "failed", "cancelled", "interrupted"
]


class WhatIfTenant(TypedDict):
    """A tenant in a simulation."""

    asked: int
    mean_wait_s: float | None
    mean_wait_so_far_s: NotRequired[float | None]
    placed: int
    share: float
    tenant: str
    waiting: int


class WhatIfView(TypedDict):
    """The site simulated with something changed, beside the site as it is."""

    asked: WhatIfInput
    asked_at: str
    asked_by: str
    began_at: str | None
    cancelled_by: str | None
    ended_at: str | None
    id: str
    last_error: str | None
    progress: float
    state: WhatIfState


class WhatIfVms(TypedDict):
    """What became of VMs. Those that ran at the beginning are not counted as asked for."""

    asked: int
    at_the_beginning: int
    completed: int
    given_up: int
    lost: int
    placed: int
    running: int
    waiting: int


class WhatIfWaiting(TypedDict):
    """VMs of a tenant and a size that wait at the end."""

    demand: dict[str, int]
    longest_wait_s: float
    tenant: str
    vms: int


class WhatIfWaits(TypedDict):
    """How long VMs that were placed waited, in seconds; null: none was."""

    max: float | None
    mean: float | None
    mean_so_far: NotRequired[float | None]
    p50: float | None
    p90: float | None
