"""Let requests bring volumes: a volume is bound to the VM that waits with it.

Revision ID: 0082
Revises: 0081
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0082"
down_revision = "0081"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")

NAME = "ledger_volume_is_bound_to_one_vm"
SQLITE = """
        BEFORE UPDATE OF bound_vm_id, vm_id ON volumes
        WHEN NEW.bound_vm_id <> OLD.bound_vm_id OR NEW.bound_vm_id <> NEW.vm_id
        BEGIN
            SELECT raise(ABORT, 'ledger: a volume is bound to one VM at a time');
        END"""
POSTGRESQL = """
        BEFORE UPDATE ON volumes FOR EACH ROW
        WHEN (NEW.bound_vm_id <> OLD.bound_vm_id OR NEW.bound_vm_id <> NEW.vm_id)
        EXECUTE FUNCTION ledger_refuse('a volume is bound to one VM at a time')"""


def upgrade() -> None:
    for name in ("volumes", "new_volumes"):
        op.add_column("requests", sa.Column(name, JSON, nullable=False, server_default="[]"))
    op.add_column(
        "volumes",
        sa.Column("created_by_request", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.add_column("volumes", sa.Column("bound_vm_id", sa.Uuid()))
    where = sa.text("bound_vm_id IS NOT NULL")
    op.create_index(
        "ix_volumes_bound_vm_id",
        "volumes",
        ["bound_vm_id"],
        sqlite_where=where,
        postgresql_where=where,
    )
    connection = op.get_bind()
    trigger = SQLITE if connection.dialect.name == "sqlite" else POSTGRESQL
    connection.exec_driver_sql(f"CREATE TRIGGER {NAME} {trigger.strip()}")
