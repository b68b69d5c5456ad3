"""The tables, for SQLite and PostgreSQL alike; `registry.ledger.triggers` has the triggers."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Computed,
    Date,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    and_,
    false,
    literal_column,
    select,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import JSONB

from registry.db.clock import UtcDateTime
from registry.db.exact_decimal import ExactDecimal
from registry.lifecycle import (
    FINISHED,
    WITH_VM,
    WITHOUT_FILE,
    AssignmentState,
    ConsoleState,
    CopyState,
    FenceState,
    HostAdmin,
    HostHealth,
    ImageState,
    MoveState,
    PlanState,
    PowerState,
    RequestState,
    ReservationState,
    RollPhase,
    RollState,
    SlotLoopState,
    VmDesired,
    VmObserved,
    VolumeState,
    WhatIfState,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Json = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
# SQLite numbers rows by itself only where the type is INTEGER; it has 64 bits there.
Serial = BigInteger().with_variant(Integer(), "sqlite")
# Sorted as SQLite and Python sort, whatever the locale of the cluster: pages and rounds
# take names in this order.
Name = String(63).with_variant(String(63, collation="C"), "postgresql")
#: The name of a resource, "vms", or one of both as borrowed VMs have it: "borrowed:vcpus".
UsageName = String(63).with_variant(String(72, collation="C"), "postgresql")
State = String(20)


def _listed(states: Iterable[StrEnum]) -> str:
    """Return states as a list in SQL, in parentheses."""
    return "({})".format(", ".join(f"'{state.value}'" for state in states))


def _state_check(column: str, states: Iterable[StrEnum]) -> CheckConstraint:
    """Return the constraint that a column has one of the states of an enumeration."""
    return CheckConstraint(f"{column} IN {_listed(states)}", name=f"{column}_known")


def _partial_index(condition: str) -> dict[str, Any]:
    """Return an index's arguments that limit it to rows with a condition, for both databases."""
    where = text(condition)
    return {"sqlite_where": where, "postgresql_where": where}


def _index_unless(states: Iterable[StrEnum], column: str) -> dict[str, Any]:
    """Return an index's arguments that leave out rows in these states."""
    return _partial_index(f"{column} NOT IN {_listed(states)}")


def _trigger_checked_key(columns: list[str], of: list[str]) -> ForeignKeyConstraint:
    """Return a foreign key for SQLite only; on PostgreSQL the ledger's triggers check the same."""
    constraint = ForeignKeyConstraint(columns, of, info={"only_on": "sqlite"})
    return constraint.ddl_if(dialect="sqlite")


resources = Table(
    "resources",
    metadata,
    Column("name", Name, primary_key=True),
    Column("unit", String(32), nullable=False),
    Column("position", Integer, nullable=False, unique=True),
    Column("overhead_per_vm", BigInteger, nullable=False, server_default="0"),
)

#: One row: the revision that code has to know to be served by this schema.
schema_serves = Table("schema_serves", metadata, Column("code_since", String(32), primary_key=True))

_MISSED = text("missed_polls > 0")

hosts = Table(
    "hosts",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Name, nullable=False),
    Column("uri", Text, nullable=False),
    Column("credential", Name),
    Column("ssh_host_keys", Json, nullable=False, server_default="[]"),
    Column("admin", State, nullable=False),
    Column("health", State, nullable=False),
    Column("labels", Json, nullable=False),
    # As its label says, for who asks which hosts see one pool.
    Column("shared_pool", String(128)),
    Column("version", BigInteger, nullable=False, server_default="1"),
    Column("domain_type", String(16), nullable=False),
    Column("pool", Text, nullable=False),
    Column("network", Text, nullable=False),
    Column("base_volume", Text),
    Column("memory_backing_mib", BigInteger),
    Column("max_builds", Integer, nullable=False),
    Column("last_polled_at", UtcDateTime),
    Column("last_error", Text),
    Column("missed_polls", Integer, nullable=False, server_default="0"),
    Column("last_missed_at", UtcDateTime),
    Column("failed_builds", Integer, nullable=False, server_default="0"),
    Column("backoff_until", UtcDateTime),
    Column("created_at", UtcDateTime, nullable=False),
    Column("fence_target", Text),
    Column("returning_since", UtcDateTime),
    # Of the machine that is the host, and of another one that answers in its place.
    Column("machine_uuid", String(36)),
    Column("found_machine_uuid", String(36)),
    # The host that its machine is already: this one gets no VMs, and none of it counts.
    Column("same_machine_as", Uuid),
    # Its storage has not answered since then; its guests run.
    Column("pool_silent_since", UtcDateTime),
    # What confines guests, and whether processors are shared out; none: not reported yet.
    Column("security_model", String(32)),
    Column("shares_kept", Boolean(create_constraint=False)),
    Column("can_filter", Boolean(create_constraint=False)),
    # What operators call its machine, what that calls itself, and another one in its place.
    Column("machine_label", String(128)),
    Column("machine_name", String(255)),
    Column("machine_domain", String(255)),
    Column("found_machine_name", String(255)),
    # Polls that failed since that one answered.
    Column("found_missed_polls", Integer, nullable=False, server_default="0"),
    _state_check("admin", HostAdmin),
    _state_check("health", HostHealth),
    CheckConstraint("max_builds >= 1", name="max_builds_positive"),
    # A retired host's name and URI may come back as a new host.
    Index("uq_hosts_name", "name", unique=True, **_index_unless([HostAdmin.RETIRED], "admin")),
    Index("uq_hosts_uri", "uri", unique=True, **_index_unless([HostAdmin.RETIRED], "admin")),
    Index("ix_hosts_missed", "id", sqlite_where=_MISSED, postgresql_where=_MISSED),
    Index(
        "ix_hosts_machine_label",
        "machine_uuid",
        "machine_label",
        **_partial_index("machine_uuid IS NOT NULL"),
    ),
    Index(
        "ix_hosts_machine_name",
        "machine_uuid",
        "machine_name",
        **_partial_index("machine_uuid IS NOT NULL"),
    ),
    Index("ix_hosts_shared_pool", "shared_pool", **_partial_index("shared_pool IS NOT NULL")),
)

_OFFERED = "(coalesce(override, detected, 0) - reserved - foreign_amount)"

inventories = Table(
    "inventories",
    metadata,
    Column("host_id", Uuid, ForeignKey("hosts.id"), primary_key=True),
    Column("resource", Name, ForeignKey("resources.name"), primary_key=True),
    Column("detected", BigInteger),
    Column("override", BigInteger),
    Column("reserved", BigInteger, nullable=False, server_default="0"),
    Column("foreign_amount", BigInteger, nullable=False, server_default="0"),
    Column("ratio_thousandths", BigInteger, nullable=False, server_default="1000"),
    Column("own_ratio_thousandths", BigInteger),
    Column("committed", BigInteger, nullable=False, server_default="0"),
    Column(
        "capacity",
        BigInteger,
        Computed(
            f"CASE WHEN {_OFFERED} > 0 THEN {_OFFERED} * ratio_thousandths / 1000 ELSE 0 END",
            persisted=True,
        ),
    ),
    CheckConstraint(
        "(detected IS NULL OR detected >= 0) AND (override IS NULL OR override >= 0)"
        " AND reserved >= 0 AND foreign_amount >= 0 AND ratio_thousandths >= 1"
        " AND committed >= 0",
        name="amounts_not_negative",
    ),
)

label_ratios = Table(
    "label_ratios",
    metadata,
    Column("label", String(128), primary_key=True),
    Column("resource", Name, ForeignKey("resources.name"), primary_key=True),
    Column("ratio_thousandths", BigInteger, nullable=False),
    CheckConstraint("ratio_thousandths >= 1", name="ratio_positive"),
)

host_reports = Table(
    "host_reports",
    metadata,
    Column("host_id", Uuid, ForeignKey("hosts.id"), primary_key=True),
    Column("report", Json, nullable=False),
    Column("polled_at", UtcDateTime, nullable=False),
)

# Of hosts that are down, and of which it is to be proven that they are off.
host_fences = Table(
    "host_fences",
    metadata,
    Column("host_id", Uuid, ForeignKey("hosts.id"), primary_key=True),
    Column("state", State, nullable=False),
    Column("requested_by", Text, nullable=False),
    Column("requested_at", UtcDateTime, nullable=False),
    Column("epoch", BigInteger),  # of the control centre that requested it; none: an operator did
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("last_error", Text),
    Column("retry_at", UtcDateTime),
    Column("fenced_at", UtcDateTime),
    Column("sent_at", UtcDateTime),
    Column("lease_token", Uuid),
    Column("lease_owner", Text),
    Column("lease_until", UtcDateTime),
    _state_check("state", FenceState),
)

strangers = Table(
    "strangers",
    metadata,
    Column("host_id", Uuid, ForeignKey("hosts.id"), primary_key=True),
    Column("domain_uuid", Uuid, primary_key=True),
    Column("name", Text, nullable=False),
    Column("first_seen_at", UtcDateTime, nullable=False),
)

leftovers = Table(
    "leftovers",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("host_id", Uuid, ForeignKey("hosts.id"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("name", Text, nullable=False),
    Column("vm_uuid", Uuid),
    Column("assignment_id", Uuid),  # no foreign key: it may be unknown here
    Column("lease_token", Uuid),
    Column("lease_owner", Text),
    Column("lease_until", UtcDateTime),
    Column("sent_at", UtcDateTime),
    Column("found_at", UtcDateTime, nullable=False),
    Column("requested_by", Text),  # of what goes on an operator's word alone
    Column("last_error", Text),
    UniqueConstraint("host_id", "kind", "name"),
    CheckConstraint("kind IN ('domain', 'volume')", name="kind_known"),
)

vm_types = Table(
    "vm_types",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Name, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    # What its VMs may take of their host at most; no resource: nothing of it is counted.
    Column("limits", Json, nullable=False, server_default="{}"),
    UniqueConstraint("name", "revision"),
)

vm_type_resources = Table(
    "vm_type_resources",
    metadata,
    Column("vm_type_id", Uuid, ForeignKey("vm_types.id"), primary_key=True),
    Column("resource", Name, ForeignKey("resources.name"), primary_key=True),
    Column("amount", BigInteger, nullable=False),
    CheckConstraint("amount >= 1", name="amount_positive"),
)

tenants = Table(
    "tenants",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Name, nullable=False, unique=True),
    Column("weight", Float(53), nullable=False),
    Column("parent_id", Uuid, ForeignKey("tenants.id")),
    Column("created_at", UtcDateTime, nullable=False),
    # Groups share out what their tenants get, and ask for nothing themselves.
    Column("is_group", Boolean(create_constraint=False), nullable=False, server_default=false()),
    Column("removed_at", UtcDateTime),
    # What becomes of requests above a quota; none: as the group above says.
    Column("over_quota", String(16)),
    CheckConstraint("weight > 0", name="weight_positive"),
)

# Of a resource, or of "vms", their number. A group's counts for all below it together.
quotas = Table(
    "quotas",
    metadata,
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), primary_key=True),
    Column("resource", Name, primary_key=True),
    Column("amount", BigInteger, nullable=False),
    # Given when the tenant was made, as the setting then said; setting it removes that mark.
    Column("by_default", Boolean(create_constraint=False), nullable=False, server_default=false()),
    CheckConstraint("amount >= 0", name="amount_not_negative"),
)

ssh_keys = Table(
    "ssh_keys",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), nullable=False),
    Column("name", Name, nullable=False),
    Column("public_key", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    UniqueConstraint("tenant_id", "name"),
)

requests = Table(
    "requests",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Name, nullable=False),
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), nullable=False),
    Column("vm_type_id", Uuid, ForeignKey("vm_types.id"), nullable=False),
    Column("count", Integer, nullable=False),
    Column("min_count", Integer, nullable=False),
    Column("requires", Json, nullable=False),
    Column("hosts", Json),
    Column("forbids", Json, nullable=False, server_default="[]"),
    Column("prefers", Json, nullable=False, server_default="[]"),
    Column("zone", String(128)),
    Column("spread", State),
    Column("priority", Integer, nullable=False, server_default="0"),
    Column("spot", Boolean(create_constraint=False), nullable=False, server_default=false()),
    # Of an elastic request: the VMs beyond `count` are borrowed.
    Column("max_count", Integer),
    # Names of the volumes that it brings; names and sizes of those that it creates for each VM.
    Column("volumes", Json, nullable=False, server_default="[]"),
    Column("new_volumes", Json, nullable=False, server_default="[]"),
    # On whose room it draws: without a foreign key, so that its end locks no requests.
    Column("reservation_id", Uuid),
    Column("state", State, nullable=False),
    Column("waiting", Json),
    Column("rounds_waited", Integer, nullable=False, server_default="0"),
    Column("labels", Json, nullable=False, server_default="{}"),
    Column("expires_at", UtcDateTime),
    Column("ending_since", UtcDateTime),  #: its time is over, and VMs of it end
    Column("hostname", String(253)),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    _state_check("state", RequestState),
    CheckConstraint("count >= 0 AND min_count >= 1", name="counts_not_negative"),
    Index(
        "uq_requests_tenant_id_name",
        "tenant_id",
        "name",
        unique=True,
        **_index_unless(FINISHED, "state"),
    ),
    Index(None, "tenant_id", "id"),
    Index(None, "name"),
    Index(None, "state"),
    Index(None, "state", "id"),
    Index(None, "expires_at"),
    Index("ix_requests_max_count", "max_count", **_partial_index("max_count IS NOT NULL")),
    Index(
        "ix_requests_reservation_id",
        "reservation_id",
        **_partial_index("reservation_id IS NOT NULL"),
    ),
)

# Apart from `requests`: user-data is large and secret, and no list reads it.
request_access = Table(
    "request_access",
    metadata,
    Column("request_id", Uuid, ForeignKey("requests.id"), primary_key=True),
    Column("ssh_keys", Json, nullable=False),
    Column("user_data", LargeBinary),
    Column("user_data_bytes", Integer, nullable=False),
    Column("user_data_sha256", String(64), nullable=False),
    Column("user_data_ignored", Text),  # why cloud-init will ignore it
)

# VMs of a tenant that keep apart or together; its lock is held while they are placed.
vm_groups = Table(
    "vm_groups",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), nullable=False),
    Column("name", Name, nullable=False),
    Column("apart", Boolean(create_constraint=False), nullable=False),
    Column("hard", Boolean(create_constraint=False), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    UniqueConstraint("tenant_id", "name"),
)

request_groups = Table(
    "request_groups",
    metadata,
    Column("request_id", Uuid, ForeignKey("requests.id"), primary_key=True),
    Column("group_id", Uuid, ForeignKey("vm_groups.id"), primary_key=True),
    Index(None, "group_id"),
)

_UNPLACED: dict[str, Any] = _partial_index("observed = 'absent' AND desired <> 'deleted'")
_THERE: dict[str, Any] = _partial_index("deleted_at IS NULL")

vms = Table(
    "vms",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", String(80), nullable=False),
    Column("request_id", Uuid, ForeignKey("requests.id"), nullable=False),
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), nullable=False),
    Column("desired", State, nullable=False),
    Column("observed", State, nullable=False),
    Column("generation", Integer, nullable=False, server_default="0"),
    Column("last_error", Text),
    Column("created_at", UtcDateTime, nullable=False),
    Column("deleted_at", UtcDateTime),
    Column("switched_at", UtcDateTime),
    # The guest paused by itself: set while `observed` is running and its host says so.
    Column("paused_since", UtcDateTime),
    Column("hostname", String(253)),
    Column("labels", Json, nullable=False, server_default="{}"),
    # As its request has it, so that an index finds the spot VMs that exist.
    Column("spot", Boolean(create_constraint=False), nullable=False, server_default=false()),
    # One beyond its request's `count`: it ends for tenants with smaller shares.
    Column("borrowed", Boolean(create_constraint=False), nullable=False, server_default=false()),
    _state_check("desired", VmDesired),
    _state_check("observed", VmObserved),
    Index(None, "request_id", "id"),
    Index(None, "tenant_id", "id"),
    Index(None, "name"),
    # Deleted rows stay for good: queries for those that exist, or lack a place, find
    # it in these, at the same cost after years.
    Index("ix_vms_request_id_unplaced", "request_id", "id", **_UNPLACED),
    Index("ix_vms_id_live", "id", **_THERE),
    Index("ix_vms_deleted_at", "deleted_at", **_partial_index("deleted_at IS NOT NULL")),
    Index("ix_vms_id_spot", "id", **_partial_index("spot AND deleted_at IS NULL")),
    Index("ix_vms_id_borrowed", "id", **_partial_index("borrowed AND deleted_at IS NULL")),
    Index("ix_vms_tenant_id_live", "tenant_id", "id", **_THERE),
    Index(
        "uq_vms_tenant_id_name",
        "tenant_id",
        "name",
        unique=True,
        **_index_unless([VmDesired.DELETED], "desired"),
    ),
    # Room for what a round and a start write to a row, so that its indexes stay as they are.
    postgresql_with={"fillfactor": 50},
)

# Spot and borrowed VMs whose end was announced to their tenants, and the request that needs the
# room. Without foreign keys, as the next: for them a round would lock VMs other than those that it
# places, in no order with these.
spot_preemptions = Table(
    "spot_preemptions",
    metadata,
    Column("vm_id", Uuid, primary_key=True),
    Column("host_id", Uuid, nullable=False),
    Column("request_id", Uuid, nullable=False),
    Column("for_tenant", Name, nullable=False),
    Column("for_request", Name, nullable=False),
    Column("round", BigInteger, nullable=False),
    Column("ends_at", UtcDateTime, nullable=False),
)

# When VMs were borrowed, for usage; without an end they still are, or were until they were gone.
borrowed_times = Table(
    "borrowed_times",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("vm_id", Uuid, nullable=False),
    Column("since", UtcDateTime, nullable=False),
    Column("until", UtcDateTime),
    Index(None, "vm_id"),
)

# The room that spot and borrowed VMs leave, or left: for a number of VMs of a request, until some
# time.
spot_room_holds = Table(
    "spot_room_holds",
    metadata,
    Column("request_id", Uuid, primary_key=True),
    Column("host_id", Uuid, primary_key=True),
    Column("count", Integer, nullable=False),
    Column("until", UtcDateTime, nullable=False),
    CheckConstraint("count >= 1", name="count_positive"),
)

# Room that a tenant will have from a time on.
reservations = Table(
    "reservations",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Name, nullable=False),
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), nullable=False),
    Column("vm_type_id", Uuid, ForeignKey("vm_types.id"), nullable=False),
    Column("count", Integer, nullable=False),
    Column("requires", Json, nullable=False),
    Column("keep_from", UtcDateTime, nullable=False),
    Column("starts_at", UtcDateTime, nullable=False),
    Column("ends_at", UtcDateTime, nullable=False),
    Column("state", State, nullable=False),
    # VMs that were placed for requests that draw on it: written by rounds alone.
    Column("used", Integer, nullable=False, server_default="0"),
    # VMs for which the latest round found no room, once room is kept.
    Column("short", Integer, nullable=False, server_default="0"),
    Column("decision", Json),
    Column("requested_by", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("decided_at", UtcDateTime),
    _state_check("state", ReservationState),
    CheckConstraint("count >= 1 AND used >= 0 AND short >= 0", name="counts_not_negative"),
    CheckConstraint("keep_from <= starts_at AND starts_at < ends_at", name="times_in_order"),
    Index(
        "uq_reservations_tenant_id_name",
        "tenant_id",
        "name",
        unique=True,
        **_partial_index("state IN ('pending', 'accepted', 'in_force')"),
    ),
    Index(None, "tenant_id", "id"),
    Index(
        "ix_reservations_open",
        "state",
        **_partial_index("state IN ('pending', 'accepted', 'in_force')"),
    ),
)

# Where rounds keep it: for a number of VMs on a host. Without foreign keys, as `spot_room_holds`.
reservation_holds = Table(
    "reservation_holds",
    metadata,
    Column("reservation_id", Uuid, primary_key=True),
    Column("host_id", Uuid, primary_key=True),
    Column("count", Integer, nullable=False),
    CheckConstraint("count >= 1", name="count_positive"),
)

# A pending power change of a VM: the row is the workers' message.
power_actions = Table(
    "power_actions",
    metadata,
    Column("vm_id", Uuid, ForeignKey("vms.id"), primary_key=True),
    Column("state", State, nullable=False),
    Column("requested_by", Text, nullable=False),
    Column("requested_at", UtcDateTime, nullable=False),
    Column("timeout_s", Integer, nullable=False),
    Column("force_at", UtcDateTime),
    Column("signalled_at", UtcDateTime),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("last_error", Text),
    Column("due_at", UtcDateTime, nullable=False),
    Column("sent_at", UtcDateTime),
    Column("lease_token", Uuid),
    Column("lease_owner", Text),
    Column("lease_until", UtcDateTime),
    _state_check("state", PowerState),
    CheckConstraint("timeout_s >= 0", name="timeout_not_negative"),
)

networks = Table(
    "networks",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Name, nullable=False, unique=True),
    Column("kind", String(16)),
    Column("source", Text),
    Column("cidr", String(18)),
    Column("gateway", String(15)),
    Column("dns", Json, nullable=False),
    Column("excluded", Json, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    # A process of before adds networks that everybody may use, and whose guests meet.
    Column(
        "offered_to_all", Boolean(create_constraint=False), nullable=False, server_default=true()
    ),
    Column("isolated", Boolean(create_constraint=False), nullable=False, server_default=false()),
    Column("filtered", Boolean(create_constraint=False), nullable=False, server_default=true()),
    CheckConstraint("kind IN ('network', 'bridge')", name="kind_known"),
)

# Tenants and groups that may use a network; one of them may own it, and is then the only one.
network_offers = Table(
    "network_offers",
    metadata,
    Column("network_id", Uuid, ForeignKey("networks.id"), primary_key=True),
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), primary_key=True),
    Column("owns", Boolean(create_constraint=False), nullable=False),
    Index(None, "tenant_id"),
)

network_hosts = Table(
    "network_hosts",
    metadata,
    Column("network_id", Uuid, ForeignKey("networks.id"), primary_key=True),
    Column("host_id", Uuid, ForeignKey("hosts.id"), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("source", Text, nullable=False),
    CheckConstraint("kind IN ('network', 'bridge')", name="kind_known"),
)

# What hosts called a network before it was mapped again, for VMs that are still attached to it.
network_former_sources = Table(
    "network_former_sources",
    metadata,
    # A process of an earlier release removes networks without their rows here.
    Column("network_id", Uuid, ForeignKey("networks.id", ondelete="CASCADE"), primary_key=True),
    Column("host_id", Uuid, ForeignKey("hosts.id"), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("source", Text, primary_key=True),
    # The newest assignment there that may be attached to it was created then.
    Column("placed_until", UtcDateTime, nullable=False),
    CheckConstraint("kind IN ('network', 'bridge')", name="kind_known"),
)

request_networks = Table(
    "request_networks",
    metadata,
    Column("request_id", Uuid, ForeignKey("requests.id"), primary_key=True),
    Column("network_id", Uuid, ForeignKey("networks.id"), nullable=False),
    Index(None, "network_id"),
)

interfaces = Table(
    "interfaces",
    metadata,
    Column("vm_id", Uuid, ForeignKey("vms.id"), primary_key=True),
    Column("mac", String(17), nullable=False, unique=True),
    Column("network_id", Uuid, ForeignKey("networks.id")),
    Index(None, "network_id"),
)

# A row for each address that a network offers, used or not: none is given twice.
network_addresses = Table(
    "network_addresses",
    metadata,
    Column("network_id", Uuid, ForeignKey("networks.id"), primary_key=True),
    Column("address", BigInteger, primary_key=True, autoincrement=False),
    Column("vm_id", Uuid, ForeignKey("vms.id")),
    UniqueConstraint("vm_id"),
)

console_reads = Table(
    "console_reads",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("vm_id", Uuid, ForeignKey("vms.id"), nullable=False),
    Column("max_bytes", Integer, nullable=False),
    Column("after", BigInteger, nullable=False),
    Column("requested_at", UtcDateTime, nullable=False),
    Column("answered_at", UtcDateTime),
    Column("content", LargeBinary),
    Column("end_at", BigInteger),
    Column("error", Text),
    Index(None, "requested_at"),
)

# Who types on a console. While it is not over the row is the workers' message.
console_sessions = Table(
    "console_sessions",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("vm_id", Uuid, ForeignKey("vms.id"), nullable=False),
    Column("state", String(16), nullable=False),
    Column("forced", Boolean(create_constraint=False), nullable=False),
    Column("opened_at", UtcDateTime, nullable=False),
    Column("heartbeat_at", UtcDateTime, nullable=False),
    Column("sent_at", UtcDateTime),
    Column("reason", Text),
    Column("next_input", BigInteger, nullable=False),
    Column("output_end", BigInteger, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("lease_owner", Text),
    Column("lease_until", UtcDateTime),
    _state_check("state", ConsoleState),
    Index(
        "uq_console_sessions_vm_id",
        "vm_id",
        unique=True,
        **_index_unless([ConsoleState.ENDED], "state"),
    ),
    Index(None, "heartbeat_at"),
)

# What was typed and did not reach the guest yet: deleted as a worker takes it.
console_inputs = Table(
    "console_inputs",
    metadata,
    Column("session_id", Uuid, ForeignKey("console_sessions.id"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("content", LargeBinary, nullable=False),
)

# Unread output of the guest: deleted as it is read, the oldest first.
console_outputs = Table(
    "console_outputs",
    metadata,
    Column("session_id", Uuid, ForeignKey("console_sessions.id"), primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("content", LargeBinary, nullable=False),
)

rounds = Table(
    "rounds",
    metadata,
    Column("number", Serial, primary_key=True, autoincrement=True),
    Column("holder", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("slot_start_at", UtcDateTime, nullable=False),
    Column("slot_length_s", Float(53), nullable=False),
    Column("policy", String(63), nullable=False),
    Column("decided_by", String(16), nullable=False),
    Column("fallback_reason", Text),
    Column("parameters", Json, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("engine_version", String(63), nullable=False),
    Column("budget_units", BigInteger),
    Column("work", BigInteger, nullable=False),
    Column("cut", Boolean(create_constraint=False), nullable=False),
    Column("inputs_digest", String(128), nullable=False),
    Column("shares", Json, nullable=False),
    Column("bound", Float(53)),
    Column("fair_distance", Float(53)),
    Column("group_shares", Json, nullable=False, server_default="[]"),
    Column("timings", Json, nullable=False),
    Column("placed", Integer, nullable=False),
    Column("left_out", Integer, nullable=False),
    Column("dropped", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("prices", Json),  # NULL: of a round from before, or not known
    Column("memory", Json),  # NULL: the round counted no past holdings
    CheckConstraint("decided_by IN ('policy', 'fallback')", name="decided_by_known"),
    sqlite_autoincrement=True,
)

# What each tenant and group held in the past: amounts by resource, the past ones in millionths.
past_holdings = Table(
    "past_holdings",
    metadata,
    Column("owner_id", Uuid, primary_key=True),
    Column("past", Json, nullable=False),
    Column("charged", Json, nullable=False),
    Column("at_us", BigInteger, nullable=False),  # of the database's clock, since 1970
)

# Apart from `rounds`: it is large, and is purged sooner.
round_inputs = Table(
    "round_inputs",
    metadata,
    Column("round", Serial, ForeignKey("rounds.number"), primary_key=True, autoincrement=False),
    Column("outcome", Json),  # of rounds from before it was packed
    Column("inputs", LargeBinary, nullable=False),
    Column("packed_outcome", LargeBinary),
    CheckConstraint("(outcome IS NULL) <> (packed_outcome IS NULL)", name="outcome_once"),
)

# What rounds disclosed, as digests; no key refers to rounds, which may go before or after.
round_hash_chain = Table(
    "round_hash_chain",
    metadata,
    Column("round", Serial, primary_key=True, autoincrement=False),
    Column("previous", String(64), nullable=False),
    Column("content", String(64), nullable=False),
    Column("link", String(64), nullable=False),
    Column("record", String(64), nullable=False),  # the leaf of what no tenant sees
    Column("salt", LargeBinary, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    # The pool and what each tenant held, packed. NULL: leaves and content are of version 1.
    Column("holdings", LargeBinary),
    Column("signed_by", String(64)),  # the public key; NULL: not signed
    Column("signature", String(128)),
)

# The site's public keys; one at most has no last round.
site_keys = Table(
    "site_keys",
    metadata,
    Column("public_key", String(64), primary_key=True),
    Column("first_round", BigInteger, nullable=False),
    Column("last_round", BigInteger),
    Column("endorsement", String(128)),  # signature of the key before it
    Column("created_at", UtcDateTime, nullable=False),
)

# What a second policy would have decided on the inputs of a round.
shadow_rounds = Table(
    "shadow_rounds",
    metadata,
    Column("round", Serial, ForeignKey("rounds.number"), primary_key=True, autoincrement=False),
    Column("policy", String(63), nullable=False),
    Column("parameters", Json, nullable=False),
    Column("error", Text),
    Column("seconds", Float(53)),
    Column("cut", Boolean(create_constraint=False), nullable=False),
    Column("decided", Json),
    Column("first", Json),  # what the round itself decided, measured in the same way
    Column("agreed", Integer),
    Column("shares", Json, nullable=False),
    Column("skipped", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    CheckConstraint("(error IS NULL) = (decided IS NOT NULL)", name="decided_or_failed"),
)

images = Table(
    "images",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Name, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("state", State, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("format", String(8), nullable=False),
    Column("seed_kind", String(16), nullable=False),
    Column("min_memory_mib", BigInteger, nullable=False),
    # Known once the content is there.
    Column("size_bytes", BigInteger),
    Column("virtual_size_bytes", BigInteger),
    Column("source", Text, nullable=False),
    Column("received_bytes", BigInteger, nullable=False, server_default="0"),
    Column("last_error", Text),
    Column("lease_token", Uuid),
    Column("lease_owner", Text),
    Column("lease_until", UtcDateTime),
    Column("sent_at", UtcDateTime),
    Column("created_at", UtcDateTime, nullable=False),
    Column("removed_at", UtcDateTime),
    # Given with a URL; a worker checks it.
    Column("signature", Text),
    Column("signed_by", Text),
    # While set, it is brought to no host.
    Column("held_at", UtcDateTime),
    Column("held_reason", Text),
    _state_check("state", ImageState),
    CheckConstraint("format IN ('qcow2', 'raw')", name="format_known"),
    CheckConstraint("seed_kind IN ('none', 'nocloud')", name="seed_kind_known"),
    CheckConstraint("length(sha256) = 64", name="sha256_whole"),
    CheckConstraint("revision >= 1 AND min_memory_mib >= 0", name="amounts_not_negative"),
    CheckConstraint(
        "state <> 'ready' OR (size_bytes >= 1 AND virtual_size_bytes >= 1)", name="sizes_known"
    ),
    UniqueConstraint("name", "revision"),
    Index(None, "state"),
)

# Apart from `requests`: most installations' older requests have none, and their VMs rest on
# what their hosts name.
request_images = Table(
    "request_images",
    metadata,
    Column("request_id", Uuid, ForeignKey("requests.id"), primary_key=True),
    Column("image_id", Uuid, ForeignKey("images.id"), nullable=False),
    Index(None, "image_id"),
)

image_copies = Table(
    "image_copies",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("host_id", Uuid, ForeignKey("hosts.id"), nullable=False),
    Column("image_id", Uuid, ForeignKey("images.id"), nullable=False),
    Column("state", State, nullable=False),
    Column("disk_gib", BigInteger, nullable=False),
    Column("volume", Text),
    Column("uploaded_bytes", BigInteger, nullable=False, server_default="0"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("interruptions", Integer, nullable=False, server_default="0"),
    Column("last_error", Text),
    Column("lease_token", Uuid),
    Column("lease_owner", Text),
    Column("lease_until", UtcDateTime),
    Column("sent_at", UtcDateTime),
    Column("present_at", UtcDateTime),
    Column("created_at", UtcDateTime, nullable=False),
    # When its host stopped answering with this on its way to it.
    Column("host_lost_at", UtcDateTime),
    _state_check("state", CopyState),
    CheckConstraint("disk_gib >= 1 AND uploaded_bytes >= 0", name="amounts_not_negative"),
    UniqueConstraint("host_id", "image_id"),
    Index(None, "image_id"),
    Index(None, "state"),
)

_LIVE: dict[str, Any] = _partial_index("state <> 'released'")
_NO_PLACE = "('released', 'arriving', 'leaving')"
_PLACE: dict[str, Any] = _partial_index(f"state NOT IN {_NO_PLACE}")
_ARRIVING: dict[str, Any] = _partial_index("state = 'arriving'")
_LEAVING: dict[str, Any] = _partial_index("state = 'leaving'")
_CLAIMED: dict[str, Any] = _partial_index("lease_until IS NOT NULL")
_UNSUMMED: dict[str, Any] = _partial_index("state = 'released' AND NOT in_daily_usage")
_SUMMED: dict[str, Any] = _partial_index("state = 'released' AND in_daily_usage")

assignments = Table(
    "assignments",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("vm_id", Uuid, ForeignKey("vms.id"), nullable=False),
    Column("host_id", Uuid, ForeignKey("hosts.id"), nullable=False),
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), nullable=False),
    Column("round", Serial, ForeignKey("rounds.number"), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("disk_generation", Integer),  # null: its own; of a VM that moved where its disk is from
    # Whose name its disk carries, in a shared pool; null: its own.
    Column("disk_of", Uuid),
    Column("state", State, nullable=False),
    Column("lease_token", Uuid),
    Column("lease_owner", Text),
    Column("lease_until", UtcDateTime),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("last_error", Text),
    Column("sent_at", UtcDateTime),
    Column("created_at", UtcDateTime, nullable=False),
    Column("build_began_at", UtcDateTime),
    Column("activated_at", UtcDateTime),
    Column("released_at", UtcDateTime),
    # Added to `daily_usage` after its release.
    Column(
        "in_daily_usage", Boolean(create_constraint=False), nullable=False, server_default=false()
    ),
    _state_check("state", AssignmentState),
    UniqueConstraint("vm_id", "generation"),
    UniqueConstraint("id", "host_id"),
    # A VM is at one place; while it moves it arrives at another, or leaves one behind.
    Index("uq_assignments_vm_id_place", "vm_id", unique=True, **_PLACE),
    Index("uq_assignments_vm_id_arriving", "vm_id", unique=True, **_ARRIVING),
    Index("uq_assignments_vm_id_leaving", "vm_id", unique=True, **_LEAVING),
    Index("ix_assignments_host_id_unreleased", "host_id", **_LIVE),
    Index("ix_assignments_state_unreleased", "state", **_LIVE),
    # Few of them have a claim at a time.
    Index("ix_assignments_lease_until", "lease_until", **_CLAIMED),
    # Few disks carry another's name.
    Index("ix_assignments_disk_of", "disk_of", **_partial_index("disk_of IS NOT NULL")),
    Index(None, "round"),
    Index("ix_assignments_released_at_unsummed", "released_at", **_UNSUMMED),
    Index("ix_assignments_tenant_id_released_at_summed", "tenant_id", "released_at", **_SUMMED),
)

# Disks in shared pools whose VMs lost their host: where these start next they find them.
preserved_disks = Table(
    "preserved_disks",
    metadata,
    Column("vm_id", Uuid, ForeignKey("vms.id"), primary_key=True),
    Column("shared_pool", String(128), nullable=False),
    Column("disk_of", Uuid, nullable=False),  # the assignment whose name it carries
    Column("disk_generation", Integer, nullable=False),
    Column("kept_at", UtcDateTime, nullable=False),
    Index(None, "disk_of"),
)

# Disks that outlive VMs: while a worker has to change one, the row is its message. What a volume
# holds on its host, the ledger's triggers add to what is committed there.
volumes = Table(
    "volumes",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), nullable=False),
    Column("name", Name, nullable=False),
    Column("size_gib", BigInteger, nullable=False),
    Column("protected", Boolean(create_constraint=False), nullable=False, server_default=false()),
    Column("state", State, nullable=False),
    # Whose pool has the file; null: none.
    Column("host_id", Uuid, ForeignKey("hosts.id")),
    Column("vm_id", Uuid, ForeignKey("vms.id")),
    Column("assignment_id", Uuid, ForeignKey("assignments.id")),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("last_error", Text),
    # Until when a guest may take to release the disk.
    Column("detach_until", UtcDateTime),
    Column("due_at", UtcDateTime, nullable=False),
    Column("sent_at", UtcDateTime),
    Column("lease_token", Uuid),
    Column("lease_owner", Text),
    Column("lease_until", UtcDateTime),
    Column("created_at", UtcDateTime, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),  # its state
    Column("removed_at", UtcDateTime),
    # Created with the request of its VM, with which it ends as long as it never had a file.
    Column(
        "created_by_request",
        Boolean(create_constraint=False),
        nullable=False,
        server_default=false(),
    ),
    # The VM whose request brings it, until it is attached there. No VM that is gone has any.
    Column("bound_vm_id", Uuid),
    _state_check("state", VolumeState),
    CheckConstraint("size_gib >= 1", name="size_positive"),
    CheckConstraint(
        f"(host_id IS NULL) = (state IN {_listed(WITHOUT_FILE)})", name="host_has_file"
    ),
    CheckConstraint(
        f"(assignment_id IS NOT NULL) = (state IN {_listed(WITH_VM)})", name="vm_attached"
    ),
    CheckConstraint("(vm_id IS NULL) = (assignment_id IS NULL)", name="vm_placed"),
    CheckConstraint("(removed_at IS NOT NULL) = (state = 'removed')", name="end_known"),
    Index(
        "uq_volumes_tenant_id_name",
        "tenant_id",
        "name",
        unique=True,
        **_partial_index("state <> 'removed'"),
    ),
    Index("ix_volumes_host_id", "host_id", **_partial_index("host_id IS NOT NULL")),
    Index("ix_volumes_vm_id", "vm_id", **_partial_index("vm_id IS NOT NULL")),
    Index("ix_volumes_assignment_id", "assignment_id", **_partial_index("vm_id IS NOT NULL")),
    Index("ix_volumes_bound_vm_id", "bound_vm_id", **_partial_index("bound_vm_id IS NOT NULL")),
    Index("ix_volumes_removed_at", "removed_at", **_partial_index("removed_at IS NOT NULL")),
    Index(None, "state"),
)

# With literals, so that SQLite can prove that a partial index serves the query.
unreleased = assignments.c.state != literal_column("'released'")


def is_vm_place(table: Any) -> ColumnElement[bool]:
    """Return the condition that an assignment is where its VM is; ``table`` may be an alias."""
    column: ColumnElement[Any] = table.c.state
    return column.op("NOT IN", is_comparison=True)(literal_column(_NO_PLACE))


is_place = is_vm_place(assignments)
#: A VM that moves counts at both ends for what VMs must not share.
stands = and_(unreleased, assignments.c.state != literal_column("'leaving'"))


def is_vm_arrival(table: Any) -> ColumnElement[bool]:
    """Return the condition that a VM moves to an assignment's host; ``table`` may be an alias."""
    column: ColumnElement[Any] = table.c.state
    return column == literal_column("'arriving'")


is_arriving = is_vm_arrival(assignments)

# VMs that move, or moved: while one is not over the row is the workers' message.
moves = Table(
    "moves",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("vm_id", Uuid, ForeignKey("vms.id"), nullable=False),
    # Left and arriving. Assignments are purged sooner than moves: no foreign keys.
    Column("from_id", Uuid, nullable=False),
    Column("to_id", Uuid, nullable=False),
    Column("from_host_id", Uuid, ForeignKey("hosts.id"), nullable=False),
    Column("to_host_id", Uuid, ForeignKey("hosts.id"), nullable=False),
    Column("state", State, nullable=False),
    Column("kind", String(8), nullable=False),
    Column("reason", Text, nullable=False),
    Column("requested_by", Text, nullable=False),
    Column("requested_at", UtcDateTime, nullable=False),
    Column("cancelled_by", Text),
    Column("began_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("downtime_ms", BigInteger),
    # The progress of a running one, as its worker last reported it.
    Column("total_bytes", BigInteger),
    Column("remaining_bytes", BigInteger),
    Column("rate_bytes_s", BigInteger),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("last_error", Text),
    Column("sent_at", UtcDateTime),
    Column("lease_token", Uuid),
    Column("lease_owner", Text),
    Column("lease_until", UtcDateTime),
    _state_check("state", MoveState),
    CheckConstraint("kind IN ('live', 'cold')", name="kind_known"),
    CheckConstraint("from_host_id <> to_host_id", name="another_host"),
    Index("ix_moves_state_open", "state", **_partial_index("state IN ('pending', 'moving')")),
    Index(None, "vm_id", "id"),
    Index(None, "from_host_id", "id"),
    Index(None, "to_host_id", "id"),
)

# Moves in waves, decided together. A pending or approved one is the control centre's work.
plans = Table(
    "plans",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("state", State, nullable=False),
    Column("arguments", Json, nullable=False),
    Column("requested_by", Text, nullable=False),
    Column("requested_at", UtcDateTime, nullable=False),
    Column("approve", Boolean(create_constraint=False), nullable=False),  # as soon as decided
    Column("approved_by", Text),
    Column("approved_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("before", Json),
    Column("after", Json),
    Column("stays", Json, nullable=False, server_default="[]"),
    Column("admitted", Json),  # of a plan that makes room: where, and what waits all the same
    Column("cut", Boolean(create_constraint=False), nullable=False, server_default=false()),
    Column("inputs", LargeBinary),
    Column("packed_plan", LargeBinary),
    Column("last_error", Text),
    Column("gain", Float(53)),  # of the potential, by balancing or packing
    _state_check("state", PlanState),
    CheckConstraint("kind IN ('evacuate', 'balance', 'pack', 'room', 'repair')", name="kind_known"),
    Index("ix_plans_state_open", "state", **_partial_index("state IN ('pending', 'approved')")),
    Index(None, "requested_by", "id"),
)

plan_moves = Table(
    "plan_moves",
    metadata,
    Column("plan_id", Uuid, ForeignKey("plans.id"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("wave", Integer, nullable=False),
    Column("vm_id", Uuid, ForeignKey("vms.id"), nullable=False),
    Column("from_host_id", Uuid, ForeignKey("hosts.id"), nullable=False),
    Column("to_host_id", Uuid, ForeignKey("hosts.id"), nullable=False),
    Column("why", String(16), nullable=False),
    Column("transfer_mib", BigInteger, nullable=False),
    Column("move_id", Uuid, ForeignKey("moves.id")),
    Column("refused", Text),
    Index(None, "move_id"),
)

# Hosts that an operator's command goes over, some at once.
rolls = Table(
    "rolls",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("state", State, nullable=False),
    Column("at_once", Integer, nullable=False),
    Column("checked", Integer, nullable=False),  # turns that were planned before it began
    Column("command", Text, nullable=False),
    Column("empty_within_s", Integer, nullable=False),
    Column("run_within_s", Integer, nullable=False),
    Column("up_within_s", Integer, nullable=False),
    Column("began_by", Text, nullable=False),
    Column("began_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Column("cancelled_by", Text),
    Column("last_error", Text),
    # The client that runs the command, its lease, and the lease's token.
    Column("driver", Text, nullable=False),
    Column("driver_token", Uuid, nullable=False),
    Column("driver_lease_until", UtcDateTime, nullable=False),
    _state_check("state", RollState),
    CheckConstraint("at_once >= 1", name="at_once_positive"),
)

roll_hosts = Table(
    "roll_hosts",
    metadata,
    Column("roll_id", Uuid, ForeignKey("rolls.id"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("host_id", Uuid, ForeignKey("hosts.id"), nullable=False),
    Column("turn", Integer, nullable=False),  # hosts of one turn go at once
    Column("phase", State, nullable=False),
    Column("since", UtcDateTime, nullable=False),  # it is in that phase, or was resumed there
    Column(
        "admin_before", State
    ),  # what its operator wanted of the host before; none: not its turn yet
    Column("plan_id", Uuid),  # no foreign key: plans are purged sooner
    Column("plans", Integer, nullable=False, server_default="0"),  # since it was begun or resumed
    Column("error", Text),  # it ended in that phase
    _state_check("phase", RollPhase),
    Index(None, "host_id"),
)

# Simulations of the site that operators ask for; the newest few are kept.
what_ifs = Table(
    "what_ifs",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("state", State, nullable=False),
    Column("arguments", Json, nullable=False),
    Column("requested_by", Text, nullable=False),
    Column("requested_at", UtcDateTime, nullable=False),
    Column("began_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("progress", Float(53), nullable=False),
    Column("cancelled_by", Text),
    Column("last_error", Text),
    Column("report", Json),
    # The API process that runs it, and until when it need not say so again.
    Column("executor_id", Uuid, nullable=False),
    Column("lease_until", UtcDateTime, nullable=False),
    _state_check("state", WhatIfState),
)


def is_moving(vm_id: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that a move of a VM was claimed by a worker and is not over."""
    under_way: ColumnElement[str] = literal_column("'moving'")
    return select(moves.c.id).where(moves.c.vm_id == vm_id, moves.c.state == under_way).exists()


assignment_resources = Table(
    "assignment_resources",
    metadata,
    Column("assignment_id", Uuid, primary_key=True),
    Column("resource", Name, primary_key=True),
    Column("host_id", Uuid, nullable=False),
    Column("amount", BigInteger, nullable=False),
    CheckConstraint("amount >= 1", name="amount_positive"),
    # The host of the amounts is the host of the assignment.
    _trigger_checked_key(["assignment_id", "host_id"], ["assignments.id", "assignments.host_id"]),
    _trigger_checked_key(["host_id", "resource"], ["inventories.host_id", "inventories.resource"]),
    Index(None, "host_id", "resource"),
)

# What released assignments held on each day (UTC), in the unit of the resource times seconds, with
# the microseconds apart. Without foreign keys, so that additions lock no tenants.
daily_usage = Table(
    "daily_usage",
    metadata,
    Column("tenant_id", Uuid, primary_key=True),
    Column("day", Date, primary_key=True),
    Column("vm_type_id", Uuid, primary_key=True),
    Column("resource", UsageName, primary_key=True),
    Column("held_s", BigInteger, nullable=False),
    Column("held_us", BigInteger, nullable=False),
    Column("charged_s", BigInteger, nullable=False),
    Column("charged_us", BigInteger, nullable=False),
)

# What a unit of a resource costs for an hour, from a day (UTC) until that of the next version.
prices = Table(
    "prices",
    metadata,
    Column("resource", UsageName, primary_key=True),
    Column("vm_type", Name, primary_key=True),  # all revisions of that name; "": every type
    Column("since", Date, primary_key=True),
    Column("price", ExactDecimal(27, 15)),  # none: no version holds any more
)

# One row: what prices and costs are in.
site_currency = Table(
    "site_currency",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", String(16), nullable=False),
    Column("minor_digits", Integer, nullable=False),
)

# What an owner and all below it may use in each month; and what was used in one, as last measured.
budgets = Table(
    "budgets",
    metadata,
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), primary_key=True),
    Column("resource", Name, primary_key=True),  # or "vms", or "cost"
    Column("amount", ExactDecimal(19, 6), nullable=False),
    Column("warn_at", Integer, nullable=False),  # percent
    Column("month", Date),  # its first day
    Column("used", ExactDecimal(36, 6)),
    Column("per_hour", ExactDecimal(36, 6)),
    Column("measured_at", UtcDateTime),
    Column("state", String(8)),
    Column("spent_at", UtcDateTime),
)

# Label sets of hosts, whose capacity is recorded apart. The first two numbers have no row: see
# `registry.capacity.capacity_history`.
capacity_classes = Table(
    "capacity_classes",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("labels", Text, nullable=False),  # sorted, joined by commas
)

# A row for each day (UTC) and class; `registry.capacity.packed_days` packs its hours.
capacity_days = Table(
    "capacity_days",
    metadata,
    Column("day", Date, primary_key=True),
    Column("class_id", Integer, primary_key=True),
    Column("hours", LargeBinary, nullable=False),
)

# One row: the sums of the samples of the present hour.
capacity_samples = Table(
    "capacity_samples",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("hour", UtcDateTime, nullable=False),
    Column("sampled_at", UtcDateTime, nullable=False),
    Column("sums", LargeBinary, nullable=False),
)

# Closed months and corrections of them, as a chain of digests; triggers keep their rows.
closed_usage = Table(
    "closed_usage",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),  # month, or correction
    Column("month", Date, nullable=False),  # its first day
    Column("currency", String(16)),  # none: the site had no prices
    Column("minor_digits", Integer),
    Column("author", Text, nullable=False),
    Column("reason", Text),  # of a correction
    Column("created_at", UtcDateTime, nullable=False),
    Column("salt", LargeBinary, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("content", String(64), nullable=False),
    Column("link", String(64), nullable=False),
    # The leading control centre signs after the commit.
    Column("signed_by", String(64)),
    Column("signature", String(128)),
    Index("uq_closed_usage_closed_once", "month", unique=True, **_partial_index("kind = 'month'")),
)

# What a tenant had in a closed month. Names are those of the time of closing.
closed_usage_lines = Table(
    "closed_usage_lines",
    metadata,
    Column("entry", BigInteger, ForeignKey("closed_usage.number"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("tenant_id", Uuid, nullable=False),
    Column("tenant", Name, nullable=False),
    Column("groups", Text, nullable=False),  # above the tenant, the nearest first: a/b
    Column("vm_type", Name),  # none: a correction
    Column("resource", UsageName, nullable=False),
    Column("held_s", BigInteger, nullable=False),
    Column("held_us", BigInteger, nullable=False),
    Column("charged_s", BigInteger, nullable=False),
    Column("charged_us", BigInteger, nullable=False),
    Column("price", ExactDecimal(27, 15)),
    Column("price_since", Date),
    Column("cost", ExactDecimal(40, 6)),
    Index(None, "tenant_id", "entry"),
)

build_failures = Table(
    "build_failures",
    metadata,
    Column("request_id", Uuid, ForeignKey("requests.id"), primary_key=True),
    Column("host_id", Uuid, ForeignKey("hosts.id"), primary_key=True),
    Column("avoid_until", UtcDateTime, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("id", Serial, primary_key=True, autoincrement=True),
    Column("at", UtcDateTime, nullable=False),
    Column("actor", Text, nullable=False),
    Column("kind", String(40), nullable=False),
    Column("subject_type", String(20), nullable=False),
    Column("subject_id", String(64), nullable=False),
    Column("tenant", Name),
    Column("from_state", State),
    Column("to_state", State),
    Column("event", String(24)),
    Column("reason", Text),
    Column("data", Json, nullable=False),
    Index(None, "subject_id", "id"),
    Index(None, "tenant", "id"),
    Index(None, "kind", "id"),
    sqlite_autoincrement=True,
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Name, nullable=False),
    Column("role", String(16), nullable=False),
    Column("tenant_id", Uuid, ForeignKey("tenants.id")),
    Column("digest", String(64), nullable=False, unique=True),
    Column("created_at", UtcDateTime, nullable=False),
    Column("revoked_at", UtcDateTime),
    Column("read_only", Boolean(create_constraint=False), nullable=False, server_default=false()),
    Column("expires_at", UtcDateTime),
    Column("last_used_at", UtcDateTime),
    Column("login", String(16)),
    Column("parent_id", Uuid),  # the token that it ends with; one that is gone ended before
    CheckConstraint(
        "(role = 'operator' AND tenant_id IS NULL) OR (role = 'tenant' AND tenant_id IS NOT NULL)",
        name="role_known",
    ),
    Index("uq_tokens_name", "name", unique=True, **_partial_index("revoked_at IS NULL")),
    Index(None, "parent_id"),
)

# Codes that log in once.
login_codes = Table(
    "login_codes",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("token_id", Uuid, ForeignKey("tokens.id"), nullable=False),
    Column("read_only", Boolean(create_constraint=False), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Column("used_at", UtcDateTime),
    Index(None, "token_id"),
    Index(None, "expires_at"),
)

# Calls of the API that may change something. A row outlives what it names: no foreign keys.
audit = Table(
    "audit",
    metadata,
    Column("id", Serial, primary_key=True, autoincrement=True),
    Column("at", UtcDateTime, nullable=False),
    Column("request_id", String(64), nullable=False),
    Column("token_id", Uuid),
    Column("token", Name),
    Column("tenant", Name),
    Column("address", Text, nullable=False),
    Column("method", String(16), nullable=False),
    Column("path", Text, nullable=False),
    Column("route", Text),
    Column("subject", String(64)),
    Column("status", Integer),
    Column("suppressed", Integer, nullable=False, server_default="0"),
    Column("refusals", Json),
    Column("last_at", UtcDateTime),
    Index(None, "tenant", "id"),
    Index(None, "token", "id"),
    Index(None, "subject", "id"),
    Index(None, "at"),
    sqlite_autoincrement=True,
)

leases = Table(
    "leases",
    metadata,
    Column("name", Name, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Column("held_since", UtcDateTime),  # null: its holder took it before this was written
)

# Each process says in its row that it lives, and what it lacks; judged by heartbeat_at.
processes = Table(
    "processes",
    metadata,
    Column("kind", Name, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("machine", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("heartbeat_at", UtcDateTime, nullable=False),
    Column("trouble", Text),
    Column("start_stamp", Text),
    Column("settings", Json),
    Column("release", Text),
)

# Each has a lease of its own, and hosts are shared out among those whose leases are live.
monitors = Table(
    "monitors",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Text, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("heartbeat_at", UtcDateTime, nullable=False),
    Column("lease_until", UtcDateTime, nullable=False),
    Column("watched", Integer, nullable=False),
    Column("late", Integer, nullable=False),
)

# One row. Paused, no round commits.
slot_loop = Table(
    "slot_loop",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("state", State, nullable=False),
    Column("reason", Text),
    Column("changed_by", Text),
    Column("changed_at", UtcDateTime),
    Column("last_slot_at", UtcDateTime),  # that was decided, if only that there was nothing to do
    Column("slot_length_s", Float),  # of that slot
    # Slots since the last round that left none; requests that waited in that round waited in these.
    Column("without_round", Integer, nullable=False, server_default="0"),
    _state_check("state", SlotLoopState),
    CheckConstraint("id = 1", name="one_row"),
)

# Made once, never shown, and kept in backups, so that derived secrets stay the same.
installation_secrets = Table(
    "installation_secrets",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("value", String(64), nullable=False),
    Column("made_at", UtcDateTime, nullable=False),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("scope", String(128), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("fingerprint", String(128), nullable=False),
    Column("request_id", Uuid, ForeignKey("requests.id")),
    Column("status", Integer),
    Column("body", Text),
    Column("started_at", UtcDateTime, nullable=False),
    Column("first_used_at", UtcDateTime, nullable=False),
    Index(None, "first_used_at"),
)
