"""Store how many VMs a request borrows at most, and which VMs are borrowed.

Revision ID: 0078
Revises: 0077
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0078"
down_revision = "0077"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("requests", sa.Column("max_count", sa.Integer()))
    op.add_column(
        "vms", sa.Column("borrowed", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    for table, name, column, condition in (
        ("requests", "max_count", "max_count", "max_count IS NOT NULL"),
        ("vms", "id_borrowed", "id", "borrowed AND deleted_at IS NULL"),
    ):
        where = sa.text(condition)
        op.create_index(
            f"ix_{table}_{name}", table, [column], sqlite_where=where, postgresql_where=where
        )
