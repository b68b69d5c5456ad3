"""Keep daily sums of what ended assignments held, and mark the assignments that are in them.

Revision ID: 0073
Revises: 0072
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0073"
down_revision = "0072"
branch_labels = None
depends_on = None

NAME = sa.String(63).with_variant(sa.String(63, collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column(
        "assignments",
        sa.Column("in_daily_usage", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    for name, columns, condition in (
        ("released_at_unsummed", ["released_at"], "NOT in_daily_usage"),
        ("tenant_id_released_at_summed", ["tenant_id", "released_at"], "in_daily_usage"),
    ):
        where = sa.text(f"state = 'released' AND {condition}")
        op.create_index(
            f"ix_assignments_{name}",
            "assignments",
            columns,
            sqlite_where=where,
            postgresql_where=where,
        )
    op.create_table(
        "daily_usage",
        sa.Column("tenant_id", sa.Uuid(), primary_key=True),
        sa.Column("day", sa.Date(), primary_key=True),
        sa.Column("vm_type_id", sa.Uuid(), primary_key=True),
        sa.Column("resource", NAME, primary_key=True),
        sa.Column("held_s", sa.BigInteger(), nullable=False),
        sa.Column("held_us", sa.BigInteger(), nullable=False),
        sa.Column("charged_s", sa.BigInteger(), nullable=False),
        sa.Column("charged_us", sa.BigInteger(), nullable=False),
    )
