"""Create the register center: tables, the ledger's triggers, and the rows that are always there.

Constraints without an explicit name follow the convention of `registry.db.schema.metadata`.

Revision ID: 0066
Revises:
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from migrations.triggers_of_0066 import trigger_statements

revision = "0066"
down_revision = None
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# Sorted as SQLite and Python sort, whatever the locale of the cluster.
NAME = sa.String(63).with_variant(sa.String(63, collation="C"), "postgresql")
OFFERED = "(coalesce(override, detected, 0) - reserved - foreign_amount)"


def upgrade() -> None:
    _create_tables()
    for statement in trigger_statements(op.get_bind().dialect.name):
        op.execute(statement)
    _add_rows()


def on_sqlite(constraint: sa.Constraint) -> Sequence[sa.Constraint]:
    """Return a constraint for SQLite; on PostgreSQL the ledger's triggers check the same."""
    return [constraint] if op.get_bind().dialect.name == "sqlite" else []


def create_table(name: str, *items: sa.schema.SchemaItem, **options: Any) -> None:
    """Create a table, and then its indexes in the given order.

    SQLAlchemy creates the indexes of a table in the order of a set, which differs from process
    to process, and SQLite takes the younger of two indexes that look equally good.
    """
    columns = [item for item in items if not isinstance(item, sa.Index)]
    table = op.create_table(name, *columns, **options)
    for index in (item for item in items if isinstance(item, sa.Index)):
        table.append_constraint(index)
        op.execute(sa.schema.CreateIndex(index))


def only(condition: str) -> dict[str, Any]:
    """Return the options of a partial index, of rows that meet a condition."""
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def _add_rows() -> None:
    resources = sa.table("resources", sa.column("name"), sa.column("unit"), sa.column("position"))
    op.bulk_insert(
        resources,
        [
            {"name": "vcpus", "unit": "vCPU", "position": 0},
            {"name": "memory_mib", "unit": "MiB", "position": 1},
            {"name": "disk_gib", "unit": "GiB", "position": 2},
        ],
    )
    slot_loop = sa.table("slot_loop", sa.column("id"), sa.column("state"))
    op.bulk_insert(slot_loop, [{"id": 1, "state": "running"}])
    # Raised by revisions that take something away, and by no other.
    op.execute("INSERT INTO schema_serves (code_since) VALUES ('0066')")
    installation = sa.table(
        "installation_secrets", sa.column("name"), sa.column("value"), sa.column("made_at", TIME)
    )
    made = {"name": "names", "value": secrets.token_hex(32), "made_at": datetime.now(UTC)}
    op.bulk_insert(installation, [made])


def _create_tables() -> None:
    create_table(
        "audit",
        sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
        sa.Column("at", TIME, nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("token_id", sa.Uuid),
        sa.Column("token", NAME),
        sa.Column("tenant", NAME),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("method", sa.String(16), nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("route", sa.Text),
        sa.Column("subject", sa.String(64)),
        sa.Column("status", sa.Integer),
        sa.Column("suppressed", sa.Integer, nullable=False, server_default="0"),
        sa.Column("refusals", JSON),
        sa.Column("last_at", TIME),
        sa.Index("ix_audit_at", "at"),
        sa.Index("ix_audit_subject_id", "subject", "id"),
        sa.Index("ix_audit_tenant_id", "tenant", "id"),
        sa.Index("ix_audit_token_id", "token", "id"),
        sqlite_autoincrement=True,
    )
    create_table(
        "events",
        sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
        sa.Column("at", TIME, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("subject_type", sa.String(20), nullable=False),
        sa.Column("subject_id", sa.String(64), nullable=False),
        sa.Column("tenant", NAME),
        sa.Column("from_state", sa.String(20)),
        sa.Column("to_state", sa.String(20)),
        sa.Column("event", sa.String(24)),
        sa.Column("reason", sa.Text),
        sa.Column("data", JSON, nullable=False),
        sa.Index("ix_events_kind_id", "kind", "id"),
        sa.Index("ix_events_subject_id_id", "subject_id", "id"),
        sa.Index("ix_events_tenant_id", "tenant", "id"),
        sqlite_autoincrement=True,
    )
    create_table(
        "hosts",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("name", NAME, nullable=False),
        sa.Column("uri", sa.Text, nullable=False),
        sa.Column("credential", NAME),
        sa.Column("ssh_host_keys", JSON, nullable=False, server_default="[]"),
        sa.Column("admin", sa.String(20), nullable=False),
        sa.Column("health", sa.String(20), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("shared_pool", sa.String(128)),
        sa.Column("version", sa.BigInteger, nullable=False, server_default="1"),
        sa.Column("domain_type", sa.String(16), nullable=False),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("network", sa.Text, nullable=False),
        sa.Column("base_volume", sa.Text),
        sa.Column("memory_backing_mib", sa.BigInteger),
        sa.Column("max_builds", sa.Integer, nullable=False),
        sa.Column("last_polled_at", TIME),
        sa.Column("last_error", sa.Text),
        sa.Column("missed_polls", sa.Integer, nullable=False, server_default="0"),
        sa.Column("last_missed_at", TIME),
        sa.Column("failed_builds", sa.Integer, nullable=False, server_default="0"),
        sa.Column("backoff_until", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("fence_target", sa.Text),
        sa.Column("returning_since", TIME),
        sa.Column("machine_uuid", sa.String(36)),
        sa.Column("found_machine_uuid", sa.String(36)),
        sa.Column("same_machine_as", sa.Uuid),
        sa.Column("pool_silent_since", TIME),
        sa.Column("security_model", sa.String(32)),
        sa.Column("shares_kept", sa.Boolean),
        sa.Column("can_filter", sa.Boolean),
        sa.CheckConstraint(
            "admin IN ('active', 'draining', 'maintenance', 'retired')", name="admin_known"
        ),
        sa.CheckConstraint(
            "health IN ('enrolling', 'up', 'unreachable', 'down')", name="health_known"
        ),
        sa.CheckConstraint("max_builds >= 1", name="max_builds_positive"),
        sa.Index("ix_hosts_machine_uuid", "machine_uuid", **only("machine_uuid IS NOT NULL")),
        sa.Index("ix_hosts_missed", "id", **only("missed_polls > 0")),
        sa.Index("ix_hosts_shared_pool", "shared_pool", **only("shared_pool IS NOT NULL")),
        sa.Index("uq_hosts_name", "name", unique=True, **only("admin NOT IN ('retired')")),
        sa.Index("uq_hosts_uri", "uri", unique=True, **only("admin NOT IN ('retired')")),
    )
    create_table(
        "images",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("name", NAME, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("format", sa.String(8), nullable=False),
        sa.Column("seed_kind", sa.String(16), nullable=False),
        sa.Column("min_memory_mib", sa.BigInteger, nullable=False),
        sa.Column("size_bytes", sa.BigInteger),
        sa.Column("virtual_size_bytes", sa.BigInteger),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("received_bytes", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("last_error", sa.Text),
        sa.Column("lease_token", sa.Uuid),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_until", TIME),
        sa.Column("sent_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("removed_at", TIME),
        sa.Column("signature", sa.Text),
        sa.Column("signed_by", sa.Text),
        sa.Column("held_at", TIME),
        sa.Column("held_reason", sa.Text),
        sa.CheckConstraint(
            "state IN ('importing', 'ready', 'failed', 'removed')", name="state_known"
        ),
        sa.CheckConstraint("format IN ('qcow2', 'raw')", name="format_known"),
        sa.CheckConstraint("seed_kind IN ('none', 'nocloud')", name="seed_kind_known"),
        sa.CheckConstraint("length(sha256) = 64", name="sha256_whole"),
        sa.CheckConstraint("revision >= 1 AND min_memory_mib >= 0", name="amounts_not_negative"),
        sa.CheckConstraint(
            "state <> 'ready' OR (size_bytes >= 1 AND virtual_size_bytes >= 1)", name="sizes_known"
        ),
        sa.UniqueConstraint("name", "revision"),
        sa.Index("ix_images_state", "state"),
    )
    create_table(
        "installation_secrets",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("value", sa.String(64), nullable=False),
        sa.Column("made_at", TIME, nullable=False),
    )
    create_table(
        "leases",
        sa.Column("name", NAME, primary_key=True),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("held_since", TIME),
    )
    create_table(
        "monitors",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("heartbeat_at", TIME, nullable=False),
        sa.Column("lease_until", TIME, nullable=False),
        sa.Column("watched", sa.Integer, nullable=False),
        sa.Column("late", sa.Integer, nullable=False),
    )
    create_table(
        "networks",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("name", NAME, nullable=False, unique=True),
        sa.Column("kind", sa.String(16)),
        sa.Column("source", sa.Text),
        sa.Column("cidr", sa.String(18)),
        sa.Column("gateway", sa.String(15)),
        sa.Column("dns", JSON, nullable=False),
        sa.Column("excluded", JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("offered_to_all", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("isolated", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("filtered", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.CheckConstraint("kind IN ('network', 'bridge')", name="kind_known"),
    )
    create_table(
        "plans",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("arguments", JSON, nullable=False),
        sa.Column("requested_by", sa.Text, nullable=False),
        sa.Column("requested_at", TIME, nullable=False),
        sa.Column("approve", sa.Boolean, nullable=False),
        sa.Column("approved_by", sa.Text),
        sa.Column("approved_at", TIME),
        sa.Column("ended_at", TIME),
        sa.Column("before", JSON),
        sa.Column("after", JSON),
        sa.Column("stays", JSON, nullable=False, server_default="[]"),
        sa.Column("admitted", JSON),
        sa.Column("cut", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("inputs", sa.LargeBinary),
        sa.Column("packed_plan", sa.LargeBinary),
        sa.Column("last_error", sa.Text),
        sa.Column("gain", sa.Float(53)),
        sa.CheckConstraint(
            "state IN ('pending', 'proposed', 'approved', 'done', 'cancelled', 'failed')",
            name="state_known",
        ),
        sa.CheckConstraint(
            "kind IN ('evacuate', 'balance', 'pack', 'room', 'repair')", name="kind_known"
        ),
        sa.Index("ix_plans_requested_by_id", "requested_by", "id"),
        sa.Index("ix_plans_state_open", "state", **only("state IN ('pending', 'approved')")),
    )
    create_table(
        "processes",
        sa.Column("kind", NAME, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("machine", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("heartbeat_at", TIME, nullable=False),
        sa.Column("trouble", sa.Text),
        sa.Column("start_stamp", sa.Text),
        sa.Column("settings", JSON),
        sa.Column("release", sa.Text),
    )
    create_table(
        "reservation_holds",
        sa.Column("reservation_id", sa.Uuid, primary_key=True),
        sa.Column("host_id", sa.Uuid, primary_key=True),
        sa.Column("count", sa.Integer, nullable=False),
        sa.CheckConstraint("count >= 1", name="count_positive"),
    )
    create_table(
        "resources",
        sa.Column("name", NAME, primary_key=True),
        sa.Column("unit", sa.String(32), nullable=False),
        sa.Column("position", sa.Integer, nullable=False, unique=True),
        sa.Column("overhead_per_vm", sa.BigInteger, nullable=False, server_default="0"),
    )
    create_table(
        "rolls",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("at_once", sa.Integer, nullable=False),
        sa.Column("checked", sa.Integer, nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("empty_within_s", sa.Integer, nullable=False),
        sa.Column("run_within_s", sa.Integer, nullable=False),
        sa.Column("up_within_s", sa.Integer, nullable=False),
        sa.Column("began_by", sa.Text, nullable=False),
        sa.Column("began_at", TIME, nullable=False),
        sa.Column("ended_at", TIME),
        sa.Column("cancelled_by", sa.Text),
        sa.Column("last_error", sa.Text),
        sa.Column("driver", sa.Text, nullable=False),
        sa.Column("driver_token", sa.Uuid, nullable=False),
        sa.Column("driver_lease_until", TIME, nullable=False),
        sa.CheckConstraint(
            "state IN ('running', 'stopped', 'done', 'cancelled')", name="state_known"
        ),
        sa.CheckConstraint("at_once >= 1", name="at_once_positive"),
    )
    create_table(
        "round_hash_chain",
        sa.Column("round", SERIAL, primary_key=True, autoincrement=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("content", sa.String(64), nullable=False),
        sa.Column("link", sa.String(64), nullable=False),
        sa.Column("record", sa.String(64), nullable=False),
        sa.Column("salt", sa.LargeBinary, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
    )
    create_table(
        "rounds",
        sa.Column("number", SERIAL, primary_key=True, autoincrement=True),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("slot_start_at", TIME, nullable=False),
        sa.Column("slot_length_s", sa.Float(53), nullable=False),
        sa.Column("policy", sa.String(63), nullable=False),
        sa.Column("decided_by", sa.String(16), nullable=False),
        sa.Column("fallback_reason", sa.Text),
        sa.Column("parameters", JSON, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("engine_version", sa.String(63), nullable=False),
        sa.Column("budget_units", sa.BigInteger),
        sa.Column("work", sa.BigInteger, nullable=False),
        sa.Column("cut", sa.Boolean, nullable=False),
        sa.Column("inputs_digest", sa.String(128), nullable=False),
        sa.Column("shares", JSON, nullable=False),
        sa.Column("bound", sa.Float(53)),
        sa.Column("fair_distance", sa.Float(53)),
        sa.Column("group_shares", JSON, nullable=False, server_default="[]"),
        sa.Column("timings", JSON, nullable=False),
        sa.Column("placed", sa.Integer, nullable=False),
        sa.Column("left_out", sa.Integer, nullable=False),
        sa.Column("dropped", sa.Integer, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("prices", JSON),
        sa.CheckConstraint("decided_by IN ('policy', 'fallback')", name="decided_by_known"),
        sqlite_autoincrement=True,
    )
    create_table("schema_serves", sa.Column("code_since", sa.String(32), primary_key=True))
    create_table(
        "slot_loop",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("changed_by", sa.Text),
        sa.Column("changed_at", TIME),
        sa.Column("last_slot_at", TIME),
        sa.Column("slot_length_s", sa.Float),
        sa.Column("without_round", sa.Integer, nullable=False, server_default="0"),
        sa.CheckConstraint("state IN ('running', 'paused')", name="state_known"),
        sa.CheckConstraint("id = 1", name="one_row"),
    )
    create_table(
        "spot_preemptions",
        sa.Column("vm_id", sa.Uuid, primary_key=True),
        sa.Column("host_id", sa.Uuid, nullable=False),
        sa.Column("request_id", sa.Uuid, nullable=False),
        sa.Column("for_tenant", NAME, nullable=False),
        sa.Column("for_request", NAME, nullable=False),
        sa.Column("round", sa.BigInteger, nullable=False),
        sa.Column("ends_at", TIME, nullable=False),
    )
    create_table(
        "spot_room_holds",
        sa.Column("request_id", sa.Uuid, primary_key=True),
        sa.Column("host_id", sa.Uuid, primary_key=True),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("until", TIME, nullable=False),
        sa.CheckConstraint("count >= 1", name="count_positive"),
    )
    create_table(
        "tenants",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("name", NAME, nullable=False, unique=True),
        sa.Column("weight", sa.Float(53), nullable=False),
        sa.Column("parent_id", sa.Uuid, sa.ForeignKey("tenants.id")),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("is_group", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("removed_at", TIME),
        sa.Column("over_quota", sa.String(16)),
        sa.CheckConstraint("weight > 0", name="weight_positive"),
    )
    create_table(
        "vm_types",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("name", NAME, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("limits", JSON, nullable=False, server_default="{}"),
        sa.UniqueConstraint("name", "revision"),
    )
    create_table(
        "what_ifs",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("arguments", JSON, nullable=False),
        sa.Column("requested_by", sa.Text, nullable=False),
        sa.Column("requested_at", TIME, nullable=False),
        sa.Column("began_at", TIME),
        sa.Column("ended_at", TIME),
        sa.Column("progress", sa.Float(53), nullable=False),
        sa.Column("cancelled_by", sa.Text),
        sa.Column("last_error", sa.Text),
        sa.Column("report", JSON),
        sa.Column("executor_id", sa.Uuid, nullable=False),
        sa.Column("lease_until", TIME, nullable=False),
        sa.CheckConstraint(
            "state IN ('waiting', 'running', 'finished', 'failed', 'cancelled', 'interrupted')",
            name="state_known",
        ),
    )
    create_table(
        "host_fences",
        sa.Column("host_id", sa.Uuid, sa.ForeignKey("hosts.id"), primary_key=True),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("requested_by", sa.Text, nullable=False),
        sa.Column("requested_at", TIME, nullable=False),
        sa.Column("epoch", sa.BigInteger),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("last_error", sa.Text),
        sa.Column("retry_at", TIME),
        sa.Column("fenced_at", TIME),
        sa.Column("sent_at", TIME),
        sa.Column("lease_token", sa.Uuid),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_until", TIME),
        sa.CheckConstraint(
            "state IN ('idle', 'pending', 'running', 'failed', 'fenced')", name="state_known"
        ),
    )
    create_table(
        "host_reports",
        sa.Column("host_id", sa.Uuid, sa.ForeignKey("hosts.id"), primary_key=True),
        sa.Column("report", JSON, nullable=False),
        sa.Column("polled_at", TIME, nullable=False),
    )
    create_table(
        "image_copies",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("host_id", sa.Uuid, sa.ForeignKey("hosts.id"), nullable=False),
        sa.Column("image_id", sa.Uuid, sa.ForeignKey("images.id"), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("disk_gib", sa.BigInteger, nullable=False),
        sa.Column("volume", sa.Text),
        sa.Column("uploaded_bytes", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("interruptions", sa.Integer, nullable=False, server_default="0"),
        sa.Column("last_error", sa.Text),
        sa.Column("lease_token", sa.Uuid),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_until", TIME),
        sa.Column("sent_at", TIME),
        sa.Column("present_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("host_lost_at", TIME),
        sa.CheckConstraint(
            "state IN ('absent', 'uploading', 'present', 'failed', 'removing')", name="state_known"
        ),
        sa.CheckConstraint("disk_gib >= 1 AND uploaded_bytes >= 0", name="amounts_not_negative"),
        sa.UniqueConstraint("host_id", "image_id"),
        sa.Index("ix_image_copies_image_id", "image_id"),
        sa.Index("ix_image_copies_state", "state"),
    )
    create_table(
        "inventories",
        sa.Column("host_id", sa.Uuid, sa.ForeignKey("hosts.id"), primary_key=True),
        sa.Column("resource", NAME, sa.ForeignKey("resources.name"), primary_key=True),
        sa.Column("detected", sa.BigInteger),
        sa.Column("override", sa.BigInteger),
        sa.Column("reserved", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("foreign_amount", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("ratio_thousandths", sa.BigInteger, nullable=False, server_default="1000"),
        sa.Column("own_ratio_thousandths", sa.BigInteger),
        sa.Column("committed", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column(
            "capacity",
            sa.BigInteger,
            sa.Computed(
                f"CASE WHEN {OFFERED} > 0 THEN {OFFERED} * ratio_thousandths / 1000 ELSE 0 END",
                persisted=True,
            ),
        ),
        sa.CheckConstraint(
            "(detected IS NULL OR detected >= 0) AND (override IS NULL OR override >= 0)"
            " AND reserved >= 0 AND foreign_amount >= 0 AND ratio_thousandths >= 1"
            " AND committed >= 0",
            name="amounts_not_negative",
        ),
    )
    create_table(
        "label_ratios",
        sa.Column("label", sa.String(128), primary_key=True),
        sa.Column("resource", NAME, sa.ForeignKey("resources.name"), primary_key=True),
        sa.Column("ratio_thousandths", sa.BigInteger, nullable=False),
        sa.CheckConstraint("ratio_thousandths >= 1", name="ratio_positive"),
    )
    create_table(
        "leftovers",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("host_id", sa.Uuid, sa.ForeignKey("hosts.id"), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("vm_uuid", sa.Uuid),
        sa.Column("assignment_id", sa.Uuid),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_until", TIME),
        sa.Column("sent_at", TIME),
        sa.Column("found_at", TIME, nullable=False),
        sa.Column("requested_by", sa.Text),
        sa.UniqueConstraint("host_id", "kind", "name"),
        sa.CheckConstraint("kind IN ('domain', 'volume')", name="kind_known"),
    )
    create_table(
        "network_former_sources",
        sa.Column(
            "network_id",
            sa.Uuid,
            sa.ForeignKey("networks.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("host_id", sa.Uuid, sa.ForeignKey("hosts.id"), primary_key=True),
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("source", sa.Text, primary_key=True),
        sa.Column("placed_until", TIME, nullable=False),
        sa.CheckConstraint("kind IN ('network', 'bridge')", name="kind_known"),
    )
    create_table(
        "network_hosts",
        sa.Column("network_id", sa.Uuid, sa.ForeignKey("networks.id"), primary_key=True),
        sa.Column("host_id", sa.Uuid, sa.ForeignKey("hosts.id"), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.CheckConstraint("kind IN ('network', 'bridge')", name="kind_known"),
    )
    create_table(
        "network_offers",
        sa.Column("network_id", sa.Uuid, sa.ForeignKey("networks.id"), primary_key=True),
        sa.Column("tenant_id", sa.Uuid, sa.ForeignKey("tenants.id"), primary_key=True),
        sa.Column("owns", sa.Boolean, nullable=False),
        sa.Index("ix_network_offers_tenant_id", "tenant_id"),
    )
    create_table(
        "quotas",
        sa.Column("tenant_id", sa.Uuid, sa.ForeignKey("tenants.id"), primary_key=True),
        sa.Column("resource", NAME, primary_key=True),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("by_default", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.CheckConstraint("amount >= 0", name="amount_not_negative"),
    )
    create_table(
        "requests",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("name", NAME, nullable=False),
        sa.Column("tenant_id", sa.Uuid, sa.ForeignKey("tenants.id"), nullable=False),
        sa.Column("vm_type_id", sa.Uuid, sa.ForeignKey("vm_types.id"), nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("min_count", sa.Integer, nullable=False),
        sa.Column("requires", JSON, nullable=False),
        sa.Column("hosts", JSON),
        sa.Column("forbids", JSON, nullable=False, server_default="[]"),
        sa.Column("prefers", JSON, nullable=False, server_default="[]"),
        sa.Column("zone", sa.String(128)),
        sa.Column("spread", sa.String(20)),
        sa.Column("priority", sa.Integer, nullable=False, server_default="0"),
        sa.Column("spot", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("reservation_id", sa.Uuid),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("waiting", JSON),
        sa.Column("rounds_waited", sa.Integer, nullable=False, server_default="0"),
        sa.Column("labels", JSON, nullable=False, server_default="{}"),
        sa.Column("expires_at", TIME),
        sa.Column("ending_since", TIME),
        sa.Column("hostname", sa.String(253)),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.CheckConstraint(
            "state IN ('pending', 'partly_placed', 'placed', 'released', 'cancelled', 'expired')",
            name="state_known",
        ),
        sa.CheckConstraint("count >= 0 AND min_count >= 1", name="counts_not_negative"),
        sa.Index("ix_requests_expires_at", "expires_at"),
        sa.Index("ix_requests_name", "name"),
        sa.Index(
            "ix_requests_reservation_id", "reservation_id", **only("reservation_id IS NOT NULL")
        ),
        sa.Index("ix_requests_state", "state"),
        sa.Index("ix_requests_state_id", "state", "id"),
        sa.Index("ix_requests_tenant_id_id", "tenant_id", "id"),
        sa.Index(
            "uq_requests_tenant_id_name",
            "tenant_id",
            "name",
            unique=True,
            **only("state NOT IN ('released', 'cancelled', 'expired')"),
        ),
    )
    create_table(
        "reservations",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("name", NAME, nullable=False),
        sa.Column("tenant_id", sa.Uuid, sa.ForeignKey("tenants.id"), nullable=False),
        sa.Column("vm_type_id", sa.Uuid, sa.ForeignKey("vm_types.id"), nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("requires", JSON, nullable=False),
        sa.Column("keep_from", TIME, nullable=False),
        sa.Column("starts_at", TIME, nullable=False),
        sa.Column("ends_at", TIME, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("used", sa.Integer, nullable=False, server_default="0"),
        sa.Column("short", sa.Integer, nullable=False, server_default="0"),
        sa.Column("decision", JSON),
        sa.Column("requested_by", sa.Text, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("decided_at", TIME),
        sa.CheckConstraint(
            "state IN ('pending', 'accepted', 'refused', 'in_force', 'ended', 'cancelled')",
            name="state_known",
        ),
        sa.CheckConstraint("count >= 1 AND used >= 0 AND short >= 0", name="counts_not_negative"),
        sa.CheckConstraint("keep_from <= starts_at AND starts_at < ends_at", name="times_in_order"),
        sa.Index(
            "ix_reservations_open", "state", **only("state IN ('pending', 'accepted', 'in_force')")
        ),
        sa.Index("ix_reservations_tenant_id_id", "tenant_id", "id"),
        sa.Index(
            "uq_reservations_tenant_id_name",
            "tenant_id",
            "name",
            unique=True,
            **only("state IN ('pending', 'accepted', 'in_force')"),
        ),
    )
    create_table(
        "roll_hosts",
        sa.Column("roll_id", sa.Uuid, sa.ForeignKey("rolls.id"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("host_id", sa.Uuid, sa.ForeignKey("hosts.id"), nullable=False),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("phase", sa.String(20), nullable=False),
        sa.Column("since", TIME, nullable=False),
        sa.Column("admin_before", sa.String(20)),
        sa.Column("plan_id", sa.Uuid),
        sa.Column("plans", sa.Integer, nullable=False, server_default="0"),
        sa.Column("error", sa.Text),
        sa.CheckConstraint(
            "phase IN ('waiting', 'emptying', 'empty', 'running', 'returning', 'done', 'skipped')",
            name="phase_known",
        ),
        sa.Index("ix_roll_hosts_host_id", "host_id"),
    )
    create_table(
        "round_inputs",
        sa.Column(
            "round", SERIAL, sa.ForeignKey("rounds.number"), primary_key=True, autoincrement=False
        ),
        sa.Column("outcome", JSON),
        sa.Column("inputs", sa.LargeBinary, nullable=False),
        sa.Column("packed_outcome", sa.LargeBinary),
        sa.CheckConstraint("(outcome IS NULL) <> (packed_outcome IS NULL)", name="outcome_once"),
    )
    create_table(
        "shadow_rounds",
        sa.Column(
            "round", SERIAL, sa.ForeignKey("rounds.number"), primary_key=True, autoincrement=False
        ),
        sa.Column("policy", sa.String(63), nullable=False),
        sa.Column("parameters", JSON, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("seconds", sa.Float(53)),
        sa.Column("cut", sa.Boolean, nullable=False),
        sa.Column("decided", JSON),
        sa.Column("first", JSON),
        sa.Column("agreed", sa.Integer),
        sa.Column("shares", JSON, nullable=False),
        sa.Column("skipped", sa.Integer, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.CheckConstraint("(error IS NULL) = (decided IS NOT NULL)", name="decided_or_failed"),
    )
    create_table(
        "ssh_keys",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("tenant_id", sa.Uuid, sa.ForeignKey("tenants.id"), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("public_key", sa.Text, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.UniqueConstraint("tenant_id", "name"),
    )
    create_table(
        "strangers",
        sa.Column("host_id", sa.Uuid, sa.ForeignKey("hosts.id"), primary_key=True),
        sa.Column("domain_uuid", sa.Uuid, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("first_seen_at", TIME, nullable=False),
    )
    create_table(
        "tokens",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("name", NAME, nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("tenant_id", sa.Uuid, sa.ForeignKey("tenants.id")),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("revoked_at", TIME),
        sa.Column("read_only", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("expires_at", TIME),
        sa.Column("last_used_at", TIME),
        sa.Column("login", sa.String(16)),
        sa.Column("parent_id", sa.Uuid),
        sa.CheckConstraint(
            "(role = 'operator' AND tenant_id IS NULL)"
            " OR (role = 'tenant' AND tenant_id IS NOT NULL)",
            name="role_known",
        ),
        sa.Index("ix_tokens_parent_id", "parent_id"),
        sa.Index("uq_tokens_name", "name", unique=True, **only("revoked_at IS NULL")),
    )
    create_table(
        "vm_groups",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("tenant_id", sa.Uuid, sa.ForeignKey("tenants.id"), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("apart", sa.Boolean, nullable=False),
        sa.Column("hard", sa.Boolean, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.UniqueConstraint("tenant_id", "name"),
    )
    create_table(
        "vm_type_resources",
        sa.Column("vm_type_id", sa.Uuid, sa.ForeignKey("vm_types.id"), primary_key=True),
        sa.Column("resource", NAME, sa.ForeignKey("resources.name"), primary_key=True),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.CheckConstraint("amount >= 1", name="amount_positive"),
    )
    create_table(
        "build_failures",
        sa.Column("request_id", sa.Uuid, sa.ForeignKey("requests.id"), primary_key=True),
        sa.Column("host_id", sa.Uuid, sa.ForeignKey("hosts.id"), primary_key=True),
        sa.Column("avoid_until", TIME, nullable=False),
    )
    create_table(
        "idempotency_keys",
        sa.Column("scope", sa.String(128), primary_key=True),
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("fingerprint", sa.String(128), nullable=False),
        sa.Column("request_id", sa.Uuid, sa.ForeignKey("requests.id")),
        sa.Column("status", sa.Integer),
        sa.Column("body", sa.Text),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("first_used_at", TIME, nullable=False),
        sa.Index("ix_idempotency_keys_first_used_at", "first_used_at"),
    )
    create_table(
        "login_codes",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("token_id", sa.Uuid, sa.ForeignKey("tokens.id"), nullable=False),
        sa.Column("read_only", sa.Boolean, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("used_at", TIME),
        sa.Index("ix_login_codes_expires_at", "expires_at"),
        sa.Index("ix_login_codes_token_id", "token_id"),
    )
    create_table(
        "request_access",
        sa.Column("request_id", sa.Uuid, sa.ForeignKey("requests.id"), primary_key=True),
        sa.Column("ssh_keys", JSON, nullable=False),
        sa.Column("user_data", sa.LargeBinary),
        sa.Column("user_data_bytes", sa.Integer, nullable=False),
        sa.Column("user_data_sha256", sa.String(64), nullable=False),
    )
    create_table(
        "request_groups",
        sa.Column("request_id", sa.Uuid, sa.ForeignKey("requests.id"), primary_key=True),
        sa.Column("group_id", sa.Uuid, sa.ForeignKey("vm_groups.id"), primary_key=True),
        sa.Index("ix_request_groups_group_id", "group_id"),
    )
    create_table(
        "request_images",
        sa.Column("request_id", sa.Uuid, sa.ForeignKey("requests.id"), primary_key=True),
        sa.Column("image_id", sa.Uuid, sa.ForeignKey("images.id"), nullable=False),
        sa.Index("ix_request_images_image_id", "image_id"),
    )
    create_table(
        "request_networks",
        sa.Column("request_id", sa.Uuid, sa.ForeignKey("requests.id"), primary_key=True),
        sa.Column("network_id", sa.Uuid, sa.ForeignKey("networks.id"), nullable=False),
        sa.Index("ix_request_networks_network_id", "network_id"),
    )
    create_table(
        "vms",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("request_id", sa.Uuid, sa.ForeignKey("requests.id"), nullable=False),
        sa.Column("tenant_id", sa.Uuid, sa.ForeignKey("tenants.id"), nullable=False),
        sa.Column("desired", sa.String(20), nullable=False),
        sa.Column("observed", sa.String(20), nullable=False),
        sa.Column("generation", sa.Integer, nullable=False, server_default="0"),
        sa.Column("last_error", sa.Text),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("deleted_at", TIME),
        sa.Column("switched_at", TIME),
        sa.Column("paused_since", TIME),
        sa.Column("hostname", sa.String(253)),
        sa.Column("labels", JSON, nullable=False, server_default="{}"),
        sa.Column("spot", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.CheckConstraint("desired IN ('running', 'stopped', 'deleted')", name="desired_known"),
        sa.CheckConstraint(
            "observed IN ('absent', 'running', 'stopped', 'lost')", name="observed_known"
        ),
        sa.Index("ix_vms_deleted_at", "deleted_at", **only("deleted_at IS NOT NULL")),
        sa.Index("ix_vms_id_live", "id", **only("deleted_at IS NULL")),
        sa.Index("ix_vms_id_spot", "id", **only("spot AND deleted_at IS NULL")),
        sa.Index("ix_vms_name", "name"),
        sa.Index("ix_vms_request_id_id", "request_id", "id"),
        sa.Index(
            "ix_vms_request_id_unplaced",
            "request_id",
            "id",
            **only("observed = 'absent' AND desired <> 'deleted'"),
        ),
        sa.Index("ix_vms_tenant_id_id", "tenant_id", "id"),
        sa.Index("ix_vms_tenant_id_live", "tenant_id", "id", **only("deleted_at IS NULL")),
        sa.Index(
            "uq_vms_tenant_id_name",
            "tenant_id",
            "name",
            unique=True,
            **only("desired NOT IN ('deleted')"),
        ),
        postgresql_with={"fillfactor": 50},
    )
    create_table(
        "assignments",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("vm_id", sa.Uuid, sa.ForeignKey("vms.id"), nullable=False),
        sa.Column("host_id", sa.Uuid, sa.ForeignKey("hosts.id"), nullable=False),
        sa.Column("tenant_id", sa.Uuid, sa.ForeignKey("tenants.id"), nullable=False),
        sa.Column("round", SERIAL, sa.ForeignKey("rounds.number"), nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("disk_generation", sa.Integer),
        sa.Column("disk_of", sa.Uuid),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("lease_token", sa.Uuid),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_until", TIME),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("last_error", sa.Text),
        sa.Column("sent_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("build_began_at", TIME),
        sa.Column("activated_at", TIME),
        sa.Column("released_at", TIME),
        sa.CheckConstraint(
            "state IN ('reserved', 'creating', 'active', 'releasing', 'released', 'quarantined',"
            " 'arriving', 'leaving')",
            name="state_known",
        ),
        sa.UniqueConstraint("vm_id", "generation"),
        sa.UniqueConstraint("id", "host_id"),
        sa.Index("ix_assignments_disk_of", "disk_of", **only("disk_of IS NOT NULL")),
        sa.Index("ix_assignments_host_id_unreleased", "host_id", **only("state <> 'released'")),
        sa.Index("ix_assignments_lease_until", "lease_until", **only("lease_until IS NOT NULL")),
        sa.Index("ix_assignments_round", "round"),
        sa.Index("ix_assignments_state_unreleased", "state", **only("state <> 'released'")),
        sa.Index(
            "uq_assignments_vm_id_arriving", "vm_id", unique=True, **only("state = 'arriving'")
        ),
        sa.Index("uq_assignments_vm_id_leaving", "vm_id", unique=True, **only("state = 'leaving'")),
        sa.Index(
            "uq_assignments_vm_id_place",
            "vm_id",
            unique=True,
            **only("state NOT IN ('released', 'arriving', 'leaving')"),
        ),
    )
    create_table(
        "console_reads",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("vm_id", sa.Uuid, sa.ForeignKey("vms.id"), nullable=False),
        sa.Column("max_bytes", sa.Integer, nullable=False),
        sa.Column("after", sa.BigInteger, nullable=False),
        sa.Column("requested_at", TIME, nullable=False),
        sa.Column("answered_at", TIME),
        sa.Column("content", sa.LargeBinary),
        sa.Column("end_at", sa.BigInteger),
        sa.Column("error", sa.Text),
        sa.Index("ix_console_reads_requested_at", "requested_at"),
    )
    create_table(
        "console_sessions",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("vm_id", sa.Uuid, sa.ForeignKey("vms.id"), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("forced", sa.Boolean, nullable=False),
        sa.Column("opened_at", TIME, nullable=False),
        sa.Column("heartbeat_at", TIME, nullable=False),
        sa.Column("sent_at", TIME),
        sa.Column("reason", sa.Text),
        sa.Column("next_input", sa.BigInteger, nullable=False),
        sa.Column("output_end", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_until", TIME),
        sa.CheckConstraint("state IN ('waiting', 'attached', 'ended')", name="state_known"),
        sa.Index("ix_console_sessions_heartbeat_at", "heartbeat_at"),
        sa.Index(
            "uq_console_sessions_vm_id", "vm_id", unique=True, **only("state NOT IN ('ended')")
        ),
    )
    create_table(
        "interfaces",
        sa.Column("vm_id", sa.Uuid, sa.ForeignKey("vms.id"), primary_key=True),
        sa.Column("mac", sa.String(17), nullable=False, unique=True),
        sa.Column("network_id", sa.Uuid, sa.ForeignKey("networks.id")),
        sa.Index("ix_interfaces_network_id", "network_id"),
    )
    create_table(
        "moves",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("vm_id", sa.Uuid, sa.ForeignKey("vms.id"), nullable=False),
        sa.Column("from_id", sa.Uuid, nullable=False),
        sa.Column("to_id", sa.Uuid, nullable=False),
        sa.Column("from_host_id", sa.Uuid, sa.ForeignKey("hosts.id"), nullable=False),
        sa.Column("to_host_id", sa.Uuid, sa.ForeignKey("hosts.id"), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("requested_by", sa.Text, nullable=False),
        sa.Column("requested_at", TIME, nullable=False),
        sa.Column("cancelled_by", sa.Text),
        sa.Column("began_at", TIME),
        sa.Column("ended_at", TIME),
        sa.Column("downtime_ms", sa.BigInteger),
        sa.Column("total_bytes", sa.BigInteger),
        sa.Column("remaining_bytes", sa.BigInteger),
        sa.Column("rate_bytes_s", sa.BigInteger),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("last_error", sa.Text),
        sa.Column("sent_at", TIME),
        sa.Column("lease_token", sa.Uuid),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_until", TIME),
        sa.CheckConstraint(
            "state IN ('pending', 'moving', 'moved', 'failed', 'cancelled')", name="state_known"
        ),
        sa.CheckConstraint("kind IN ('live', 'cold')", name="kind_known"),
        sa.CheckConstraint("from_host_id <> to_host_id", name="another_host"),
        sa.Index("ix_moves_from_host_id_id", "from_host_id", "id"),
        sa.Index("ix_moves_state_open", "state", **only("state IN ('pending', 'moving')")),
        sa.Index("ix_moves_to_host_id_id", "to_host_id", "id"),
        sa.Index("ix_moves_vm_id_id", "vm_id", "id"),
    )
    create_table(
        "network_addresses",
        sa.Column("network_id", sa.Uuid, sa.ForeignKey("networks.id"), primary_key=True),
        sa.Column("address", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("vm_id", sa.Uuid, sa.ForeignKey("vms.id")),
        sa.UniqueConstraint("vm_id"),
    )
    create_table(
        "power_actions",
        sa.Column("vm_id", sa.Uuid, sa.ForeignKey("vms.id"), primary_key=True),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("requested_by", sa.Text, nullable=False),
        sa.Column("requested_at", TIME, nullable=False),
        sa.Column("timeout_s", sa.Integer, nullable=False),
        sa.Column("force_at", TIME),
        sa.Column("signalled_at", TIME),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("last_error", sa.Text),
        sa.Column("due_at", TIME, nullable=False),
        sa.Column("sent_at", TIME),
        sa.Column("lease_token", sa.Uuid),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_until", TIME),
        sa.CheckConstraint(
            "state IN ('idle', 'stopping', 'shutting_down', 'starting', 'rebooting', 'restarting')",
            name="state_known",
        ),
        sa.CheckConstraint("timeout_s >= 0", name="timeout_not_negative"),
    )
    create_table(
        "preserved_disks",
        sa.Column("vm_id", sa.Uuid, sa.ForeignKey("vms.id"), primary_key=True),
        sa.Column("shared_pool", sa.String(128), nullable=False),
        sa.Column("disk_of", sa.Uuid, nullable=False),
        sa.Column("disk_generation", sa.Integer, nullable=False),
        sa.Column("kept_at", TIME, nullable=False),
        sa.Index("ix_preserved_disks_disk_of", "disk_of"),
    )
    create_table(
        "assignment_resources",
        sa.Column("assignment_id", sa.Uuid, primary_key=True),
        sa.Column("resource", NAME, primary_key=True),
        sa.Column("host_id", sa.Uuid, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.CheckConstraint("amount >= 1", name="amount_positive"),
        *on_sqlite(
            sa.ForeignKeyConstraint(
                ["assignment_id", "host_id"], ["assignments.id", "assignments.host_id"]
            )
        ),
        *on_sqlite(
            sa.ForeignKeyConstraint(
                ["host_id", "resource"], ["inventories.host_id", "inventories.resource"]
            )
        ),
        sa.Index("ix_assignment_resources_host_id_resource", "host_id", "resource"),
    )
    create_table(
        "console_inputs",
        sa.Column("session_id", sa.Uuid, sa.ForeignKey("console_sessions.id"), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    create_table(
        "console_outputs",
        sa.Column("session_id", sa.Uuid, sa.ForeignKey("console_sessions.id"), primary_key=True),
        sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    create_table(
        "plan_moves",
        sa.Column("plan_id", sa.Uuid, sa.ForeignKey("plans.id"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("wave", sa.Integer, nullable=False),
        sa.Column("vm_id", sa.Uuid, sa.ForeignKey("vms.id"), nullable=False),
        sa.Column("from_host_id", sa.Uuid, sa.ForeignKey("hosts.id"), nullable=False),
        sa.Column("to_host_id", sa.Uuid, sa.ForeignKey("hosts.id"), nullable=False),
        sa.Column("why", sa.String(16), nullable=False),
        sa.Column("transfer_mib", sa.BigInteger, nullable=False),
        sa.Column("move_id", sa.Uuid, sa.ForeignKey("moves.id")),
        sa.Column("refused", sa.Text),
        sa.Index("ix_plan_moves_move_id", "move_id"),
    )
