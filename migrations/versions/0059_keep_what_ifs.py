"""Keep what-ifs: simulations of the site that operators ask for.

Revision ID: 0059
Revises: 0058
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0059"
down_revision = "0058"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
JSON = sa.JSON(none_as_null=True).with_variant(
    postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), "postgresql"
)


def upgrade() -> None:
    op.create_table(
        "what_ifs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("asked", JSON, nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("asked_at", TIME, nullable=False),
        sa.Column("began_at", TIME, nullable=True),
        sa.Column("ended_at", TIME, nullable=True),
        sa.Column("progress", sa.Float(precision=53), nullable=False),
        sa.Column("cancelled_by", sa.Text(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("report", JSON, nullable=True),
        sa.Column("carrier", sa.Uuid(), nullable=False),
        sa.Column("carried_until", TIME, nullable=False),
        sa.CheckConstraint(
            "state IN ('waiting', 'running', 'finished', 'failed', 'cancelled', 'interrupted')",
            name=op.f("ck_what_ifs_state_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_what_ifs")),
    )
