"""Count the slots since the last round, in which whoever waits has waited too.

Revision ID: 0058
Revises: 0057
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0058"
down_revision = "0057"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "slot_loop",
        sa.Column("without_round", sa.Integer(), server_default="0", nullable=False),
    )
