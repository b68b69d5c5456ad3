"""Interfaces of a host, as its libvirt lists node devices."""

from __future__ import annotations

import threading
from typing import Any, cast

import libvirt
import pytest

from hypervisor.child.idle_connections import IdleConnections
from hypervisor.child.poll import Interfaces, read_interfaces
from hypervisor.xml.node_device import network_device


def xml(name: str, mac: str, parent: str) -> str:
    return (
        f"<device><name>net_{name}</name><parent>{parent}</parent><capability type='net'>"
        f"<interface>{name}</interface><address>{mac}</address></capability></device>"
    )


class Device:
    def __init__(self, name: str, mac: str = "52:54:00:00:00:01", parent: str = "computer") -> None:
        self._name, self._xml, self.reads = name, xml(name, mac, parent), 0

    def name(self) -> str:
        return f"net_{self._name}_52_54_00"

    def XMLDesc(self, _flags: int) -> str:  # noqa: N802 - libvirt's
        self.reads += 1
        if "gone" in self._name:
            raise libvirt.libvirtError("Node device not found")
        return self._xml


def shown(*devices: Device) -> list[str]:
    class Host:
        def listAllDevices(self, _flags: int) -> list[Device]:  # noqa: N802 - libvirt's
            return list(devices)

    return [name for name, _ in read_interfaces(cast(Any, Host()))]


def test_what_hardware_is_behind_is_shown_and_guests_taps_are_not_read() -> None:
    tap = Device("vnet0")
    found = shown(
        Device("eth1", parent="pci_0000_01_00_0"),
        Device("br0"),
        tap,
        Device("lo"),
        Device("eth0", parent="pci_0000_02_00_0"),
        Device("gone", parent="pci_0000_03_00_0"),
    )

    assert found == ["eth0", "eth1"]
    assert tap.reads == 0


def test_a_host_without_such_hardware_shows_what_else_it_has() -> None:
    assert shown(Device("br0"), Device("vnet0")) == ["br0"]


def test_a_host_with_a_thousand_interfaces_shows_some() -> None:
    assert len(shown(*(Device(f"eth{number}", parent="pci") for number in range(1000)))) == 64


def test_a_libvirt_that_lists_no_devices_is_none() -> None:
    class Host:
        def listAllDevices(self, _flags: int) -> list[Device]:  # noqa: N802 - libvirt's
            raise libvirt.libvirtError("not supported")

    assert read_interfaces(cast(Any, Host())) == ()


@pytest.mark.parametrize("missing", ["<interface>eth0</interface>", "<address>x</address>"])
def test_a_device_without_name_or_address_is_none(missing: str) -> None:
    assert network_device(xml("eth0", "x", "pci").replace(missing, "")) is None


class Slow:
    """A host whose driver of devices answers when it is told to."""

    def __init__(self) -> None:
        self.answers, self.asked, self.devices = threading.Event(), 0, [Device("eth0")]

    def listAllDevices(self, _flags: int) -> list[Device]:  # noqa: N802 - libvirt's
        self.asked += 1
        assert self.answers.wait(60)
        return self.devices

    def isAlive(self) -> bool:  # noqa: N802 - libvirt's
        return True


def test_a_driver_of_devices_that_hangs_holds_up_no_poll() -> None:
    host, now = Slow(), [0.0]
    known = Interfaces(IdleConnections(lambda: cast(Any, host)), clock=lambda: now[0])

    for now[0] in (0.0, 10.0, 10_000.0):
        assert known.macs() == ()
    assert host.asked == 1  # one question at a time
    host.answers.set()
    assert any(known.macs() for _ in range(300))  # each waits a moment
    host.devices = [Device("eth1")]
    now[0] += 601.0

    assert [name for name, _ in known.macs()] == ["eth1"]
    assert host.asked == 2
