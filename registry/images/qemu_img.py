"""Have QEMU's own reader look at an image before it is on offer, in a child that is bounded.

The header says what an image is (`registry.images.header`); whether its tables lead anywhere only a
reader knows. That reader parses what a stranger wrote, so it gets little: memory,
processor and time, no network, nothing of our environment, and of files the image alone.
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
_SAID_BYTES: Final = 1 << 16  #: a damaged image has a line for each of its clusters
_SAID_CHARACTERS: Final = 300
_BROKEN, _LEAKS = 2, 3  #: what `qemu-img check` ends with; leaks cost place and nothing else

#: Bound ourselves, then become the program. A namespace without network is had as root, or
#: where users may make namespaces; where neither is so, the other bounds remain.
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
    """Return where qemu-img is on this machine."""
    return shutil.which("qemu-img")


def check_opens(file: BinaryIO) -> bool:
    """Have QEMU open a qcow2 file and walk through its tables; False: no QEMU is here to ask.

    Raises
    ------
    ImageRefusedError
        If it cannot be opened, is damaged, or takes more than a sound image does.
    """
    path = qemu_img_path()
    if path is None:
        return False
    # By its descriptor: these very bytes, even if the name is given to another file.
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
    """Return what QEMU said, which may quote the image, as one line of plain characters."""
    text = stderr.decode(errors="replace").rpartition("}': ")[2]
    plain = "".join(each if each.isprintable() else " " for each in text)
    return " ".join(plain.split())[:_SAID_CHARACTERS] or "it does not say why"
