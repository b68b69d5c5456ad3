"""What a host holds, by virsh alone, and which emulators run, by /proc alone."""

from __future__ import annotations

import json
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.chaos import guests
from tests.chaos.findings import AttachedDisks

_VIRSH_S = 300
_STATE_S = 60  #: a libvirtd may be frozen
_GUEST = re.compile(r"guest=fuga-([0-9a-f-]{36})")


def virsh(uri: str, *words: str, within_s: float = _VIRSH_S) -> list[str]:
    done = subprocess.run(
        ["virsh", "-q", "-c", uri, *words],
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"virsh -c {uri} {' '.join(words)}: {done.stderr.strip()}")
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def domains(uri: str) -> dict[str, str]:
    """State of every domain by its name."""
    lines = [line.split(maxsplit=2) for line in virsh(uri, "list", "--all")]
    return {name: state for _, name, state in lines}


def volumes(uri: str, pool: str = "default") -> set[str]:
    """Volumes of a pool that carry our name, or the name of anything that we did not put there."""
    virsh(uri, "pool-refresh", pool)
    return {line.split()[0] for line in virsh(uri, "vol-list", pool)} - {"base.qcow2"}


def disks(folder: Path) -> dict[str, list[int]]:
    """What guests counted on each of our disks in a pool, by its name; see `guests`."""
    return {path.name: guests.counted(path) for path in sorted(folder.glob("fuga-*.qcow2"))}


def attached_disks(uri: str, domain: str) -> AttachedDisks:
    """Volumes of a domain by both its definitions and by its emulator, which may be ending."""
    try:
        query = json.dumps({"execute": "query-named-block-nodes", "arguments": {"flat": True}})
        nodes = "".join(virsh(uri, "qemu-monitor-command", domain, query))
    except RuntimeError:  # it is off
        nodes = ""
    return AttachedDisks(
        live=_serials(virsh(uri, "dumpxml", domain)),
        persistent=_serials(virsh(uri, "dumpxml", "--inactive", domain)),
        opened=frozenset(map(guests.serial_of, guests.VOLUME_FILE.findall(nodes))),
    )


def _serials(xml: list[str]) -> frozenset[str]:
    found = ET.fromstring("".join(xml)).iterfind("devices/disk/serial")
    return frozenset(each.text or "" for each in found)


def emulators() -> dict[str, dict[str, int]]:
    """By VM: process namespaces, hence hosts, in which a QEMU of it exists, and its pid."""
    found: dict[str, dict[str, int]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            match = _GUEST.search(command) if command.startswith("/usr/bin/qemu") else None
            if match:
                places = found.setdefault(match[1], {})
                places[str((folder / "ns" / "pid").readlink())] = int(folder.name)
        except OSError:
            continue  # it ended just now
    return found


def namespace(pid_file: Path) -> str:
    """Return the process namespace of the host that wrote this; empty: it is off."""
    try:
        pid = pid_file.read_text().split()[0]
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except (OSError, IndexError):
        return ""


def runs_on(uri: str, vm: str) -> bool:
    """Tell whether a VM's domain is in state running on a host; no, if nobody answers."""
    try:
        return virsh(uri, "domstate", f"fuga-{vm}", within_s=_STATE_S) == ["running"]
    except (RuntimeError, subprocess.TimeoutExpired):
        return False
