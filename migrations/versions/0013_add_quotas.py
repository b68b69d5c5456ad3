"""Add quotas of tenants and groups.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

# Sorted as SQLite and Python sort, whatever the locale of the cluster.
NAME = sa.String(length=63).with_variant(sa.String(length=63, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "quotas",
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("resource", NAME, nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("amount >= 0", name=op.f("ck_quotas_amount_not_negative")),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_quotas_tenant_id_tenants")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "resource", name=op.f("pk_quotas")),
    )
    op.add_column("tenants", sa.Column("over_quota", sa.String(length=16), nullable=True))
