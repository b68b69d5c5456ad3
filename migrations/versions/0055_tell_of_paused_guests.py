"""Tell since when a guest is paused on its host, which its tenant did not ask for.

Revision ID: 0055
Revises: 0054
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0055"
down_revision = "0054"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("vms", sa.Column("paused_since", sa.DateTime(timezone=True), nullable=True))
