"""Checks before a move begins. In the child process only."""

from __future__ import annotations

import contextlib
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Final

import libvirt

from hypervisor.child import backing_files, disks, filters, shared_pools, snapshots
from hypervisor.child.domains import attachments
from hypervisor.child.move_hosts import MoveHosts
from hypervisor.errors import MigrationRefusedError, OperationFailedError
from hypervisor.move_model import MigrationObstacle, MoveSpec
from hypervisor.xml import domain as domain_xml
from hypervisor.xml import migration_target
from hypervisor.xml.disks import backing_of

_LIVE: Final = libvirt.VIR_DOMAIN_XML_MIGRATABLE | libvirt.VIR_DOMAIN_XML_SECURE
_DEFINED: Final = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
_ADDRESS: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.-]{0,252}|[0-9A-Fa-f:.]{2,45}")
_MIB: Final = 1 << 20


def check_move(hosts: MoveHosts, spec: MoveSpec) -> None:
    """Raise `MigrationRefusedError` for the first obstacle; see `HostPairMigrator.check`."""
    here, there = hosts.source.for_move, hosts.destination.for_move
    _check_address(spec)
    _check_distinct_hosts(hosts)
    with _raising_obstacle(MigrationObstacle.ABSENT, libvirt.VIR_ERR_NO_DOMAIN):
        domain = here.lookupByUUIDString(spec.vm_id)
    runs = bool(domain.isActive())
    document = domain_xml.parse_tree(domain.XMLDesc(_LIVE if runs else _DEFINED))
    attachments.refuse_attached_disks(domain)
    snapshots.refuse_snapshots(domain)
    bound = migration_target.host_device_of(document)
    if bound is not None:
        raise MigrationRefusedError(MigrationObstacle.HOST_DEVICE, f"it has a {bound}")
    _check_name(there, spec, document.findtext("name", ""))
    _check_machine(there, document)
    _check_processor(there, document)
    _check_storage(hosts, spec, domain, runs=runs)
    _check_network(there, spec, document)


def _check_address(spec: MoveSpec) -> None:
    """Raise `MigrationRefusedError` if the address that receives a move is no address."""
    if spec.address is not None and _ADDRESS.fullmatch(spec.address) is None:
        raise MigrationRefusedError(MigrationObstacle.ADDRESS, f"{spec.address!r} is no address")


def _check_distinct_hosts(hosts: MoveHosts) -> None:
    """Raise `MigrationRefusedError` if source and destination are one machine."""
    numbers = [host.machine_uuid() for host in (hosts.source, hosts.destination)]
    if numbers[0] is not None and numbers[0] == numbers[1]:
        raise MigrationRefusedError(
            MigrationObstacle.SAME_HOST,
            f"source and destination have the same host UUID, {numbers[0]}: they are one host, or"
            " host_uuid in one's libvirtd.conf must be set",
        )


def _check_name(there: libvirt.virConnect, spec: MoveSpec, name: str) -> None:
    """Raise if the destination of a move has a domain of that name or UUID.

    A stopped domain of this move is allowed.
    """
    for look_up, key in ((there.lookupByUUIDString, spec.vm_id), (there.lookupByName, name)):
        try:
            found = look_up(key)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
            continue
        if found.isActive() or domain_xml.parse_domain(found.XMLDesc(0)).mark != spec.mark:
            raise MigrationRefusedError(
                MigrationObstacle.NAME_TAKEN,
                f"the destination has the domain {found.name()} ({found.UUIDString()})",
            )


def _check_machine(there: libvirt.virConnect, document: ET.Element) -> None:
    """Raise `MigrationRefusedError` if the destination lacks the guest's machine type."""
    kind, arch, machine = _guest_machine_type(document)
    try:
        there.getDomainCapabilities(None, arch, machine, kind, 0)
    except libvirt.libvirtError as error:
        if error.get_error_code() not in {
            libvirt.VIR_ERR_INVALID_ARG,
            libvirt.VIR_ERR_CONFIG_UNSUPPORTED,
        }:
            raise
        raise MigrationRefusedError(MigrationObstacle.MACHINE_TYPE, str(error)) from error


def _check_processor(there: libvirt.virConnect, document: ET.Element) -> None:
    """Raise if the destination lacks CPU features that the guest uses, as libvirt compares them.

    A stopped guest with the host-model CPU gets the destination's model at its next start.
    """
    processor = document.find("cpu")
    if processor is None or processor.find("model") is None:
        return
    kind, arch, machine = _guest_machine_type(document)
    try:
        there.compareHypervisorCPU(
            None,
            arch,
            machine,
            kind,
            ET.tostring(processor, encoding="unicode"),
            libvirt.VIR_CONNECT_COMPARE_CPU_FAIL_INCOMPATIBLE,
        )
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_CPU_INCOMPATIBLE:
            raise
        raise MigrationRefusedError(MigrationObstacle.CPU_MODEL, str(error)) from error


def _check_storage(
    hosts: MoveHosts, spec: MoveSpec, domain: libvirt.virDomain, *, runs: bool
) -> None:
    """Raise `MigrationRefusedError` if the destination's pool or volumes do not fit the move."""
    here, there = hosts.source.for_move, hosts.destination.for_move
    with _raising_obstacle(MigrationObstacle.POOL, libvirt.VIR_ERR_NO_STORAGE_POOL):
        pool = there.storagePoolLookupByName(spec.pool)
    if not pool.isActive():
        raise MigrationRefusedError(MigrationObstacle.POOL, f"pool {spec.pool} is not active")
    if spec.seed_volume is not None:
        _volume_at_destination(pool, spec.seed_volume)
    elif migration_target.has_seed(domain_xml.parse_tree(domain.XMLDesc(_DEFINED))):
        raise MigrationRefusedError(
            MigrationObstacle.VOLUME, "it has a seed, of which no copy is named"
        )
    disk = disks.root_volume(here, domain)
    if not spec.copy_disk:
        shared_pools.check_pool_shared(hosts, spec, domain)
        return
    if runs:
        _check_prepared_volume(hosts, _volume_at_destination(pool, spec.volume), disk)
    else:
        backing_files.backing_path_at_destination(hosts, spec, disk)
    needed, available = disk.info()[2], pool.info()[3]
    if needed > available:
        raise MigrationRefusedError(
            MigrationObstacle.POOL,
            f"pool {spec.pool} has {available // _MIB} MiB left, and the disk has"
            f" {-(-needed // _MIB)} MiB",
        )


def _check_prepared_volume(
    hosts: MoveHosts, there: libvirt.virStorageVol, here: libvirt.virStorageVol
) -> None:
    """Raise if the volume at the destination does not match the disk's size and backing file."""
    if there.info()[1] != here.info()[1]:
        raise MigrationRefusedError(
            MigrationObstacle.VOLUME,
            f"{there.name()} has {there.info()[1]} bytes, and the guest's disk {here.info()[1]}",
        )
    one, other = (backing_of(each.XMLDesc(0)) for each in (here, there))
    if (one is None) != (other is None):
        raise MigrationRefusedError(
            MigrationObstacle.BASE_VOLUME,
            f"{there.name()} rests on {'nothing' if other is None else other[0]}, and the guest's"
            f" disk on {'nothing' if one is None else one[0]}",
        )
    if one is not None and other is not None:
        backing_files.check_same_backing_file(hosts, one[0], other[0])


def _check_network(there: libvirt.virConnect, spec: MoveSpec, document: ET.Element) -> None:
    """Raise `MigrationRefusedError` if the destination lacks the VM's network or bridge."""
    if spec.network_kind == "network":
        with _raising_obstacle(MigrationObstacle.NETWORK, libvirt.VIR_ERR_NO_NETWORK):
            network = there.networkLookupByName(spec.network)
        if not network.isActive():
            raise MigrationRefusedError(
                MigrationObstacle.NETWORK, f"network {spec.network} is not active"
            )
    else:
        with _raising_obstacle(MigrationObstacle.NETWORK, libvirt.VIR_ERR_NO_INTERFACE):
            _check_bridge(there, spec.network)
    for interface in document.findall("devices/interface"):
        migration_target.connect_interface(interface, spec)
    try:
        filters.define_filter(there, document, spec.guard)
    except OperationFailedError as error:
        raise MigrationRefusedError(MigrationObstacle.NETWORK, error.reason) from error


def _check_bridge(conn: libvirt.virConnect, name: str) -> None:
    """Raise if a bridge is missing; pass if libvirt cannot look bridges up."""
    try:
        conn.interfaceLookupByName(name)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_INTERFACE:
            raise


def _volume_at_destination(pool: libvirt.virStoragePool, name: str) -> libvirt.virStorageVol:
    """Return a volume at the destination of a move, or raise `MigrationRefusedError`."""
    found = disks.find_volume(pool, name)
    if found is None:
        raise MigrationRefusedError(
            MigrationObstacle.VOLUME, f"pool {pool.name()} has no volume {name}"
        )
    return found


def _guest_machine_type(document: ET.Element) -> tuple[str, str | None, str | None]:
    """Return domain type, architecture and machine type of a guest."""
    kind = document.find("os/type")
    named = {} if kind is None else kind.attrib
    return document.get("type", "qemu"), named.get("arch"), named.get("machine")


@contextlib.contextmanager
def _raising_obstacle(obstacle: MigrationObstacle, code: int) -> Iterator[None]:
    """Raise `MigrationRefusedError` in place of a libvirt error of that code."""
    try:
        yield
    except libvirt.libvirtError as error:
        if error.get_error_code() != code:
            raise
        raise MigrationRefusedError(obstacle, str(error)) from error
