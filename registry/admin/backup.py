"""Backups of the register center while it is in use, and their restore to an empty database."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sqlalchemy import URL, inspect

from registry.admin.known_schema import schema_differences
from registry.audit.events import Events
from registry.db.child_environ import child_environ
from registry.db.engine import make_engine, parse_database_url, translate_unavailable
from registry.db.masking import mask_secrets
from registry.db.private_files import private_folder, sync_to_disk
from registry.errors import ForeignSchemaObjectsError, RegistryError

#: The kind of the event of a backup.
BACKED_UP: Final = "database_backed_up"
_PART: Final = ".part"
_PART_NAME: Final = re.compile(r"\.(?P<target>.+)\.(?P<pid>[0-9]+)\.part(-journal|-wal|-shm)?")
_SQLITE_ENDINGS: Final = ("", "-journal", "-wal", "-shm")
#: SQLite errors of a copy that concern the file that is written, by the code's lower byte ...
_OF_WRITING: Final = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
)
#: ... and the full codes that concern the file that is read.
_OF_READING: Final = frozenset(
    {
        sqlite3.SQLITE_IOERR_READ,
        sqlite3.SQLITE_IOERR_SHORT_READ,
        sqlite3.SQLITE_IOERR_SHMOPEN,
        sqlite3.SQLITE_IOERR_SHMSIZE,
        sqlite3.SQLITE_IOERR_SHMLOCK,
        sqlite3.SQLITE_IOERR_SHMMAP,
    }
)
#: The table of running processes. A restored copy would list them as late for a day.
_LEFT_OUT: Final = "processes"
_HAS_TABLE: Final = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
_PACKAGE: Final = "PostgreSQL's client programs of the server's version or newer"


class BackupError(RegistryError):
    """A backup cannot be made or put back."""


def backup(database_url: str, file: Path) -> None:
    """Back up the database: write all committed data to a file that only its owner can read.

    Raises
    ------
    BackupError
        If the file exists or cannot be written, or the database cannot be read.
    """
    url = parse_database_url(database_url)
    with _temporary_file_for(file, f"{file} is there already: name another file") as temporary:
        if url.get_backend_name() == "sqlite":
            _copy_sqlite(_existing_sqlite_file(url, "no database is there"), temporary, file)
        else:
            try:
                options = ("--format=custom", "--no-owner", "--no-acl")
                _run_postgresql_program(
                    "pg_dump", url, *options, f"--exclude-table-data={_LEFT_OUT}", f"-f{temporary}"
                )
            except BackupError as error:
                raise BackupError(f"{file} is not made: {error}") from error


def record_backup(events: Events, file: Path) -> None:
    """Record that the database was backed up, for the metric of the last backup's age."""
    events.add(
        actor="cli",
        kind=BACKED_UP,
        subject_type="database",
        subject_id=BACKED_UP,
        reason=f"into {file.absolute()}",
    )


def restore(database_url: str, file: Path) -> None:
    """Restore a backup to an empty database.

    Raises
    ------
    BackupError
        If the target exists, or the file is no backup of this kind of database.
    ForeignSchemaObjectsError
        If the file contains triggers, views or tables that fuga does not create.
    """
    url = parse_database_url(database_url)
    if not file.is_file():
        raise BackupError(f"{file} is no file")
    if url.get_backend_name() == "sqlite":
        _restore_sqlite(url, file)
        return
    engine = make_engine(database_url, read_only=True)
    try:
        with translate_unavailable(), engine.connect() as connection:
            tables = inspect(connection).get_table_names()
    finally:
        engine.dispose()
    if tables:
        raise BackupError(
            f"the database has {len(tables)} tables already: restore into an empty one"
            " (`createdb`), and let FUGA_DATABASE_URL name it"
        )
    _run_postgresql_program(
        "pg_restore", url, "--exit-on-error", "--single-transaction", "--no-owner", str(file)
    )


def _restore_sqlite(url: URL, file: Path) -> None:
    """Restore a backup of an SQLite database to the file of this URL, which must not exist."""
    target = Path(url.database or "")
    otherwise = f"{target} is there already: stop fuga and move it away first"
    if target.exists():
        raise BackupError(otherwise)
    try:
        if not target.parent.exists():
            private_folder(target.parent)
    except OSError as error:
        raise BackupError(_unwritable_message(target, error.strerror)) from error
    with _temporary_file_for(target, otherwise) as temporary:
        _copy_sqlite(file, temporary, target)
        with closing(sqlite3.connect(temporary)) as copy:
            if differences := schema_differences(copy):
                raise ForeignSchemaObjectsError(differences, str(file))
        for ending in ("-wal", "-shm"):  # of a database that was here and died
            target.with_name(target.name + ending).unlink(missing_ok=True)


@contextmanager
def _temporary_file_for(target: Path, otherwise: str) -> Iterator[Path]:
    """Yield a temporary file that becomes the target at the end, or is deleted on failure.

    The next attempt removes the file of a killed one. An `OSError` is reported for the
    target; the code that reads the source reports its own errors.
    """
    if target.exists() or target.is_symlink():
        raise BackupError(otherwise)
    temporary = target.with_name(f".{target.name}.{os.getpid()}{_PART}")
    try:
        _remove_unfinished(target)
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        yield temporary
        sync_to_disk(temporary)
        _rename_to_target(temporary, target)
        sync_to_disk(target.absolute().parent)
    except FileExistsError:
        raise BackupError(otherwise) from None
    except OSError as error:
        raise BackupError(_unwritable_message(target, error.strerror)) from error
    finally:
        for ending in _SQLITE_ENDINGS:
            with suppress(OSError):
                temporary.with_name(temporary.name + ending).unlink(missing_ok=True)


def _rename_to_target(temporary: Path, target: Path) -> None:
    """Rename the temporary file to the target unless the target exists by now."""
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP):
            raise
        temporary.rename(target)  # a file system without links


def _remove_unfinished(target: Path) -> None:
    """Remove files that killed backups left next to this target."""
    for part in unfinished_backups(target.parent, target.name):
        part.unlink(missing_ok=True)


def unfinished_backups(folder: Path, target: str | None = None) -> list[Path]:
    """Return the files of killed backups in a folder, of one target or of all.

    Processes of other machines are not known to be dead, so their files are left out.
    """
    found = []
    for part in sorted(folder.glob(f".*{_PART}*")):
        name = _PART_NAME.fullmatch(part.name)
        if name is None or target not in {None, name["target"]}:
            continue
        if not Path(f"/proc/{name['pid']}").exists():
            found.append(part)
    return found


def _copy_sqlite(source: Path, temporary: Path, target: Path) -> None:
    """Copy the committed data of a database in use, and check the copy.

    SQLite does not say which of two files an error concerns. So the target is written to and the
    source is read before the copy begins; for the copy itself the error code decides.
    """
    with (
        _translate_read_errors(source),
        closing(sqlite3.connect(_read_only_uri(source), uri=True)) as given,
    ):
        given.execute("PRAGMA trusted_schema = OFF")
        given.execute("SELECT version_num FROM alembic_version").fetchall()
        with closing(_open_empty_copy(temporary, target)) as taken:
            try:
                given.backup(taken)
                if taken.execute(_HAS_TABLE, (_LEFT_OUT,)).fetchone():
                    taken.execute(f"DELETE FROM {_LEFT_OUT}")  # noqa: S608 - a constant
                    taken.commit()
                taken.execute("PRAGMA journal_mode = DELETE")
                (found,) = taken.execute("PRAGMA integrity_check").fetchone()
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", 0)
                if code & 0xFF not in _OF_WRITING or code in _OF_READING:
                    raise
                raise BackupError(_unwritable_message(target, _error_reason(error))) from error
    if found != "ok":
        raise BackupError(f"{source} is damaged: {found}")


def _open_empty_copy(temporary: Path, target: Path) -> sqlite3.Connection:
    """Create the SQLite file of a backup, without a journal."""
    try:
        taken = sqlite3.connect(temporary)
        # Its journal is of no use: a copy that fails is removed.
        taken.execute("PRAGMA journal_mode = OFF")
    except sqlite3.Error as error:
        raise BackupError(_unwritable_message(target, _error_reason(error))) from error
    return taken


@contextmanager
def _translate_read_errors(source: Path) -> Iterator[None]:
    """Translate errors of reading the database to be backed up, or the backup, to `BackupError`."""
    try:
        with source.open("rb") as file:
            file.read(1)
        yield
    except OSError as error:
        raise BackupError(f"cannot read {source}: {error.strerror}") from error
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            said = f"{source} is in use: {error}; try again"
        elif code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL):
            said = f"cannot read {source}: {error}"
        elif code == sqlite3.SQLITE_CORRUPT:
            said = f"{source} is damaged: {error}"
        else:
            said = f"{source} is no database of fuga's on SQLite: {error}"
        raise BackupError(said) from error


def _read_only_uri(source: Path) -> str:
    return f"file:{quote(str(source.absolute()))}?mode=ro"


def _error_reason(error: sqlite3.Error) -> str:
    """Return the reason why SQLite failed to copy a database, as text."""
    full = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
    return "No space left on device" if full else str(error)


def _unwritable_message(target: Path, reason: str | None) -> str:
    return f"cannot write {target}: {reason or 'unknown error'}"


def _existing_sqlite_file(url: URL, otherwise: str) -> Path:
    """Return the SQLite file of a database URL, or raise `BackupError` if it does not exist."""
    file = Path(url.database or "")
    if not file.is_file():
        raise BackupError(f"{file}: {otherwise}")
    return file


def _run_postgresql_program(program: str, url: URL, *arguments: str) -> None:
    """Run ``pg_dump`` or ``pg_restore`` without the password on its command line."""
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
        raise BackupError(mask_secrets(done.stderr.strip() or f"{program} failed"))
