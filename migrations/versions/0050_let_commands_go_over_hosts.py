"""Let commands go over hosts: rolls, and where each of their hosts is.

Revision ID: 0050
Revises: 0049
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "rolls",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("at_once", sa.Integer(), nullable=False),
        sa.Column("checked", sa.Integer(), nullable=False),
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("empty_within_s", sa.Integer(), nullable=False),
        sa.Column("run_within_s", sa.Integer(), nullable=False),
        sa.Column("up_within_s", sa.Integer(), nullable=False),
        sa.Column("began_by", sa.Text(), nullable=False),
        sa.Column("began_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.Column("cancelled_by", sa.Text(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("driver", sa.Text(), nullable=False),
        sa.Column("driver_token", sa.Uuid(), nullable=False),
        sa.Column("driver_until", TIME, nullable=False),
        sa.CheckConstraint(
            "state IN ('going', 'stopped', 'done', 'cancelled')",
            name=op.f("ck_rolls_state_known"),
        ),
        sa.CheckConstraint("at_once >= 1", name=op.f("ck_rolls_at_once_positive")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rolls")),
    )
    op.create_table(
        "roll_hosts",
        sa.Column("roll_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String(length=20), nullable=False),
        sa.Column("since", TIME, nullable=False),
        sa.Column("was", sa.String(length=20), nullable=True),
        sa.Column("plan_id", sa.Uuid(), nullable=True),
        sa.Column("plans", sa.Integer(), server_default="0", nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "phase IN ('waiting', 'emptying', 'empty', 'at_work', 'returning', 'done', 'left_out')",
            name=op.f("ck_roll_hosts_phase_known"),
        ),
        sa.ForeignKeyConstraint(
            ["roll_id"], ["rolls.id"], name=op.f("fk_roll_hosts_roll_id_rolls")
        ),
        sa.ForeignKeyConstraint(
            ["host_id"], ["hosts.id"], name=op.f("fk_roll_hosts_host_id_hosts")
        ),
        sa.PrimaryKeyConstraint("roll_id", "position", name=op.f("pk_roll_hosts")),
    )
    op.create_index(op.f("ix_roll_hosts_host_id"), "roll_hosts", ["host_id"], unique=False)
