"""What a host holds, by virsh alone, and which emulators run, by /proc alone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

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


def emulators() -> dict[str, set[str]]:
    """By VM: the process namespaces, hence hosts, in which a QEMU of that VM exists."""
    found: dict[str, set[str]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            match = _GUEST.search(command) if command.startswith("/usr/bin/qemu") else None
            if match:
                found.setdefault(match[1], set()).add(str((folder / "ns" / "pid").readlink()))
        except OSError:
            continue  # it ended just now
    return found


def runs_on(uris: list[str], vm: str) -> list[str]:
    """Hosts on which a VM's domain is in state running, as one look after another tells."""
    return [uri for uri in uris if _state(uri, vm) == "running"]


def _state(uri: str, vm: str) -> str:
    try:
        return virsh(uri, "domstate", f"fuga-{vm}", within_s=_STATE_S)[0]
    except (RuntimeError, IndexError, subprocess.TimeoutExpired):
        return ""
