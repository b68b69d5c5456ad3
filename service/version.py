"""Which fuga this is: its version, and the commit that it was built from."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).resolve().parent
#: Written by `scripts/copy-source` into what a package is built from.
_COMMIT_FILE: Final = "commit.txt"
_LETTERS: Final = 12


@cache
def engine_version() -> str:
    """Version of the installed distribution; stored with every round for replays."""
    return version("fuga-controller")


@cache
def commit() -> str | None:
    """Return the commit of the code that runs; None if it is unknown.

    Of a checkout it ends with ``-dirty`` where files differ from that commit.
    """
    return commit_of(_HERE)


@cache
def release() -> str:
    """Version and commit, as people read them: ``1.0.0 (1a2b3c4d5e6f)``."""
    return f"{engine_version()} ({commit() or 'commit unknown'})"


def commit_of(folder: Path) -> str | None:
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
