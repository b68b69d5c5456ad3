"""Checks of foreign keys, for databases that may not enforce them.

SQLite enforces them only for connections that ask for it. So live rows are checked daily
on SQLite, and all rows on demand on both databases, each foreign key in
its own transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    ForeignKeyConstraint,
    FromClause,
    Select,
    Table,
    and_,
    func,
    literal_column,
    select,
    true,
)

from registry.db.schema import assignments, metadata, requests, unreleased, vms
from registry.lifecycle import FINISHED, OPEN_MOVES, RequestState

#: Foreign keys that PostgreSQL enforces: validated, and with their triggers enabled.
_KEYS_KEPT: Final = """
    SELECT conname FROM pg_constraint kept
    WHERE contype = 'f' AND convalidated AND pg_table_is_visible(conrelid) AND NOT EXISTS (
        SELECT FROM pg_trigger WHERE tgconstraint = kept.oid AND tgenabled NOT IN ('O', 'A')
    )
"""


def check_keys_enforced(connection: Connection) -> Iterator[str]:
    """Yield each foreign key that PostgreSQL does not enforce; nothing on SQLite."""
    if connection.dialect.name == "sqlite":
        return  # enforcement depends on the connection there
    kept = set(connection.exec_driver_sql(_KEYS_KEPT).scalars())
    for _, constraint in _foreign_keys("postgresql"):
        if constraint.name not in kept:
            yield f"the foreign key {constraint.name} is missing, not validated or switched off"


def _foreign_keys(dialect: str) -> Iterator[tuple[Table, ForeignKeyConstraint]]:
    """Yield the foreign keys of a database, with their tables."""
    for table in metadata.sorted_tables:
        for constraint in sorted(table.foreign_key_constraints, key=lambda each: str(each.name)):
            if constraint.info.get("only_on", dialect) == dialect:
                yield table, constraint


def reference_checks(dialect: str) -> Iterator[Callable[[Connection], Iterable[str]]]:
    """Yield a check of all rows for each foreign key, as rows may be older than the key."""
    for table, constraint in _foreign_keys(dialect):
        yield partial(_check_orphans, table=table, constraint=constraint)


def live_reference_checks(dialect: str) -> Iterator[Callable[[Connection], Iterable[str]]]:
    """Yield a check of live rows for each foreign key on SQLite; nothing on PostgreSQL."""
    if dialect != "sqlite":
        return
    for table, constraint in _foreign_keys(dialect):
        living = _LIVING.get(table.name, _all_rows)
        if living is not None:
            yield partial(_check_orphans, table=table, constraint=constraint, living=living)


def _all_rows(_: FromClause) -> ColumnElement[bool]:
    """Return a condition that all rows meet, for tables that keep no ended objects."""
    return true()


def _live_vms(row: FromClause) -> ColumnElement[bool]:
    """Return the condition that the VM of a row is not deleted."""
    return row.c.vm_id.in_(select(vms.c.id).where(vms.c.deleted_at.is_(None)))


def _open_requests(row: FromClause) -> ColumnElement[bool]:
    """Return the condition that the request of a row is not finished."""
    return row.c.request_id.in_(select(requests.c.id).where(requests.c.state.in_(OPEN)))


OPEN: Final = [state.value for state in RequestState if state not in FINISHED]
#: The condition for live rows of tables that keep old rows; None for tables of records only.
_LIVING: Final[Mapping[str, Callable[[FromClause], ColumnElement[bool]] | None]] = {
    "vms": lambda row: row.c.deleted_at.is_(None),
    "interfaces": _live_vms,
    "assignments": lambda row: row.c.state != literal_column("'released'"),
    "assignment_resources": lambda row: row.c.assignment_id.in_(
        select(assignments.c.id).where(unreleased)
    ),
    "requests": lambda row: row.c.state.in_(OPEN),
    "request_access": _open_requests,
    "request_groups": _open_requests,
    "request_images": _open_requests,
    "request_networks": _open_requests,
    "moves": lambda row: row.c.state.in_([state.value for state in OPEN_MOVES]),
    "plan_moves": None,
    "roll_hosts": None,
    "round_inputs": None,
    "shadow_rounds": None,
}


def _check_orphans(
    connection: Connection,
    *,
    table: Table,
    constraint: ForeignKeyConstraint,
    living: Callable[[FromClause], ColumnElement[bool]] = _all_rows,
) -> Iterator[str]:
    """Yield a sentence if rows refer to a row that does not exist, by one foreign key."""
    if number := connection.execute(_orphan_count_query(table, constraint, living)).scalar_one():
        yield (
            f"table {table.name}: {number} rows refer to a row of"
            f" {constraint.referred_table.name} that does not exist"
        )


@cache
def _orphan_count_query(
    table: Table,
    constraint: ForeignKeyConstraint,
    living: Callable[[FromClause], ColumnElement[bool]],
) -> Select[int]:
    """Return the query that counts rows with a broken foreign key."""
    child = table.alias("child")
    parent = constraint.referred_table.alias("parent")
    pairs = [(child.c[key.parent.name], parent.c[key.column.name]) for key in constraint.elements]
    return (
        select(func.count())
        .select_from(child)
        .outerjoin(parent, and_(*(ours == theirs for ours, theirs in pairs)))
        .where(pairs[0][1].is_(None), *(ours.is_not(None) for ours, _ in pairs), living(child))
    )
