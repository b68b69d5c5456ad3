"""Let VMs move: states of their assignments, and the moves.

Revision ID: 0047
Revises: 0046
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
_BEFORE = "'reserved', 'creating', 'active', 'releasing', 'released', 'quarantined'"
_STATES = f"{_BEFORE}, 'arriving', 'leaving'"
_PLACE = sa.text("state NOT IN ('released', 'arriving', 'leaving')")
_ARRIVING = sa.text("state = 'arriving'")
_LEAVING = sa.text("state = 'leaving'")
_OPEN = sa.text("state IN ('asked', 'moving')")
_ONE_PER_VM = """
    CREATE TRIGGER ledger_one_assignment_per_vm BEFORE INSERT ON assignments
        BEGIN
            SELECT raise(ABORT, 'ledger: the VM has an unreleased assignment')
            WHERE NEW.state <> 'released' AND EXISTS (
                SELECT 1 FROM assignments
                WHERE vm_id = NEW.vm_id AND state <> 'released'
                  AND (NEW.state <> 'arriving' OR state IN ('arriving', 'leaving'))
                  AND (NEW.state = 'arriving' OR state <> 'leaving'));
            SELECT raise(ABORT, 'ledger: that assignment exists already')
            WHERE EXISTS (
                SELECT 1 FROM assignments
                WHERE id = NEW.id OR (vm_id = NEW.vm_id AND generation = NEW.generation));
        END"""


def upgrade() -> None:
    sqlite = op.get_bind().dialect.name == "sqlite"
    op.drop_index("uq_assignments_vm_id_unreleased", "assignments")
    op.add_column("assignments", sa.Column("disk_generation", sa.Integer(), nullable=True))
    if sqlite:
        _widen_on_sqlite()
        op.execute("DROP TRIGGER ledger_one_assignment_per_vm")
        op.execute(_ONE_PER_VM)
    else:
        op.drop_constraint(op.f("ck_assignments_state_known"), "assignments")
        op.create_check_constraint(
            op.f("ck_assignments_state_known"), "assignments", f"state IN ({_STATES})"
        )
    for name, which in (("place", _PLACE), ("arriving", _ARRIVING), ("leaving", _LEAVING)):
        op.create_index(
            f"uq_assignments_vm_id_{name}",
            "assignments",
            ["vm_id"],
            unique=True,
            sqlite_where=which,
            postgresql_where=which,
        )
    _create_moves()
    _create_plans()


def _widen_on_sqlite() -> None:
    """Change the text of a check, as SQLite's manual says for what changes no stored row.

    To make the table anew would delete its rows from under what refers to them.
    """
    version = op.get_bind().scalar(sa.text("PRAGMA schema_version"))
    op.execute("PRAGMA writable_schema = ON")
    op.get_bind().execute(
        sa.text(
            "UPDATE sqlite_master SET sql = replace(sql, :before, :after)"
            " WHERE type = 'table' AND name = 'assignments'"
        ),
        {"before": f"state IN ({_BEFORE})", "after": f"state IN ({_STATES})"},
    )
    op.execute(f"PRAGMA schema_version = {version + 1}")
    op.execute("PRAGMA writable_schema = OFF")


def _create_moves() -> None:
    op.create_table(
        "moves",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("vm_id", sa.Uuid(), nullable=False),
        sa.Column("from_id", sa.Uuid(), nullable=False),
        sa.Column("to_id", sa.Uuid(), nullable=False),
        sa.Column("from_host_id", sa.Uuid(), nullable=False),
        sa.Column("to_host_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("asked_at", TIME, nullable=False),
        sa.Column("cancelled_by", sa.Text(), nullable=True),
        sa.Column("began_at", TIME, nullable=True),
        sa.Column("ended_at", TIME, nullable=True),
        sa.Column("downtime_ms", sa.BigInteger(), nullable=True),
        sa.Column("total_bytes", sa.BigInteger(), nullable=True),
        sa.Column("remaining_bytes", sa.BigInteger(), nullable=True),
        sa.Column("rate_bytes_s", sa.BigInteger(), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("sent_at", TIME, nullable=True),
        sa.Column("claim_token", sa.Uuid(), nullable=True),
        sa.Column("claim_owner", sa.Text(), nullable=True),
        sa.Column("claim_until", TIME, nullable=True),
        sa.CheckConstraint(
            "state IN ('asked', 'moving', 'moved', 'failed', 'cancelled')",
            name=op.f("ck_moves_state_known"),
        ),
        sa.CheckConstraint("kind IN ('live', 'cold')", name=op.f("ck_moves_kind_known")),
        sa.CheckConstraint("from_host_id <> to_host_id", name=op.f("ck_moves_another_host")),
        sa.ForeignKeyConstraint(["vm_id"], ["vms.id"], name=op.f("fk_moves_vm_id_vms")),
        sa.ForeignKeyConstraint(
            ["from_host_id"], ["hosts.id"], name=op.f("fk_moves_from_host_id_hosts")
        ),
        sa.ForeignKeyConstraint(
            ["to_host_id"], ["hosts.id"], name=op.f("fk_moves_to_host_id_hosts")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_moves")),
    )
    op.create_index(
        "ix_moves_state_open",
        "moves",
        ["state"],
        unique=False,
        sqlite_where=_OPEN,
        postgresql_where=_OPEN,
    )
    for column in ("vm_id", "from_host_id", "to_host_id"):
        op.create_index(op.f(f"ix_moves_{column}_id"), "moves", [column, "id"], unique=False)


def _create_plans() -> None:
    json = sa.JSON(none_as_null=True).with_variant(
        postgresql.JSONB(none_as_null=True), "postgresql"
    )
    op.create_table(
        "plans",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("arguments", json, nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("asked_at", TIME, nullable=False),
        sa.Column("approve", sa.Boolean(), nullable=False),
        sa.Column("approved_by", sa.Text(), nullable=True),
        sa.Column("approved_at", TIME, nullable=True),
        sa.Column("ended_at", TIME, nullable=True),
        sa.Column("before", json, nullable=True),
        sa.Column("after", json, nullable=True),
        sa.Column("stays", json, server_default="[]", nullable=False),
        sa.Column("cut", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("inputs", sa.LargeBinary(), nullable=True),
        sa.Column("packed_plan", sa.LargeBinary(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "state IN ('asked', 'proposed', 'approved', 'done', 'cancelled', 'failed')",
            name=op.f("ck_plans_state_known"),
        ),
        sa.CheckConstraint(
            "kind IN ('evacuate', 'balance', 'pack', 'room', 'mend')",
            name=op.f("ck_plans_kind_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plans")),
    )
    going_on = sa.text("state IN ('asked', 'approved')")
    op.create_index(
        "ix_plans_state_open",
        "plans",
        ["state"],
        unique=False,
        sqlite_where=going_on,
        postgresql_where=going_on,
    )
    op.create_table(
        "plan_moves",
        sa.Column("plan_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("vm_id", sa.Uuid(), nullable=False),
        sa.Column("from_host_id", sa.Uuid(), nullable=False),
        sa.Column("to_host_id", sa.Uuid(), nullable=False),
        sa.Column("why", sa.String(length=16), nullable=False),
        sa.Column("carried_mib", sa.BigInteger(), nullable=False),
        sa.Column("move_id", sa.Uuid(), nullable=True),
        sa.Column("refused", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["plan_id"], ["plans.id"], name=op.f("fk_plan_moves_plan_id_plans")
        ),
        sa.ForeignKeyConstraint(["vm_id"], ["vms.id"], name=op.f("fk_plan_moves_vm_id_vms")),
        sa.ForeignKeyConstraint(
            ["from_host_id"], ["hosts.id"], name=op.f("fk_plan_moves_from_host_id_hosts")
        ),
        sa.ForeignKeyConstraint(
            ["to_host_id"], ["hosts.id"], name=op.f("fk_plan_moves_to_host_id_hosts")
        ),
        sa.ForeignKeyConstraint(
            ["move_id"], ["moves.id"], name=op.f("fk_plan_moves_move_id_moves")
        ),
        sa.PrimaryKeyConstraint("plan_id", "position", name=op.f("pk_plan_moves")),
    )
    op.create_index(op.f("ix_plan_moves_move_id"), "plan_moves", ["move_id"], unique=False)
