"""Store which volumes are protected from removal.

Revision ID: 0083
Revises: 0082
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0083"
down_revision = "0082"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "volumes", sa.Column("protected", sa.Boolean(), nullable=False, server_default=sa.false())
    )
