"""Add what each VM holds of a resource beyond its type.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "resources",
        sa.Column("overhead_per_vm", sa.BigInteger(), server_default="0", nullable=False),
    )
