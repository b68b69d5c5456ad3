"""Add the host names that tenants give their guests.

Revision ID: 0025
Revises: 0024
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("requests", sa.Column("hostname", sa.String(253)))
    op.add_column("vms", sa.Column("hostname", sa.String(253)))
