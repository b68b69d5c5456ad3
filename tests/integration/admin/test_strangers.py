"""A file of SQLite that somebody else made may bring what runs when fuga writes: it is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from registry import Registry, RegistryError, upgrade
from registry.admin.backup import BackupError, backup, restore
from registry.admin.revisions import head_revision
from registry.errors import ForeignSchemaObjectsError
from tests.raw_sql import raw_sql
from tests.register import add_tenant

pytestmark = pytest.mark.sqlite

TRIGGER = (
    "CREATE TRIGGER make_operators AFTER INSERT ON tenants"
    " BEGIN UPDATE tokens SET role = 'operator', tenant_id = NULL; END"
)
#: What somebody adds, and what of it is told.
HOSTILE = {
    TRIGGER: "trigger 'make_operators' on tenants, which fuga does not make",
    "CREATE VIEW everything AS SELECT * FROM tokens": "view 'everything', which fuga does not make",
    "CREATE TABLE more (x)": "table 'more', which fuga does not make",
    "DROP TRIGGER ledger_refuse_over_capacity": "no trigger 'ledger_refuse_over_capacity'",
    "DROP TRIGGER version_by_host; CREATE TRIGGER version_by_host AFTER UPDATE ON hosts"
    " BEGIN UPDATE tokens SET revoked_at = NULL; END":
        "trigger 'version_by_host' on hosts, which fuga makes otherwise",
    "ALTER TABLE tenants ADD COLUMN more AS (abs(1))":
        "table 'tenants', which fuga makes otherwise",
    "CREATE VIRTUAL TABLE search USING fts5(x)": "table 'search', which fuga does not make",
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    url = f"sqlite:///{tmp_path / 'fuga.db'}"
    upgrade(url)
    registry = Registry.connect(url)
    add_tenant(registry)
    registry.close()
    backup(url, tmp_path / "kept.backup")
    return tmp_path / "kept.backup"


def add(file: Path, sql: str) -> None:
    with closing(sqlite3.connect(file)) as raw:
        try:
            raw.executescript(sql)
        except sqlite3.OperationalError as error:
            pytest.skip(f"this SQLite does not let it be: {error}")


@pytest.mark.parametrize(("sql", "told"), HOSTILE.items())
def test_a_backup_with_what_fuga_does_not_make_is_not_restored(
    file: Path, tmp_path: Path, sql: str, told: str
) -> None:
    add(file, sql)
    target = tmp_path / "restored" / "fuga.db"

    with pytest.raises(RegistryError) as refused:
        restore(f"sqlite:///{target}", file)

    assert told in str(refused.value)
    assert str(file) in str(refused.value)
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("opened", [upgrade, Registry.connect])
def test_a_database_that_was_put_there_by_hand_is_refused_before_it_is_written_to(
    file: Path, opened: Callable[[str], object]
) -> None:
    add(file, TRIGGER)

    with pytest.raises(ForeignSchemaObjectsError, match="make_operators"):
        opened(f"sqlite:///{file}")


def test_doctor_tells_a_trigger_that_does_something_else_under_our_name(file: Path) -> None:
    add(
        file,
        "DROP TRIGGER version_by_host; CREATE TRIGGER version_by_host AFTER UPDATE ON hosts"
        " BEGIN UPDATE tokens SET revoked_at = NULL; END",
    )
    registry = Registry.connect(f"sqlite:///{file}")

    [problem] = registry.check()

    assert problem == (
        "the schema has trigger 'version_by_host' on hosts, which fuga makes otherwise"
    )
    registry.close()


def test_a_backup_whose_columns_were_added_one_by_one_is_ours(tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    with raw_sql(f"sqlite:///{old}") as raw:
        raw.script((Path(__file__).with_name("at_0066") / "sqlite.sql").read_text())
    target = f"sqlite:///{tmp_path / 'fuga.db'}"

    restore(target, old)

    assert upgrade(target) == head_revision()
    registry = Registry.connect(target)
    assert registry.check() == []
    registry.close()


def test_a_backup_of_another_programs_database_is_none(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    add(other, "CREATE TABLE songs (name)")

    with pytest.raises(BackupError):
        restore(f"sqlite:///{tmp_path / 'fuga.db'}", other)
    with pytest.raises(ForeignSchemaObjectsError, match="table 'songs'"):
        upgrade(f"sqlite:///{other}")


@pytest.mark.parametrize(
    ("revision", "problem"),
    [
        ("0050", "does not know: restore it with commit 9423c94a329f, and upgrade it there"),
        ("9999", r"does not know\. "),
    ],
)
def test_a_backup_of_an_unknown_revision_is_refused_with_the_way_on(
    tmp_path: Path, revision: str, problem: str
) -> None:
    old = tmp_path / "old.db"
    with raw_sql(f"sqlite:///{old}") as raw:
        raw.script((Path(__file__).with_name("at_0066") / "sqlite.sql").read_text())
        raw.run("UPDATE alembic_version SET version_num = ?", revision)

    with pytest.raises(ForeignSchemaObjectsError, match=problem):
        restore(f"sqlite:///{tmp_path / 'fuga.db'}", old)
