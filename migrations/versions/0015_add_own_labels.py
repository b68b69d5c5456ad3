"""Add labels that tenants put on their requests and VMs.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    for table in ("requests", "vms"):
        op.add_column(table, sa.Column("labels", JSON, nullable=False, server_default="{}"))
