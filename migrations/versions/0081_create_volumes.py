"""Create the volumes of tenants, which hold disk on their hosts.

Revision ID: 0081
Revises: 0080
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0081"
down_revision = "0080"
branch_labels = None
depends_on = None

NAME = sa.String(63).with_variant(sa.String(63, collation="C"), "postgresql")
TIME = sa.DateTime(timezone=True)
_SUM = """(
    (
        SELECT coalesce(sum(held.amount), 0)
        FROM assignments AS live
        JOIN assignment_resources AS held
          ON held.assignment_id = live.id AND held.resource = {row}.resource
        WHERE live.host_id = {row}.host_id AND live.state <> 'released'
    ) + CASE WHEN {row}.resource = 'disk_gib' THEN (
        SELECT coalesce(sum(size_gib), 0) FROM volumes WHERE host_id = {row}.host_id
    ) ELSE 0 END
)"""
#: Triggers whose text changes: what is committed is the sum over volumes, too.
REPLACED = ("ledger_committed_is_the_sum", "ledger_committed_starts_as_the_sum")

SQLITE = {
    "ledger_committed_is_the_sum": f"""
        BEFORE UPDATE OF committed ON inventories
        WHEN NEW.committed <> {_SUM.format(row="NEW")}
        BEGIN
            SELECT raise(ABORT, 'ledger: committed is the sum over assignments and volumes');
        END""",
    "ledger_committed_starts_as_the_sum": f"""
        BEFORE INSERT ON inventories
        WHEN NEW.committed <> {_SUM.format(row="NEW")}
        BEGIN
            SELECT raise(ABORT, 'ledger: committed is the sum over assignments and volumes');
        END""",
    "ledger_volume_begins_unplaced": """
        BEFORE INSERT ON volumes
        BEGIN
            SELECT raise(ABORT, 'ledger: a volume begins without a host')
            WHERE NEW.host_id IS NOT NULL;
            SELECT raise(ABORT, 'ledger: that volume exists already')
            WHERE EXISTS (
                SELECT 1 FROM volumes
                WHERE id = NEW.id
                   OR (tenant_id = NEW.tenant_id AND name = NEW.name AND state <> 'removed'));
        END""",
    "ledger_hold_volume": """
        AFTER UPDATE OF host_id, size_gib ON volumes
        WHEN NEW.host_id IS NOT OLD.host_id OR NEW.size_gib <> OLD.size_gib
        BEGIN
            SELECT raise(ABORT, 'ledger: over capacity')
            WHERE NEW.host_id IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM inventories
                WHERE host_id = NEW.host_id AND resource = 'disk_gib'
                  AND committed + NEW.size_gib
                    - CASE WHEN OLD.host_id = NEW.host_id THEN OLD.size_gib ELSE 0 END
                    <= capacity);
            UPDATE inventories SET committed = committed
                + CASE WHEN host_id = NEW.host_id THEN NEW.size_gib ELSE 0 END
                - CASE WHEN host_id = OLD.host_id THEN OLD.size_gib ELSE 0 END
            WHERE host_id IN (OLD.host_id, NEW.host_id) AND resource = 'disk_gib';
            UPDATE hosts SET version = version + 1 WHERE id = NEW.host_id;
        END""",
    "ledger_volume_has_one_vm": """
        BEFORE UPDATE OF assignment_id ON volumes
        WHEN NEW.assignment_id <> OLD.assignment_id
        BEGIN
            SELECT raise(ABORT, 'ledger: a volume is attached to one VM at a time');
        END""",
    "ledger_removed_volume_is_final": """
        BEFORE UPDATE OF state ON volumes WHEN OLD.state = 'removed' AND NEW.state <> 'removed'
        BEGIN
            SELECT raise(ABORT, 'ledger: removed is final');
        END""",
    "ledger_volume_is_kept": """
        BEFORE DELETE ON volumes WHEN OLD.host_id IS NOT NULL
        BEGIN
            SELECT raise(ABORT, 'ledger: a volume with a file stays');
        END""",
}

POSTGRESQL_FUNCTIONS = {
    "ledger_committed_is_the_sum": f"""
        BEGIN
            IF EXISTS (
                SELECT 1 FROM after JOIN before USING (host_id, resource)
                WHERE after.committed <> before.committed
                  AND after.committed <> {_SUM.format(row="after")}) THEN
                RAISE EXCEPTION
                    'ledger: committed is the sum over assignments and volumes'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NULL;
        END""",  # noqa: S608
    "ledger_hold_volume": """
        BEGIN
            PERFORM 1 FROM hosts WHERE id IN (OLD.host_id, NEW.host_id)
            ORDER BY id FOR NO KEY UPDATE;
            UPDATE hosts SET version = version + 1 WHERE id = NEW.host_id;
            PERFORM 1 FROM inventories
            WHERE host_id IN (OLD.host_id, NEW.host_id) AND resource = 'disk_gib'
            ORDER BY host_id FOR NO KEY UPDATE;
            UPDATE inventories SET committed = committed - OLD.size_gib
            WHERE host_id = OLD.host_id AND resource = 'disk_gib';
            UPDATE inventories SET committed = committed + NEW.size_gib
            WHERE host_id = NEW.host_id AND resource = 'disk_gib'
              AND committed + NEW.size_gib <= capacity;
            IF NEW.host_id IS NOT NULL AND NOT FOUND THEN
                RAISE EXCEPTION 'ledger: over capacity'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NULL;
        END""",
}

POSTGRESQL = {
    "ledger_committed_starts_as_the_sum": """
        BEFORE INSERT ON inventories FOR EACH ROW WHEN (NEW.committed <> 0)
        EXECUTE FUNCTION ledger_refuse('committed is the sum over assignments and volumes')""",
    "ledger_volume_begins_unplaced": """
        BEFORE INSERT ON volumes FOR EACH ROW WHEN (NEW.host_id IS NOT NULL)
        EXECUTE FUNCTION ledger_refuse('a volume begins without a host')""",
    "ledger_hold_volume": """
        AFTER UPDATE ON volumes FOR EACH ROW
        WHEN (NEW.host_id IS DISTINCT FROM OLD.host_id OR NEW.size_gib <> OLD.size_gib)
        EXECUTE FUNCTION ledger_hold_volume()""",
    "ledger_volume_has_one_vm": """
        BEFORE UPDATE ON volumes FOR EACH ROW WHEN (NEW.assignment_id <> OLD.assignment_id)
        EXECUTE FUNCTION ledger_refuse('a volume is attached to one VM at a time')""",
    "ledger_removed_volume_is_final": """
        BEFORE UPDATE ON volumes FOR EACH ROW
        WHEN (OLD.state = 'removed' AND NEW.state <> 'removed')
        EXECUTE FUNCTION ledger_refuse('removed is final')""",
    "ledger_volume_is_kept": """
        BEFORE DELETE ON volumes FOR EACH ROW WHEN (OLD.host_id IS NOT NULL)
        EXECUTE FUNCTION ledger_refuse('a volume with a file stays')""",
    "ledger_volumes_are_not_emptied": """
        BEFORE TRUNCATE ON volumes FOR EACH STATEMENT
        EXECUTE FUNCTION ledger_refuse('volumes are not emptied')""",
}


def upgrade() -> None:
    op.create_table(
        "volumes",
        sa.Column("id", sa.Uuid(), primary_key=True),
        sa.Column("tenant_id", sa.Uuid(), sa.ForeignKey("tenants.id"), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("size_gib", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("host_id", sa.Uuid(), sa.ForeignKey("hosts.id")),
        sa.Column("vm_id", sa.Uuid(), sa.ForeignKey("vms.id")),
        sa.Column("assignment_id", sa.Uuid(), sa.ForeignKey("assignments.id")),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("last_error", sa.Text()),
        sa.Column("detach_until", TIME),
        sa.Column("due_at", TIME, nullable=False),
        sa.Column("sent_at", TIME),
        sa.Column("lease_token", sa.Uuid()),
        sa.Column("lease_owner", sa.Text()),
        sa.Column("lease_until", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("changed_at", TIME, nullable=False),
        sa.Column("removed_at", TIME),
        sa.CheckConstraint(
            "state IN ('unplaced', 'creating', 'attaching', 'attached', 'detaching',"
            " 'available', 'withdrawing', 'removing', 'removed')",
            name="state_known",
        ),
        sa.CheckConstraint("size_gib >= 1", name="size_positive"),
        sa.CheckConstraint(
            "(host_id IS NULL) = (state IN ('unplaced', 'removed'))", name="host_has_file"
        ),
        sa.CheckConstraint(
            "(assignment_id IS NOT NULL) = (state IN"
            " ('creating', 'attaching', 'attached', 'detaching'))",
            name="vm_attached",
        ),
        sa.CheckConstraint("(vm_id IS NULL) = (assignment_id IS NULL)", name="vm_placed"),
        sa.CheckConstraint("(removed_at IS NOT NULL) = (state = 'removed')", name="end_known"),
    )
    _create_index("uq_volumes_tenant_id_name", "state <> 'removed'", "tenant_id", "name")
    _create_index("ix_volumes_host_id", "host_id IS NOT NULL", "host_id")
    _create_index("ix_volumes_vm_id", "vm_id IS NOT NULL", "vm_id")
    _create_index("ix_volumes_assignment_id", "vm_id IS NOT NULL", "assignment_id")
    _create_index("ix_volumes_removed_at", "removed_at IS NOT NULL", "removed_at")
    op.create_index("ix_volumes_state", "volumes", ["state"])
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        for name in REPLACED:
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
        triggers = SQLITE
    else:
        for name, body in POSTGRESQL_FUNCTIONS.items():
            connection.exec_driver_sql(
                f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql"
                f" SET enable_seqscan = off SET jit = off AS $${body.strip()};$$"
            )
        connection.exec_driver_sql("DROP TRIGGER ledger_committed_starts_as_the_sum ON inventories")
        triggers = POSTGRESQL
    for name, body in triggers.items():
        connection.exec_driver_sql(f"CREATE TRIGGER {name} {body.strip()}")


def _create_index(name: str, condition: str, *columns: str) -> None:
    """Create an index of volumes that meet a condition."""
    where = sa.text(condition)
    op.create_index(
        name,
        "volumes",
        list(columns),
        unique=name.startswith("uq_"),
        sqlite_where=where,
        postgresql_where=where,
    )
