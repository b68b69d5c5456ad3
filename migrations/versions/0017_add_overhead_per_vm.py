"""Add what each VM holds of a resource beyond its type.

Revision ID: 0017
Revises: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "resources",
        sa.Column("overhead_per_vm", sa.BigInteger(), server_default="0", nullable=False),
    )
