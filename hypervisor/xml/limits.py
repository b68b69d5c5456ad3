"""The limits of a guest on its host, in domain XML.

Disks are throttled by QEMU itself, cards by the host's traffic control, and processors by
cgroups: their shares say who gets how much when all want more than there is.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Final

from hypervisor.model import VmLimits

#: 255 vCPUs, the most of a machine, stay below 10,000, the most of cgroups' second version.
SHARES_PER_VCPU: Final = 32
_KB_PER_MBIT: Final = 125
#: The burst: the traffic of a tenth of a second, and never less than a few large packets.
_BURST_S: Final = 0.1
_LEAST_BURST_KB: Final = 128
#: One group of all disks of a machine: the limit is the machine's, not each disk's.
_GROUP: Final = "disks"


def add_shares(domain: ET.Element, vcpus: int) -> None:
    """Let processors be shared out in proportion to vCPUs."""
    tune = ET.SubElement(domain, "cputune")
    ET.SubElement(tune, "shares").text = str(SHARES_PER_VCPU * vcpus)


def set_shares(domain: ET.Element, vcpus: int | None) -> None:
    """Let a domain have the shares of so many vCPUs in place of what it has; None: none."""
    for tune in domain.findall("cputune"):
        for shares in tune.findall("shares"):
            tune.remove(shares)
        if not len(tune):
            domain.remove(tune)
    if vcpus is None:
        return
    tune_now = domain.find("cputune")
    if tune_now is None:
        add_shares(domain, vcpus)
    else:
        ET.SubElement(tune_now, "shares").text = str(SHARES_PER_VCPU * vcpus)


def without_shares(xml: str) -> str | None:
    """Return a domain's XML without its shares of processors; None if it names none."""
    domain = ET.fromstring(xml)  # noqa: S314 - libvirt wrote it: no entities, no DTD
    tune = domain.find("cputune")
    shares = None if tune is None else tune.find("shares")
    if tune is None or shares is None:
        return None
    tune.remove(shares)
    return ET.tostring(domain, encoding="unicode")


def limit_disks(devices: ET.Element, limits: VmLimits) -> None:
    """Bound what all disks together read and write in a second."""
    if limits.disk_iops is None and limits.disk_mib_s is None:
        return
    for disk in devices.findall("disk"):
        tune = ET.SubElement(disk, "iotune")
        if limits.disk_mib_s is not None:
            ET.SubElement(tune, "total_bytes_sec").text = str(limits.disk_mib_s << 20)
        if limits.disk_iops is not None:
            ET.SubElement(tune, "total_iops_sec").text = str(limits.disk_iops)
        ET.SubElement(tune, "group_name").text = _GROUP


def limit_card(interface: ET.Element, limits: VmLimits) -> None:
    """Bound what a card receives and what it sends in a second, each by itself."""
    if limits.net_mbps is None:
        return
    average = limits.net_mbps * _KB_PER_MBIT
    burst = max(_LEAST_BURST_KB, int(average * _BURST_S))
    bandwidth = ET.SubElement(interface, "bandwidth")
    for direction in ("inbound", "outbound"):
        ET.SubElement(bandwidth, direction, average=str(average), burst=str(burst))
