"""Store budgets of tenants and groups, with what was used of them in a month.

Revision ID: 0079
Revises: 0078
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0079"
down_revision = "0078"
branch_labels = None
depends_on = None

NAME = sa.String(63).with_variant(sa.String(63, collation="C"), "postgresql")
# SQLite would store a number with a fraction as a float.
AMOUNT = sa.Numeric(19, 6).with_variant(sa.String(21), "sqlite")
USE = sa.Numeric(36, 6).with_variant(sa.String(38), "sqlite")


def upgrade() -> None:
    op.create_table(
        "budgets",
        sa.Column("tenant_id", sa.Uuid(), sa.ForeignKey("tenants.id"), primary_key=True),
        sa.Column("resource", NAME, primary_key=True),
        sa.Column("amount", AMOUNT, nullable=False),
        sa.Column("warn_at", sa.Integer(), nullable=False),
        sa.Column("month", sa.Date()),
        sa.Column("used", USE),
        sa.Column("per_hour", USE),
        sa.Column("measured_at", sa.DateTime(timezone=True)),
        sa.Column("state", sa.String(8)),
        sa.Column("spent_at", sa.DateTime(timezone=True)),
    )
