"""Create a table of what a second policy would have decided in each round.

Revision ID: 0031
Revises: 0030
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

_JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "shadow_rounds",
        sa.Column("round", _SERIAL, autoincrement=False, nullable=False),
        sa.Column("policy", sa.String(63), nullable=False),
        sa.Column("parameters", _JSON, nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("seconds", sa.Float(53)),
        sa.Column("cut", sa.Boolean(create_constraint=False), nullable=False),
        sa.Column("decided", _JSON),
        sa.Column("first", _JSON),
        sa.Column("agreed", sa.Integer()),
        sa.Column("shares", _JSON, nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["round"], ["rounds.number"], name=op.f("fk_shadow_rounds_round_rounds")
        ),
        sa.PrimaryKeyConstraint("round", name=op.f("pk_shadow_rounds")),
        sa.CheckConstraint(
            "(error IS NULL) = (decided IS NOT NULL)",
            name=op.f("ck_shadow_rounds_decided_or_failed"),
        ),
    )
