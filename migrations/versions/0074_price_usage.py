"""Store prices of resources, each from a day on, and the site's currency.

Revision ID: 0074
Revises: 0073
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0074"
down_revision = "0073"
branch_labels = None
depends_on = None

NAME = sa.String(63).with_variant(sa.String(63, collation="C"), "postgresql")
# SQLite would store a number with a fraction as a float.
PRICE = sa.Numeric(27, 15).with_variant(sa.String(29), "sqlite")


def upgrade() -> None:
    op.create_table(
        "prices",
        sa.Column("resource", NAME, primary_key=True),
        sa.Column("vm_type", NAME, primary_key=True),
        sa.Column("since", sa.Date(), primary_key=True),
        sa.Column("price", PRICE),
    )
    op.create_table(
        "site_currency",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(16), nullable=False),
        sa.Column("minor_digits", sa.Integer(), nullable=False),
    )
