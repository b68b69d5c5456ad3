"""Keep the sources that networks had on hosts while VMs are still attached to them.

Revision ID: 0065
Revises: 0064
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0065"
down_revision = "0064"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "network_left_sources",
        sa.Column("network_id", sa.Uuid(), nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("placed_until", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "kind IN ('network', 'bridge')", name=op.f("ck_network_left_sources_kind_known")
        ),
        sa.ForeignKeyConstraint(
            ["network_id"],
            ["networks.id"],
            name=op.f("fk_network_left_sources_network_id_networks"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["host_id"], ["hosts.id"], name=op.f("fk_network_left_sources_host_id_hosts")
        ),
        sa.PrimaryKeyConstraint(
            "network_id", "host_id", "kind", "source", name=op.f("pk_network_left_sources")
        ),
    )
