"""Data volumes attached to domains as disks, and detached. In the child process only.

A disk is in three places: the live definition, the persistent one, and QEMU. A killed process, or
a killed libvirtd, leaves it in some of them. So each call looks at all of them, and completes what
an earlier one began.
"""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Protocol

import libvirt

from hypervisor.child import disks, migrating_domains, snapshots
from hypervisor.child.backing_chains import (
    HostFiles,
    file_name,
    is_data_volume,
    serial_of_volume,
    top_file_of,
)
from hypervisor.child.domains import marked, qemu_disks
from hypervisor.errors import MigrationRefusedError, OperationFailedError
from hypervisor.model import MAX_SERIAL
from hypervisor.move_model import MigrationObstacle
from hypervisor.xml import attached_disks
from hypervisor.xml import domain as domain_xml
from hypervisor.xml.disks import DiskFile

ATTACH: Final = "attach_disk"
DETACH: Final = "detach_disk"
#: Wait for a guest to release a disk; most do within a second.
_ANSWER_S: Final = 2.0
_POLL_S: Final = 0.05
#: Within this time libvirt hears from QEMU that a device is gone.
_EVENT_S: Final = 0.5
_PATIENCE_S: Final = 7.5  #: with pools, of a call that does not say itself
_LIVE: Final = libvirt.VIR_DOMAIN_AFFECT_LIVE
_CONFIG: Final = libvirt.VIR_DOMAIN_AFFECT_CONFIG
#: The disk has gone from the domain, or the domain is off or gone.
_GONE: Final = frozenset(
    {libvirt.VIR_ERR_DEVICE_MISSING, libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID}
)
#: QEMU's words for a device whose removal the guest has not answered; it has no code for them.
_UNDER_WAY: Final = "in the process of unplug"


class FileQueries(Protocol):
    """Runs a query about files in pools, which may hang."""

    def __call__(
        self,
        conn: libvirt.virConnect,
        key: Hashable,
        query: Callable[[Callable[[str], None]], snapshots.VolumeUses],
        patience_s: float,
    ) -> snapshots.VolumeUses:
        """Return the query's result; raise `OperationFailedError` if it is late."""


class Attachments:
    """Attaches data volumes to the domains of one host, and detaches them."""

    def __init__(self, query_files: FileQueries) -> None:
        self._query_files = query_files

    def attach(
        self,
        conn: libvirt.virConnect,
        *,
        vm_id: str,
        assignment_id: str,
        pool: str,
        volume: str,
        serial: str,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """Attach a data volume to a domain; see `HostConnection.attach_disk`."""
        domain = _require_own_domain(conn, vm_id, assignment_id)
        migrating_domains.refuse_if_moving(ATTACH, domain)
        _check_names(volume, serial)
        file = _file_of_volume(conn, pool, volume)
        seen = _read_definitions(domain, file, serial)
        if not seen.missing:
            return

        def find_uses(reading: Callable[[str], None]) -> snapshots.VolumeUses:
            return snapshots.volume_uses(HostFiles(conn, pool, reading), [volume], vm_id)

        uses = self._query_files(conn, (ATTACH, pool, vm_id, volume), find_uses, patience_s)
        _check_unused(volume, uses)
        if conn.getType() == "TEST":
            _change_test_domain(conn, domain, lambda devices: devices.append(seen.disk(file)))
            return
        xml = ET.tostring(seen.disk(file), encoding="unicode")
        try:
            domain.attachDeviceFlags(xml, seen.missing)
        except libvirt.libvirtError:
            if not _clear_interrupted(domain, file, serial):
                raise
            # libvirt may hear only now that the device is gone, and takes a new one for it.
            time.sleep(_EVENT_S)
            domain.attachDeviceFlags(xml, seen.missing)
            _check_stays(domain, serial)

    def detach(
        self, conn: libvirt.virConnect, *, vm_id: str, assignment_id: str, serial: str
    ) -> bool:
        """Detach a disk from a domain; see `HostConnection.detach_disk`."""
        domain = marked.look_up_domain(conn, vm_id)
        if domain is None:
            return True
        found = _disks_with_serial(domain, serial)
        mark = marked.mark_of(domain)
        if mark is None or mark.assignment_id != assignment_id:
            if found:
                raise OperationFailedError(
                    DETACH,
                    f"domain {vm_id} has the disk {serial}, and not the mark of assignment"
                    f" {assignment_id}",
                )
            return True
        migrating_domains.refuse_if_moving(DETACH, domain)
        _refuse_saved_state(DETACH, domain)
        _refuse_overlays(domain, found)
        if conn.getType() == "TEST":
            if found:
                _change_test_domain(conn, domain, lambda devices: _drop_disk(devices, serial))
            return True
        # First from the definition: a guest that goes off now does not start with the disk.
        _detach_from_definition(domain, serial)
        if domain.isActive() and not _detach_from_guest(domain, serial):
            return False
        return not _disks_with_serial(domain, serial)


def refuse_attached_disks(domain: libvirt.virDomain) -> None:
    """Raise `MigrationRefusedError` if a VM has a data volume, which would stay behind."""
    serials = sorted(
        {
            disk.findtext("serial", "")
            for document in _documents(domain).values()
            for disk in document.iterfind("devices/disk")
            if attached_disks.is_attached_by_fuga(disk)
        }
    )
    if serials:
        raise MigrationRefusedError(
            MigrationObstacle.LOCAL_VOLUME,
            f"the data volume of serial number {', '.join(serials)} is attached to it, and would"
            " stay behind: detach it first",
        )


class _Definitions:
    """A domain's definitions before a disk is attached: where the disk is, and where not."""

    def __init__(self, documents: dict[int, ET.Element], serial: str) -> None:
        self._documents = documents  #: by the flag that changes each
        self._serial = serial
        self._found = {
            flag: attached_disks.disk_with_serial(document, serial)
            for flag, document in documents.items()
        }

    @property
    def missing(self) -> int:
        """Return the flags of the definitions without the disk."""
        return sum(flag for flag, disk in self._found.items() if disk is None)

    def disk(self, file: DiskFile) -> ET.Element:
        """Return the disk to attach, at the target that it has in the other definition."""
        known = next((disk for disk in self._found.values() if disk is not None), None)
        documents = list(self._documents.values())
        target = (
            attached_disks.free_target(documents)
            if known is None
            else attached_disks.target_of(known)
        )
        return attached_disks.attached_disk(file, target, self._serial, documents[0])


def _require_own_domain(
    conn: libvirt.virConnect, vm_id: str, assignment_id: str
) -> libvirt.virDomain:
    """Return the domain of an assignment, or raise."""
    domain = marked.require_domain(conn, ATTACH, vm_id)
    mark = marked.mark_of(domain)
    if mark is None or mark.assignment_id != assignment_id:
        has = "no mark" if mark is None else f"that of assignment {mark.assignment_id}"
        raise OperationFailedError(
            ATTACH, f"domain {vm_id} has not the mark of assignment {assignment_id}, but {has}"
        )
    _refuse_saved_state(ATTACH, domain)
    return domain


def _check_names(volume: str, serial: str) -> None:
    """Raise if a volume is no data volume, or a serial number cannot be one."""
    if not is_data_volume(volume):
        raise OperationFailedError(ATTACH, f"{volume} is not the name of a data volume")
    if not attached_disks.is_valid_serial(serial):
        raise OperationFailedError(
            ATTACH,
            f"{serial!r} is no serial number of a disk: 1 to {MAX_SERIAL} letters, digits,"
            " hyphens or underscores",
        )


def _file_of_volume(conn: libvirt.virConnect, pool: str, volume: str) -> DiskFile:
    """Return the file of a data volume, with its backing chain; raise if there is none."""
    found = disks.find_volume(conn.storagePoolLookupByName(pool), volume)
    if found is None:
        raise OperationFailedError(
            ATTACH, f"pool {pool} has no volume {volume}", libvirt.VIR_ERR_NO_STORAGE_VOL
        )
    kind = domain_xml.volume_format(found.XMLDesc(0))
    if kind != "qcow2":
        # As of a volume whose creation was interrupted. Its guest would see another disk.
        raise OperationFailedError(ATTACH, f"volume {volume} of pool {pool} is {kind}, not qcow2")
    return disks.disk_file(conn, found, "qcow2")


def _read_definitions(domain: libvirt.virDomain, file: DiskFile, serial: str) -> _Definitions:
    """Return the definitions of a domain to change, live first.

    Raises if another disk of it has the serial number, or has the file.
    """
    documents = _documents(domain)
    volume = file_name(file.path)
    for disk in (each for known in documents.values() for each in known.iterfind("devices/disk")):
        named = {
            file_name(source.get("file") or source.get("volume") or "")
            for source in disk.iter("source")
        }
        at = attached_disks.target_of(disk)
        if disk.findtext("serial") == serial and volume not in named:
            raise OperationFailedError(
                ATTACH,
                f"disk {at} of domain {domain.UUIDString()} has the serial number {serial} already,"
                f" and is {top_file_of(disk)}",
            )
        if disk.findtext("serial") != serial and volume in named:
            raise OperationFailedError(
                ATTACH,
                f"disk {at} of domain {domain.UUIDString()} is {volume} already, without the serial"
                f" number {serial}",
            )
    return _Definitions(documents, serial)


def _documents(domain: libvirt.virDomain) -> dict[int, ET.Element]:
    """Return the definitions of a domain by the flag that changes each, live first."""
    found = {}
    if domain.isActive():
        found[_LIVE] = domain_xml.parse_tree(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE))
    inactive = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    found[_CONFIG] = domain_xml.parse_tree(domain.XMLDesc(inactive))
    return found


def _disks_with_serial(domain: libvirt.virDomain, serial: str) -> list[ET.Element]:
    """Return the disk of a serial number in each definition that has it."""
    try:
        documents = _documents(domain)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
            raise
        return []
    found = (attached_disks.disk_with_serial(each, serial) for each in documents.values())
    return [disk for disk in found if disk is not None]


def _check_unused(volume: str, uses: snapshots.VolumeUses) -> None:
    """Raise if another domain uses a volume, or another volume rests on it."""
    if uses.domains:
        users = (f"{name} ({what})" if what else name for name, what in uses.domains.items())
        raise OperationFailedError(ATTACH, f"volume {volume} is used by domain {', '.join(users)}")
    if uses.volumes:
        raise OperationFailedError(
            ATTACH,
            f"volume {', '.join(uses.volumes)} rests on {volume}, and has what was written last"
            " if a snapshot made it: merge it into the volume with `qemu-img commit`, or delete it",
        )


def _clear_interrupted(domain: libvirt.virDomain, file: DiskFile, serial: str) -> bool:
    """Remove what an interrupted attachment left in QEMU; return whether there was anything.

    Raises if the guest has the disk and has not released it yet.
    """
    is_named = _is_file_of(serial, file.path)
    documents = _documents(domain)
    if _LIVE not in documents or attached_disks.disk_with_serial(documents[_LIVE], serial):
        return False
    if not qemu_disks.has_file(domain, is_named):
        return False
    if not qemu_disks.remove_leftovers(ATTACH, domain, is_named):
        raise OperationFailedError(
            ATTACH,
            f"the guest of domain {domain.UUIDString()} has the disk {serial} by an attachment that"
            " was interrupted, and has not released it yet",
            libvirt.VIR_ERR_RESOURCE_BUSY,
        )
    return True


def _is_file_of(serial: str, path: str | None = None) -> Callable[[str], bool]:
    """Return a function that recognizes the file of a disk by its path, or by its volume's name."""

    def is_named(each: str) -> bool:
        return each == path or serial_of_volume(file_name(each)) == serial

    return is_named


def _refuse_saved_state(operation: str, domain: libvirt.virDomain) -> None:
    """Raise if a domain has a saved state: its next start ignores the definition."""
    try:
        saved = not domain.isActive() and domain.hasManagedSaveImage()
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
            raise
        return
    if saved:
        raise OperationFailedError(
            operation,
            f"domain {domain.name()} has a saved state, from which it would start with the disks"
            " that it had then: start it, or remove that with `virsh managedsave-remove`",
        )


def _refuse_overlays(domain: libvirt.virDomain, found: Sequence[ET.Element]) -> None:
    """Raise if a disk to detach is not its volume, but an overlay that a snapshot made.

    The volume alone would lack what the guest wrote since.
    """
    for disk in found:
        path = top_file_of(disk)
        if path is None or not is_data_volume(file_name(path)):
            at, name = attached_disks.target_of(disk), domain.name()
            raise OperationFailedError(
                DETACH,
                f"disk {at} of domain {name} is {path}, and not a volume that fuga made: if that is"
                f" a snapshot's, merge it with `virsh blockcommit {name} {at} --active --pivot"
                " --delete`",
            )


def _detach_from_definition(domain: libvirt.virDomain, serial: str) -> None:
    """Remove a disk from the persistent definition of a domain, if that has it."""
    disk = attached_disks.disk_with_serial(_documents(domain)[_CONFIG], serial)
    if disk is not None:
        _ignore_gone(domain.detachDeviceFlags, ET.tostring(disk, encoding="unicode"), _CONFIG)


def _detach_from_guest(domain: libvirt.virDomain, serial: str) -> bool:
    """Request a disk from the guest; return whether neither libvirt nor QEMU has it any more."""
    disk = _live_disk(domain, serial)
    if disk is not None:
        if domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED:
            # It cannot answer. Worse, QEMU refuses all further requests until a reset if the first
            # one came before the guest ever ran: its clock was 0, which stands for no end.
            return False
        alias = disk.find("alias")
        name = "" if alias is None else alias.get("name", "")
        try:
            _ignore_gone(domain.detachDeviceAlias, name, _LIVE)
        except libvirt.libvirtError as error:
            if _UNDER_WAY not in str(error):
                raise
        until = time.monotonic() + _ANSWER_S
        while _live_disk(domain, serial) is not None:
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_S)
    return qemu_disks.remove_leftovers(DETACH, domain, _is_file_of(serial))


def _check_stays(domain: libvirt.virDomain, serial: str) -> None:
    """Raise if a disk that was attached goes with the device that was removed before it."""
    until = time.monotonic() + _EVENT_S
    while domain.isActive() and time.monotonic() < until:
        if _live_disk(domain, serial) is None:
            raise OperationFailedError(
                ATTACH,
                f"the disk {serial} of domain {domain.UUIDString()} went with what an interrupted"
                " attachment had left",
                libvirt.VIR_ERR_RESOURCE_BUSY,
            )
        time.sleep(_POLL_S)


def _live_disk(domain: libvirt.virDomain, serial: str) -> ET.Element | None:
    """Return a disk in the live definition of a domain; None if it has none, or is off."""
    try:
        live = _documents(domain).get(_LIVE)
    except libvirt.libvirtError as error:
        if error.get_error_code() not in _GONE:
            raise
        return None
    return None if live is None else attached_disks.disk_with_serial(live, serial)


def _ignore_gone(call: Callable[..., Any], *arguments: Any) -> None:
    """Call libvirt; ignore that the disk or the domain is gone by now."""
    try:
        call(*arguments)
    except libvirt.libvirtError as error:
        if error.get_error_code() not in _GONE:
            raise


def _drop_disk(devices: ET.Element, serial: str) -> None:
    """Remove a disk from the devices of a definition."""
    for disk in devices.findall("disk"):
        if disk.findtext("serial") == serial:
            devices.remove(disk)


def _change_test_domain(
    conn: libvirt.virConnect, domain: libvirt.virDomain, change: Callable[[ET.Element], None]
) -> None:
    """Change the devices of a domain of the test driver, which attaches and detaches nothing.

    A running one starts again: it has no guest.
    """
    document = _documents(domain)[_CONFIG]
    devices = document.find("devices")
    if devices is None:
        devices = ET.SubElement(document, "devices")
    change(devices)
    redefined = conn.defineXML(ET.tostring(document, encoding="unicode"))
    if redefined.isActive():
        paused = redefined.state()[0] == libvirt.VIR_DOMAIN_PAUSED
        redefined.destroy()
        redefined.create()
        if paused:
            redefined.suspend()
