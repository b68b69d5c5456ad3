"""Files with tokens: readable by their owner only, and ignored if other users can write them."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from controller.terminal.errors import BadInputError


def check_only_owner_writes(file: int, path: Path) -> None:
    """Refuse a file that other users can write, because it decides where tokens are sent."""
    found = os.fstat(file)
    if found.st_uid not in {0, os.geteuid()}:
        why = f"belongs to another user ({found.st_uid})"
    elif stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        why = "is writable by others"
    else:
        return
    raise BadInputError(
        f"{path} {why}, who could redirect your tokens: it is ignored. Run as its owner, "
        "set FUGA_STATE_DIR to a folder of yours, or set FUGA_URL and FUGA_TOKEN."
    )


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically by one with mode 0600."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
