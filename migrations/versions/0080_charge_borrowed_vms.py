"""Store when VMs are borrowed, so that this time has prices of its own.

VMs that are borrowed already are so from now on: what they held before may be in sums.

Revision ID: 0080
Revises: 0079
"""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0080"
down_revision = "0079"
branch_labels = None
depends_on = None


def upgrade() -> None:
    times = op.create_table(
        "borrowed_times",
        sa.Column("id", sa.Uuid(), primary_key=True),
        sa.Column("vm_id", sa.Uuid(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True)),
    )
    op.create_index(op.f("ix_borrowed_times_vm_id"), "borrowed_times", ["vm_id"])
    connection = op.get_bind()
    vms = sa.table(
        "vms", sa.column("id", sa.Uuid()), sa.column("borrowed"), sa.column("deleted_at")
    )
    live = sa.select(vms.c.id).where(vms.c.borrowed, vms.c.deleted_at.is_(None))
    now = datetime.now(UTC)
    rows = [{"id": uuid4(), "vm_id": key, "since": now} for key in connection.scalars(live)]
    if rows:
        connection.execute(times.insert(), rows)
    if connection.dialect.name == "postgresql":  # SQLite does not limit texts
        for table in ("daily_usage", "prices", "closed_usage_lines"):
            op.alter_column(table, "resource", type_=sa.String(72, collation="C"))
