"""Count each machine once, however many hosts are registered at it.

Revision ID: 0061
Revises: 0060
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0061"
down_revision = "0060"
branch_labels = None
depends_on = None

KNOWN = sa.text("machine_uuid IS NOT NULL")

# Of the hosts that are one machine today the one that was registered first keeps it.
DOUBLES = """
    UPDATE hosts SET version = version + 1, same_machine_as = (
        SELECT first.id FROM hosts AS first
        WHERE first.machine_uuid = hosts.machine_uuid AND first.admin <> 'retired'
        ORDER BY first.id LIMIT 1)
    WHERE machine_uuid IS NOT NULL AND admin <> 'retired' AND EXISTS (
        SELECT 1 FROM hosts AS first
        WHERE first.machine_uuid = hosts.machine_uuid AND first.admin <> 'retired'
          AND first.id < hosts.id)
"""


def upgrade() -> None:
    op.add_column("hosts", sa.Column("same_machine_as", sa.Uuid(), nullable=True))
    op.create_index(
        "ix_hosts_machine_uuid",
        "hosts",
        ["machine_uuid"],
        unique=False,
        sqlite_where=KNOWN,
        postgresql_where=KNOWN,
    )
    op.execute(DOUBLES)
