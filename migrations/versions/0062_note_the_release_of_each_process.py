"""Note the release of each process, and what tells it from others that get its id.

Revision ID: 0062
Revises: 0061
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0062"
down_revision = "0061"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("processes", sa.Column("start_stamp", sa.Text(), nullable=True))
    op.add_column("processes", sa.Column("release", sa.Text(), nullable=True))
