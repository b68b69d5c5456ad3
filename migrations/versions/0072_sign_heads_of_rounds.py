"""Store the site's public keys, the signatures of links, and what tenants hold per round.

Revision ID: 0072
Revises: 0071
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0072"
down_revision = "0071"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("round_hash_chain", sa.Column("holdings", sa.LargeBinary()))
    op.add_column("round_hash_chain", sa.Column("signed_by", sa.String(64)))
    op.add_column("round_hash_chain", sa.Column("signature", sa.String(128)))
    op.create_table(
        "site_keys",
        sa.Column("public_key", sa.String(64), nullable=False),
        sa.Column("first_round", sa.BigInteger(), nullable=False),
        sa.Column("last_round", sa.BigInteger()),
        sa.Column("endorsement", sa.String(128)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("public_key", name=op.f("pk_site_keys")),
    )
