"""Keep outcomes of rounds compressed, as their inputs are; older rows stay as they were written.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    with op.batch_alter_table("round_inputs") as table:
        table.add_column(sa.Column("packed_outcome", sa.LargeBinary(), nullable=True))
        table.alter_column("outcome", existing_type=JSON, nullable=True)
        table.create_check_constraint(
            "outcome_once", "(outcome IS NULL) <> (packed_outcome IS NULL)"
        )
