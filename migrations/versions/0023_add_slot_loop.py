"""Add the switch of the slot loop: one row, running until somebody pauses.

Revision ID: 0023
Revises: 0022
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    switch = op.create_table(
        "slot_loop",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("changed_by", sa.Text(), nullable=True),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_slot_loop")),
        sa.CheckConstraint("id = 1", name=op.f("ck_slot_loop_one_row")),
        sa.CheckConstraint("state IN ('running', 'paused')", name=op.f("ck_slot_loop_state_known")),
    )
    op.bulk_insert(switch, [{"id": 1, "state": "running"}])
