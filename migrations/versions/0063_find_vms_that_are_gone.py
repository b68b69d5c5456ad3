"""Find VMs by the time at which they went.

Revision ID: 0063
Revises: 0062
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0063"
down_revision = "0062"
branch_labels = None
depends_on = None

_GONE = sa.text("deleted_at IS NOT NULL")


def upgrade() -> None:
    op.create_index(
        "ix_vms_deleted_at",
        "vms",
        ["deleted_at"],
        # On PostgreSQL it is there: `registry.db.online_indexes` built it.
        if_not_exists=op.get_bind().dialect.name == "postgresql",
        sqlite_where=_GONE,
        postgresql_where=_GONE,
    )
