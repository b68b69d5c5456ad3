"""Indexes of large tables, built concurrently before the revision that needs them.

A revision runs in a transaction, and an index that is built in a transaction blocks all writers of
its table, for minutes on a large site. PostgreSQL builds it concurrently outside of a transaction;
the revision then finds it.
"""

from __future__ import annotations

import time
from typing import Final

from sqlalchemy import Connection, Engine, Index, text
from sqlalchemy.schema import CreateIndex

from registry.db.schema import audit, events, requests, vms

#: Indexes of columns that exist since the first revision. For an index of a later column
#: `_build_index` has to add that column first, with a default of the server.
_LARGE: Final[frozenset[str]] = frozenset(
    {
        "ix_audit_subject_id",
        "ix_events_kind_id",
        "ix_requests_name",
        "ix_requests_reservation_id",
        "ix_requests_state_id",
        "ix_vms_deleted_at",
        "ix_vms_id_live",
        "ix_vms_id_spot",
        "ix_vms_request_id_unplaced",
        "ix_vms_tenant_id_live",
    }
)
_TURN: Final = "SELECT pg_try_advisory_lock(hashtext('fuga: indexes beforehand'))"
#: The index's validity: None if it does not exist, false if its build was interrupted.
_IS_VALID: Final = text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)")
_LOOK_AGAIN_S: Final = 0.2


def build_missing_indexes(engine: Engine) -> None:
    """Build the missing indexes on a database that has the tables of the first revision."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        # No lock in the database: a concurrent build waits for every running statement.
        while not connection.exec_driver_sql(_TURN).scalar_one():
            time.sleep(_LOOK_AGAIN_S)
        try:
            for table in (vms, requests, events, audit):
                for index in sorted(table.indexes, key=lambda each: str(each.name)):
                    if index.name in _LARGE:
                        _build_index(connection, index)
        finally:
            connection.exec_driver_sql(_TURN.replace("try_advisory_lock", "advisory_unlock"))


def _build_index(connection: Connection, index: Index) -> None:
    """Build an index while processes write, unless it exists; replace one that is invalid."""
    is_valid = connection.execute(_IS_VALID, {"name": index.name}).scalar_one_or_none()
    if is_valid:
        return
    if is_valid is not None:
        connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY {index.name}")
    statement = str(CreateIndex(index).compile(dialect=connection.dialect))
    connection.exec_driver_sql(statement.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY", 1))
