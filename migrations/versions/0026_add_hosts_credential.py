"""Add what opens a host: the name of its credential and its SSH host keys.

Revision ID: 0026
Revises: 0025
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

NAME = sa.String(63).with_variant(sa.String(63, collation="C"), "postgresql")
JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("hosts", sa.Column("credential", NAME))
    op.add_column("hosts", sa.Column("ssh_host_keys", JSON, nullable=False, server_default="[]"))
