"""Record capacity and its use by hour, class of hosts and resource.

Revision ID: 0076
Revises: 0075
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0076"
down_revision = "0075"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "capacity_classes",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("labels", sa.Text(), nullable=False),
    )
    op.create_table(
        "capacity_days",
        sa.Column("day", sa.Date(), primary_key=True),
        sa.Column("class_id", sa.Integer(), primary_key=True),
        sa.Column("hours", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "capacity_samples",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("hour", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sampled_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sums", sa.LargeBinary(), nullable=False),
    )
