"""Add groups of tenants, and the removal of tenants.

Parents had no effect before. A tenant that has children becomes a group, unless
it asks for VMs itself: then its children, which shared nothing with it, move to
the top.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "tenants",
        sa.Column(
            "is_group",
            sa.Boolean(create_constraint=False),
            nullable=False,
            server_default=sa.false(),
        ),
    )
    op.add_column("tenants", sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True))
    op.execute(
        "UPDATE tenants SET parent_id = NULL WHERE parent_id IN (SELECT tenant_id FROM requests)"
        " OR parent_id IN (SELECT tenant_id FROM tokens WHERE revoked_at IS NULL"
        " AND tenant_id IS NOT NULL)"
    )
    op.execute(
        "UPDATE tenants SET is_group = true"
        " WHERE id IN (SELECT parent_id FROM tenants WHERE parent_id IS NOT NULL)"
    )
