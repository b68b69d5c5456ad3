"""Add what requests ask of hosts beyond labels that they require, and groups of VMs.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
NAME = sa.String(length=63).with_variant(sa.String(length=63, collation="C"), "postgresql")


def upgrade() -> None:
    for name in ("forbids", "prefers"):
        column = sa.Column(name, JSON, server_default="[]", nullable=False)
        op.add_column("requests", column)
    op.add_column("requests", sa.Column("zone", sa.String(length=128)))
    op.add_column("requests", sa.Column("spread", sa.String(length=20)))
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
