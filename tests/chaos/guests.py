"""What guests of a run do: count, on their disks and their consoles, once a second.

Record n of a disk is the n-th count that its guest had on it for good before it said so on its
console. So a disk without a gap has them all, in order, and whoever heard n finds it there. A
count that its disk refuses it says as well, and tries again. The guest's kernel draws an id at
each boot: two emulators that run one guest say the same twice.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import tempfile
from pathlib import Path

#: Where the disk has its records: behind all that the image has.
_FIRST_BYTE = 64 << 20
_RECORD_BYTES = 512
MAX_RECORDS = 2048  #: half an hour of them
_LAST_BYTE = _FIRST_BYTE + MAX_RECORDS * _RECORD_BYTES
_READ_S = 60
_PIECE = 64 << 10

# The place of all records is written once: a count needs no room in a pool that is full.
_SCRIPT = f"""#!/bin/sh
read boot </proc/sys/kernel/random/boot_id
records() {{
  dd if=/dev/vda bs={_PIECE} skip={_FIRST_BYTE // _PIECE} \
    count={MAX_RECORDS * _RECORD_BYTES // _PIECE} 2>/dev/null
}}
if ! records | grep -q '[.]'; then
  tr '\\000' . </dev/zero | dd of=/dev/vda bs={_PIECE} seek={_FIRST_BYTE // _PIECE} \
    count={MAX_RECORDS * _RECORD_BYTES // _PIECE} iflag=fullblock conv=fsync 2>/dev/null
fi
last=$(records | tr '.\\000' '\\n\\n' | grep '^COUNT ' | tail -n 1)
last=${{last#COUNT }}
n=${{last%% *}}
n=${{n:--1}}
while n=$((n + 1)); [ $n -lt {MAX_RECORDS} ]; do
  echo "COUNT $n $boot" >/tmp/count
  until dd if=/tmp/count of=/dev/vda bs={_RECORD_BYTES} \
    seek=$(({_FIRST_BYTE // _RECORD_BYTES} + n)) conv=fsync 2>/tmp/error; do
    echo "REFUSED $n $boot $(tail -n 1 /tmp/error)" >/dev/console
    sleep 1
  done
  echo "COUNT $n $boot" >/dev/console
  sleep 1
done
"""
USER_DATA = base64.b64encode(_SCRIPT.encode()).decode()
_SAID = re.compile(rb"COUNT (\d+) ([0-9a-f-]{36})\r?\n")
_REFUSED = re.compile(rb"REFUSED (\d+ [0-9a-f-]{36} [^\r\n]*)\r?\n")


def said(console: bytes) -> list[tuple[str, int]]:
    """Return what a guest said, whole lines of it: boot and number."""
    return [(match[2].decode(), int(match[1])) for match in _SAID.finditer(console)]


def refused(console: bytes) -> list[str]:
    """Return what a guest said of counts that its disk did not take: number, boot and error."""
    return [match[1].decode(errors="replace") for match in _REFUSED.finditer(console)]


def counted(disk: Path) -> list[int]:
    """Return the number in each record of a disk, up to the last one; -1: nothing is there.

    Its image is not read: what the guest wrote is all in the overlay.
    """
    overlay = {
        "driver": "qcow2",
        "file": {"driver": "file", "filename": str(disk)},
        "backing": None,
    }
    with tempfile.NamedTemporaryFile(prefix="fuga-chaos-disk-") as copy:
        subprocess.run(
            ["qemu-img", "dd", "-U", "-O", "raw", f"bs={_PIECE}",
             f"skip={_FIRST_BYTE // _PIECE}", f"count={_LAST_BYTE // _PIECE}",
             f"if=json:{json.dumps(overlay)}", f"of={copy.name}"],
            check=True, capture_output=True, timeout=_READ_S,
        )  # fmt: skip
        content = Path(copy.name).read_bytes()
    return numbers(content)


def numbers(content: bytes) -> list[int]:
    """Return the numbers of records, up to the last one."""
    found = []
    for at in range(0, len(content), _RECORD_BYTES):
        match = _SAID.match(content, at)
        found.append(int(match[1]) if match else -1)
    while found and found[-1] < 0:
        found.pop()
    return found
