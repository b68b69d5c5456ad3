"""Add the fencing of hosts that are down.

Revision ID: 0024
Revises: 0023
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column("hosts", sa.Column("fence_target", sa.Text()))
    op.add_column("hosts", sa.Column("returning_since", TIME))
    op.create_table(
        "host_fences",
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("asked_at", TIME, nullable=False),
        sa.Column("epoch", sa.BigInteger()),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text()),
        sa.Column("again_at", TIME),
        sa.Column("fenced_at", TIME),
        sa.Column("sent_at", TIME),
        sa.Column("claim_token", sa.Uuid()),
        sa.Column("claim_owner", sa.Text()),
        sa.Column("claim_until", TIME),
        sa.CheckConstraint(
            "state IN ('idle', 'asked', 'running', 'failed', 'fenced')",
            name=op.f("ck_host_fences_state_known"),
        ),
        sa.ForeignKeyConstraint(
            ["host_id"], ["hosts.id"], name=op.f("fk_host_fences_host_id_hosts")
        ),
        sa.PrimaryKeyConstraint("host_id", name=op.f("pk_host_fences")),
    )
