"""Let a standing rule ask for plans: what each gains, and whose was the last.

Revision ID: 0051
Revises: 0050
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("plans", sa.Column("gain", sa.Float(precision=53), nullable=True))
    op.create_index(op.f("ix_plans_asked_by_id"), "plans", ["asked_by", "id"], unique=False)
