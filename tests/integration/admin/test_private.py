"""Who but its owner reads a register center on SQLite: nobody, whoever made the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.cli.operating.database import upgrade as db_upgrade
from registry import Registry, upgrade
from service.settings import SharedSettings, celery_config
from tests.register import add_tenant

pytestmark = pytest.mark.sqlite


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("there_already", [False, True])
def test_fuga_db_upgrade_leaves_nothing_that_all_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there_already: bool
) -> None:
    folder = tmp_path / "state"
    if there_already:
        folder.mkdir(mode=0o755)
    monkeypatch.setenv("FUGA_STATE_DIR", str(folder))
    monkeypatch.delenv("FUGA_DATABASE_URL", raising=False)

    db_upgrade()

    assert folder.stat().st_mode & 0o777 == 0o700
    assert modes(folder) == {"fuga.db": 0o600}


def test_a_database_is_its_owners_alone_wherever_it_is_while_it_is_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    url = f"sqlite:///{tmp_path / 'fuga.db'}"
    upgrade(url)
    registry = Registry.connect(url)

    add_tenant(registry)

    assert modes(tmp_path) == dict.fromkeys(("fuga.db", "fuga.db-wal", "fuga.db-shm"), 0o600)
    assert tmp_path.stat().st_mode & 0o777 == 0o755  # not ours to change
    registry.close()


@pytest.mark.parametrize(("before", "after"), [(0o644, 0o600), (0o664, 0o660), (0o600, 0o600)])
def test_a_database_of_an_older_version_is_tightened(
    tmp_path: Path, before: int, after: int
) -> None:
    url = f"sqlite:///{tmp_path / 'fuga.db'}"
    upgrade(url)
    (tmp_path / "fuga.db").chmod(before)

    upgrade(url)

    assert modes(tmp_path)["fuga.db"] == after


def test_the_brokers_folders_are_their_owners_alone(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)

    celery_config(SharedSettings(state_dir=tmp_path / "state"))

    folders = [path for path in (tmp_path / "state").rglob("*") if path.is_dir()]
    assert {path.name for path in folders} == {"broker", "messages", "control"}
    assert {path.stat().st_mode & 0o777 for path in [tmp_path / "state", *folders]} == {0o700}
