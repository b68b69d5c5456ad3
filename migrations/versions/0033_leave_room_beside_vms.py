"""Leave room beside rows of VMs for what a round and a start write to them.

VMs that were asked for together lie together, and are placed together. A row that is
changed where its page has room stays in its indexes as it was; without room it is
entered in all six anew.

Revision ID: 0033
Revises: 0032
"""

from __future__ import annotations

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE vms SET (fillfactor = 50)")
