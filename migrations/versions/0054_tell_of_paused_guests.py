"""Tell since when a guest is paused on its host, which its tenant did not ask for.

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
    op.add_column("vms", sa.Column("paused_since", sa.DateTime(timezone=True), nullable=True))
