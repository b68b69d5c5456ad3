"""Let tenants reserve capacity for a time, and requests draw on it.

Revision ID: 0060
Revises: 0059
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0060"
down_revision = "0059"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
NAME = sa.String(length=63).with_variant(sa.String(length=63, collation="C"), "postgresql")
JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
DRAWS = sa.text("reservation_id IS NOT NULL")
OPEN = sa.text("state IN ('asked', 'accepted', 'in_force')")


def upgrade() -> None:
    # On PostgreSQL the column is there: `registry.db.online_indexes` made it.
    beforehand = op.get_bind().dialect.name == "postgresql"
    op.add_column(
        "requests", sa.Column("reservation_id", sa.Uuid(), nullable=True), if_not_exists=beforehand
    )
    op.create_index(
        "ix_requests_reservation_id",
        "requests",
        ["reservation_id"],
        unique=False,
        if_not_exists=beforehand,
        sqlite_where=DRAWS,
        postgresql_where=DRAWS,
    )
    op.create_table(
        "reservations",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("vm_type_id", sa.Uuid(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("requires", JSON, nullable=False),
        sa.Column("keep_from", TIME, nullable=False),
        sa.Column("starts_at", TIME, nullable=False),
        sa.Column("ends_at", TIME, nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("used", sa.Integer(), server_default="0", nullable=False),
        sa.Column("short", sa.Integer(), server_default="0", nullable=False),
        sa.Column("decision", JSON, nullable=True),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("decided_at", TIME, nullable=True),
        sa.CheckConstraint(
            "state IN ('asked', 'accepted', 'refused', 'in_force', 'ended', 'cancelled')",
            name=op.f("ck_reservations_state_known"),
        ),
        sa.CheckConstraint(
            "count >= 1 AND used >= 0 AND short >= 0",
            name=op.f("ck_reservations_counts_not_negative"),
        ),
        sa.CheckConstraint(
            "keep_from <= starts_at AND starts_at < ends_at",
            name=op.f("ck_reservations_times_in_order"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_reservations_tenant_id_tenants")
        ),
        sa.ForeignKeyConstraint(
            ["vm_type_id"], ["vm_types.id"], name=op.f("fk_reservations_vm_type_id_vm_types")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservations")),
    )
    op.create_index(
        "uq_reservations_tenant_id_name",
        "reservations",
        ["tenant_id", "name"],
        unique=True,
        sqlite_where=OPEN,
        postgresql_where=OPEN,
    )
    op.create_index(
        op.f("ix_reservations_tenant_id_id"), "reservations", ["tenant_id", "id"], unique=False
    )
    op.create_index(
        "ix_reservations_open",
        "reservations",
        ["state"],
        unique=False,
        sqlite_where=OPEN,
        postgresql_where=OPEN,
    )
    op.create_table(
        "reservation_holds",
        sa.Column("reservation_id", sa.Uuid(), nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.CheckConstraint("count >= 1", name=op.f("ck_reservation_holds_count_positive")),
        sa.PrimaryKeyConstraint("reservation_id", "host_id", name=op.f("pk_reservation_holds")),
    )
