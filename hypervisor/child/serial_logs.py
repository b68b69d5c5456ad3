"""Serial console logs of guests, read through libvirt. In the child process only.

A guest chooses every byte of its log, and libvirtd runs as root, so libvirtd must not parse a log.
A storage pool over the folder would parse: libvirtd probes each file for image formats, and opens
the files that it names. So a log is read as the raw disk of a reader, a domain that fuga defines:
`virDomainBlockPeek` returns bytes at an offset and parses nothing. A reader cannot start, as it
also has a disk in a pool that does not exist.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID, uuid5

import libvirt

from hypervisor.errors import OperationFailedError
from hypervisor.model import domain_name
from hypervisor.xml import domain as domain_xml

#: Limit of libvirt's remote protocol in all releases.
_PEEK_BYTES: Final = 1 << 16
#: Attempts to read a log that is rotated during the read.
_TRIES: Final = 3
#: Attempts to delete a log: each concurrent removal of a VM may drop the reader once.
_TRIES_TO_DELETE: Final = 20
_MOVED: Final = frozenset({libvirt.VIR_ERR_INVALID_ARG, libvirt.VIR_ERR_NO_DOMAIN})
#: Maximum rotated logs of a VM; virtlogd keeps three by default.
_MAX_ROTATED: Final = 16
_USUALLY_ROTATED: Final = 3
_SWEPT_AT_ONCE: Final = 20
#: Maximum plausible size; a host may report anything.
_MAX_LOG_BYTES: Final = 1 << 62
_OURS: Final = UUID("3c1f0f5e-2f7a-5f0a-9a50-6a1d7f3e0c31")
_NAME: Final = re.compile(r"fuga-console-([0-9a-f-]{36})")
_NOW, _BEFORE = "vda", "vdb"


def is_log_reader(domain: libvirt.virDomain) -> bool:
    """Return whether a domain is a reader of console logs that fuga defined, and no VM."""
    named = _NAME.fullmatch(domain.name())
    return (
        named is not None and domain.ID() == -1 and domain.UUIDString() == str(_reader_id(named[1]))
    )


def largest_log_bytes(statistics: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the size of the largest console log that has a reader, in bytes.

    virtlogd bounds its logs. If QEMU writes the log itself, a guest may fill the disk.
    """
    paths = f"{domain_xml.SERIAL_LOG_DIR}/"
    return max(
        (
            int(found.get("block.0.physical", 0))
            for found in statistics.values()
            if str(found.get("block.0.path", "")).startswith(paths)
        ),
        default=0,
    )


def read_tail(
    conn: libvirt.virConnect, *, vm_id: str, max_bytes: int, after: int
) -> Mapping[str, Any]:
    """Read the last bytes of a VM's console log after the offset ``after``, and the log's end.

    The latest rotated log counts as the part before. If ``after`` is beyond both logs, it belongs
    to a deleted log, and all bytes count.
    """
    if conn.getType() != "QEMU":
        raise OperationFailedError("console_tail", f"{conn.getType()} hosts keep no console")
    for _ in range(_TRIES):
        try:
            found = _try_read_tail(conn, _find_or_define_reader(conn, vm_id), max_bytes, after)
        except libvirt.libvirtError as error:
            # The log was rotated and is shorter now, or its reader was removed.
            if error.get_error_code() not in _MOVED:
                raise
            continue
        if found is not None:
            content, end = found
            return {"content": base64.b64encode(content).decode(), "end": end}
    raise OperationFailedError("console_tail", "the log is rotated faster than it can be read")


def delete_logs(conn: libvirt.virConnect, vm_id: str) -> None:
    """Delete the console logs of a VM that has left this host, and their readers.

    libvirt deletes the NVRAM file of a domain that is undefined. So each log becomes the NVRAM file
    of a reader for a moment.
    """
    if conn.getType() != "QEMU" or _look_up_domain(conn, vm_id) is not None:
        return
    path = _log_path(vm_id)
    try:
        for number, log in enumerate([path, *_rotated_paths(path)]):
            there = _delete_log(conn, vm_id, log)
            if not there and number >= _USUALLY_ROTATED:
                return
    finally:
        _remove_readers(conn, vm_id)


def _delete_log(conn: libvirt.virConnect, vm_id: str, log: str) -> bool:
    """Delete a console log; return whether it existed.

    A concurrent removal of another VM may drop the reader, but keeps the file.
    """
    for _ in range(_TRIES_TO_DELETE):
        definition = conn.defineXML(_reader_xml(vm_id, "qemu", (log,), variables=log))
        try:
            there = _NOW in _log_sizes(conn, definition)
            definition.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
        else:
            return there
    raise OperationFailedError("delete_log", f"its definition is forgotten again and again: {log}")


def _remove_readers(conn: libvirt.virConnect, vm_id: str) -> None:
    """Remove the log reader of this VM, and some readers of other VMs that have left."""
    forgotten = 0
    for domain in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_INACTIVE):
        named = _NAME.fullmatch(domain.name())
        if named is None or not is_log_reader(domain) or forgotten == _SWEPT_AT_ONCE:
            continue
        if named[1] == vm_id or _look_up_domain(conn, named[1]) is None:
            with contextlib.suppress(libvirt.libvirtError):
                domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM)
            forgotten += 1


def _try_read_tail(
    conn: libvirt.virConnect, reader: libvirt.virDomain, max_bytes: int, after: int
) -> tuple[bytes, int] | None:
    """Read a console log once; return its last bytes and its end, or None if it was rotated."""
    sizes = _log_sizes(conn, reader)
    size, rotated = sizes.get(_NOW, 0), sizes.get(_BEFORE, 0)
    if max(size, rotated) > _MAX_LOG_BYTES:
        raise OperationFailedError("console_tail", f"a log of {max(size, rotated)} bytes")
    if after > max(size, rotated):
        after = 0  # the offset belongs to another log
    # Bytes of the rotated log: all of it, or those after the offset.
    earlier = rotated - after if after == 0 or after > size else 0
    start = max(0 if after > size else after, size - max_bytes)
    content = _read_bytes(reader, _NOW, start, size)
    room = min(earlier, max_bytes - len(content)) if start == 0 else 0
    content = _read_bytes(reader, _BEFORE, rotated - room, rotated) + content
    return None if _log_sizes(conn, reader).get(_NOW, 0) < size else (content, size)


def _log_sizes(conn: libvirt.virConnect, reader: libvirt.virDomain) -> dict[str, int]:
    """Return the sizes of a reader's existing console logs in bytes, by disk.

    With `virDomainGetBlockInfo`, libvirtd would log an error for each missing log.
    """
    statistics = conn.domainListGetStats([reader], libvirt.VIR_DOMAIN_STATS_BLOCK, 0)
    if not statistics:
        reader.info()  # raises if the removal of another VM has dropped the reader
        return {}
    ((_, found),) = statistics
    return {
        found[f"block.{number}.name"]: found[f"block.{number}.physical"]
        for number in range(found.get("block.count", 0))
        if f"block.{number}.physical" in found
    }


def _read_bytes(reader: libvirt.virDomain, disk: str, start: int, end: int) -> bytes:
    """Return bytes of a console log, which is a disk of its reader."""
    return b"".join(
        reader.blockPeek(disk, at, min(_PEEK_BYTES, end - at), 0)
        for at in range(start, end, _PEEK_BYTES)
    )


def _find_or_define_reader(conn: libvirt.virConnect, vm_id: str) -> libvirt.virDomain:
    """Return the domain whose disks are the console logs of a VM; define it if missing."""
    found = _look_up_domain(conn, str(_reader_id(vm_id)))
    if found is not None:
        return found
    path = _log_path(vm_id)
    vm = _look_up_domain(conn, vm_id)
    # The VM's own domain type is one that the host can define.
    kind = "qemu" if vm is None else domain_xml.domain_type(vm.XMLDesc(0))
    return conn.defineXML(_reader_xml(vm_id, kind, (path, next(_rotated_paths(path)))))


def _reader_xml(
    vm_id: str, kind: str, logs: tuple[str, ...], *, variables: str | None = None
) -> str:
    """Return the XML of a reader: a domain that never starts, whose disks are console logs."""
    return domain_xml.unstartable_domain_xml(
        name=f"fuga-console-{vm_id}",
        uuid=str(_reader_id(vm_id)),
        domain_type=kind,
        why=f"fuga reads the serial console of VM {vm_id} by this definition. It is not a machine.",
        raw_disks=dict(zip((_NOW, _BEFORE), logs, strict=False)),
        firmware_variables=variables,
    )


def _reader_id(vm_id: str) -> UUID:
    """Return the UUID of the reader of a VM's console logs."""
    return uuid5(_OURS, vm_id)


def _log_path(vm_id: str) -> str:
    """Return the path of a VM's console log on its host."""
    return f"{domain_xml.SERIAL_LOG_DIR}/{domain_xml.serial_log_name(domain_name(vm_id))}"


def _rotated_paths(path: str) -> Iterator[str]:
    """Yield the paths of a VM's rotated console logs, the latest first."""
    return (f"{path}.{number}" for number in range(_MAX_ROTATED))


def _look_up_domain(conn: libvirt.virConnect, uuid: str) -> libvirt.virDomain | None:
    """Return the domain with a UUID, or None."""
    try:
        return conn.lookupByUUIDString(uuid)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise
