"""Keep what tenants and groups held in the past, and the memory that each round decided by.

Revision ID: 0075
Revises: 0074
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0075"
down_revision = "0074"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("rounds", sa.Column("memory", JSON, nullable=True))
    op.create_table(
        "past_holdings",
        sa.Column("owner_id", sa.Uuid(), primary_key=True),
        sa.Column("past", JSON, nullable=False),
        sa.Column("charged", JSON, nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
    )
