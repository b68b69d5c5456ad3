"""Add the audit: who called what that may change something, and how it ended.

Revision ID: 0021
Revises: 0020
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

NAME = sa.String(63).with_variant(sa.String(63, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("token_id", sa.Uuid()),
        sa.Column("token", NAME),
        sa.Column("tenant", NAME),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("method", sa.String(16), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("route", sa.Text()),
        sa.Column("subject", sa.String(64)),
        sa.Column("status", sa.Integer()),
        sa.Column("untold", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_audit_tenant_id"), "audit", ["tenant", "id"])
    op.create_index(op.f("ix_audit_token_id"), "audit", ["token", "id"])
    op.create_index(op.f("ix_audit_at"), "audit", ["at"])
