"""Backing chains of disks, as libvirt knows them. In the child process only."""

from __future__ import annotations

import contextlib
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Final, TypeVar

import libvirt

from hypervisor import image_head
from hypervisor.errors import OperationFailedError
from hypervisor.model import IMAGE_PREFIX, disk_serial
from hypervisor.xml import backing_names, named_files
from hypervisor.xml import disks as disk_xml
from hypervisor.xml import domain as domain_xml

_DISK: Final = re.compile(r"fuga-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.qcow2")
_DATA: Final = re.compile(r"fuga-volume-(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.qcow2")
_SEED: Final = re.compile(r"(fuga-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-seed\.img")
#: Pool types whose volumes are files, which may have backing files.
_POOLS_OF_FILES: Final = frozenset({"dir", "fs", "netfs"})

T = TypeVar("T")
Backing = tuple[str, str | None]  #: backing name and declared format in a header


def file_name(path: str) -> str:
    """Return the file name at the end of a path."""
    return path.rpartition("/")[2]


def top_file_of(disk: ET.Element) -> str | None:
    """Return a disk's topmost file or volume; None if the disk is neither."""
    source = disk.find("source")
    return None if source is None else source.get("file") or source.get("volume")


class HostFiles:
    """The files in a host's pools, for one call.

    Each pool is refreshed once, and each file is read once: names in headers, which guests may
    write, cost no more. ``reading`` is called with each pool or file before libvirt reads it.
    """

    def __init__(
        self,
        conn: libvirt.virConnect,
        pool: str,
        reading: Callable[[str], None] = lambda _: None,
        *,
        refreshed: Iterable[str] = (),
    ) -> None:
        self.conn = conn
        self.pool = pool  #: of the VM
        self._reading = reading
        self._refreshed = set(refreshed)
        self._folders: set[str] = set()  #: folders whose pools were refreshed for a look-up
        self._volumes: dict[str, libvirt.virStorageVol | None] = {}
        self._backings: dict[str, Backing | None] = {}
        self._contents: dict[str, tuple[str, ...]] = {}  #: data files and extents, by their image
        self._twins: dict[str, str | None] = {}
        self._linked: Sequence[str] = ()  #: files that links of other names may lead to
        self._raw: set[str] = set()  #: files whose headers guests write: raw in their domains

    def skip_headers_of_raw_disks(self, documents: Iterable[ET.Element]) -> None:
        """Skip the headers of files that are raw disks in all their domains: guests write them."""
        kinds: dict[str, set[str]] = {}
        for disk in (each for document in documents for each in named_files.disks_in(document)):
            driver, top = disk.find("driver"), top_file_of(disk)
            if top is not None and not is_vm_volume(file_name(top)):
                kind = (
                    ""
                    if driver is None or not _is_written_by_guest(disk)
                    else driver.get("type", "")
                )
                kinds.setdefault(next(iter(self._files_in_definition(disk)[0])), set()).add(kind)
        self._raw = {path for path, found in kinds.items() if found == {"raw"}}

    def follow_links_to(self, volumes: Collection[str]) -> None:
        """Add one of these volumes of the VM's pool to each chain that has a link to it.

        A link of another name is recognized if a pool of the host lists it.
        """
        found = (self.path_in(self.pool, name) for name in volumes)
        self._linked = [path for path in found if path is not None]

    def pools(self) -> list[str]:
        """Return the names of the active pools of files, the VM's pool first."""
        self._reading("the list of its pools")
        found = []
        for each in self.conn.listAllStoragePools(libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE):
            with contextlib.suppress(libvirt.libvirtError):  # it has vanished
                if domain_xml.parse_tree(each.XMLDesc(0)).get("type") in _POOLS_OF_FILES:
                    found.append(each.name())
        return [self.pool, *sorted(name for name in found if name != self.pool)]

    def volumes_in(self, pool: str) -> list[libvirt.virStorageVol]:
        """Return the volumes of a pool; empty if it is no longer active.

        Raises `OperationFailedError` with the pool's name if it cannot be read.
        """
        store = self._refresh_pool(pool)
        if store is None:
            return []
        try:
            return list(store.listAllVolumes(0))
        except libvirt.libvirtError as error:
            if not self.conn.isAlive():
                raise
            with contextlib.suppress(libvirt.libvirtError):
                if pool != self.pool and not store.isActive():
                    return []
            raise OperationFailedError(
                "remove",
                f"pool {pool} cannot be read, and its volumes may rest on the VM's: {error};"
                f" repair it, or `virsh pool-destroy {pool}`, which deletes no file",
            ) from error

    def path_of(self, volume: libvirt.virStorageVol) -> str:
        """Return the path of a listed volume."""
        path = str(volume.path())
        self._volumes[path] = volume
        return path

    def path_in(self, pool: str, name: str) -> str | None:
        """Return the path of a volume by its name; None if it does not exist."""
        with _ignore_missing(self.conn):
            store = self._refresh_pool(pool)
            return None if store is None else self.path_of(store.storageVolLookupByName(name))
        return None

    def volume_at(self, path: str) -> libvirt.virStorageVol | None:
        """Return the volume at a path, after a refresh if necessary; None if no pool has it."""
        if path not in self._volumes:
            self._reading(path)
            self._volumes[path] = self._look_up_volume(path)
        return self._volumes[path]

    def backing_files_of(self, path: str, *, is_top: bool = False) -> tuple[str, ...]:
        """Return all files that a file's header may refer to as its base or as its content.

        The header of a raw disk is not read where the file is the top of a chain. Where another
        file rests on it, the file has a chain of its own, whatever a domain declares.
        """
        if is_top and path in self._raw:
            return ()
        found = self._cached_backing(path)
        below = () if found is None else backing_names.possible_files(found[0], path)
        return tuple(dict.fromkeys((*below, *self._content_files_of(path))))

    def with_backing_files(self, paths: Iterable[str]) -> set[str]:
        """Return paths together with all files that may be in their backing chains."""
        found: set[str] = set()
        left = list(paths)
        while left:
            path = left.pop()
            if path not in found:
                found.add(path)
                left += [*self.backing_files_of(path), *self._targets_of(path)]
        return found

    def possible_chain_of(self, disk: ET.Element) -> list[str]:
        """Return all files that may be in a disk's backing chain, the topmost first.

        Data files and extents of its files count as well. A file in no pool counts as the file of
        the same name in the VM's pool.
        """
        formats, kind = self._files_in_definition(disk)
        found = dict.fromkeys(formats)
        left = list(formats)[-1:] if kind != "raw" else []
        # A definition may end the chain, and names no file that a file of it has its content in.
        for each in (path for path, format_ in formats.items() if format_ != "raw"):
            contents = self._content_files_of(self._twin_of(each) or each)
            left += [path for path in contents if path not in found]
            found |= dict.fromkeys(contents)
        while left:
            path = left.pop(0)
            below = self.backing_files_of(self._twin_of(path) or path)
            left += [each for each in dict.fromkeys(below) if each not in found]
            found |= dict.fromkeys(below)
        return list(found | {each: None for path in found for each in self._targets_of(path)})

    def declared_chain_of(self, disk: ET.Element) -> list[str]:
        """Return the backing chain of a disk by declared formats and plain paths only.

        The content of a raw disk, which the guest writes, is never read as a header.
        """
        formats, kind = self._files_in_definition(disk)
        chain = list(formats)
        while chain and kind not in {None, "raw"}:
            found = self._cached_backing(chain[-1])
            path = None if found is None else backing_names.plain_path(found[0], chain[-1])
            if found is None or path is None or path in chain:
                break
            chain.append(path)
            kind = found[1]
        return chain

    def may_be_same_file(self, path: str, other: str) -> bool:
        """Return whether two paths may be one file: their modification times are compared.

        A path in no pool may be a link to any file.
        """
        if path == other or None in {self.volume_at(path), self.volume_at(other)}:
            return True
        times = self._timestamps_of(path)
        return times is not None and times == self._timestamps_of(other)

    def _targets_of(self, path: str) -> list[str]:
        """Return the linked files that a path of another name leads to."""
        if is_vm_volume(file_name(path)):
            return []
        return [each for each in self._linked if each != path and self._is_link(path, each)]

    def _is_link(self, path: str, target: str) -> bool:
        """Return whether two paths show the timestamps of one file, which may be written to now."""
        first = self._timestamps_of(path)
        second = None if first is None else self._timestamps_of(target)
        if first is None or second is None or first > second:
            return False
        third = first if first == second else self._timestamps_of(path)
        return third is not None and second <= third

    def _twin_of(self, path: str) -> str | None:
        """Return the path of the file of the same name in the VM's pool, if no pool has a file."""
        if path not in self._twins:
            missing = self.volume_at(path) is None
            self._twins[path] = self.path_in(self.pool, file_name(path)) if missing else None
        return self._twins[path]

    def _files_in_definition(self, disk: ET.Element) -> tuple[dict[str, str | None], str | None]:
        """Return the files that a definition names with their declared formats, the topmost first.

        The second value is the format of the last one; raw if the definition ends the chain.
        """
        source, driver = disk.find("source"), disk.find("driver")
        in_pool = None
        if source is not None and source.get("pool") and source.get("volume"):
            in_pool = self.path_in(source.get("pool", ""), source.get("volume", ""))
        path = in_pool or top_file_of(disk)
        kind = None if driver is None else driver.get("type")
        found: dict[str, str | None] = {}
        if path is not None:
            found[backing_names.normalized_path(path)] = kind
        below = disk.find("backingStore")
        while below is not None:
            source, format_ = below.find("source"), below.find("format")
            path = None if source is None else source.get("file")
            if source is None:
                kind = "raw"  # it ends here
            else:
                kind = None if path is None or format_ is None else format_.get("type")
            if path is not None:
                found.setdefault(backing_names.normalized_path(path), kind)
            below = below.find("backingStore")
        return found, kind

    def _cached_backing(self, path: str) -> Backing | None:
        if path not in self._backings:
            self._backings[path] = self._read_backing(path)
        return self._backings[path]

    def _read_backing(self, path: str) -> Backing | None:
        return self._read_volume(path, lambda volume: disk_xml.backing_of(volume.XMLDesc(0)))

    def _content_files_of(self, path: str) -> tuple[str, ...]:
        """Return all files in which a file has its content: a data file, or extents.

        fuga makes its own volumes without such files.
        """
        if path not in self._contents:
            name = file_name(path)
            own = is_vm_volume(name) or name.startswith(IMAGE_PREFIX)
            head = None if own else self._read_volume(path, _read_head)
            self._contents[path] = tuple(
                file
                for each in image_head.named_files(head or b"")
                for file in backing_names.possible_files(each, path)
            )
        return self._contents[path]

    def _read_volume(
        self, path: str, read: Callable[[libvirt.virStorageVol], T | None]
    ) -> T | None:
        """Read a file; None if no pool has it. Raises `OperationFailedError` if that fails."""
        volume = self.volume_at(path)
        if volume is None:
            return None
        self._reading(path)
        try:
            return read(volume)
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_NO_STORAGE_VOL:
                return None
            if not self.conn.isAlive():
                raise
            raise OperationFailedError(
                "remove",
                f"{path} cannot be read, and may rest on the VM's files: {error}; repair it, or"
                " move it out of its pool's folder and `virsh pool-refresh` the pool",
            ) from error

    def _timestamps_of(self, path: str) -> tuple[Decimal, Decimal] | None:
        volume = self.volume_at(path)
        with contextlib.suppress(libvirt.libvirtError):
            if volume is not None:
                return disk_xml.timestamps_of(volume.XMLDesc(0))
        return None

    def _refresh_pool(self, pool: str) -> libvirt.virStoragePool | None:
        """Return a pool after refreshing it once; None if it does not exist."""
        self._reading(f"pool {pool}")
        try:
            store = self.conn.storagePoolLookupByName(pool)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_POOL or pool == self.pool:
                raise
            return None
        if pool not in self._refreshed:
            self._refreshed.add(pool)
            with contextlib.suppress(libvirt.libvirtError):  # busy with another volume
                store.refresh(0)
        return store

    def _look_up_volume(self, path: str) -> libvirt.virStorageVol | None:
        with contextlib.suppress(libvirt.libvirtError):
            return self.conn.storageVolLookupByPath(path)
        folder = path.rpartition("/")[0]
        if folder not in self._folders:
            self._folders.add(folder)
            with _ignore_missing(self.conn):
                self._refresh_pool(self.conn.storagePoolLookupByTargetPath(folder).name())
        with _ignore_missing(self.conn):
            return self.conn.storageVolLookupByPath(path)
        return None


def _read_head(volume: libvirt.virStorageVol) -> bytes:
    """Return the first bytes of a volume, as many as its format needs; empty for a folder."""
    if volume.info()[0] not in {libvirt.VIR_STORAGE_VOL_FILE, libvirt.VIR_STORAGE_VOL_BLOCK}:
        return b""
    peek = download(volume, image_head.PEEK_BYTES)
    if not image_head.may_name_files(peek):
        return b""
    return peek if len(peek) < image_head.PEEK_BYTES else download(volume, image_head.HEAD_BYTES)


def download(volume: libvirt.virStorageVol, length: int) -> bytes:
    """Return the first bytes of a volume; empty if the host keeps no content."""
    stream = volume.connect().newStream(0)
    pieces = []
    try:
        volume.download(stream, 0, length, 0)
        while piece := stream.recv(length):
            pieces.append(piece)
        stream.finish()
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
            with contextlib.suppress(libvirt.libvirtError):
                stream.abort()
            raise
    return b"".join(pieces)


def _is_written_by_guest(disk: ET.Element) -> bool:
    """Return whether a guest can write a disk, alone or with others."""
    return disk.find("readonly") is None and disk.get("device", "disk") == "disk"


def is_vm_volume(name: str) -> bool:
    """Return whether fuga made a volume of that name for a VM, or as a data volume."""
    return is_vm_disk(name) or _SEED.fullmatch(name) is not None


def is_vm_disk(name: str) -> bool:
    """Return whether fuga made a volume of that name as a disk of VMs: root or data."""
    return _DISK.fullmatch(name) is not None or is_data_volume(name)


def is_data_volume(name: str) -> bool:
    """Return whether fuga made a volume of that name to outlive VMs."""
    return _DATA.fullmatch(name) is not None


def serial_of_volume(name: str) -> str | None:
    """Return the serial number of a data volume by its name; None for other names."""
    found = _DATA.fullmatch(name)
    return None if found is None else disk_serial(found["id"])


@contextlib.contextmanager
def _ignore_missing(conn: libvirt.virConnect) -> Iterator[None]:
    """Suppress libvirt's errors, except those of a broken connection.

    A volume must not look unused because its host did not answer.
    """
    try:
        yield
    except libvirt.libvirtError:
        if not conn.isAlive():
            raise
