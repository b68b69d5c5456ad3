"""Add the SSH keys of tenants, and what a request brings for its guests.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
NAME = sa.String(length=63).with_variant(sa.String(length=63, collation="C"), "postgresql")


def upgrade() -> None:
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
