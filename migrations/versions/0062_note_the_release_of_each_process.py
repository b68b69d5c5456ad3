"""Note of each process its release, its settings, and what tells it from others of its id.

Revision ID: 0062
Revises: 0061
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0062"
down_revision = "0061"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("processes", sa.Column("start_stamp", sa.Text(), nullable=True))
    op.add_column("processes", sa.Column("settings", JSON, nullable=True))
    op.add_column("processes", sa.Column("release", sa.Text(), nullable=True))
