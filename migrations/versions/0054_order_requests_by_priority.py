"""Let tenants order their own requests.

Revision ID: 0054
Revises: 0053
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0054"
down_revision = "0053"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "requests", sa.Column("priority", sa.Integer(), server_default="0", nullable=False)
    )
