"""Checks an image with `qemu-img` before it is offered, in a sandboxed child process.

The header has the format (`registry.images.header`). Only a reader can tell whether the tables
are sound. The reader parses untrusted data, so it gets limited memory,
CPU and time, no network, an empty environment, and no file but the image.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import BinaryIO, Final

from registry.errors import ImageRefusedError

_MEMORY_BYTES: Final = 1 << 30
_PROCESSOR_S: Final = 60
_DEADLINE_S: Final = 180.0
_SAID_BYTES: Final = 1 << 16  #: limit of the output, as a damaged image has a line for each cluster
_SAID_CHARACTERS: Final = 300
_BROKEN, _LEAKS = 2, 3  #: exit codes of `qemu-img check`; leaks only waste space

#: Shell command that sets the limits and then executes the program. A network namespace needs root,
#: or user namespaces; without both, the other limits remain.
_CHILD: Final = f"""
import ctypes, os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({_MEMORY_BYTES},) * 2)
resource.setrlimit(resource.RLIMIT_CPU, ({_PROCESSOR_S},) * 2)
resource.setrlimit(resource.RLIMIT_FSIZE, ({_SAID_BYTES},) * 2)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
libc.unshare(0x40000000) == 0 or libc.unshare(0x50000000)  # CLONE_NEWNET; and CLONE_NEWUSER
os.execv(sys.argv[1], sys.argv[1:])
"""


def qemu_img_path() -> str | None:
    """Return the path of qemu-img on this machine, or None."""
    return shutil.which("qemu-img")


def check_opens(file: BinaryIO) -> bool:
    """Check the tables of a qcow2 image with QEMU; return False if this machine has no QEMU.

    Raises
    ------
    ImageRefusedError
        If the image cannot be opened, is damaged, or exceeds the limits.
    """
    path = qemu_img_path()
    if path is None:
        return False
    # By its descriptor, which stays the same file even if the name is reused.
    opened = {
        "driver": "qcow2",
        "file": {"driver": "file", "filename": "/proc/self/fd/0", "locking": "off"},
        "backing": None,
    }
    command = [path, "check", "-q", "-U", f"json:{json.dumps(opened)}"]
    try:
        with tempfile.TemporaryFile() as said:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", _CHILD, *command],
                stdin=file,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env={"PATH": os.defpath, "LC_ALL": "C"},
                cwd="/",
                timeout=_DEADLINE_S,
                check=False,
            )
            said.seek(0)
            stderr = said.read(_SAID_BYTES)
    except subprocess.TimeoutExpired:
        raise ImageRefusedError(
            f"QEMU is not through with it after {_DEADLINE_S:g} s, which no sound image takes"
        ) from None
    if done.returncode in (0, _LEAKS):
        return True
    if done.returncode == _BROKEN:
        raise ImageRefusedError("`qemu-img check` says that it is damaged")
    if done.returncode < 0:
        raise ImageRefusedError(
            f"QEMU wants more than {_MEMORY_BYTES >> 20} MiB of memory or {_PROCESSOR_S} s of"
            " processor to open it, which no sound image takes"
        )
    raise ImageRefusedError(f"QEMU cannot open it: {_error_text(stderr)}")


def _error_text(stderr: bytes) -> str:
    """Return QEMU's message, which may quote the image, as one line of printable characters."""
    text = stderr.decode(errors="replace").rpartition("}': ")[2]
    plain = "".join(each if each.isprintable() else " " for each in text)
    return " ".join(plain.split())[:_SAID_CHARACTERS] or "it does not say why"
