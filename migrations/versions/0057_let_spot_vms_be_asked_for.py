"""Let spot VMs be asked for, and end for those who wait.

Revision ID: 0057
Revises: 0056
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0057"
down_revision = "0056"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
NAME = sa.String(length=63).with_variant(sa.String(length=63, collation="C"), "postgresql")
NO = sa.false()
LIVE = sa.text("spot AND deleted_at IS NULL")


def upgrade() -> None:
    # On PostgreSQL those of VMs are there: `registry.db.online_indexes` made them.
    beforehand = op.get_bind().dialect.name == "postgresql"
    for table in ("requests", "vms"):
        op.add_column(
            table,
            sa.Column("spot", sa.Boolean(), server_default=NO, nullable=False),
            if_not_exists=beforehand,
        )
    op.create_index(
        "ix_vms_id_spot",
        "vms",
        ["id"],
        unique=False,
        if_not_exists=beforehand,
        sqlite_where=LIVE,
        postgresql_where=LIVE,
    )
    op.create_table(
        "spot_endings",
        sa.Column("vm_id", sa.Uuid(), nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("for_tenant", NAME, nullable=False),
        sa.Column("for_request", NAME, nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("ends_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("vm_id", name=op.f("pk_spot_endings")),
    )
    op.create_table(
        "kept_rooms",
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("until", TIME, nullable=False),
        sa.CheckConstraint("count >= 1", name=op.f("ck_kept_rooms_count_positive")),
        sa.PrimaryKeyConstraint("request_id", "host_id", name=op.f("pk_kept_rooms")),
    )
