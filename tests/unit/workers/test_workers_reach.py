"""A worker asks the machine that was registered, at its address and with its credential."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from hypervisor import HostConnections
from registry.hosts import HostAccess, HostCredentials
from workers.libvirt_drivers import LibvirtHostDrivers

MACHINE = "4c4c4544-0044-4b10-8051-b4c04f4e5931"
HOST = HostAccess(
    id=uuid4(),
    name="h1",
    uri="qemu+tcp://h1.test/system",
    domain_type="kvm",
    pool="default",
    network="default",
    base_volume=None,
    memory_backing_mib=None,
    machine=MACHINE,
)


class _Connections:
    def __init__(self) -> None:
        self.used: list[tuple[Any, ...]] = []

    @contextmanager
    def use(self, *how: Any) -> Iterator[None]:
        self.used.append(how)
        yield


def test_calls_and_moves_name_the_machine(tmp_path: Path) -> None:
    connections = _Connections()
    opened = LibvirtHostDrivers(cast("HostConnections", connections), HostCredentials(tmp_path))

    with opened.use(HOST), opened.migrator(HOST, HOST) as mover:
        assert connections.used == [(HOST.uri, None, MACHINE)]
        assert [each.machine for each in (mover.source, mover.destination)] == [MACHINE, MACHINE]  # type: ignore[attr-defined]
