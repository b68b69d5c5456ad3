"""Backups of the register center, made while it is in use, and put back into an empty place."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Final

from sqlalchemy import URL, inspect

from registry.errors import RegistryError, StrangersInSchemaError
from registry.ground.child_environ import child_environ
from registry.ground.engine import available, database_at, make_engine
from registry.ground.masking import masked
from registry.ground.private import private_folder
from registry.operating.known_schema import differences_in

_PACKAGE: Final = "PostgreSQL's client programs of the server's version or newer"


class BackupError(RegistryError):
    """A backup cannot be made or put back."""


def backup(database_url: str, file: Path) -> None:
    """Write all that is committed now into a file, for its owner alone to read.

    Raises
    ------
    BackupError
        If the file is there already, or cannot be written, or the database not be read.
    """
    if file.exists():
        raise BackupError(f"{file} is there already: name another file")
    url = database_at(database_url)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        if url.get_backend_name() == "sqlite":
            _copy_sqlite(_sqlite_file(url, "no database is there"), beside)
        else:
            _run("pg_dump", url, "--format=custom", "--no-owner", "--no-acl", f"--file={beside}")
        _sync(beside)
        beside.rename(file)
        _sync(file.absolute().parent)
    except OSError as error:
        raise BackupError(f"cannot write {file}: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)


def restore(database_url: str, file: Path) -> None:
    """Put a backup into a database that is empty.

    Raises
    ------
    BackupError
        If something is there already, or the file is no backup of such a database.
    StrangersInSchemaError
        If the file holds triggers, views or tables that are none of fuga's.
    """
    url = database_at(database_url)
    if not file.is_file():
        raise BackupError(f"{file} is no file")
    if url.get_backend_name() == "sqlite":
        _restore_sqlite(url, file)
        return
    engine = make_engine(database_url, read_only=True)
    try:
        with available(), engine.connect() as connection:
            tables = inspect(connection).get_table_names()
    finally:
        engine.dispose()
    if tables:
        raise BackupError(
            f"the database has {len(tables)} tables already: restore into an empty one"
            " (`createdb`), and let FUGA_DATABASE_URL name it"
        )
    _run("pg_restore", url, "--exit-on-error", "--single-transaction", "--no-owner", str(file))


def _restore_sqlite(url: URL, file: Path) -> None:
    target = Path(url.database or "")
    if target.exists():
        raise BackupError(f"{target} is there already: stop fuga and move it away first")
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if not target.parent.exists():
            private_folder(target.parent)
        os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        _copy_sqlite(file, beside)
        with closing(sqlite3.connect(beside)) as copy:
            if differences := differences_in(copy):
                raise StrangersInSchemaError(differences, str(file))
        for ending in ("-wal", "-shm"):  # of a database that was here and died
            target.with_name(target.name + ending).unlink(missing_ok=True)
        _sync(beside)
        beside.rename(target)
        _sync(target.absolute().parent)
    except OSError as error:
        raise BackupError(f"cannot write {target}: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)


def _copy_sqlite(source: Path, target: Path) -> None:
    """Copy what is committed, whoever writes meanwhile, and look whether it is whole."""
    try:
        with (
            closing(sqlite3.connect(f"file:{source.absolute()}?mode=ro", uri=True)) as given,
            closing(sqlite3.connect(target)) as taken,
        ):
            given.execute("PRAGMA trusted_schema = OFF")
            given.execute("SELECT version_num FROM alembic_version")
            given.backup(taken)
            taken.execute("PRAGMA journal_mode = DELETE")
            (found,) = taken.execute("PRAGMA integrity_check").fetchone()
    except sqlite3.Error as error:
        raise BackupError(f"{source} is no database of fuga's on SQLite: {error}") from error
    if found != "ok":
        raise BackupError(f"{source} is damaged: {found}")


def _sqlite_file(url: URL, otherwise: str) -> Path:
    file = Path(url.database or "")
    if not file.is_file():
        raise BackupError(f"{file}: {otherwise}")
    return file


def _run(program: str, url: URL, *arguments: str) -> None:
    """Run one of PostgreSQL's programs; its password is in no list of processes."""
    path = shutil.which(program)
    if path is None:
        raise BackupError(f"{program} is not installed: it comes with {_PACKAGE}")
    bare = url.set(drivername="postgresql", password=None).render_as_string(hide_password=False)
    environ = child_environ(prefixes=("PG", "LC_"))
    if url.password is not None:
        environ["PGPASSWORD"] = str(url.password)
    done = subprocess.run(
        [path, f"--dbname={bare}", *arguments],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BackupError(masked(done.stderr.strip() or f"{program} failed"))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
