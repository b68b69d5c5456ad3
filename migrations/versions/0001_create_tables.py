"""Create the tables.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# Sorted as SQLite and Python sort, whatever the locale of the cluster.
NAME = sa.String(length=63).with_variant(sa.String(length=63, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("subject_type", sa.String(length=20), nullable=False),
        sa.Column("subject_id", sa.String(length=64), nullable=False),
        sa.Column("tenant", NAME),
        sa.Column("from_state", sa.String(length=20)),
        sa.Column("to_state", sa.String(length=20)),
        sa.Column("event", sa.String(length=24)),
        sa.Column("reason", sa.Text()),
        sa.Column("data", JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_events_subject_id_id"), "events", ["subject_id", "id"], unique=False)
    op.create_index(op.f("ix_events_tenant_id"), "events", ["tenant", "id"], unique=False)

    op.create_table(
        "hosts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("admin", sa.String(length=20), nullable=False),
        sa.Column("health", sa.String(length=20), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("domain_type", sa.String(length=16), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("network", sa.Text(), nullable=False),
        sa.Column("base_volume", sa.Text()),
        sa.Column("memory_backing_mib", sa.BigInteger()),
        sa.Column("max_builds", sa.Integer(), nullable=False),
        sa.Column("last_polled_at", TIME),
        sa.Column("last_error", sa.Text()),
        sa.Column("missed_polls", sa.Integer(), server_default="0", nullable=False),
        sa.Column("failed_builds", sa.Integer(), server_default="0", nullable=False),
        sa.Column("held_back_until", TIME),
        sa.Column("created_at", TIME, nullable=False),
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
        "leases",
        sa.Column("name", NAME, nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "resources",
        sa.Column("name", NAME, nullable=False),
        sa.Column("unit", sa.String(length=32), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
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
        sa.Column("fallback_reason", sa.Text()),
        sa.Column("parameters", JSON, nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("engine_version", sa.String(length=63), nullable=False),
        sa.Column("budget_units", sa.BigInteger()),
        sa.Column("work", sa.BigInteger(), nullable=False),
        sa.Column("cut", sa.Boolean(), nullable=False),
        sa.Column("inputs_digest", sa.String(length=128), nullable=False),
        sa.Column("shares", JSON, nullable=False),
        sa.Column("bound", sa.Float(precision=53)),
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
        "tenants",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("weight", sa.Float(precision=53), nullable=False),
        sa.Column("parent_id", sa.Uuid()),
        sa.Column("created_at", TIME, nullable=False),
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vm_types")),
        sa.UniqueConstraint("name", "revision", name=op.f("uq_vm_types_name_revision")),
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
        "inventories",
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("resource", NAME, nullable=False),
        sa.Column("detected", sa.BigInteger()),
        sa.Column("override", sa.BigInteger()),
        sa.Column("reserved", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("foreign_amount", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("ratio_thousandths", sa.BigInteger(), server_default="1000", nullable=False),
        sa.Column("committed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column(
            "capacity",
            sa.BigInteger(),
            sa.Computed(
                "CASE WHEN (coalesce(override, detected, 0) - reserved - foreign_amount) > 0 THEN (coalesce(override, detected, 0) - reserved - foreign_amount) * ratio_thousandths / 1000 ELSE 0 END",  # noqa: E501
                persisted=True,
            ),
        ),
        sa.CheckConstraint(
            "(detected IS NULL OR detected >= 0) AND (override IS NULL OR override >= 0) AND reserved >= 0 AND foreign_amount >= 0 AND ratio_thousandths >= 1 AND committed >= 0",  # noqa: E501
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
        "leftovers",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("vm_uuid", sa.Uuid()),
        sa.Column("assignment_id", sa.Uuid()),
        sa.Column("claim_owner", sa.Text()),
        sa.Column("claim_until", TIME),
        sa.Column("sent_at", TIME),
        sa.Column("found_at", TIME, nullable=False),
        sa.CheckConstraint("kind IN ('domain', 'volume')", name=op.f("ck_leftovers_kind_known")),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_leftovers_host_id_hosts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leftovers")),
        sa.UniqueConstraint("host_id", "kind", "name", name=op.f("uq_leftovers_host_id_kind_name")),
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
        sa.Column("hosts", JSON),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("waiting", JSON),
        sa.Column("rounds_waited", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.CheckConstraint(
            "state IN ('pending', 'partly_placed', 'placed', 'released', 'cancelled', 'expired')",
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
    op.create_index(op.f("ix_requests_state"), "requests", ["state"], unique=False)
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
        sa.Column("outcome", JSON, nullable=False),
        sa.Column("inputs", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["round"], ["rounds.number"], name=op.f("fk_round_inputs_round_rounds")
        ),
        sa.PrimaryKeyConstraint("round", name=op.f("pk_round_inputs")),
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
        sa.Column("tenant_id", sa.Uuid()),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("revoked_at", TIME),
        sa.CheckConstraint(
            "(role = 'operator' AND tenant_id IS NULL) OR (role = 'tenant' AND tenant_id IS NOT NULL)",  # noqa: E501
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
        sa.Column("request_id", sa.Uuid()),
        sa.Column("status", sa.Integer()),
        sa.Column("body", sa.Text()),
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
        "vms",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("desired", sa.String(length=20), nullable=False),
        sa.Column("observed", sa.String(length=20), nullable=False),
        sa.Column("generation", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text()),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("deleted_at", TIME),
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
    )
    op.create_index(op.f("ix_vms_name"), "vms", ["name"], unique=False)
    op.create_index(op.f("ix_vms_request_id_id"), "vms", ["request_id", "id"], unique=False)
    op.create_index(op.f("ix_vms_tenant_id_id"), "vms", ["tenant_id", "id"], unique=False)

    op.create_table(
        "assignments",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("vm_id", sa.Uuid(), nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("round", SERIAL, nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("claim_token", sa.Uuid()),
        sa.Column("claim_owner", sa.Text()),
        sa.Column("claim_until", TIME),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text()),
        sa.Column("sent_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("activated_at", TIME),
        sa.Column("released_at", TIME),
        sa.CheckConstraint(
            "state IN ('reserved', 'creating', 'active', 'releasing', 'released', 'quarantined')",
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
        "assignment_resources",
        sa.Column("assignment_id", sa.Uuid(), nullable=False),
        sa.Column("resource", NAME, nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("amount >= 1", name=op.f("ck_assignment_resources_amount_positive")),
        sa.ForeignKeyConstraint(
            ["assignment_id", "host_id"],
            ["assignments.id", "assignments.host_id"],
            name=op.f("fk_assignment_resources_assignment_id_host_id_assignments"),
        ),
        sa.ForeignKeyConstraint(
            ["host_id", "resource"],
            ["inventories.host_id", "inventories.resource"],
            name=op.f("fk_assignment_resources_host_id_resource_inventories"),
        ),
        sa.PrimaryKeyConstraint("assignment_id", "resource", name=op.f("pk_assignment_resources")),
    )
    op.create_index(
        op.f("ix_assignment_resources_host_id_resource"),
        "assignment_resources",
        ["host_id", "resource"],
        unique=False,
    )
