"""The version of fuga, and the commit that it was built from."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).resolve().parent
#: Written by `scripts/copy-source` into the sources of a package.
_COMMIT_FILE: Final = "commit.txt"
_LETTERS: Final = 12


@cache
def engine_version() -> str:
    """Return the version of the installed distribution, which every round stores for replays."""
    return version("fuga-controller")


@cache
def commit() -> str | None:
    """Return the commit of the running code of fuga; None if it is unknown.

    It ends with ``-dirty`` if files of a checkout differ from that commit.
    """
    return read_commit(_HERE)


@cache
def release() -> str:
    """Return version and commit of fuga: ``1.0.0 (1a2b3c4d5e6f)``."""
    return f"{engine_version()} ({commit() or 'commit unknown'})"


def read_commit(folder: Path) -> str | None:
    """Return the commit of this package's files in ``folder``."""
    try:
        return (folder / _COMMIT_FILE).read_text().strip() or None
    except OSError:
        pass
    if not (folder.parent / ".git").exists():
        return None
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*", f"--abbrev={_LETTERS}"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return described.stdout.strip() or None
