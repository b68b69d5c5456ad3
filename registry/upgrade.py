"""Bring a database's schema to what this code needs, or say that it is not there."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, select

from registry.engine import available, database_at, make_engine
from registry.errors import SchemaOutdatedError
from registry.locks import take_turns
from registry.schema import schema_serves


def alembic_config(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration; the scripts are the package ``migrations``."""
    config = Config()
    config.set_main_option("script_location", str(files("migrations")))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


@cache
def head_revision() -> str:
    """Return the revision that this code needs."""
    head = ScriptDirectory.from_config(alembic_config()).get_current_head()
    if head is None:
        raise SchemaOutdatedError(None, "a revision: the package `migrations` is incomplete")
    return head


@cache
def _revisions() -> frozenset[str]:
    scripts = ScriptDirectory.from_config(alembic_config())
    return frozenset(each.revision for each in scripts.walk_revisions())


def check_schema(connection: Connection) -> None:
    """Raise `SchemaOutdatedError` unless this code can use the schema.

    Older than it needs is too old. A revision that it does not know is newer: revisions
    only add, as a rule, and those that take something away say in the database which
    code it serves from then on.
    """
    found = MigrationContext.configure(connection).get_current_revision()
    head = head_revision()
    if found == head:
        return
    if found is None or found in _revisions():
        raise SchemaOutdatedError(found, head)
    since = _code_since(connection)
    if since not in _revisions():
        raise SchemaOutdatedError(found, head, code_since=since or found)


def _code_since(connection: Connection) -> str | None:
    if not inspect(connection).has_table(schema_serves.name):
        return None
    return connection.scalars(select(schema_serves.c.code_since)).one_or_none()


def upgrade(database_url: str) -> str:
    """Bring the database to head, creating SQLite's file; return the revision.

    All revisions run in one transaction, on PostgreSQL as well: a failed upgrade
    leaves the database as it was. Two at once take turns. A database that is newer
    than this code, and serves it, is left as it is.
    """
    url = database_at(database_url)
    if url.get_backend_name() == "sqlite" and url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = make_engine(database_url, patient=True)
    try:
        with available(), engine.begin() as connection:
            take_turns(connection, "upgrade")
            found = MigrationContext.configure(connection).get_current_revision()
            if found is not None and found not in _revisions():
                check_schema(connection)
                return found
            command.upgrade(alembic_config(connection), "head")
    finally:
        engine.dispose()
    return head_revision()
