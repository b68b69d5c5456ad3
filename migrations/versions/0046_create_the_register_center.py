"""Create the register center: tables, the ledger's triggers, and the rows that are always there.

Revision ID: 0046
Revises:
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from migrations.triggers_of_0046 import statements

revision = "0046"
down_revision = None
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# Sorted as SQLite and Python sort, whatever the locale of the cluster.
NAME = sa.String(length=63).with_variant(sa.String(length=63, collation="C"), "postgresql")


def upgrade() -> None:
    _create_tables()
    for statement in statements(op.get_bind().dialect.name):
        op.execute(statement)
    _add_rows()


def only_on_sqlite(constraint: sa.Constraint) -> Sequence[sa.Constraint]:
    """Return what the ledger's triggers prove on PostgreSQL, for its table on SQLite."""
    return [constraint] if op.get_bind().dialect.name == "sqlite" else []


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
    op.execute("INSERT INTO schema_serves (code_since) VALUES ('0046')")
    installation = sa.table(
        "installation_secrets", sa.column("name"), sa.column("value"), sa.column("made_at", TIME)
    )
    made = {"name": "names", "value": secrets.token_hex(32), "made_at": datetime.now(UTC)}
    op.bulk_insert(installation, [made])


def _create_tables() -> None:
    op.create_table(
        "audit",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("token_id", sa.Uuid(), nullable=True),
        sa.Column("token", NAME, nullable=True),
        sa.Column("tenant", NAME, nullable=True),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("method", sa.String(length=16), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("route", sa.Text(), nullable=True),
        sa.Column("subject", sa.String(length=64), nullable=True),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("untold", sa.Integer(), server_default="0", nullable=False),
        sa.Column("refusals", JSON, nullable=True),
        sa.Column("last_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_audit_at"), "audit", ["at"], unique=False)
    op.create_index(op.f("ix_audit_tenant_id"), "audit", ["tenant", "id"], unique=False)
    op.create_index(op.f("ix_audit_token_id"), "audit", ["token", "id"], unique=False)
    op.create_table(
        "events",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("subject_type", sa.String(length=20), nullable=False),
        sa.Column("subject_id", sa.String(length=64), nullable=False),
        sa.Column("tenant", NAME, nullable=True),
        sa.Column("from_state", sa.String(length=20), nullable=True),
        sa.Column("to_state", sa.String(length=20), nullable=True),
        sa.Column("event", sa.String(length=24), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("data", JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_events_kind_id"), "events", ["kind", "id"], unique=False)
    op.create_index(op.f("ix_events_subject_id_id"), "events", ["subject_id", "id"], unique=False)
    op.create_index(op.f("ix_events_tenant_id"), "events", ["tenant", "id"], unique=False)
    op.create_table(
        "hosts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("credential", NAME, nullable=True),
        sa.Column("ssh_host_keys", JSON, server_default="[]", nullable=False),
        sa.Column("admin", sa.String(length=20), nullable=False),
        sa.Column("health", sa.String(length=20), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("domain_type", sa.String(length=16), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("network", sa.Text(), nullable=False),
        sa.Column("base_volume", sa.Text(), nullable=True),
        sa.Column("memory_backing_mib", sa.BigInteger(), nullable=True),
        sa.Column("max_builds", sa.Integer(), nullable=False),
        sa.Column("last_polled_at", TIME, nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("missed_polls", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_missed_at", TIME, nullable=True),
        sa.Column("failed_builds", sa.Integer(), server_default="0", nullable=False),
        sa.Column("held_back_until", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("fence_target", sa.Text(), nullable=True),
        sa.Column("returning_since", TIME, nullable=True),
        sa.Column("machine_uuid", sa.String(length=36), nullable=True),
        sa.Column("found_machine_uuid", sa.String(length=36), nullable=True),
        sa.Column("pool_silent_since", TIME, nullable=True),
        sa.Column("security_model", sa.String(length=32), nullable=True),
        sa.Column("shares_kept", sa.Boolean(), nullable=True),
        sa.Column("can_filter", sa.Boolean(), nullable=True),
        sa.CheckConstraint(
            "admin IN ('active', 'draining', 'maintenance', 'retired')",
            name=op.f("ck_hosts_admin_known"),
        ),
        sa.CheckConstraint(
            "health IN ('enrolling', 'up', 'unreachable', 'down')",
            name=op.f("ck_hosts_health_known"),
        ),
        sa.CheckConstraint("max_builds >= 1", name=op.f("ck_hosts_max_builds_positive")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hosts")),
    )
    op.create_index(
        "ix_hosts_missed",
        "hosts",
        ["id"],
        unique=False,
        sqlite_where=sa.text("missed_polls > 0"),
        postgresql_where=sa.text("missed_polls > 0"),
    )
    op.create_index(
        "uq_hosts_name",
        "hosts",
        ["name"],
        unique=True,
        sqlite_where=sa.text("admin NOT IN ('retired')"),
        postgresql_where=sa.text("admin NOT IN ('retired')"),
    )
    op.create_index(
        "uq_hosts_uri",
        "hosts",
        ["uri"],
        unique=True,
        sqlite_where=sa.text("admin NOT IN ('retired')"),
        postgresql_where=sa.text("admin NOT IN ('retired')"),
    )
    op.create_table(
        "images",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("format", sa.String(length=8), nullable=False),
        sa.Column("seed_kind", sa.String(length=16), nullable=False),
        sa.Column("min_memory_mib", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("virtual_size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("received_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("claim_token", sa.Uuid(), nullable=True),
        sa.Column("claim_owner", sa.Text(), nullable=True),
        sa.Column("claim_until", TIME, nullable=True),
        sa.Column("sent_at", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("removed_at", TIME, nullable=True),
        sa.Column("signature", sa.Text(), nullable=True),
        sa.Column("signed_by", sa.Text(), nullable=True),
        sa.Column("held_at", TIME, nullable=True),
        sa.Column("held_reason", sa.Text(), nullable=True),
        sa.CheckConstraint("format IN ('qcow2', 'raw')", name=op.f("ck_images_format_known")),
        sa.CheckConstraint(
            "seed_kind IN ('none', 'nocloud')", name=op.f("ck_images_seed_kind_known")
        ),
        sa.CheckConstraint(
            "state <> 'ready' OR (size_bytes >= 1 AND virtual_size_bytes >= 1)",
            name=op.f("ck_images_sizes_known"),
        ),
        sa.CheckConstraint(
            "state IN ('importing', 'ready', 'failed', 'removed')",
            name=op.f("ck_images_state_known"),
        ),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_images_sha256_whole")),
        sa.CheckConstraint(
            "revision >= 1 AND min_memory_mib >= 0", name=op.f("ck_images_amounts_not_negative")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_images")),
        sa.UniqueConstraint("name", "revision", name=op.f("uq_images_name_revision")),
    )
    op.create_index(op.f("ix_images_state"), "images", ["state"], unique=False)
    op.create_table(
        "installation_secrets",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("value", sa.String(length=64), nullable=False),
        sa.Column("made_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_installation_secrets")),
    )
    op.create_table(
        "leases",
        sa.Column("name", NAME, nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("held_since", TIME, nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "monitors",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("heard_at", TIME, nullable=False),
        sa.Column("lease_until", TIME, nullable=False),
        sa.Column("watched", sa.Integer(), nullable=False),
        sa.Column("late", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_monitors")),
    )
    op.create_table(
        "networks",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=True),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("cidr", sa.String(length=18), nullable=True),
        sa.Column("gateway", sa.String(length=15), nullable=True),
        sa.Column("dns", JSON, nullable=False),
        sa.Column("excluded", JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("offered_to_all", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("isolated", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("filtered", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.CheckConstraint("kind IN ('network', 'bridge')", name=op.f("ck_networks_kind_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_networks")),
        sa.UniqueConstraint("name", name=op.f("uq_networks_name")),
    )
    op.create_table(
        "processes",
        sa.Column("kind", NAME, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("heard_at", TIME, nullable=False),
        sa.Column("trouble", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("kind", "name", name=op.f("pk_processes")),
    )
    op.create_table(
        "resources",
        sa.Column("name", NAME, nullable=False),
        sa.Column("unit", sa.String(length=32), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("overhead_per_vm", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_resources")),
        sa.UniqueConstraint("position", name=op.f("uq_resources_position")),
    )
    op.create_table(
        "rounds",
        sa.Column("number", SERIAL, autoincrement=True, nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("slot_start_at", TIME, nullable=False),
        sa.Column("slot_length_s", sa.Float(precision=53), nullable=False),
        sa.Column("policy", sa.String(length=63), nullable=False),
        sa.Column("decided_by", sa.String(length=16), nullable=False),
        sa.Column("fallback_reason", sa.Text(), nullable=True),
        sa.Column("parameters", JSON, nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("engine_version", sa.String(length=63), nullable=False),
        sa.Column("budget_units", sa.BigInteger(), nullable=True),
        sa.Column("work", sa.BigInteger(), nullable=False),
        sa.Column("cut", sa.Boolean(), nullable=False),
        sa.Column("inputs_digest", sa.String(length=128), nullable=False),
        sa.Column("shares", JSON, nullable=False),
        sa.Column("bound", sa.Float(precision=53), nullable=True),
        sa.Column("fair_distance", sa.Float(precision=53), nullable=True),
        sa.Column("group_shares", JSON, server_default="[]", nullable=False),
        sa.Column("timings", JSON, nullable=False),
        sa.Column("placed", sa.Integer(), nullable=False),
        sa.Column("left_out", sa.Integer(), nullable=False),
        sa.Column("dropped", sa.Integer(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.CheckConstraint(
            "decided_by IN ('policy', 'fallback')", name=op.f("ck_rounds_decided_by_known")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_rounds")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "schema_serves",
        sa.Column("code_since", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("code_since", name=op.f("pk_schema_serves")),
    )
    op.create_table(
        "slot_loop",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("changed_by", sa.Text(), nullable=True),
        sa.Column("changed_at", TIME, nullable=True),
        sa.Column("last_slot_at", TIME, nullable=True),
        sa.Column("slot_length_s", sa.Float(), nullable=True),
        sa.CheckConstraint("state IN ('running', 'paused')", name=op.f("ck_slot_loop_state_known")),
        sa.CheckConstraint("id = 1", name=op.f("ck_slot_loop_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_slot_loop")),
    )
    op.create_table(
        "tenants",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("weight", sa.Float(precision=53), nullable=False),
        sa.Column("parent_id", sa.Uuid(), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("is_group", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("removed_at", TIME, nullable=True),
        sa.Column("over_quota", sa.String(length=16), nullable=True),
        sa.CheckConstraint("weight > 0", name=op.f("ck_tenants_weight_positive")),
        sa.ForeignKeyConstraint(
            ["parent_id"], ["tenants.id"], name=op.f("fk_tenants_parent_id_tenants")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tenants")),
        sa.UniqueConstraint("name", name=op.f("uq_tenants_name")),
    )
    op.create_table(
        "vm_types",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("limits", JSON, server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vm_types")),
        sa.UniqueConstraint("name", "revision", name=op.f("uq_vm_types_name_revision")),
    )
    op.create_table(
        "host_fences",
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("asked_at", TIME, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("again_at", TIME, nullable=True),
        sa.Column("fenced_at", TIME, nullable=True),
        sa.Column("sent_at", TIME, nullable=True),
        sa.Column("claim_token", sa.Uuid(), nullable=True),
        sa.Column("claim_owner", sa.Text(), nullable=True),
        sa.Column("claim_until", TIME, nullable=True),
        sa.CheckConstraint(
            "state IN ('idle', 'asked', 'running', 'failed', 'fenced')",
            name=op.f("ck_host_fences_state_known"),
        ),
        sa.ForeignKeyConstraint(
            ["host_id"], ["hosts.id"], name=op.f("fk_host_fences_host_id_hosts")
        ),
        sa.PrimaryKeyConstraint("host_id", name=op.f("pk_host_fences")),
    )
    op.create_table(
        "host_reports",
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("report", JSON, nullable=False),
        sa.Column("polled_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["host_id"], ["hosts.id"], name=op.f("fk_host_reports_host_id_hosts")
        ),
        sa.PrimaryKeyConstraint("host_id", name=op.f("pk_host_reports")),
    )
    op.create_table(
        "image_copies",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("image_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("disk_gib", sa.BigInteger(), nullable=False),
        sa.Column("volume", sa.Text(), nullable=True),
        sa.Column("uploaded_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("interruptions", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("claim_token", sa.Uuid(), nullable=True),
        sa.Column("claim_owner", sa.Text(), nullable=True),
        sa.Column("claim_until", TIME, nullable=True),
        sa.Column("sent_at", TIME, nullable=True),
        sa.Column("present_at", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("host_lost_at", TIME, nullable=True),
        sa.CheckConstraint(
            "state IN ('absent', 'uploading', 'present', 'failed', 'removing')",
            name=op.f("ck_image_copies_state_known"),
        ),
        sa.CheckConstraint(
            "disk_gib >= 1 AND uploaded_bytes >= 0",
            name=op.f("ck_image_copies_amounts_not_negative"),
        ),
        sa.ForeignKeyConstraint(
            ["host_id"], ["hosts.id"], name=op.f("fk_image_copies_host_id_hosts")
        ),
        sa.ForeignKeyConstraint(
            ["image_id"], ["images.id"], name=op.f("fk_image_copies_image_id_images")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_image_copies")),
        sa.UniqueConstraint("host_id", "image_id", name=op.f("uq_image_copies_host_id_image_id")),
    )
    op.create_index(op.f("ix_image_copies_image_id"), "image_copies", ["image_id"], unique=False)
    op.create_index(op.f("ix_image_copies_state"), "image_copies", ["state"], unique=False)
    op.create_table(
        "inventories",
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("resource", NAME, nullable=False),
        sa.Column("detected", sa.BigInteger(), nullable=True),
        sa.Column("override", sa.BigInteger(), nullable=True),
        sa.Column("reserved", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("foreign_amount", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("ratio_thousandths", sa.BigInteger(), server_default="1000", nullable=False),
        sa.Column("own_ratio_thousandths", sa.BigInteger(), nullable=True),
        sa.Column("committed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column(
            "capacity",
            sa.BigInteger(),
            sa.Computed(
                (
                    "CASE WHEN (coalesce(override, detected, 0) - reserved - foreign_amount) "
                    "> 0 THEN (coalesce(override, detected, 0) - reserved - foreign_amount) * "
                    "ratio_thousandths / 1000 ELSE 0 END"
                ),
                persisted=True,
            ),
            nullable=True,
        ),
        sa.CheckConstraint(
            (
                "(detected IS NULL OR detected >= 0) AND (override IS NULL OR override >= "
                "0) AND reserved >= 0 AND foreign_amount >= 0 AND ratio_thousandths >= 1 "
                "AND committed >= 0"
            ),
            name=op.f("ck_inventories_amounts_not_negative"),
        ),
        sa.ForeignKeyConstraint(
            ["host_id"], ["hosts.id"], name=op.f("fk_inventories_host_id_hosts")
        ),
        sa.ForeignKeyConstraint(
            ["resource"], ["resources.name"], name=op.f("fk_inventories_resource_resources")
        ),
        sa.PrimaryKeyConstraint("host_id", "resource", name=op.f("pk_inventories")),
    )
    op.create_table(
        "label_ratios",
        sa.Column("label", sa.String(length=128), nullable=False),
        sa.Column("resource", NAME, nullable=False),
        sa.Column("ratio_thousandths", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("ratio_thousandths >= 1", name=op.f("ck_label_ratios_ratio_positive")),
        sa.ForeignKeyConstraint(
            ["resource"], ["resources.name"], name=op.f("fk_label_ratios_resource_resources")
        ),
        sa.PrimaryKeyConstraint("label", "resource", name=op.f("pk_label_ratios")),
    )
    op.create_table(
        "leftovers",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("vm_uuid", sa.Uuid(), nullable=True),
        sa.Column("assignment_id", sa.Uuid(), nullable=True),
        sa.Column("claim_owner", sa.Text(), nullable=True),
        sa.Column("claim_until", TIME, nullable=True),
        sa.Column("sent_at", TIME, nullable=True),
        sa.Column("found_at", TIME, nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=True),
        sa.CheckConstraint("kind IN ('domain', 'volume')", name=op.f("ck_leftovers_kind_known")),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_leftovers_host_id_hosts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leftovers")),
        sa.UniqueConstraint("host_id", "kind", "name", name=op.f("uq_leftovers_host_id_kind_name")),
    )
    op.create_table(
        "network_hosts",
        sa.Column("network_id", sa.Uuid(), nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('network', 'bridge')", name=op.f("ck_network_hosts_kind_known")
        ),
        sa.ForeignKeyConstraint(
            ["host_id"], ["hosts.id"], name=op.f("fk_network_hosts_host_id_hosts")
        ),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name=op.f("fk_network_hosts_network_id_networks")
        ),
        sa.PrimaryKeyConstraint("network_id", "host_id", name=op.f("pk_network_hosts")),
    )
    op.create_table(
        "network_offers",
        sa.Column("network_id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("owns", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name=op.f("fk_network_offers_network_id_networks")
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_network_offers_tenant_id_tenants")
        ),
        sa.PrimaryKeyConstraint("network_id", "tenant_id", name=op.f("pk_network_offers")),
    )
    op.create_index(
        op.f("ix_network_offers_tenant_id"), "network_offers", ["tenant_id"], unique=False
    )
    op.create_table(
        "quotas",
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("resource", NAME, nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("by_default", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.CheckConstraint("amount >= 0", name=op.f("ck_quotas_amount_not_negative")),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_quotas_tenant_id_tenants")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "resource", name=op.f("pk_quotas")),
    )
    op.create_table(
        "requests",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("vm_type_id", sa.Uuid(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("min_count", sa.Integer(), nullable=False),
        sa.Column("requires", JSON, nullable=False),
        sa.Column("hosts", JSON, nullable=True),
        sa.Column("forbids", JSON, server_default="[]", nullable=False),
        sa.Column("prefers", JSON, server_default="[]", nullable=False),
        sa.Column("zone", sa.String(length=128), nullable=True),
        sa.Column("spread", sa.String(length=20), nullable=True),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("waiting", JSON, nullable=True),
        sa.Column("rounds_waited", sa.Integer(), server_default="0", nullable=False),
        sa.Column("labels", JSON, server_default="{}", nullable=False),
        sa.Column("expires_at", TIME, nullable=True),
        sa.Column("ending_since", TIME, nullable=True),
        sa.Column("hostname", sa.String(length=253), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.CheckConstraint(
            ("state IN ('pending', 'partly_placed', 'placed', 'released', 'cancelled', 'expired')"),
            name=op.f("ck_requests_state_known"),
        ),
        sa.CheckConstraint(
            "count >= 0 AND min_count >= 1", name=op.f("ck_requests_counts_not_negative")
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_requests_tenant_id_tenants")
        ),
        sa.ForeignKeyConstraint(
            ["vm_type_id"], ["vm_types.id"], name=op.f("fk_requests_vm_type_id_vm_types")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_requests")),
    )
    op.create_index(op.f("ix_requests_expires_at"), "requests", ["expires_at"], unique=False)
    op.create_index(op.f("ix_requests_state"), "requests", ["state"], unique=False)
    op.create_index(op.f("ix_requests_state_id"), "requests", ["state", "id"], unique=False)
    op.create_index(op.f("ix_requests_tenant_id_id"), "requests", ["tenant_id", "id"], unique=False)
    op.create_index(
        "uq_requests_tenant_id_name",
        "requests",
        ["tenant_id", "name"],
        unique=True,
        sqlite_where=sa.text("state NOT IN ('released', 'cancelled', 'expired')"),
        postgresql_where=sa.text("state NOT IN ('released', 'cancelled', 'expired')"),
    )
    op.create_table(
        "round_inputs",
        sa.Column("round", SERIAL, autoincrement=False, nullable=False),
        sa.Column("outcome", JSON, nullable=True),
        sa.Column("inputs", sa.LargeBinary(), nullable=False),
        sa.Column("packed_outcome", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint(
            "(outcome IS NULL) <> (packed_outcome IS NULL)",
            name=op.f("ck_round_inputs_outcome_once"),
        ),
        sa.ForeignKeyConstraint(
            ["round"], ["rounds.number"], name=op.f("fk_round_inputs_round_rounds")
        ),
        sa.PrimaryKeyConstraint("round", name=op.f("pk_round_inputs")),
    )
    op.create_table(
        "shadow_rounds",
        sa.Column("round", SERIAL, autoincrement=False, nullable=False),
        sa.Column("policy", sa.String(length=63), nullable=False),
        sa.Column("parameters", JSON, nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("seconds", sa.Float(precision=53), nullable=True),
        sa.Column("cut", sa.Boolean(), nullable=False),
        sa.Column("decided", JSON, nullable=True),
        sa.Column("first", JSON, nullable=True),
        sa.Column("agreed", sa.Integer(), nullable=True),
        sa.Column("shares", JSON, nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.CheckConstraint(
            "(error IS NULL) = (decided IS NOT NULL)",
            name=op.f("ck_shadow_rounds_decided_or_failed"),
        ),
        sa.ForeignKeyConstraint(
            ["round"], ["rounds.number"], name=op.f("fk_shadow_rounds_round_rounds")
        ),
        sa.PrimaryKeyConstraint("round", name=op.f("pk_shadow_rounds")),
    )
    op.create_table(
        "ssh_keys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_ssh_keys_tenant_id_tenants")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ssh_keys")),
        sa.UniqueConstraint("tenant_id", "name", name=op.f("uq_ssh_keys_tenant_id_name")),
    )
    op.create_table(
        "strangers",
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("domain_uuid", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("first_seen_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_strangers_host_id_hosts")),
        sa.PrimaryKeyConstraint("host_id", "domain_uuid", name=op.f("pk_strangers")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=True),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("revoked_at", TIME, nullable=True),
        sa.Column("read_only", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("expires_at", TIME, nullable=True),
        sa.Column("last_used_at", TIME, nullable=True),
        sa.CheckConstraint(
            (
                "(role = 'operator' AND tenant_id IS NULL) OR (role = 'tenant' AND "
                "tenant_id IS NOT NULL)"
            ),
            name=op.f("ck_tokens_role_known"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_tokens_tenant_id_tenants")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
    )
    op.create_index(
        "uq_tokens_name",
        "tokens",
        ["name"],
        unique=True,
        sqlite_where=sa.text("revoked_at IS NULL"),
        postgresql_where=sa.text("revoked_at IS NULL"),
    )
    op.create_table(
        "vm_groups",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("apart", sa.Boolean(), nullable=False),
        sa.Column("hard", sa.Boolean(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_vm_groups_tenant_id_tenants")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vm_groups")),
        sa.UniqueConstraint("tenant_id", "name", name=op.f("uq_vm_groups_tenant_id_name")),
    )
    op.create_table(
        "vm_type_resources",
        sa.Column("vm_type_id", sa.Uuid(), nullable=False),
        sa.Column("resource", NAME, nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("amount >= 1", name=op.f("ck_vm_type_resources_amount_positive")),
        sa.ForeignKeyConstraint(
            ["resource"], ["resources.name"], name=op.f("fk_vm_type_resources_resource_resources")
        ),
        sa.ForeignKeyConstraint(
            ["vm_type_id"], ["vm_types.id"], name=op.f("fk_vm_type_resources_vm_type_id_vm_types")
        ),
        sa.PrimaryKeyConstraint("vm_type_id", "resource", name=op.f("pk_vm_type_resources")),
    )
    op.create_table(
        "build_failures",
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("avoid_until", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["host_id"], ["hosts.id"], name=op.f("fk_build_failures_host_id_hosts")
        ),
        sa.ForeignKeyConstraint(
            ["request_id"], ["requests.id"], name=op.f("fk_build_failures_request_id_requests")
        ),
        sa.PrimaryKeyConstraint("request_id", "host_id", name=op.f("pk_build_failures")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("scope", sa.String(length=128), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.String(length=128), nullable=False),
        sa.Column("request_id", sa.Uuid(), nullable=True),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("first_used_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["request_id"], ["requests.id"], name=op.f("fk_idempotency_keys_request_id_requests")
        ),
        sa.PrimaryKeyConstraint("scope", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(
        op.f("ix_idempotency_keys_first_used_at"),
        "idempotency_keys",
        ["first_used_at"],
        unique=False,
    )
    op.create_table(
        "request_access",
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("ssh_keys", JSON, nullable=False),
        sa.Column("user_data", sa.LargeBinary(), nullable=True),
        sa.Column("user_data_bytes", sa.Integer(), nullable=False),
        sa.Column("user_data_sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["request_id"], ["requests.id"], name=op.f("fk_request_access_request_id_requests")
        ),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_request_access")),
    )
    op.create_table(
        "request_groups",
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("group_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"], ["vm_groups.id"], name=op.f("fk_request_groups_group_id_vm_groups")
        ),
        sa.ForeignKeyConstraint(
            ["request_id"], ["requests.id"], name=op.f("fk_request_groups_request_id_requests")
        ),
        sa.PrimaryKeyConstraint("request_id", "group_id", name=op.f("pk_request_groups")),
    )
    op.create_index(
        op.f("ix_request_groups_group_id"), "request_groups", ["group_id"], unique=False
    )
    op.create_table(
        "request_images",
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("image_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["image_id"], ["images.id"], name=op.f("fk_request_images_image_id_images")
        ),
        sa.ForeignKeyConstraint(
            ["request_id"], ["requests.id"], name=op.f("fk_request_images_request_id_requests")
        ),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_request_images")),
    )
    op.create_index(
        op.f("ix_request_images_image_id"), "request_images", ["image_id"], unique=False
    )
    op.create_table(
        "request_networks",
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("network_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name=op.f("fk_request_networks_network_id_networks")
        ),
        sa.ForeignKeyConstraint(
            ["request_id"], ["requests.id"], name=op.f("fk_request_networks_request_id_requests")
        ),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_request_networks")),
    )
    op.create_index(
        op.f("ix_request_networks_network_id"), "request_networks", ["network_id"], unique=False
    )
    op.create_table(
        "vms",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("desired", sa.String(length=20), nullable=False),
        sa.Column("observed", sa.String(length=20), nullable=False),
        sa.Column("generation", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("deleted_at", TIME, nullable=True),
        sa.Column("switched_at", TIME, nullable=True),
        sa.Column("hostname", sa.String(length=253), nullable=True),
        sa.Column("labels", JSON, server_default="{}", nullable=False),
        sa.CheckConstraint(
            "desired IN ('running', 'stopped', 'deleted')", name=op.f("ck_vms_desired_known")
        ),
        sa.CheckConstraint(
            "observed IN ('absent', 'running', 'stopped', 'lost')",
            name=op.f("ck_vms_observed_known"),
        ),
        sa.ForeignKeyConstraint(
            ["request_id"], ["requests.id"], name=op.f("fk_vms_request_id_requests")
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_vms_tenant_id_tenants")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vms")),
        postgresql_with={"fillfactor": 50},
    )
    op.create_index(
        "ix_vms_id_live",
        "vms",
        ["id"],
        unique=False,
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_index(op.f("ix_vms_name"), "vms", ["name"], unique=False)
    op.create_index(op.f("ix_vms_request_id_id"), "vms", ["request_id", "id"], unique=False)
    op.create_index(
        "ix_vms_request_id_unplaced",
        "vms",
        ["request_id", "id"],
        unique=False,
        sqlite_where=sa.text("observed = 'absent' AND desired <> 'deleted'"),
        postgresql_where=sa.text("observed = 'absent' AND desired <> 'deleted'"),
    )
    op.create_index(op.f("ix_vms_tenant_id_id"), "vms", ["tenant_id", "id"], unique=False)
    op.create_index(
        "ix_vms_tenant_id_live",
        "vms",
        ["tenant_id", "id"],
        unique=False,
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_index(
        "uq_vms_tenant_id_name",
        "vms",
        ["tenant_id", "name"],
        unique=True,
        sqlite_where=sa.text("desired NOT IN ('deleted')"),
        postgresql_where=sa.text("desired NOT IN ('deleted')"),
    )
    op.create_table(
        "assignments",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("vm_id", sa.Uuid(), nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("round", SERIAL, nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("claim_token", sa.Uuid(), nullable=True),
        sa.Column("claim_owner", sa.Text(), nullable=True),
        sa.Column("claim_until", TIME, nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("sent_at", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("build_began_at", TIME, nullable=True),
        sa.Column("activated_at", TIME, nullable=True),
        sa.Column("released_at", TIME, nullable=True),
        sa.CheckConstraint(
            ("state IN ('reserved', 'creating', 'active', 'releasing', 'released', 'quarantined')"),
            name=op.f("ck_assignments_state_known"),
        ),
        sa.ForeignKeyConstraint(
            ["host_id"], ["hosts.id"], name=op.f("fk_assignments_host_id_hosts")
        ),
        sa.ForeignKeyConstraint(
            ["round"], ["rounds.number"], name=op.f("fk_assignments_round_rounds")
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_assignments_tenant_id_tenants")
        ),
        sa.ForeignKeyConstraint(["vm_id"], ["vms.id"], name=op.f("fk_assignments_vm_id_vms")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_assignments")),
        sa.UniqueConstraint("id", "host_id", name=op.f("uq_assignments_id_host_id")),
        sa.UniqueConstraint("vm_id", "generation", name=op.f("uq_assignments_vm_id_generation")),
    )
    op.create_index(
        "ix_assignments_claim_until",
        "assignments",
        ["claim_until"],
        unique=False,
        sqlite_where=sa.text("claim_until IS NOT NULL"),
        postgresql_where=sa.text("claim_until IS NOT NULL"),
    )
    op.create_index(
        "ix_assignments_host_id_unreleased",
        "assignments",
        ["host_id"],
        unique=False,
        sqlite_where=sa.text("state <> 'released'"),
        postgresql_where=sa.text("state <> 'released'"),
    )
    op.create_index(op.f("ix_assignments_round"), "assignments", ["round"], unique=False)
    op.create_index(
        "ix_assignments_state_unreleased",
        "assignments",
        ["state"],
        unique=False,
        sqlite_where=sa.text("state <> 'released'"),
        postgresql_where=sa.text("state <> 'released'"),
    )
    op.create_index(
        "uq_assignments_vm_id_unreleased",
        "assignments",
        ["vm_id"],
        unique=True,
        sqlite_where=sa.text("state <> 'released'"),
        postgresql_where=sa.text("state <> 'released'"),
    )
    op.create_table(
        "console_reads",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("vm_id", sa.Uuid(), nullable=False),
        sa.Column("max_bytes", sa.Integer(), nullable=False),
        sa.Column("after", sa.BigInteger(), nullable=False),
        sa.Column("asked_at", TIME, nullable=False),
        sa.Column("answered_at", TIME, nullable=True),
        sa.Column("content", sa.LargeBinary(), nullable=True),
        sa.Column("end_at", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["vm_id"], ["vms.id"], name=op.f("fk_console_reads_vm_id_vms")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_console_reads")),
    )
    op.create_index(op.f("ix_console_reads_asked_at"), "console_reads", ["asked_at"], unique=False)
    op.create_table(
        "console_sessions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("vm_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("forced", sa.Boolean(), nullable=False),
        sa.Column("opened_at", TIME, nullable=False),
        sa.Column("heard_at", TIME, nullable=False),
        sa.Column("sent_at", TIME, nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("next_input", sa.BigInteger(), nullable=False),
        sa.Column("output_end", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("claim_owner", sa.Text(), nullable=True),
        sa.Column("claim_until", TIME, nullable=True),
        sa.CheckConstraint(
            "state IN ('waiting', 'attached', 'ended')",
            name=op.f("ck_console_sessions_state_known"),
        ),
        sa.ForeignKeyConstraint(["vm_id"], ["vms.id"], name=op.f("fk_console_sessions_vm_id_vms")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_console_sessions")),
    )
    op.create_index(
        op.f("ix_console_sessions_heard_at"), "console_sessions", ["heard_at"], unique=False
    )
    op.create_index(
        "uq_console_sessions_vm_id",
        "console_sessions",
        ["vm_id"],
        unique=True,
        sqlite_where=sa.text("state NOT IN ('ended')"),
        postgresql_where=sa.text("state NOT IN ('ended')"),
    )
    op.create_table(
        "interfaces",
        sa.Column("vm_id", sa.Uuid(), nullable=False),
        sa.Column("mac", sa.String(length=17), nullable=False),
        sa.Column("network_id", sa.Uuid(), nullable=True),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name=op.f("fk_interfaces_network_id_networks")
        ),
        sa.ForeignKeyConstraint(["vm_id"], ["vms.id"], name=op.f("fk_interfaces_vm_id_vms")),
        sa.PrimaryKeyConstraint("vm_id", name=op.f("pk_interfaces")),
        sa.UniqueConstraint("mac", name=op.f("uq_interfaces_mac")),
    )
    op.create_index(op.f("ix_interfaces_network_id"), "interfaces", ["network_id"], unique=False)
    op.create_table(
        "network_addresses",
        sa.Column("network_id", sa.Uuid(), nullable=False),
        sa.Column("address", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("vm_id", sa.Uuid(), nullable=True),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name=op.f("fk_network_addresses_network_id_networks")
        ),
        sa.ForeignKeyConstraint(["vm_id"], ["vms.id"], name=op.f("fk_network_addresses_vm_id_vms")),
        sa.PrimaryKeyConstraint("network_id", "address", name=op.f("pk_network_addresses")),
        sa.UniqueConstraint("vm_id", name=op.f("uq_network_addresses_vm_id")),
    )
    op.create_table(
        "power_actions",
        sa.Column("vm_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("asked_at", TIME, nullable=False),
        sa.Column("timeout_s", sa.Integer(), nullable=False),
        sa.Column("force_at", TIME, nullable=True),
        sa.Column("signalled_at", TIME, nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("due_at", TIME, nullable=False),
        sa.Column("sent_at", TIME, nullable=True),
        sa.Column("claim_token", sa.Uuid(), nullable=True),
        sa.Column("claim_owner", sa.Text(), nullable=True),
        sa.Column("claim_until", TIME, nullable=True),
        sa.CheckConstraint(
            (
                "state IN ('idle', 'stopping', 'shutting_down', 'starting', 'rebooting', "
                "'restarting')"
            ),
            name=op.f("ck_power_actions_state_known"),
        ),
        sa.CheckConstraint("timeout_s >= 0", name=op.f("ck_power_actions_timeout_not_negative")),
        sa.ForeignKeyConstraint(["vm_id"], ["vms.id"], name=op.f("fk_power_actions_vm_id_vms")),
        sa.PrimaryKeyConstraint("vm_id", name=op.f("pk_power_actions")),
    )
    op.create_table(
        "assignment_resources",
        sa.Column("assignment_id", sa.Uuid(), nullable=False),
        sa.Column("resource", NAME, nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("amount >= 1", name=op.f("ck_assignment_resources_amount_positive")),
        *only_on_sqlite(
            sa.ForeignKeyConstraint(
                ["assignment_id", "host_id"],
                ["assignments.id", "assignments.host_id"],
                name=op.f("fk_assignment_resources_assignment_id_host_id_assignments"),
            )
        ),
        *only_on_sqlite(
            sa.ForeignKeyConstraint(
                ["host_id", "resource"],
                ["inventories.host_id", "inventories.resource"],
                name=op.f("fk_assignment_resources_host_id_resource_inventories"),
            )
        ),
        sa.PrimaryKeyConstraint("assignment_id", "resource", name=op.f("pk_assignment_resources")),
    )
    op.create_index(
        op.f("ix_assignment_resources_host_id_resource"),
        "assignment_resources",
        ["host_id", "resource"],
        unique=False,
    )
    op.create_table(
        "console_inputs",
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["console_sessions.id"],
            name=op.f("fk_console_inputs_session_id_console_sessions"),
        ),
        sa.PrimaryKeyConstraint("session_id", "number", name=op.f("pk_console_inputs")),
    )
    op.create_table(
        "console_outputs",
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["console_sessions.id"],
            name=op.f("fk_console_outputs_session_id_console_sessions"),
        ),
        sa.PrimaryKeyConstraint("session_id", "start", name=op.f("pk_console_outputs")),
    )
