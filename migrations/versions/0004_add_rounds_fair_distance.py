"""Add to rounds how far tenants ended from their fair targets; older rounds do not tell.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rounds", sa.Column("fair_distance", sa.Float(53), nullable=True))
