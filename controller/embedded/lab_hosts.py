"""The lab's hosts, as `fuga up` and `fuga down` need them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.terminal.errors import BadInputError, CliError
from lab import cluster
from lab.cluster import LabHost
from lab.errors import LabError

AUTO: Final = "auto"
QEMU: Final = "qemu"  #: real libvirt hosts, guests emulated
TEST: Final = "test"  #: libvirt's test driver: everything answers, nothing boots


@dataclass(frozen=True, slots=True, kw_only=True)
class LabHosts:
    """The running hosts of the lab of `fuga up`, and their driver."""

    driver: str
    hosts: tuple[LabHost, ...]
    why: str | None = None  #: why they are not real ones, where that was not requested

    @property
    def uris(self) -> tuple[str, ...]:
        """The libvirt URIs of the lab's hosts, in order."""
        return tuple(host.uri for host in self.hosts)


def start_new_lab(folder: Path, wanted: str, count: int) -> LabHosts:
    """Start real hosts if this machine can run them, or hosts of the given kind.

    Raises
    ------
    BadInputError
        If real hosts are wanted and cannot be had.
    """
    if wanted == TEST:
        return start_lab(folder, TEST, count)
    reason = cluster.real_hosts_obstacle()
    if reason is None:
        try:
            return start_lab(folder, QEMU, count)
        except CliError as error:
            reason = str(error)
            stop_lab(folder)  # some of them may run
    if wanted == QEMU:
        raise BadInputError(
            f"this machine cannot run real hosts: {reason}\n"
            "Use `fuga up --driver test` for libvirt's test driver, `--hosts FILE` for your own"
            " hosts."
        )
    hosts = start_lab(folder, TEST, count).hosts
    return LabHosts(driver=TEST, hosts=hosts, why=reason)


def start_lab(folder: Path, driver: str, count: int) -> LabHosts:
    """Start the hosts that do not run; their disks are kept."""
    try:
        if driver == QEMU:
            hosts = cluster.start_real_hosts(count, folder, folder / "guest")
        else:
            hosts = cluster.start_test_hosts(count, folder)
    except LabError as error:
        raise CliError(f"the lab's hosts do not start: {error}") from error
    return LabHosts(driver=driver, hosts=tuple(hosts))


def stop_lab(folder: Path) -> None:
    """End the lab's hosts with all guests, and delete their storage. The guest image stays."""
    try:
        cluster.stop_hosts(folder, purge=True)
    except LabError as error:
        raise CliError(f"the lab's hosts do not stop: {error}") from error
