"""Let tokens only read, end by themselves, and tell when they were last used.

Revision ID: 0020
Revises: 0019
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column(
        "tokens",
        sa.Column(
            "read_only",
            sa.Boolean(create_constraint=False),
            nullable=False,
            server_default=sa.false(),
        ),
    )
    op.add_column("tokens", sa.Column("expires_at", TIME, nullable=True))
    op.add_column("tokens", sa.Column("last_used_at", TIME, nullable=True))
