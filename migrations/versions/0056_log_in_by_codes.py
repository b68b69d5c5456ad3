"""Log in by codes that are good once: them, and what tokens came of it.

Revision ID: 0056
Revises: 0055
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0056"
down_revision = "0055"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column("tokens", sa.Column("login", sa.String(length=16), nullable=True))
    op.add_column("tokens", sa.Column("parent_id", sa.Uuid(), nullable=True))
    op.create_index(op.f("ix_tokens_parent_id"), "tokens", ["parent_id"], unique=False)
    op.create_table(
        "login_codes",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("token_id", sa.Uuid(), nullable=False),
        sa.Column("read_only", sa.Boolean(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("used_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.id"], name=op.f("fk_login_codes_token_id_tokens")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_login_codes")),
        sa.UniqueConstraint("digest", name=op.f("uq_login_codes_digest")),
    )
    op.create_index(op.f("ix_login_codes_token_id"), "login_codes", ["token_id"], unique=False)
    op.create_index(op.f("ix_login_codes_expires_at"), "login_codes", ["expires_at"], unique=False)
