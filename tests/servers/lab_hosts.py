"""Real hosts and test-driver hosts for suites: one lab per session, started when first asked.

Suites import the fixtures they need::

    from tests.servers.lab_hosts import lab_cluster  # noqa: F401
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import cluster
from lab.cluster import LabHost

#: For a fuga whose operator registers lab hosts that listen on TCP, on this machine alone.
LETS_TCP_IN = {"FUGA_URI_SCHEMES": '["qemu+tcp"]'}

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class LabCluster:
    """Hosts of this session. `hosts` are numbered from 1 where a fault names one."""

    directory: Path
    hosts: tuple[LabHost, ...]

    @property
    def uris(self) -> list[str]:
        return [host.uri for host in self.hosts]

    def serial_log(self, number: int, domain: str) -> Path:
        """The file, outside, that a domain's serial console is appended to."""
        return self.hosts[number - 1].log_dir / "qemu" / f"{domain}.serial"

    def images(self, number: int) -> set[str]:
        """Files in a host's pool, looked up past libvirt."""
        images_dir = self.hosts[number - 1].images_dir
        assert images_dir is not None
        return {path.name for path in images_dir.iterdir()}

    def fault(self, number: int, *action: str) -> None:
        """Make a host fail, or recover: the actions of lab/scripts/host-fault."""
        cluster.inject_fault(self.directory, number, *action)

    @contextmanager
    def faulty(self, number: int, action: str, *of: str, until: str) -> Iterator[None]:
        """Make a host fail inside the block."""
        self.fault(number, action, *of)
        try:
            yield
        finally:
            self.fault(number, until, *of)

    def restore(self) -> None:
        """Start again what died."""
        start_real(len(self.hosts), self.directory)


def guest_dir() -> Path:
    """Where the guest's image is kept from one session to the next."""
    return Path(os.environ.get("FUGA_LAB_GUEST", _ROOT / "build" / "lab-guest"))


def start_real(count: int, directory: Path, *, transport: str = "tcp") -> LabCluster:
    """Start real hosts, or skip the test and say why this machine cannot."""
    if reason := cluster.real_hosts_obstacle():
        pytest.skip(f"no real hosts here: {reason}")
    guest = guest_dir()
    guest.mkdir(parents=True, exist_ok=True)
    hosts = cluster.start_real_hosts(count, directory, guest, transport=transport)
    return LabCluster(directory=directory, hosts=tuple(hosts))


@pytest.fixture(scope="session")
def lab_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], LabCluster]]:
    """Return a function: real hosts 1 to n of this session's lab, all of them up."""
    directory = tmp_path_factory.mktemp("lab")
    started = 0

    def at_least(count: int) -> LabCluster:
        nonlocal started
        started = max(started, count)
        everything = start_real(started, directory)
        return LabCluster(directory=directory, hosts=everything.hosts[:count])

    yield at_least
    cluster.stop_hosts(directory, purge=True)


@pytest.fixture(scope="session")
def driver_hosts(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[int], list[LabHost]]]:
    """Return a function: n hosts of libvirt's test driver, shared by the session."""
    directory = tmp_path_factory.mktemp("driver-hosts")
    yield lambda count: cluster.start_test_hosts(count, directory)
    cluster.stop_hosts(directory, purge=True)
