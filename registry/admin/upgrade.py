"""Upgrade a database's schema to this code's revision, or report that it is outdated."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, inspect, select

from registry.admin.known_schema import strangers_in
from registry.admin.revisions import (
    FIRST_BEFORE_MERGE,
    LAST_BEFORE_MERGE,
    alembic_config,
    first_revision,
    head_revision,
    known_revisions,
)
from registry.db.engine import database_at, make_engine, translate_unavailable
from registry.db.locks import take_turns
from registry.db.online_indexes import build_beforehand
from registry.db.private_files import private_database, private_folder
from registry.db.schema import schema_serves
from registry.errors import SchemaOutdatedError, StrangersInSchemaError


def check_schema(connection: Connection) -> bool:
    """Raise `SchemaOutdatedError` unless this code can use the schema.

    Returns whether the schema is current.

    An older revision is outdated. An unknown revision is newer: revisions
    only add, as a rule, and those that remove something record in the database which
    code the schema still serves.
    """
    found = MigrationContext.configure(connection).get_current_revision()
    head = head_revision()
    if found == head:
        return True
    if found is None or found in known_revisions():
        raise SchemaOutdatedError(found, head)
    if found < first_revision():
        pass_first = LAST_BEFORE_MERGE if found >= FIRST_BEFORE_MERGE else None
        raise SchemaOutdatedError(found, head, first=first_revision(), pass_first=pass_first)
    since = _code_since(connection)
    if since not in known_revisions() and not (since and since < first_revision()):
        raise SchemaOutdatedError(found, head, code_since=since or found)
    return False


def _code_since(connection: Connection) -> str | None:
    if not inspect(connection).has_table(schema_serves.name):
        return None
    return connection.scalars(select(schema_serves.c.code_since)).one_or_none()


def upgrade(database_url: str) -> str:
    """Bring the database to head, creating SQLite's file; return the revision.

    All revisions run in one transaction, on PostgreSQL as well: a failed upgrade
    leaves the database as it was, but for indexes of large tables, which are built
    before, while processes write. Two at once take turns. A database that is newer
    than this code, and serves it, is left as it is.

    Raises
    ------
    StrangersInSchemaError
        If SQLite's file holds what our migrations did not make.
    """
    url = database_at(database_url)
    if url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:":
        file = Path(url.database)
        if not file.parent.exists():
            private_folder(file.parent)
        private_database(file)
    engine = make_engine(database_url, patient=True)
    try:
        with translate_unavailable():
            if _is_older(engine):
                build_beforehand(engine)
        with translate_unavailable(), engine.begin() as connection:
            take_turns(connection, "upgrade")
            found = MigrationContext.configure(connection).get_current_revision()
            if found is not None and found not in known_revisions():
                check_schema(connection)
                return found
            if strangers := strangers_in(connection):
                raise StrangersInSchemaError(strangers)
            command.upgrade(alembic_config(connection), "head")
    finally:
        engine.dispose()
    return head_revision()


def _is_older(engine: Engine) -> bool:
    """Return whether a server's database is there, of a revision before the last."""
    if engine.dialect.name == "sqlite":
        return False
    with engine.connect() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    return found in known_revisions() and found != head_revision()
