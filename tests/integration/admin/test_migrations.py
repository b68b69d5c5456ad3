"""Revisions from nothing lead to what the models say, on every way there."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command, op
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from registry import InvalidError, Registry, RegistryUnavailableError, SchemaOutdatedError, upgrade
from registry.admin.doctor import TRIGGERS_FOUND
from registry.admin.revisions import alembic_config, first_revision, head_revision
from registry.db.engine import LockTimeoutError, make_engine
from registry.db.schema import metadata
from registry.ledger.triggers import TRIGGERS, trigger_statements
from tests.raw_sql import RawSql, raw_sql
from tests.register import a_cluster, add_request, place
from tests.servers.postgres import PostgresServer

AT_0066 = Path(__file__).with_name("at_0066")


def test_the_models_and_the_migrated_database_do_not_differ(register_url: str) -> None:
    engine = make_engine(register_url, read_only=True)
    with engine.begin() as connection:
        dialect = connection.dialect.name

        def is_here(found: Any, _: str | None, __: str, ___: bool, ____: object) -> bool:
            return found.info.get("only_on", dialect) == dialect

        context = MigrationContext.configure(
            connection,
            opts={"compare_type": True, "compare_server_default": True, "include_object": is_here},
        )
        differences = compare_metadata(context, metadata)
    engine.dispose()

    assert differences == []


def test_constraints_and_triggers_are_the_code_s_own_to_the_letter(
    register_url: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Alembic's comparison does not look into CHECK constraints and partial indexes."""
    with contextlib.ExitStack() as stack:
        created = f"sqlite:///{tmp_path}/created.db"
        if register_url.startswith("postgresql"):
            created = stack.enter_context(request.getfixturevalue("postgres").database())
        engine = make_engine(created)
        with engine.begin() as connection:
            metadata.create_all(connection)
            for statement in trigger_statements(engine.dialect.name):
                connection.exec_driver_sql(statement.replace("%", "%%"))
        engine.dispose()

        assert _constraints(register_url) == _constraints(created)


#: A line each, but for a column added later: SQLite writes it behind the one before.
_PARTS = r"\n|, (?=\w+ [A-Z]+\b)"
#: A list of words: what a dump says is not what was said when the table was made.
_LIST = re.compile(r"\(('\w+'::character varying)\)::text|\((ARRAY\[[^]]*\])\)::text\[\]")
_WORDS = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE sql <> ''",
    "postgresql": """
        SELECT indexname AS name, indexdef AS sql FROM pg_indexes WHERE schemaname = 'public'
        UNION ALL
        SELECT conrelid::regclass || ' ' || conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace
        UNION ALL
        SELECT relname || ' is stored with', array_to_string(reloptions, ', ')
        FROM pg_class WHERE relnamespace = 'public'::regnamespace AND reloptions IS NOT NULL
        UNION ALL
        SELECT 'trigger ' || tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
        UNION ALL
        SELECT 'function ' || proname, pg_get_functiondef(oid)
        FROM pg_proc WHERE pronamespace = 'public'::regnamespace
        UNION ALL
        SELECT attrelid::regclass || '.' || attname, concat_ws(' ',
            format_type(atttypid, atttypmod), attnotnull, attgenerated,
            attcollation::regcollation, pg_get_expr(adbin, adrelid))
        FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE attnum > 0 AND attrelid::regclass::text IN (
            SELECT tablename FROM pg_tables WHERE schemaname = 'public')
    """,
}

_TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    "postgresql": "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'",
}
_OWNERS = """
    SELECT relname, relkind, relowner::regrole::text, relacl::text FROM pg_class
    WHERE relnamespace = 'public'::regnamespace ORDER BY relname
"""


def _constraints(url: str) -> dict[str, list[str]]:
    with raw_sql(url) as raw:
        return {
            row["name"]: sorted(
                # SQLite quotes the name of a table that was made again by a revision.
                " ".join(line.replace('"', "").split()).strip(", )")
                for line in re.split(_PARTS, _LIST.sub(r"\1\2", row["sql"]))
            )
            for row in raw.rows(_WORDS[raw.dialect])
            if not row["name"].startswith(("alembic_version", "sqlite_sequence"))
        }


def test_there_is_one_line_of_revisions() -> None:
    scripts = ScriptDirectory.from_config(alembic_config())

    assert scripts.get_heads() == [head_revision()]
    assert scripts.get_bases() == [first_revision()]


def test_every_trigger_that_the_doctor_knows_is_there(register_url: str) -> None:
    engine = make_engine(register_url, read_only=True)
    with engine.begin() as connection:
        dialect = connection.dialect.name
        names = set(connection.exec_driver_sql(TRIGGERS_FOUND[dialect]).scalars())
    engine.dispose()

    assert names == TRIGGERS[dialect].keys()


@pytest.mark.sqlite
def test_an_upgrade_creates_the_folder_and_may_be_repeated(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/deep/er/fuga.db"

    assert upgrade(url) == upgrade(url) == head_revision()
    registry = Registry.connect(url)

    assert [each.name for each in registry.resources.all()] == ["vcpus", "memory_mib", "disk_gib"]
    assert registry.check() == []
    registry.close()


@pytest.mark.sqlite
def test_new_databases_have_their_indexes_in_one_order(tmp_path: Path) -> None:
    names = "SELECT name FROM sqlite_schema WHERE type = 'index' ORDER BY rowid"
    orders = set()
    for n in range(3):
        upgrade(f"sqlite:///{tmp_path}/{n}.db")
        with closing(sqlite3.connect(tmp_path / f"{n}.db")) as database:
            orders.add(tuple(database.execute(names)))

    assert len(orders) == 1


def test_a_database_that_is_not_there_is_refused_and_not_created(tmp_path: Path) -> None:
    path = tmp_path / "fuga.db"

    with pytest.raises(SchemaOutdatedError, match="fuga db upgrade"):
        Registry.connect(f"sqlite:///{path}")

    assert not path.exists()


@pytest.mark.sqlite
def test_an_empty_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fuga.db"
    sqlite3.connect(path).close()
    path.touch()

    with pytest.raises(SchemaOutdatedError, match="fuga db upgrade"):
        Registry.connect(f"sqlite:///{path}")


@pytest.mark.sqlite
def test_a_file_that_is_no_database_is_an_error_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "fuga.db"
    path.write_text("not a database, and long enough to be looked at" * 100)

    with pytest.raises(RegistryUnavailableError, match="not a database"):
        Registry.connect(f"sqlite:///{path}")


@pytest.mark.parametrize(
    ("found", "advice"),
    [
        ("0046", "fuga at commit 9423c94a329f first .*pip install"),
        ("0065", "fuga at commit 9423c94a329f first .*pip install"),
        ("0045", "no version is left .*begin with a new database"),
    ],
)
def test_a_database_of_an_earlier_revision_is_refused_with_the_way_on(
    register_url: str, raw: RawSql, found: str, advice: str
) -> None:
    raw.run("UPDATE alembic_version SET version_num = ?", found)

    for call in (Registry.connect, upgrade):
        with pytest.raises(
            SchemaOutdatedError, match=f"revision {found}, .*upgrades from 0066 on.*{advice}"
        ):
            call(register_url)


def test_a_database_that_many_revisions_made_equals_a_new_one_and_starts_as_it_is(
    register_url: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Before the first release the revisions 0046 to 0066 were merged into one."""
    with contextlib.ExitStack() as stack:
        old, new = (f"sqlite:///{tmp_path}/{each}.db" for each in ("old", "new"))
        if register_url.startswith("postgresql"):
            postgres = request.getfixturevalue("postgres")
            old, new = (stack.enter_context(postgres.database()) for _ in range(2))
        with raw_sql(old) as raw:
            raw.script((AT_0066 / f"{raw.dialect}.sql").read_text())
        engine = make_engine(new)
        with engine.begin() as connection:
            command.upgrade(alembic_config(connection), "0066")
        engine.dispose()

        assert _constraints(old) == _constraints(new)
        assert _first_rows(old) == _first_rows(new)
        assert upgrade(old) == head_revision()
        registry = Registry.connect(old)
        [host] = a_cluster(registry)
        assert place(registry, add_request(registry, 2), host, 2).assignment_ids
        assert registry.check() == []
        registry.close()


def _first_rows(url: str) -> dict[str, list[dict[str, Any]]]:
    """Return all rows, without the secret that each database makes for itself; and owners."""
    secret = {"value": None, "made_at": None}
    with raw_sql(url) as raw:
        return {
            table: [
                row | secret if table == "installation_secrets" else row
                for row in raw.rows(f"SELECT * FROM {table}")
            ]
            for table in (row["name"] for row in raw.rows(_TABLES[raw.dialect]))
        } | {"owners": raw.rows(_OWNERS) if raw.dialect == "postgresql" else []}


def test_a_database_of_a_newer_version_that_only_added_serves_this_one(
    register_url: str, raw: RawSql
) -> None:
    raw.run("CREATE TABLE of_tomorrow (id integer)")
    raw.run("ALTER TABLE hosts ADD COLUMN of_tomorrow text")
    raw.run("UPDATE alembic_version SET version_num = '9999'")

    registry = Registry.connect(register_url)

    registry.check_schema()
    [host] = a_cluster(registry)
    assert place(registry, add_request(registry, 2), host, 2).assignment_ids
    assert registry.check() == []
    registry.close()
    assert upgrade(register_url) == "9999"


def test_a_newer_database_that_does_not_serve_this_code_says_so_also_while_it_runs(
    register_url: str, raw: RawSql
) -> None:
    running = Registry.connect(register_url)
    raw.run("UPDATE alembic_version SET version_num = '9999'")
    raw.run("UPDATE schema_serves SET code_since = '9990'")

    for call in (Registry.connect, upgrade, lambda _: running.check_schema()):
        with pytest.raises(SchemaOutdatedError, match=r"9999.* knows 9990.*a newer fuga upgraded"):
            call(register_url)

    raw.run("DROP TABLE schema_serves")
    with pytest.raises(SchemaOutdatedError, match=r"9999.*a newer fuga upgraded it"):
        running.check_schema()
    running.close()


@pytest.mark.sqlite
def test_an_upgrade_that_fails_halfway_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fuga.db"
    execute = op.execute

    def failing(sql: Any, *words: Any, **more: Any) -> None:
        # The first revision makes the triggers after the tables.
        execute("CREATE nonsense" if "TRIGGER version_only_rises" in str(sql) else sql, *words)

    monkeypatch.setattr(op, "execute", failing)
    with pytest.raises(Exception, match="nonsense"):
        upgrade(f"sqlite:///{path}")

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []


@pytest.mark.postgresql
def test_on_postgresql_an_upgrade_waits_for_no_table_that_a_backup_reads(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.admin.upgrade._TRIES", 2)
    monkeypatch.setattr("registry.admin.upgrade._PAUSE_S", 0.0)
    monkeypatch.setattr("registry.admin.upgrade._LOCK_TIMEOUT_S", 1)
    with postgres.database() as url, raw_sql(url) as raw:
        engine = make_engine(url)
        with engine.begin() as connection:
            command.upgrade(alembic_config(connection), "0068")
        engine.dispose()
        raw.run("BEGIN")
        raw.run("LOCK TABLE hosts IN ACCESS SHARE MODE")
        with pytest.raises(LockTimeoutError, match="lock timeout"):
            upgrade(url)
        raw.run("COMMIT")

        assert upgrade(url) == head_revision()


@pytest.mark.postgresql
def test_on_postgresql_an_upgrade_is_whole_or_not_and_two_take_turns(
    postgres: PostgresServer,
) -> None:
    with postgres.database() as url, raw_sql(url) as raw:
        with pytest.raises(SchemaOutdatedError, match="fuga db upgrade"):
            Registry.connect(url)
        # The first revision makes a function of this name after the tables, and will fail.
        raw.run("CREATE FUNCTION ledger_release() RETURNS int LANGUAGE sql AS 'SELECT 1'")
        with pytest.raises(Exception, match="ledger_release"):
            upgrade(url)
        assert raw.value("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
        raw.run("DROP FUNCTION ledger_release")

        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(upgrade, [url] * 2))

        assert done == [head_revision()] * 2
        registry = Registry.connect(url)
        assert registry.check() == []
        registry.close()


@pytest.mark.postgresql
def test_a_server_that_is_not_there_is_unavailable_and_the_error_shows_no_password() -> None:
    url = "postgresql://fuga:hunter2@/fuga?host=/nonexistent"

    for call in (Registry.connect, upgrade):
        with pytest.raises(RegistryUnavailableError, match="/nonexistent") as raised:
            call(url)
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("url", ["mysql://fuga:hunter2@db/fuga", "hunter2", ""])
def test_what_is_no_url_of_ours_is_refused(url: str) -> None:
    for call in (Registry.connect, upgrade):
        with pytest.raises(InvalidError, match=r"sqlite or postgresql|sqlite:///") as raised:
            call(url)
        assert "hunter2" not in str(raised.value)
