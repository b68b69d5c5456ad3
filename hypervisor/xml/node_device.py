"""Parses the XML of a host's network devices."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass

#: Parent of devices without hardware.
_VIRTUAL = "computer"


@dataclass(frozen=True, slots=True)
class NetworkDevice:
    """A network interface of a host."""

    name: str
    mac: str
    is_hardware: bool


def network_device(xml: str) -> NetworkDevice | None:
    """Return the network interface in a node device's XML; None if it has no MAC address."""
    root = ET.fromstring(xml)  # noqa: S314 - libvirt wrote it: no entities, no DTD
    name = root.findtext("capability/interface")
    mac = root.findtext("capability/address")
    if not name or not mac:
        return None
    return NetworkDevice(name, mac, root.findtext("parent") != _VIRTUAL)
