"""Add what is asked of a VM's power: stop, start and reboot, and when it was last switched.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
STATES = "'idle', 'stopping', 'shutting_down', 'starting', 'rebooting', 'restarting'"


def upgrade() -> None:
    op.add_column("vms", sa.Column("switched_at", TIME, nullable=True))
    op.create_table(
        "power_actions",
        sa.Column("vm_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("asked_at", TIME, nullable=False),
        sa.Column("timeout_s", sa.Integer(), nullable=False),
        sa.Column("force_at", TIME, nullable=True),
        sa.Column("signalled_at", TIME, nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("due_at", TIME, nullable=False),
        sa.Column("sent_at", TIME, nullable=True),
        sa.Column("claim_token", sa.Uuid(), nullable=True),
        sa.Column("claim_owner", sa.Text(), nullable=True),
        sa.Column("claim_until", TIME, nullable=True),
        sa.CheckConstraint(f"state IN ({STATES})", name=op.f("ck_power_actions_state_known")),
        sa.CheckConstraint("timeout_s >= 0", name=op.f("ck_power_actions_timeout_not_negative")),
        sa.ForeignKeyConstraint(["vm_id"], ["vms.id"], name=op.f("fk_power_actions_vm_id_vms")),
        sa.PrimaryKeyConstraint("vm_id", name=op.f("pk_power_actions")),
    )
