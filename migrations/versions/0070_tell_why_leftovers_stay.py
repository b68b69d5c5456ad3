"""Store why a leftover was not removed, and a token for its claim.

Revision ID: 0070
Revises: 0069
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0070"
down_revision = "0069"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("leftovers", sa.Column("lease_token", sa.Uuid()))
    op.add_column("leftovers", sa.Column("last_error", sa.Text()))
