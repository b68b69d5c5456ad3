"""Count the polls that failed since another machine answered in a host's place.

Revision ID: 0071
Revises: 0070
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0071"
down_revision = "0070"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "hosts", sa.Column("found_missed_polls", sa.Integer(), nullable=False, server_default="0")
    )
