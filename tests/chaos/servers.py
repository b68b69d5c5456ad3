"""PostgreSQL and Redis of a site: servers that can be killed, restarted and emptied."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

import psycopg
import redis

from tests.chaos import clock
from tests.chaos.processes import WAIT_S, Managed, inherited
from tests.servers.ports import a_quiet_port
from tests.servers.postgres import SERVER_USER, programs, stop_with_children
from tests.servers.running import eventually
from tests.servers.small_disks import real_disk

_DATABASE = "fuga"
_DISK_MIB = 1024
_SETTINGS = (
    "max_connections=200",
    "shared_buffers=32MB",
    "log_min_messages=error",
    "max_wal_size=128MB",
)
# What is committed is with the kernel then, and survives whatever becomes of the server.
_FOR_SPEED = ("fsync=off", "full_page_writes=off")


class Postgres:
    """A server on a Unix socket, its data on a disk of its own, with a clock that can be set."""

    def __init__(self, *, fsync: bool) -> None:
        self._paused: list[int] = []
        self._undo = ExitStack()
        found = programs()
        assert found is not None, "PostgreSQL is not installed (scripts/install)"
        self.folder = Path(tempfile.mkdtemp(prefix="fuga-chaos-pg-"))
        self._undo.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.disk = self.folder / "disk"
        self._undo.enter_context(real_disk(self.disk, mib=_DISK_MIB))
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        server_user = None
        if os.geteuid() == 0:
            self.user = server_user = SERVER_USER
            account = pwd.getpwnam(server_user)
            for folder in (self.folder, self.disk):
                os.chown(folder, account.pw_uid, account.pw_gid)
        data = self.disk / "data"
        subprocess.run(
            [found / "initdb", "-D", data, "-U", self.user, "-A", "trust", "--no-sync",
             "--locale=C.UTF-8", "--encoding=UTF8"],
            user=server_user, group=server_user, extra_groups=None if server_user is None else [],
            check=True, capture_output=True, cwd=self.folder, timeout=WAIT_S,
        )  # fmt: skip
        options = ["listen_addresses=", f"unix_socket_directories={self.folder}", *_SETTINGS]
        options += () if fsync else _FOR_SPEED
        log = self.folder / "log"
        log.touch()
        self._server = Managed(
            "postgresql",
            [str(found / "postgres"), "-D", str(data), *(f"-c{each}" for each in options)],
            log,
            env=inherited(),
            ready="",
            user=server_user,
        )

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{self.user}@/{_DATABASE}?host={self.folder}"

    def connect(self, database: str = _DATABASE) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            dbname=database, user=self.user, host=str(self.folder), autocommit=True
        )

    def start(self) -> None:
        self._server.start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        def answers() -> bool:
            assert self._server.running, "PostgreSQL ended"
            try:
                self.connect("postgres").close()
            except psycopg.OperationalError:
                return False
            return True

        eventually(answers, within_s=WAIT_S)

    def create_database(self) -> None:
        with self.connect("postgres") as connection:
            connection.execute(f"CREATE DATABASE {_DATABASE} TEMPLATE template0".encode())

    @property
    def running(self) -> bool:
        return self._server.running

    def let_clock_be_set(self) -> None:
        """Have connections that are opened from now on read a clock that `set_clock_back` sets."""
        with self.connect() as connection:
            clock.install(connection, _DATABASE)

    def set_clock_back(self, by_s: float) -> None:
        with self.connect() as connection:
            clock.set_back(connection, by_s)

    def stop(self, *, immediately: bool) -> None:
        """End it: connections are dropped; ``immediately``: as if its processes had died."""
        self._server.end(signal.SIGQUIT if immediately else signal.SIGINT)

    def pause(self) -> None:
        """Have all its processes hang: connections are taken, nobody answers."""
        self._paused = stop_with_children(self._server.pid)

    def resume(self) -> None:
        """Go on where they were stopped, if they were."""
        paused, self._paused = self._paused, []
        for pid in paused:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        self.resume()
        if self._server.running:
            self.stop(immediately=True)
        self._undo.close()


class Redis:
    """A broker that keeps nothing on disk."""

    def __init__(self, log: Path) -> None:
        self._port = a_quiet_port()
        self.process = Managed(
            "redis",
            ["redis-server", "--port", str(self._port), "--bind", "127.0.0.1", "--save", "",
             "--appendonly", "no"],
            log,
            env=inherited(),
            ready="Ready to accept connections",
        )  # fmt: skip

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self._port, socket_timeout=WAIT_S)

    def start(self) -> None:
        self.process.start()
        self.process.wait_until_ready()

    def close(self) -> None:
        self.process.close()
