"""The database roles of processes: privileges beyond rows, and privileges that are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

from registry.db.schema import metadata

#: Sessions of other roles show their name only to members; our own sessions are always shown.
_SESSIONS: Final = text("""
    SELECT DISTINCT role.rolname AS name, role.rolsuper AS superuser,
        EXISTS (
            SELECT FROM pg_class JOIN pg_namespace space ON space.oid = relnamespace
            WHERE space.nspname = current_schema() AND relkind = 'r'
                AND pg_has_role(role.oid, relowner, 'MEMBER')
        ) AS owner
    FROM pg_stat_activity session JOIN pg_roles role ON role.oid = session.usesysid
    WHERE session.datname = current_database()
        AND (session.pid = pg_backend_pid() OR session.application_name = 'fuga')
    ORDER BY name
""")
_LACKING: Final = text("""
    SELECT wanted.table_name || ': ' || wanted.privilege
    FROM unnest(CAST(:tables AS text[])) AS wanted_table(name),
        LATERAL (
            SELECT wanted_table.name AS table_name, privilege
            FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS each(privilege)
        ) AS wanted
    WHERE to_regclass(quote_ident(wanted.table_name)) IS NOT NULL
        AND NOT has_table_privilege(to_regclass(quote_ident(wanted.table_name)), wanted.privilege)
    ORDER BY 1
""")
#: Tables that only the owner writes.
_OWNERS: Final = frozenset({"schema_serves"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseRoles:
    """The roles of fuga's sessions at the database."""

    superusers: tuple[str, ...]
    owners: tuple[str, ...]  #: owners of tables that are no superusers
    others: tuple[str, ...]
    lacking: tuple[str, ...]  #: privileges that this session's role lacks


def database_roles(connection: Connection) -> DatabaseRoles | None:
    """Return the database roles of fuga's sessions, with their privileges; None for SQLite."""
    if connection.dialect.name != "postgresql":
        return None
    found = connection.execute(_SESSIONS).all()
    tables = sorted(metadata.tables.keys() - _OWNERS)
    return DatabaseRoles(
        superusers=tuple(each.name for each in found if each.superuser),
        owners=tuple(each.name for each in found if each.owner and not each.superuser),
        others=tuple(each.name for each in found if not each.owner and not each.superuser),
        lacking=tuple(connection.execute(_LACKING, {"tables": tables}).scalars()),
    )
