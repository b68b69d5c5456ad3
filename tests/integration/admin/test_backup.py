"""Backups are made while fuga runs, and put back into an empty place alone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from typer.testing import CliRunner

from controller.cli.operating.database import db
from controller.fleet_metrics import FleetCollector
from registry import Registry
from registry.admin.backup import BackupError, backup, restore, unfinished_backups
from registry.db.schema import metadata
from tests.raw_sql import raw_sql
from tests.register import (
    a_cluster,
    a_domain,
    a_report,
    add_request,
    add_tenant,
    place,
    remove_vm,
    run_vm,
    take_lease,
)
from tests.servers.postgres import PostgresServer
from tests.servers.running import eventually
from tests.servers.small_disks import memory_disk


@pytest.fixture
def empty_url(register_url: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a backup of the register center may be put back."""
    if register_url.startswith("sqlite"):
        yield f"sqlite:///{tmp_path}/elsewhere/fuga.db"
        return
    postgres: PostgresServer = request.getfixturevalue("postgres")
    with postgres.database() as url:
        yield url


def content(url: str) -> dict[str, list[str]]:
    with raw_sql(url) as raw:
        return {
            table: sorted(str(row) for row in raw.rows(f"SELECT * FROM {table}"))
            for table in metadata.tables
        }


def test_what_was_committed_comes_back_and_nothing_later(
    register: Registry, register_url: str, empty_url: str, tmp_path: Path
) -> None:
    (host,) = a_cluster(register)
    run_vm(register, place(register, add_request(register), host).assignment_ids[0])
    before = content(register_url)
    register.processes.register("worker", "runs now", "m1", 1, stamp_of=lambda _: "s")
    file = tmp_path / "fuga.backup"

    backup(register_url, file)
    add_tenant(register, "later")
    restore(empty_url, file)

    assert file.stat().st_mode & 0o777 == 0o600
    assert content(empty_url) == before
    restored = Registry.connect(empty_url)
    assert restored.liveness().processes == ()
    assert restored.check() == []
    add_tenant(restored, "after")
    add_request(restored, name="after")
    restored.close()


def test_hosts_that_went_on_since_are_told_apart_and_the_ledger_stays_sound(
    register: Registry, register_url: str, empty_url: str, tmp_path: Path
) -> None:
    (host,) = a_cluster(register)
    old, new = add_request(register, name="old"), add_request(register, name="new")
    lease = take_lease(register)
    (old_key,) = place(register, old, host, lease=lease).assignment_ids
    old_build = run_vm(register, old_key)
    register.hosts.record_report(host.id, a_report(a_domain(old_build)))
    backup(register_url, tmp_path / "old")
    (new_key,) = place(register, new, host, lease=lease).assignment_ids
    new_build = run_vm(register, new_key)
    register.requests.delete(old.id, actor="test")
    remove_vm(register, old_key)

    restore(empty_url, tmp_path / "old")
    restored = Registry.connect(empty_url)
    restored.hosts.record_report(host.id, a_report(a_domain(new_build)))

    (vm,) = (each for each in restored.vms.list().items if each.assignment_id is not None)
    assert vm.id == old_build.vm_id
    assert vm.observed != "running", "it is gone from its host"
    with raw_sql(empty_url) as raw:
        assert raw.value("SELECT count(*) FROM strangers") == 1
        assert raw.value("SELECT count(*) FROM leftovers") == 0, "nothing unknown is removed"
    amounts = {each.resource: each for each in restored.hosts.get(host.name).inventories}
    assert (amounts["vcpus"].committed, amounts["vcpus"].foreign) == (1, 1)
    assert restored.check() == []
    restored.close()


def test_nothing_is_overwritten(register: Registry, register_url: str, tmp_path: Path) -> None:
    add_tenant(register, "kept")
    file = tmp_path / "fuga.backup"
    backup(register_url, file)

    with pytest.raises(BackupError, match="is there already"):
        backup(register_url, file)
    with pytest.raises(BackupError, match="already"):
        restore(register_url, file)
    assert register.tenants.get("kept").name == "kept"


def test_what_is_no_backup_is_refused_and_leaves_nothing(empty_url: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"no backup at all" * 1000)

    with pytest.raises(BackupError):
        restore(empty_url, file)
    with pytest.raises(BackupError, match="is no file"):
        restore(empty_url, tmp_path / "nothing")
    assert not list((tmp_path / "elsewhere").glob("*"))


def test_a_full_disk_is_blamed_on_the_backup_and_nothing_stays(
    register: Registry, register_url: str, tmp_path: Path
) -> None:
    with memory_disk(tmp_path / "disk", mib=4) as disk:
        for free in (0, 4096, 20_000):
            disk.fill(but_bytes=free)
            with pytest.raises(BackupError, match="No space left on device") as shown:
                backup(register_url, disk.path / "backup")
            assert str(disk.path / "backup") in str(shown.value)
            assert "none of fuga" not in str(shown.value)
            assert disk.files() == []
            disk.free()
    assert register.check() == []


@pytest.mark.sqlite
def test_a_restore_says_which_end_fails_and_leaves_nothing(
    upgraded_database: Path, tmp_path: Path
) -> None:
    file = tmp_path / "backup"
    backup(f"sqlite:///{upgraded_database}", file)
    whole = file.read_bytes()
    with memory_disk(tmp_path / "disk", mib=4) as disk:
        target = disk.path / "fuga.db"
        for free in (0, 4096, 200_000):
            disk.fill(but_bytes=free)
            with pytest.raises(BackupError, match=f"cannot write {target}: No space left"):
                restore(f"sqlite:///{target}", file)
            assert disk.files() == []
            disk.free()

        for content, words in (
            (b"", "none of fuga's|no database of fuga's"),
            (whole[: len(whole) // 2], "damaged"),
            (whole[:8192] + b"\xff" * 8192 + whole[16384:], "damaged|no database"),
        ):
            file.write_bytes(content)
            with pytest.raises(BackupError, match=f"{file} is .*({words})"):
                restore(f"sqlite:///{target}", file)
            assert disk.files() == []


@pytest.mark.parametrize("way", ["no folder", "a file as folder", "read-only"])
def test_a_folder_that_takes_no_backup_is_named(
    register_url: str, tmp_path: Path, way: str
) -> None:
    folder = tmp_path / "there"
    if way == "a file as folder":
        folder.touch()
    with memory_disk(tmp_path / "disk", mib=1) as disk:
        if way == "read-only":
            folder = disk.path
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)

        with pytest.raises(BackupError, match=f"cannot write {folder}/backup: "):
            backup(register_url, folder / "backup")


def test_what_a_backup_that_was_killed_left_goes_with_the_next(
    register: Registry, register_url: str, tmp_path: Path
) -> None:
    done = subprocess.Popen(["true"])
    done.wait()
    left = [tmp_path / f".backup.{done.pid}.part{ending}" for ending in ("", "-journal")]
    others = [tmp_path / f".backup.{os.getppid()}.part", tmp_path / ".backup.x.part"]
    for each in (*left, *others):
        each.touch()

    backup(register_url, tmp_path / "backup")

    assert not any(each.exists() for each in left)
    assert all(each.exists() for each in others)


def test_what_backups_of_other_names_left_is_named(tmp_path: Path) -> None:
    done = subprocess.Popen(["true"])
    done.wait()
    left = tmp_path / f".fuga-2026-11-26.dump.{done.pid}.part"
    for name in (left.name, f".today.{os.getpid()}.part", ".mine.part", "fuga.1.part"):
        (tmp_path / name).touch()

    assert unfinished_backups(tmp_path) == [left]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("command", "ending"),
    [("backup", signal.SIGTERM), ("backup", signal.SIGHUP), ("restore", signal.SIGTERM)],
)
def test_a_command_that_is_ended_in_the_middle_leaves_nothing(
    tmp_path: Path, command: str, ending: signal.Signals
) -> None:
    """PostgreSQL's program writes, and hangs."""
    folder = tmp_path / "there"
    folder.mkdir()
    file, begun = folder / "backup", tmp_path / "begun"
    if command == "restore":
        file.write_bytes(b"dump")
    for name in ("pg_dump", "pg_restore"):
        program = tmp_path / name
        program.write_text(
            f"#!/bin/sh\necho $$ > {begun}.new\nmv {begun}.new {begun}\nexec sleep 99\n"
        )
        program.chmod(0o755)
    there = _ended_early(command, file, path=f"{tmp_path}:{os.environ['PATH']}")

    eventually(begun.exists)
    there.send_signal(ending)

    assert there.wait(30) == 128 + ending
    eventually(lambda: _is_over(int(begun.read_text())))
    assert [each.name for each in folder.iterdir()] == ["backup"] * (command == "restore")


def _is_over(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _ended_early(command: str, file: Path, *, path: str) -> subprocess.Popen[bytes]:
    # Of a restore the database is looked at before, which is none here.
    script = (
        "import sys, registry.admin.backup as each;"
        "each.inspect = lambda _: type('None', (), {'get_table_names': list});"
        "each.make_engine = lambda *_, **__: __import__('sqlalchemy').create_engine('sqlite://');"
        "from controller.cli.start import main; main()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, "db", command, str(file)],
        env={
            "PATH": path,
            "FUGA_DATABASE_URL": "postgresql://u@/nowhere",
            "HOME": str(file.parent),
        },
        stdout=subprocess.DEVNULL,
    )


@pytest.mark.sqlite
def test_without_a_database_there_is_nothing_to_back_up(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="no database is there"):
        backup(f"sqlite:///{tmp_path}/none.db", tmp_path / "file")
    assert not (tmp_path / "file").exists()


@pytest.mark.postgresql
def test_missing_programs_are_named(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(BackupError, match="pg_dump is not installed"):
        backup(postgres.url("postgres"), tmp_path / "file")
    assert not (tmp_path / "file").exists()


@pytest.mark.sqlite
def test_the_commands_do_the_same_and_say_what_to_do_next(
    upgraded_database: Path, tmp_path: Path
) -> None:
    file, runner = tmp_path / "file", CliRunner()
    shutil.copy(upgraded_database, tmp_path / "fuga.db")
    there = {"FUGA_DATABASE_URL": f"sqlite:///{tmp_path}/fuga.db"}
    elsewhere = {"FUGA_DATABASE_URL": f"sqlite:///{tmp_path}/elsewhere/fuga.db"}

    made = runner.invoke(db, ["backup", str(file)], env=there)
    put = runner.invoke(db, ["restore", str(file)], env=elsewhere)
    again = runner.invoke(db, ["restore", str(file)], env=elsewhere)

    assert (made.exit_code, put.exit_code) == (0, 0), made.output + put.output
    assert str(file) in made.output
    assert "fuga token list" in put.output
    assert again.exit_code != 0
    backed_up, put_back = (
        Registry.connect(each["FUGA_DATABASE_URL"]) for each in (there, elsewhere)
    )
    assert "\nfuga_backup_age_seconds " in metrics_of(backed_up)
    [event] = backed_up.events.list(kind="database_backed_up")
    assert event.reason == f"into {file}"
    assert "\nfuga_backup_age_seconds " not in metrics_of(put_back)  # it is not in itself
    for each in (backed_up, put_back):
        each.close()


def metrics_of(registry: Registry) -> str:
    metrics = CollectorRegistry()
    metrics.register(FleetCollector(registry, interval_s=1e-9, max_series=10))
    return generate_latest(metrics).decode()
