"""Keep the names of VMs unique among what a tenant has.

They were before: requests have unique names, and number their VMs.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    where = sa.text("desired NOT IN ('deleted')")
    op.create_index(
        "uq_vms_tenant_id_name",
        "vms",
        ["tenant_id", "name"],
        unique=True,
        sqlite_where=where,
        postgresql_where=where,
    )
