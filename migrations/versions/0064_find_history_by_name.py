"""Find requests, and calls of the audit, by the name of their subject.

Revision ID: 0064
Revises: 0063
"""

from __future__ import annotations

from alembic import op

revision = "0064"
down_revision = "0063"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # On PostgreSQL they are there: `registry.db.online_indexes` built them.
    there = op.get_bind().dialect.name == "postgresql"
    op.create_index("ix_requests_name", "requests", ["name"], if_not_exists=there)
    op.create_index("ix_audit_subject_id", "audit", ["subject", "id"], if_not_exists=there)
