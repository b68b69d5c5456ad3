"""The role that processes log in as: what it may not do, and what doctor says of others.

That it suffices, every test on PostgreSQL shows: its register center is opened by that role.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from registry import Registry, SchemaOutdatedError, upgrade
from tests.raw_sql import RawSql, raw_sql
from tests.register import a_cluster
from tests.servers.postgres import RUN_ROLE, TEMPLATE, PostgresServer, as_run_role

pytestmark = pytest.mark.postgresql


@pytest.fixture
def owner_url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database(template=TEMPLATE) as url:
        # What a database itself grants is not its template's.
        postgres.run(RUN_ROLE, url.partition("?")[0].rpartition("/")[2])
        yield url


@pytest.fixture
def ours(owner_url: str) -> Iterator[RawSql]:
    with raw_sql(as_run_role(owner_url)) as connection:
        yield connection


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE loot (id int)",
        "CREATE TEMPORARY TABLE loot (id int)",
        "CREATE SCHEMA loot",
        "ALTER TABLE events ADD COLUMN loot int",
        "ALTER TABLE assignment_resources DISABLE TRIGGER ledger_commit",
        "DROP TRIGGER ledger_commit ON assignment_resources",
        "DROP TABLE audit",
        "TRUNCATE audit",
        "SET session_replication_role = replica",
        "UPDATE alembic_version SET version_num = '0001'",
        "DELETE FROM schema_serves",
        "CREATE ROLE loot",
        "COPY (SELECT 1) TO PROGRAM 'true'",
    ],
)
def test_it_changes_nothing_but_rows(ours: RawSql, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ours.run(statement)


def test_a_table_of_a_later_revision_is_its_own_to_write(owner_url: str, ours: RawSql) -> None:
    with raw_sql(owner_url) as owner:
        owner.run("CREATE TABLE of_later (id bigserial PRIMARY KEY, name text)")

    ours.run("INSERT INTO of_later (name) VALUES ('x')")
    ours.run("UPDATE of_later SET name = 'y'")

    assert ours.value("SELECT name FROM of_later") == "y"


def test_the_file_may_run_before_the_first_upgrade_and_any_number_of_times(
    postgres: PostgresServer,
) -> None:
    with postgres.database() as url:
        name = url.partition("?")[0].rpartition("/")[2]
        postgres.run(RUN_ROLE, name)
        with pytest.raises(SchemaOutdatedError):
            Registry.connect(as_run_role(url))
        upgrade(url)
        for _ in range(2):
            postgres.run(RUN_ROLE, name)
            registry = Registry.connect(as_run_role(url))
            try:
                found = registry.database_roles()
            finally:
                registry.close()
            assert found is not None
            assert (found.others, found.lacking) == (("fuga_run",), ())


def test_doctor_learns_of_a_superuser_an_owner_and_of_privileges_that_are_missing(
    postgres: PostgresServer, owner_url: str
) -> None:
    registry = Registry.connect(owner_url)
    try:
        a_cluster(registry)
        found = registry.database_roles()
        assert found is not None
        assert found.superusers == (postgres.user,)
    finally:
        registry.close()

    with raw_sql(owner_url) as owner:
        owner.run("DROP ROLE IF EXISTS fuga_owns")
        owner.run("CREATE ROLE fuga_owns LOGIN")
        owner.run("GRANT fuga_run TO fuga_owns")
        database = owner.value("SELECT current_database()")
        owner.run(f"GRANT CONNECT ON DATABASE {database} TO fuga_owns")
        owner.run("ALTER TABLE events OWNER TO fuga_owns")
        owner.run("REVOKE INSERT ON requests FROM fuga_run")
    url = as_run_role(owner_url)
    registry, other = Registry.connect(url), Registry.connect(url.replace("fuga_run", "fuga_owns"))
    try:
        for each in (registry, other):
            found = each.database_roles()
            assert found is not None
            assert "requests: INSERT" in found.lacking
        assert (found.owners, found.superusers) == (("fuga_owns",), ())
    finally:
        registry.close()
        other.close()
        with raw_sql(owner_url) as owner:
            owner.run("REASSIGN OWNED BY fuga_owns TO CURRENT_USER")
            owner.run("DROP OWNED BY fuga_owns")
            owner.run("DROP ROLE fuga_owns")
