"""The state folder of `fuga up`, and the lock that allows only one to run."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.embedded.processes import ProcessId
from controller.session.credentials import FILE_NAME
from controller.session.private_files import write_private
from controller.terminal.errors import CliError
from registry.db import private_folder

LAB_IMAGE: Final = "lab"  #: name under which the lab's guest is registered


@dataclass(frozen=True, slots=True)
class StateDir:
    """The state folder of `fuga up`, and the paths in it."""

    path: Path

    @property
    def credentials(self) -> Path:
        """The file with URL and tokens, for the commands."""
        return self.path / FILE_NAME

    @property
    def login_link(self) -> Path:
        """The file with a login link, for a `fuga up` without a terminal."""
        return self.path / "login-link"

    @property
    def database(self) -> Path:
        """The file of the database, unless FUGA_DATABASE_URL names another."""
        return self.path / "fuga.db"

    @property
    def lab(self) -> Path:
        """The folder of the lab: storage of its hosts, and its guest image."""
        return self.path / "lab"

    @property
    def lab_image(self) -> Path:
        """The disk image of the lab's guest."""
        return self.lab / "guest" / "base.qcow2"

    @property
    def logs(self) -> Path:
        """The folder of the processes' logs."""
        return self.path / "logs"

    @property
    def processes(self) -> Path:
        """The file with the pids of the running processes."""
        return self.path / "processes.json"

    @property
    def lock(self) -> Path:
        """The lock file that a running `fuga up` holds."""
        return self.path / "up.lock"

    @property
    def memory(self) -> Path:
        """The file of `SetupRecord`, for the next `fuga up`."""
        return self.path / "embedded.json"

    def make(self) -> None:
        """Create the state folder, readable by its owner alone."""
        try:
            for folder in (self.path, self.logs):
                private_folder(folder)
        except OSError as error:
            raise CliError(
                f"cannot make the state folder {self.path}: {error.strerror}. "
                "Set another with FUGA_STATE_DIR."
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupRecord:
    """The record of completed setup steps; the next start skips them."""

    hosts_from: str | None = None  #: "lab", or "file" for the operator's own
    driver: str | None = None  #: of the lab: "qemu" or "test"
    lab_hosts: tuple[str, ...] = ()  #: names under which the lab's hosts are registered
    lab_uris: tuple[str, ...] = ()
    registered: bool = False  #: are all the lab's hosts in the register?
    catalogue: bool = False  #: have VM types and tenants been made?
    ending: bool = False  #: `fuga down` began and has not finished
    site: str | None = None  #: fingerprint of its database; None: not known yet

    @property
    def default_image(self) -> str | None:
        """The image of requests that name none: the lab's guest, if guests boot."""
        return LAB_IMAGE if self.hosts_from == "lab" and self.driver == "qemu" else None

    @classmethod
    def load(cls, state: StateDir) -> SetupRecord:
        """Load the record of a folder; an empty record if it has none."""
        try:
            content = json.loads(state.memory.read_text())
            for name in ("lab_hosts", "lab_uris"):
                content[name] = tuple(content[name])
            return cls(**content)
        except FileNotFoundError:
            return cls()
        except (ValueError, TypeError, KeyError) as error:
            raise CliError(
                f"{state.memory} cannot be read ({error}). Run `fuga down --purge` to start over."
            ) from None

    def save(self, state: StateDir) -> SetupRecord:
        """Write the setup record atomically, and return it."""
        write_private(state.memory, json.dumps(dataclasses.asdict(self), indent=2) + "\n")
        return self


class AlreadyRunningError(CliError):
    """Another process holds the lock of the state folder."""

    def __init__(self, state: StateDir, holder: ProcessId | None) -> None:
        who = f" (pid {holder.pid})" if holder else ""
        super().__init__(
            f"`fuga up` already runs for {state.path}{who}. "
            "Stop it with `fuga down`, or set FUGA_STATE_DIR to another folder for a second one."
        )
        self.holder = holder


@contextmanager
def lock_state_dir(state: StateDir, *, wait_s: float = 0.0) -> Iterator[None]:
    """Lock the state folder for the length of the block.

    Raises
    ------
    AlreadyRunningError
        If another process holds it still after ``wait_s``.
    """
    deadline = time.monotonic() + wait_s
    descriptor = os.open(state.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise AlreadyRunningError(state, lock_holder(state)) from None
                time.sleep(0.05)
        me = ProcessId.from_pid(os.getpid())
        with suppress(OSError):  # for messages alone: the lock holds without it
            os.ftruncate(descriptor, 0)
            if me is not None:
                os.pwrite(descriptor, f"{me.pid} {me.started}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def lock_holder(state: StateDir) -> ProcessId | None:
    """Return the process that holds the lock, if it still runs."""
    try:
        pid, started = state.lock.read_text().split()
        holder = ProcessId(int(pid), int(started))
    except (OSError, ValueError):
        return None
    return holder if holder.alive else None
