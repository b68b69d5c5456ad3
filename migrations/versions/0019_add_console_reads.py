"""Add the readings of serial consoles that callers wait for.

Revision ID: 0019
Revises: 0018
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "console_reads",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("vm_id", sa.Uuid(), nullable=False),
        sa.Column("max_bytes", sa.Integer(), nullable=False),
        sa.Column("after", sa.BigInteger(), nullable=False),
        sa.Column("asked_at", TIME, nullable=False),
        sa.Column("answered_at", TIME),
        sa.Column("content", sa.LargeBinary()),
        sa.Column("end_at", sa.BigInteger()),
        sa.Column("error", sa.Text()),
        sa.ForeignKeyConstraint(["vm_id"], ["vms.id"], name=op.f("fk_console_reads_vm_id_vms")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_console_reads")),
    )
    op.create_index(op.f("ix_console_reads_asked_at"), "console_reads", ["asked_at"])
