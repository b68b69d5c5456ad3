"""Add what answers to differences between hosts and the ledger rest on.

Revision ID: 0027
Revises: 0026
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hosts", sa.Column("machine_uuid", sa.String(36)))
    op.add_column("hosts", sa.Column("found_machine_uuid", sa.String(36)))
    op.add_column("leftovers", sa.Column("asked_by", sa.Text()))
