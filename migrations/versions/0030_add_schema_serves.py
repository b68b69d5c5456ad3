"""Add which code the schema serves: a process older than the database knows if it may use it.

Revision ID: 0030
Revises: 0029
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "schema_serves",
        sa.Column("code_since", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("code_since", name=op.f("pk_schema_serves")),
    )
    # Raised by revisions that take something away, and by no other.
    op.execute("INSERT INTO schema_serves (code_since) VALUES ('0030')")
