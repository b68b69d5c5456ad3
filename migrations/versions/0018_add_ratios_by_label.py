"""Add over-commit ratios by label, and keep apart a host's own.

Revision ID: 0018
Revises: 0017
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

NAME = sa.String(length=63).with_variant(sa.String(length=63, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "label_ratios",
        sa.Column("label", sa.String(128), nullable=False),
        sa.Column("resource", NAME, nullable=False),
        sa.Column("ratio_thousandths", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("ratio_thousandths >= 1", name=op.f("ck_label_ratios_ratio_positive")),
        sa.ForeignKeyConstraint(
            ["resource"], ["resources.name"], name=op.f("fk_label_ratios_resource_resources")
        ),
        sa.PrimaryKeyConstraint("label", "resource", name=op.f("pk_label_ratios")),
    )
    op.add_column("inventories", sa.Column("own_ratio_thousandths", sa.BigInteger(), nullable=True))
    op.execute(
        "UPDATE inventories SET own_ratio_thousandths = ratio_thousandths"
        " WHERE ratio_thousandths <> 1000"
    )
