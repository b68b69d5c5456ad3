"""Give tables, columns and states the names that the field has for them.

Revision ID: 0066
Revises: 0065
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0066"
down_revision = "0065"
branch_labels = None
depends_on = None

_TABLES = {
    "spot_endings": "spot_preemptions",
    "kept_rooms": "spot_room_holds",
    "kept_disks": "preserved_disks",
}
_REQUESTED = {"asked_by": "requested_by", "asked_at": "requested_at"}
_LEASE = {"claim_owner": "lease_owner", "claim_until": "lease_until"}
_OWN_LEASE = {**_LEASE, "claim_token": "lease_token"}
#: By the table's new name.
_COLUMNS = {
    "assignments": _OWN_LEASE,
    "console_reads": {"asked_at": "requested_at"},
    "console_sessions": _LEASE,
    "host_fences": {**_REQUESTED, **_OWN_LEASE, "again_at": "retry_at"},
    "image_copies": _OWN_LEASE,
    "images": _OWN_LEASE,
    "leftovers": {**_LEASE, "asked_by": "requested_by"},
    "moves": {**_REQUESTED, **_OWN_LEASE},
    "plan_moves": {"carried_mib": "transfer_mib"},
    "plans": {**_REQUESTED, "let_in": "admitted"},
    "power_actions": {**_REQUESTED, **_OWN_LEASE},
    "reservations": {"asked_by": "requested_by"},
    "rolls": {"driver_until": "driver_lease_until"},
    "what_ifs": {
        **_REQUESTED,
        "asked": "arguments",
        "carrier": "executor_id",
        "carried_until": "lease_until",
    },
}
#: Values, and what may stand in their column from now on.
_VALUES = [
    ("host_fences", "state", "asked", "pending", "idle asked running failed fenced"),
    ("moves", "state", "asked", "pending", "asked moving moved failed cancelled"),
    ("plans", "state", "asked", "pending", "asked proposed approved done cancelled failed"),
    ("plans", "kind", "mend", "repair", "evacuate balance pack room mend"),
    (
        "reservations",
        "state",
        "asked",
        "pending",
        "asked accepted refused in_force ended cancelled",
    ),
    ("rolls", "state", "going", "running", "going stopped done cancelled"),
]
_EVENTS = [
    ("from_state", "asked", "pending"),
    ("to_state", "asked", "pending"),
    ("from_state", "going", "running"),
    ("to_state", "going", "running"),
    ("event", "asked", "requested"),
]
#: Indexes whose name or condition changes: the name before, and after with all that it is.
_INDEXES = [
    ("ix_assignments_claim_until", "ix_assignments_lease_until", "assignments", ["lease_until"]),
    ("ix_console_reads_asked_at", "ix_console_reads_requested_at", "console_reads", None),
    ("ix_kept_disks_disk_of", "ix_preserved_disks_disk_of", "preserved_disks", ["disk_of"]),
    ("ix_moves_state_open", "ix_moves_state_open", "moves", ["state"]),
    ("ix_plans_asked_by_id", "ix_plans_requested_by_id", "plans", ["requested_by", "id"]),
    ("ix_plans_state_open", "ix_plans_state_open", "plans", ["state"]),
    (
        "uq_reservations_tenant_id_name",
        "uq_reservations_tenant_id_name",
        "reservations",
        ["tenant_id", "name"],
    ),
    ("ix_reservations_open", "ix_reservations_open", "reservations", ["state"]),
]
_OPEN = "state IN ('pending', 'accepted', 'in_force')"
_ONLY = {
    "ix_assignments_lease_until": "lease_until IS NOT NULL",
    "ix_moves_state_open": "state IN ('pending', 'moving')",
    "ix_plans_state_open": "state IN ('pending', 'approved')",
    "ix_reservations_open": _OPEN,
    "uq_reservations_tenant_id_name": _OPEN,
}


def upgrade() -> None:
    before = {new: old for old, new in _TABLES.items()}
    for name, _, table, _ in _INDEXES:
        op.drop_index(name, before.get(table, table))
    for old, new in _TABLES.items():
        op.execute(f"ALTER TABLE {old} RENAME TO {new}")
    for table, columns in _COLUMNS.items():
        for old, new in columns.items():
            op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    if op.get_bind().dialect.name == "sqlite":
        _reword_on_sqlite()
    else:
        _rename_constraints()
        for table, column, _, _, _ in _VALUES:
            op.drop_constraint(op.f(f"ck_{table}_{column}_known"), table)
    for table, column, old, new, _ in _VALUES:
        op.execute(f"UPDATE {table} SET {column} = '{new}' WHERE {column} = '{old}'")  # noqa: S608
    for column, old, new in _EVENTS:
        op.execute(f"UPDATE events SET {column} = '{new}' WHERE {column} = '{old}'")  # noqa: S608
    if op.get_bind().dialect.name != "sqlite":
        for table, column, old, new, known in _VALUES:
            op.create_check_constraint(
                op.f(f"ck_{table}_{column}_known"),
                table,
                f"{column} IN ({_listed(known.replace(old, new))})",
            )
    for _, name, table, listed in _INDEXES:
        which = sa.text(_ONLY[name]) if name in _ONLY else None
        op.create_index(
            name,
            table,
            listed or ["requested_at"],
            unique=name.startswith("uq_"),
            sqlite_where=which,
            postgresql_where=which,
        )
    # Processes of before know the old names alone.
    op.execute("UPDATE schema_serves SET code_since = '0066'")


def _listed(values: str) -> str:
    return ", ".join(f"'{value}'" for value in values.split())


def _rename_constraints() -> None:
    found = op.get_bind().execute(
        sa.text(
            "SELECT conname, conrelid::regclass::text FROM pg_constraint"
            " WHERE connamespace = current_schema()::regnamespace"
        )
    )
    for name, table in found.all():
        for old, new in _TABLES.items():
            if table == new and f"_{old}" in name:
                renamed = name.replace(f"_{old}", f"_{new}")
                op.execute(f"ALTER TABLE {table} RENAME CONSTRAINT {name} TO {renamed}")


def _reword_on_sqlite() -> None:
    """Change the text of checks and the names of constraints in place.

    To make the tables anew would delete their rows from under what refers to them.
    """
    words = [(new, f"_{old}", f"_{new}") for old, new in _TABLES.items()]
    for table, column, old, new, known in _VALUES:
        check = f"{column} IN ({_listed(known)})"
        words.append((table, check, f"{column} IN ({_listed(known.replace(old, new))})"))
    op.execute("PRAGMA writable_schema = ON")
    for table, old, new in words:
        op.get_bind().execute(
            sa.text(
                "UPDATE sqlite_master SET sql = replace(sql, :old, :new)"
                " WHERE type = 'table' AND name = :table"
            ),
            {"table": table, "old": old, "new": new},
        )
    op.execute("PRAGMA writable_schema = RESET")
