"""A PostgreSQL server for the tests of one process, started when first asked for.

Also as root, whom PostgreSQL refuses to serve: then it runs as the user that
Debian's package makes. Without fsync: nothing here has to survive the machine.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from registry import upgrade

SERVER_USER = "postgres"
TEMPLATE = "upgraded"
_FAST = (
    "-c listen_addresses= -c fsync=off -c synchronous_commit=off -c full_page_writes=off"
    " -c max_connections=300 -c shared_buffers=32MB -c autovacuum=off -c log_min_messages=fatal"
)
_ROOM = 1 << 30
#: Makes the role of processes, and gives it what it needs.
RUN_ROLE = (Path(__file__).resolve().parents[2] / "deploy" / "run-role.sql").read_text()
#: for a measurement: with what `docs/operations.md` sets
DURABLE = (
    "-c listen_addresses= -c max_connections=300 -c shared_buffers=1GB -c max_wal_size=4GB"
    " -c log_min_messages=fatal"
)


def programs() -> Path | None:
    """Return the folder of `initdb` and `pg_ctl`; Debian keeps them off the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    candidates = [*(path.parent for path in reversed(found))]
    if on_path is not None:
        candidates.append(Path(on_path).resolve().parent)
    return next((each for each in candidates if (each / "pg_ctl").exists()), None)


def why_not() -> str | None:
    """Return why no server can be started here; None: it can."""
    if programs() is None:
        return "PostgreSQL's initdb and pg_ctl are not installed (scripts/install)"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(SERVER_USER)
        except KeyError:
            return f"root cannot run PostgreSQL, and there is no user {SERVER_USER}"
    return None


@dataclass
class PostgresServer:
    """One server on a Unix socket, and databases in it."""

    folder: Path
    user: str
    port: int | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def url(self, database: str) -> str:
        port = "" if self.port is None else f"&port={self.port}"
        return f"postgresql+psycopg://{self.user}@/{database}?host={self.folder}{port}"

    def run(self, statement: str, database: str = "postgres") -> None:
        """Run a statement outside any transaction."""
        with psycopg.connect(
            dbname=database, user=self.user, host=str(self.folder), port=self.port, autocommit=True
        ) as connection:
            connection.execute(statement.encode())

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Have all its processes hang: connections are taken, nobody answers."""
        pids = stop_with_children(self.pid)
        try:
            yield
        finally:
            for each in pids:
                os.kill(each, signal.SIGCONT)

    @property
    def pid(self) -> int:
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def create(self, *, template: str = "template0") -> str:
        """Create a database and return its name."""
        name = f"fuga_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return name

    def drop(self, name: str) -> None:
        self.run(f"DROP DATABASE {name} WITH (FORCE)")

    @contextlib.contextmanager
    def database(self, *, template: str = "template0") -> Iterator[str]:
        """Hand out the URL of a database that is gone afterwards."""
        name = self.create(template=template)
        try:
            yield self.url(name)
        finally:
            self.drop(name)


def as_run_role(url: str) -> str:
    """Return the URL of a register center as what processes log in as; SQLite's is the same."""
    found = make_url(url)
    if found.get_backend_name() != "postgresql":
        return url
    return found.set(username="fuga_run").render_as_string(hide_password=False)


def stop_with_children(server: int) -> list[int]:
    """SIGSTOP a server, which then makes no more children, and all that it has; return which."""
    os.kill(server, signal.SIGSTOP)
    stopped = [server]
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # no process, or gone meanwhile
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == server and state != "Z":
                os.kill(int(entry.name), signal.SIGSTOP)
                stopped.append(int(entry.name))
    return stopped


@contextlib.contextmanager
def postgres_server(
    options: str = _FAST, *, on_disk: bool = False, port: int | None = None
) -> Iterator[PostgresServer]:
    """Start a server in a folder of its own; stop it by its pid."""
    found = programs()
    assert found is not None
    # Not below pytest's folders, which only their owner may search.
    folder = Path(tempfile.mkdtemp(prefix="fuga-pg-", dir=None if on_disk else _in_memory()))
    user = pwd.getpwuid(os.geteuid()).pw_name
    become: list[str] = []
    if os.geteuid() == 0:
        user = SERVER_USER
        account = pwd.getpwnam(user)
        os.chown(folder, account.pw_uid, account.pw_gid)
        become = ["runuser", "-u", user, "--"]
    data = folder / "data"
    try:
        _run(
            [*become, str(found / "initdb"), "-D", str(data), "-U", user, "-A", "trust",
             "--no-sync", "--locale=C.UTF-8", "--encoding=UTF8"],
            folder,
        )  # fmt: skip
        settings = f"{options} -c unix_socket_directories={folder}"
        _run(
            [*become, str(found / "pg_ctl"), "-D", str(data), "-w", "-s", "-o", settings,
             "-l", str(folder / "log"), "start"],
            folder,
        )  # fmt: skip
        pid = int((data / "postmaster.pid").read_text().split()[0])
        # The server ends with us, however we end: by the pipe, which closes then.
        watch = subprocess.Popen(
            ["sh", "-c", f"cat; kill -QUIT {pid}; rm -rf {folder}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        server = os.pidfd_open(pid)
        try:
            yield PostgresServer(folder=folder, user=user, port=port)
        finally:
            watch.communicate()
            select.select([server], [], [], 30)
            os.close(server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _in_memory() -> Path | None:
    """Return where files are memory, if there is room: a clone is 300 files, ten times as fast."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > _ROOM
    return memory if roomy and os.access(memory, os.W_OK) else None


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode:
        log = folder / "log"
        said = log.read_text() if log.exists() else ""
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}{said}")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server of this session with the database `upgraded` to clone; skips where none can run."""
    if reason := why_not():
        pytest.skip(f"no PostgreSQL here: {reason}")
    with postgres_server() as server:
        server.run(f"CREATE DATABASE {TEMPLATE} TEMPLATE template0")
        # Its tables are there because of default privileges, as those of later revisions.
        server.run(RUN_ROLE, TEMPLATE)
        upgrade(server.url(TEMPLATE))
        server.run(RUN_ROLE, TEMPLATE)
        yield server
