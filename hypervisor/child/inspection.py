"""Inspection of a host before it is registered. In the child processes only."""

from __future__ import annotations

import contextlib
import time
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Final

import libvirt

from hypervisor.child import disks, filters
from hypervisor.model import MAX_NAME, HostInspection, PoolInspection, ProcessorComparison
from hypervisor.xml import domain as domain_xml
from hypervisor.xml import network_filters
from plain_text import shorten_text

_ARCH: Final = "x86_64"
_NO_MODEL: Final = frozenset(
    {
        libvirt.VIR_ERR_NO_SUPPORT,
        libvirt.VIR_ERR_INVALID_ARG,
        libvirt.VIR_ERR_CONFIG_UNSUPPORTED,
        libvirt.VIR_ERR_OPERATION_UNSUPPORTED,
    }
)
#: Pool types whose volumes are files, with times of the host's clock.
_LOCAL_POOLS: Final = frozenset({"dir", "fs"})


def has_cpu_shares(conn: libvirt.virConnect) -> bool | None:
    """Return whether the host's cgroups have CPU shares, read from a running guest.

    None if no guest runs or the host does not report shares.
    """
    for domain in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)[:1]:
        try:
            domain.schedulerType()
        except libvirt.libvirtError as error:
            return False if error.get_error_code() == libvirt.VIR_ERR_OPERATION_INVALID else None
        else:
            return True
    return None


def inspect_host(conn: libvirt.virConnect, domain_type: str, network: str) -> HostInspection:
    """Return the host's capabilities for guests, without its pool, which may hang."""
    answer = conn.getCapabilities()
    capabilities = domain_xml.parse_tree(answer)
    processor = _host_model(conn, domain_type)
    return HostInspection(
        hostname=shorten_text(conn.getHostname(), MAX_NAME),
        driver=conn.getType(),
        machine_uuid=domain_xml.machine_uuid(answer),
        libvirt_version=conn.getLibVersion(),
        qemu_version=conn.getVersion(),
        domain_types=tuple(
            sorted(
                {
                    str(each.get("type"))
                    for each in capabilities.iterfind(f"guest/arch[@name='{_ARCH}']/domain")
                }
            )
        ),
        processor=None if processor is None else ET.tostring(processor, encoding="unicode"),
        processor_model=(
            capabilities.findtext("host/cpu/model")
            if processor is None
            else processor.findtext("model")
        ),
        security_model=domain_xml.security_model(answer),
        can_filter=filters.can_filter(conn),
        network_fault=_network_fault(conn, network),
        network_starts_by_itself=_network_autostarts(conn, network),
    )


def inspect_pool(conn: libvirt.virConnect, pool: str) -> PoolInspection:
    """Return a pool's state. Creates and deletes an empty volume to read the host's clock.

    Raises libvirtError if no pool has that name or it accepts no volume.
    """
    store = conn.storagePoolLookupByName(pool)
    active = bool(store.isActive())
    document = domain_xml.parse_tree(store.XMLDesc(0))
    kind = document.get("type", "")
    ahead_s = _clock_lead_s(store) if active and kind in _LOCAL_POOLS else None
    _, capacity, _, free = store.info()
    return PoolInspection(
        kind=kind,
        active=active,
        starts_by_itself=bool(store.autostart()),
        capacity_bytes=capacity,
        free_bytes=free,
        clock_ahead_s=ahead_s,
    )


def compare_processors(
    conn: libvirt.virConnect, domain_type: str, own: str, others: Mapping[str, str]
) -> ProcessorComparison:
    """Compare the host-model CPUs of this host (``own``) and of others, by host name."""
    try:
        documents = [own, *others.values()]
        common = conn.baselineHypervisorCPU(None, _ARCH, None, domain_type, documents, 0)
        model = domain_xml.parse_tree(common).findtext("model")
    except libvirt.libvirtError as error:
        if error.get_error_code() not in _NO_MODEL | {libvirt.VIR_ERR_CPU_INCOMPATIBLE}:
            raise
        model = None
    faults = {name: _cpu_incompatibility(conn, domain_type, xml) for name, xml in others.items()}
    return ProcessorComparison(
        baseline=model, faults={name: why for name, why in faults.items() if why is not None}
    )


def _cpu_incompatibility(conn: libvirt.virConnect, domain_type: str, processor: str) -> str | None:
    """Return why a guest with this CPU cannot run on this host; None if it can."""
    try:
        conn.compareHypervisorCPU(
            None,
            _ARCH,
            None,
            domain_type,
            processor,
            libvirt.VIR_CONNECT_COMPARE_CPU_FAIL_INCOMPATIBLE,
        )
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_CPU_INCOMPATIBLE:
            raise
        return str(error)
    return None


def _host_model(conn: libvirt.virConnect, domain_type: str) -> ET.Element | None:
    """Return the host-model CPU of guests of this type as XML for comparisons; None if unknown."""
    try:
        answer = conn.getDomainCapabilities(None, _ARCH, None, domain_type, 0)
    except libvirt.libvirtError as error:
        if error.get_error_code() in _NO_MODEL:
            return None
        raise
    mode = domain_xml.parse_tree(answer).find("cpu/mode[@name='host-model']")
    if mode is None or mode.get("supported") != "yes" or mode.find("model") is None:
        return None
    processor = ET.Element("cpu", mode="custom", match="exact")
    processor.extend(list(mode))
    return processor


def _network_fault(conn: libvirt.virConnect, name: str) -> str | None:
    """Return why guests cannot use a network; None if they can or the host has no networks."""
    try:
        network = conn.networkLookupByName(name)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_NETWORK:
            return "missing"
        if error.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT:
            return "unsupported"
        raise
    if not network.isActive():
        return "inactive"
    return network_filters.filter_obstacle(domain_xml.parse_tree(network.XMLDesc(0)))


def _network_autostarts(conn: libvirt.virConnect, name: str) -> bool | None:
    """Return whether a libvirt network starts with its host; None if that is unknown."""
    with contextlib.suppress(libvirt.libvirtError):
        return bool(conn.networkLookupByName(name).autostart())
    return None


def _clock_lead_s(store: libvirt.virStoragePool) -> float | None:
    """Measure by how many seconds the host's clock is ahead, with a new file in a pool."""
    before = time.time()
    volume = store.createXML(domain_xml.raw_volume_xml(f"fuga-check-{uuid.uuid4()}", 0), 0)
    try:
        after = time.time()
        written = disks.last_written_at(volume)
    finally:
        volume.delete(0)
    if written is None:
        return None
    # The file was written at some moment between the two readings.
    at = float(written)
    return at - before if at < before else max(0.0, at - after)
