"""Lab hosts that are reached by TLS and by SSH, and credentials that open them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hypervisor import Credential, HostConnection
from lab import SCRIPTS, cluster
from registry.hosts import HostCredentials
from tests.servers.lab_hosts import LabCluster, start_real

_ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0


@dataclass(frozen=True)
class OpenedLab:
    """Hosts with certificates of the lab's own authority; SSH servers where they are started."""

    lab: LabCluster

    def address(self, number: int) -> str:
        return self.lab.uris[number - 1].partition("://")[2].partition("/")[0]

    def tls_uri(self, number: int) -> str:
        return f"qemu+tls://{self.address(number)}/system"

    def ssh_uri(self, number: int) -> str:
        return f"qemu+ssh://root@{self.address(number)}:2222/system"

    @property
    def pki(self) -> Path:
        return self.lab.directory / "pki"

    def ssh_folder(self, number: int) -> Path:
        return self.lab.directory / "hosts" / str(number) / "ssh"

    def ssh(self, number: int, action: str) -> None:
        """Do what lab/scripts/host-sshd says."""
        run(SCRIPTS / "host-sshd", self.lab.directory, str(number), sshd_folder(), action)

    def host_key(self, number: int) -> str:
        return " ".join((self.ssh_folder(number) / "host.pub").read_text().split()[:2])

    def write_tls(self, store: HostCredentials, name: str, pki: Path | None = None) -> Path:
        """Lay down a credential for TLS: of the lab's authority, or of another one."""
        source = (pki or self.pki) / "client"
        return write_credential(
            store, name, {each.name: each.read_bytes() for each in source.iterdir()}
        )

    def write_ssh(self, store: HostCredentials, name: str, number: int) -> Path:
        """Lay down the key that a host's root lets in."""
        key = (self.ssh_folder(number) / "user").read_bytes()
        return write_credential(store, name, {"id": key})


def sshd_folder() -> Path:
    """Where the SSH server is kept from one session to the next; unpacked when first asked."""
    folder = Path(os.environ.get("FUGA_LAB_SSHD", _ROOT / "build" / "lab-sshd"))
    run(SCRIPTS / "get-sshd", folder)
    return folder


def run(*words: object) -> None:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr


def write_credential(store: HostCredentials, name: str, files: dict[str, bytes]) -> Path:
    """Lay down a credential's files, each in one step."""
    folder = store.folder / name
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    for file, content in files.items():
        fresh = folder / f".{file}"
        fresh.write_bytes(content)
        fresh.chmod(0o600)
        fresh.replace(folder / file)
    return folder


def other_authority(folder: Path) -> Path:
    """Make the certificates of somebody else."""
    run(SCRIPTS / "make-certs", folder, "192.0.2.1")
    return folder


def connect(
    store: HostCredentials, uri: str, name: str, keys: tuple[str, ...] = ()
) -> HostConnection:
    """Connect as monitor and workers do."""
    files = store.find(uri, name)
    assert files is not None
    credential = Credential(
        name=name, folder=str(files.folder), stamp=files.stamp, ssh_host_keys=keys
    )
    return HostConnection(uri, credential=credential, deadline_s=PATIENCE_S)


@contextmanager
def opened_lab(directory: Path, count: int) -> Iterator[OpenedLab]:
    """Start hosts, hand them out, end them with all that runs in them."""
    try:
        yield OpenedLab(start_real(count, directory, transport="tls"))
    finally:
        cluster.stop_hosts(directory, purge=True)
        shutil.rmtree(directory, ignore_errors=True)
