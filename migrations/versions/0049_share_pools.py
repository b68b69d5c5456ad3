"""Let hosts share pools: which do, whose disk a VM uses there, and disks that wait for a host.

Revision ID: 0049
Revises: 0048
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Of no host yet, whatever its labels: who gave one this name before did not mean this by it.
    op.add_column("hosts", sa.Column("shared_pool", sa.String(length=128), nullable=True))
    op.add_column("assignments", sa.Column("disk_of", sa.Uuid(), nullable=True))
    for table, column in (("hosts", "shared_pool"), ("assignments", "disk_of")):
        some = sa.text(f"{column} IS NOT NULL")
        op.create_index(
            f"ix_{table}_{column}", table, [column], sqlite_where=some, postgresql_where=some
        )
    op.create_table(
        "kept_disks",
        sa.Column("vm_id", sa.Uuid(), nullable=False),
        sa.Column("shared_pool", sa.String(length=128), nullable=False),
        sa.Column("disk_of", sa.Uuid(), nullable=False),
        sa.Column("disk_generation", sa.Integer(), nullable=False),
        sa.Column("kept_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["vm_id"], ["vms.id"], name=op.f("fk_kept_disks_vm_id_vms")),
        sa.PrimaryKeyConstraint("vm_id", name=op.f("pk_kept_disks")),
    )
    op.create_index(op.f("ix_kept_disks_disk_of"), "kept_disks", ["disk_of"], unique=False)
