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
    "round_links": "round_hash_chain",
    "network_left_sources": "network_former_sources",
}
_REQUESTED = {"asked_by": "requested_by", "asked_at": "requested_at"}
_LEASE = {"claim_owner": "lease_owner", "claim_until": "lease_until"}
_OWN_LEASE = {**_LEASE, "claim_token": "lease_token"}
#: By the table's new name.
_COLUMNS = {
    "assignments": _OWN_LEASE,
    "audit": {"untold": "suppressed"},
    "console_reads": {"asked_at": "requested_at"},
    "console_sessions": {**_LEASE, "heard_at": "heartbeat_at"},
    "host_fences": {**_REQUESTED, **_OWN_LEASE, "again_at": "retry_at"},
    "hosts": {"held_back_until": "backoff_until"},
    "image_copies": _OWN_LEASE,
    "images": _OWN_LEASE,
    "leftovers": {**_LEASE, "asked_by": "requested_by"},
    "monitors": {"heard_at": "heartbeat_at"},
    "moves": {**_REQUESTED, **_OWN_LEASE},
    "plan_moves": {"carried_mib": "transfer_mib"},
    "plans": {**_REQUESTED, "let_in": "admitted"},
    "power_actions": {**_REQUESTED, **_OWN_LEASE},
    "processes": {"heard_at": "heartbeat_at"},
    "reservations": {"asked_by": "requested_by"},
    "roll_hosts": {"was": "admin_before"},
    "rolls": {"driver_until": "driver_lease_until"},
    "what_ifs": {
        **_REQUESTED,
        "asked": "arguments",
        "carrier": "executor_id",
        "carried_until": "lease_until",
    },
}
#: By table and column: what may stand there before, and which of it has another name.
_VALUES = {
    ("host_fences", "state"): ("idle asked running failed fenced", {"asked": "pending"}),
    ("moves", "state"): ("asked moving moved failed cancelled", {"asked": "pending"}),
    ("plans", "state"): (
        "asked proposed approved done cancelled failed",
        {"asked": "pending"},
    ),
    ("plans", "kind"): ("evacuate balance pack room mend", {"mend": "repair"}),
    ("reservations", "state"): (
        "asked accepted refused in_force ended cancelled",
        {"asked": "pending"},
    ),
    ("rolls", "state"): ("going stopped done cancelled", {"going": "running"}),
    ("roll_hosts", "phase"): (
        "waiting emptying empty at_work returning done left_out",
        {"at_work": "running", "left_out": "skipped"},
    ),
}
#: Of events, whatever they are of.
_STATES = {"asked": "pending", "going": "running", "at_work": "running", "left_out": "skipped"}
#: Indexes whose name or condition changes: the name before, and after with all that it is.
_INDEXES = [
    ("ix_assignments_claim_until", "ix_assignments_lease_until", "assignments", ["lease_until"]),
    (
        "ix_console_reads_asked_at",
        "ix_console_reads_requested_at",
        "console_reads",
        ["requested_at"],
    ),
    (
        "ix_console_sessions_heard_at",
        "ix_console_sessions_heartbeat_at",
        "console_sessions",
        ["heartbeat_at"],
    ),
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
        for table, column in _VALUES:
            op.drop_constraint(op.f(f"ck_{table}_{column}_known"), table)
    for (table, column), (_, names) in _VALUES.items():
        _rename_values(table, column, names)
    _rename_values("events", "from_state", _STATES)
    _rename_values("events", "to_state", _STATES)
    _rename_values("events", "event", {"asked": "requested"})
    if op.get_bind().dialect.name != "sqlite":
        for (table, column), (known, names) in _VALUES.items():
            op.create_check_constraint(
                op.f(f"ck_{table}_{column}_known"), table, _one_of(column, known, names)
            )
    for _, name, table, listed in _INDEXES:
        which = sa.text(_ONLY[name]) if name in _ONLY else None
        op.create_index(
            name,
            table,
            listed,
            unique=name.startswith("uq_"),
            sqlite_where=which,
            postgresql_where=which,
        )
    # Processes of before know the old names alone.
    op.execute("UPDATE schema_serves SET code_since = '0066'")


def _rename_values(table: str, column: str, names: dict[str, str]) -> None:
    for old, new in names.items():
        op.execute(f"UPDATE {table} SET {column} = '{new}' WHERE {column} = '{old}'")  # noqa: S608


def _one_of(column: str, values: str, names: dict[str, str]) -> str:
    listed = ", ".join(f"'{names.get(value, value)}'" for value in values.split())
    return f"{column} IN ({listed})"


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
    for (table, column), (known, names) in _VALUES.items():
        words.append((table, _one_of(column, known, {}), _one_of(column, known, names)))
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
