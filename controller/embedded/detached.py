"""`fuga up --detach`: the same `fuga up` in a session of its own."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

from controller.embedded.processes import FUGA
from controller.embedded.state import StateDir
from controller.session.settings import load_settings


def run_detached(*, arguments: list[str]) -> int:
    """Start `fuga up` in the background; relay its output until it is ready.

    Returns 0 once it is ready, or its exit status if it ends before. An interrupt
    before it is ready ends it.
    """
    state = StateDir(load_settings().state_dir.resolve())
    os.umask(0o077)
    state.make()
    path = state.logs / "up.log"
    ours, theirs = os.pipe()
    with path.open("ab") as log:
        process = subprocess.Popen(
            [*FUGA, "up", *arguments, "--ready-fd", str(theirs)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(theirs,),
            start_new_session=True,
        )
        began_at = log.tell()
    os.close(theirs)
    try:
        with path.open("rb") as follow:
            follow.seek(began_at)
            while not select.select([ours], [], [], 0.1)[0]:
                _copy_output(follow)
            ready = os.read(ours, 1) == b"+"  # else the pipe ended, and its holder with it
            if not ready:
                process.wait()
            _copy_output(follow)
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    finally:
        os.close(ours)
    if ready:
        print_line(f"`fuga up` continues as process {process.pid}; its log is {path}")
        return 0
    return process.returncode or 1


def notify_ready(descriptor: int) -> None:
    """Notify `fuga up --detach` through a pipe that all processes run."""
    os.write(descriptor, b"+")
    os.close(descriptor)


def print_line(line: str) -> None:
    """Print a line without buffering."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _copy_output(follow: BinaryIO) -> None:
    """Copy what the log of `fuga up` gained to standard output."""
    text = follow.read().decode(errors="replace")
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()


def up_arguments(hosts: Path | None, driver: str, port: int | None) -> list[str]:
    """Return the options of the `fuga up` that runs in the background."""
    arguments = ["--driver", driver]
    if hosts is not None:
        arguments += ["--hosts", str(hosts)]
    if port is not None:
        arguments += ["--port", str(port)]
    return arguments
