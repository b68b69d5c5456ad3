"""Add what is typed on serial consoles, and what guests answer, until it is passed on.

Revision ID: 0022
Revises: 0021
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "console_sessions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("vm_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("forced", sa.Boolean(), nullable=False),
        sa.Column("opened_at", TIME, nullable=False),
        sa.Column("heard_at", TIME, nullable=False),
        sa.Column("sent_at", TIME),
        sa.Column("reason", sa.Text()),
        sa.Column("next_input", sa.BigInteger(), nullable=False),
        sa.Column("output_end", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("claim_owner", sa.Text()),
        sa.Column("claim_until", TIME),
        sa.CheckConstraint(
            "state IN ('waiting', 'attached', 'ended')",
            name=op.f("ck_console_sessions_state_known"),
        ),
        sa.ForeignKeyConstraint(["vm_id"], ["vms.id"], name=op.f("fk_console_sessions_vm_id_vms")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_console_sessions")),
    )
    op.create_index(
        "uq_console_sessions_vm_id",
        "console_sessions",
        ["vm_id"],
        unique=True,
        sqlite_where=sa.text("state NOT IN ('ended')"),
        postgresql_where=sa.text("state NOT IN ('ended')"),
    )
    op.create_index(op.f("ix_console_sessions_heard_at"), "console_sessions", ["heard_at"])
    for table, number in (("console_inputs", "number"), ("console_outputs", "start")):
        op.create_table(
            table,
            sa.Column("session_id", sa.Uuid(), nullable=False),
            sa.Column(number, sa.BigInteger(), nullable=False, autoincrement=False),
            sa.Column("content", sa.LargeBinary(), nullable=False),
            sa.ForeignKeyConstraint(
                ["session_id"],
                ["console_sessions.id"],
                name=op.f(f"fk_{table}_session_id_console_sessions"),
            ),
            sa.PrimaryKeyConstraint("session_id", number, name=op.f(f"pk_{table}")),
        )
