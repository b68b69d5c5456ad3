"""Resource limits of a guest in domain XML.

QEMU throttles disks, the host's traffic control throttles interfaces, and cgroups divide CPUs:
shares set the proportions when CPUs are overloaded.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Final

from hypervisor.model import VmLimits

#: 255 vCPUs, the maximum of a machine, stay below 10,000, the maximum of cgroups v2.
SHARES_PER_VCPU: Final = 32
_KB_PER_MBIT: Final = 125
#: Burst: the traffic of a tenth of a second, and at least a few large packets.
_BURST_S: Final = 0.1
_MIN_BURST_KB: Final = 128
#: All disks are in one throttle group: the limit is the domain's, not each disk's.
_GROUP: Final = "disks"


def add_shares(domain: ET.Element, vcpus: int) -> None:
    """Add CPU shares in proportion to vCPUs to domain XML."""
    tune = ET.SubElement(domain, "cputune")
    ET.SubElement(tune, "shares").text = str(SHARES_PER_VCPU * vcpus)


def set_shares(domain: ET.Element, vcpus: int | None) -> None:
    """Replace a domain's CPU shares by those for ``vcpus``; None removes them."""
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
    """Return a domain's XML without CPU shares; None if it has none."""
    domain = ET.fromstring(xml)  # noqa: S314 - libvirt wrote it: no entities, no DTD
    tune = domain.find("cputune")
    shares = None if tune is None else tune.find("shares")
    if tune is None or shares is None:
        return None
    tune.remove(shares)
    return ET.tostring(domain, encoding="unicode")


def limit_disks(devices: ET.Element, limits: VmLimits) -> None:
    """Limit the total I/O of all disks in domain XML."""
    if limits.disk_iops is None and limits.disk_mib_s is None:
        return
    for disk in devices.findall("disk"):
        tune = ET.SubElement(disk, "iotune")
        if limits.disk_mib_s is not None:
            ET.SubElement(tune, "total_bytes_sec").text = str(limits.disk_mib_s << 20)
        if limits.disk_iops is not None:
            ET.SubElement(tune, "total_iops_sec").text = str(limits.disk_iops)
        ET.SubElement(tune, "group_name").text = _GROUP


def limit_interface(interface: ET.Element, limits: VmLimits) -> None:
    """Limit the traffic of an interface in domain XML, separately for each direction."""
    if limits.net_mbps is None:
        return
    average = limits.net_mbps * _KB_PER_MBIT
    burst = max(_MIN_BURST_KB, int(average * _BURST_S))
    bandwidth = ET.SubElement(interface, "bandwidth")
    for direction in ("inbound", "outbound"):
        ET.SubElement(bandwidth, direction, average=str(average), burst=str(burst))
