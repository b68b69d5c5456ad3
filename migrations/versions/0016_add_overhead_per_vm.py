"""Add what each VM holds of a resource beyond its type.

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "resources",
        sa.Column("overhead_per_vm", sa.BigInteger(), server_default="0", nullable=False),
    )
