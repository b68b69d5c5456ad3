"""What guests of a run do: count, on their disks and their consoles, once a second.

Record n of a disk is the n-th count that its guest had on it for good before it said so on its
console. So a disk without a gap has them all, in order, and whoever heard n finds it there. A
count that its disk refuses it says as well, and tries again. The guest's kernel draws an id at
each boot: two emulators that run one guest say the same twice.

On a volume it goes on after the last count that is there, by whichever guest, at the next place.
Two guests that have one volume at a time say the same twice. A volume that holds anything else
when its first guest sees it is said to be dirty.
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
_READ_S = 60
_PIECE = 64 << 10
_PIECES = MAX_RECORDS * _RECORD_BYTES // _PIECE
_SERIAL_DIGITS = 20
VOLUME_FILE = re.compile(r"fuga-volume-([0-9a-f-]{36})\.qcow2")

# The place of all records is written once: a count needs no room in a pool that is full.
# A disk may be exchanged for another of the same name at any moment: what is open is compared
# with its serial number only then, and each read and write has an open file of its own. Processes
# are dear in these guests: the shell itself looks for volumes.
_SCRIPT = f"""#!/bin/sh
read boot </proc/sys/kernel/random/boot_id
on_volume() {{
  found= ; read found </sys/block/$2/serial
  [ "$found" = $1 ] || return
  eval n=\\${{next_$1:-0}}
  if [ "$(dd bs={_RECORD_BYTES} skip=$n count=1 <&4 | head -c 1)" != . ]; then
    first=$(dd bs={_PIECE} count=1 <&5 | tr -d '\\000' | head -c 1)
    case "$first" in
    .|C) ;;
    *)
      [ -z "$first" ] || echo "DIRTY $1 $boot" >/dev/console
      tr '\\000' . </dev/zero | dd bs={_PIECE} count={_PIECES} iflag=fullblock conv=fsync >&6
      return
    esac
    n=$(dd bs={_PIECE} count={_PIECES} <&7 | tr '.\\000' '\\n\\n' | grep '^COUNT ' | tail -n 1)
    n=${{n#COUNT }}
    n=${{n%% *}}
    n=$((${{n:--1}} + 1))
  fi
  [ $n -lt {MAX_RECORDS} ] || return
  eval next_$1=$n
  echo "COUNT $n $boot" >/tmp/volume-count
  if dd if=/tmp/volume-count bs={_RECORD_BYTES} seek=$n conv=fsync >&8; then
    echo "VOLUME $1 $n $boot" >/dev/console
    eval next_$1=$((n + 1))
  fi
}}
while sleep 2; do
  for file in /sys/block/vd*/serial; do
    serial= ; read serial <$file
    disk=${{file%/serial}}
    disk=${{disk##*/}}
    [ ${{#serial}} -ne {_SERIAL_DIGITS} ] ||
      on_volume $serial $disk 4</dev/$disk 5</dev/$disk 6<>/dev/$disk 7</dev/$disk 8<>/dev/$disk
  done
done 2>/dev/null &
records() {{
  dd if=/dev/vda bs={_PIECE} skip={_FIRST_BYTE // _PIECE} \
    count={_PIECES} 2>/dev/null
}}
if ! records | grep -q '[.]'; then
  tr '\\000' . </dev/zero | dd of=/dev/vda bs={_PIECE} seek={_FIRST_BYTE // _PIECE} \
    count={_PIECES} iflag=fullblock conv=fsync 2>/dev/null
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
_SAID_OF_VOLUME = re.compile(rb"VOLUME ([0-9a-f]{20}) (\d+) ([0-9a-f-]{36})\r?\n")
_DIRTY = re.compile(rb"DIRTY ([0-9a-f]{20}) [0-9a-f-]{36}\r?\n")
_SAID = re.compile(rb"COUNT (\d+) ([0-9a-f-]{36})\r?\n")
_REFUSED = re.compile(rb"REFUSED (\d+ [0-9a-f-]{36} [^\r\n]*)\r?\n")


def said(console: bytes) -> list[tuple[str, int]]:
    """Return what a guest said, whole lines of it: boot and number."""
    return [(match[2].decode(), int(match[1])) for match in _SAID.finditer(console)]


def said_of_volumes(console: bytes) -> list[tuple[str, int]]:
    """Return what a guest wrote on volumes for good: serial number and number."""
    return [(match[1].decode(), int(match[2])) for match in _SAID_OF_VOLUME.finditer(console)]


def dirty(console: bytes) -> list[str]:
    """Return serial numbers of volumes that held something before any guest wrote on them."""
    return [match[1].decode() for match in _DIRTY.finditer(console)]


def volume_file(volume_id: object) -> str:
    """Return the name of a volume's file."""
    return f"fuga-volume-{volume_id}.qcow2"


def serial_of(volume_id: object) -> str:
    """Return the serial number under which a guest sees a volume."""
    return str(volume_id).replace("-", "")[:_SERIAL_DIGITS]


def refused(console: bytes) -> list[str]:
    """Return what a guest said of counts that its disk did not take: number, boot and error."""
    return [match[1].decode(errors="replace") for match in _REFUSED.finditer(console)]


def counted(disk: Path) -> list[int]:
    """Return the number in each record of a disk, up to the last one; -1: nothing is there.

    Its image is not read: what the guest wrote is all in the overlay. A volume has its records at
    its beginning.
    """
    first = 0 if VOLUME_FILE.fullmatch(disk.name) else _FIRST_BYTE // _PIECE
    overlay = {
        "driver": "qcow2",
        "file": {"driver": "file", "filename": str(disk)},
        "backing": None,
    }
    with tempfile.NamedTemporaryFile(prefix="fuga-chaos-disk-") as copy:
        subprocess.run(
            ["qemu-img", "dd", "-U", "-O", "raw", f"bs={_PIECE}",
             f"skip={first}", f"count={first + _PIECES}",
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
