"""Files that snapshots made of a VM's disks. In the child process only.

An operator may take snapshots with any tool of libvirt. From then on the guest writes to a new
file, which rests on the disk that fuga made, and another file may hold its memory. They are the
VM's: they go with it, and it does not move without them.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterator, Mapping
from typing import Final, cast

import libvirt

from hypervisor.errors import MigrationRefusedError
from hypervisor.model import IMAGE_PREFIX
from hypervisor.move_model import MigrationObstacle
from hypervisor.xml import disks as disk_xml
from hypervisor.xml import domain as domain_xml

_DEEPEST: Final = 64  #: files one on another
_SHOWN: Final = 5  #: snapshots that a refusal names
_DISK: Final = re.compile(r"fuga-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.qcow2")
_SEED: Final = re.compile(r"(fuga-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-seed\.img")


def refuse(domain: libvirt.virDomain) -> None:
    """Raise `MigrationRefusedError` where a VM has snapshots: their files would stay behind.

    Its definition alone is read: the pool does not know files that QEMU made.
    """
    name = domain.name()
    known = [each.getName() for each in _snapshots(domain)]
    if known:
        shown = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
        raise MigrationRefusedError(
            MigrationObstacle.SNAPSHOTS,
            f"it has {len(known)} snapshots ({shown}), which would stay behind: delete each with"
            f" `virsh snapshot-delete {name} SNAPSHOT`; of one with files of its own, merge them"
            f" before with `virsh blockcommit {name} vda --active --pivot --delete`, and delete"
            " it with --metadata",
        )
    for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
        for disk in disk_xml.disks_of(domain_xml.from_host(domain.XMLDesc(flags))):
            path = None if disk is None else _written_to(disk)
            if disk is not None and path is not None and not _is_ours(_name(path)):
                target = disk.find("target")
                at = "vda" if target is None else target.get("dev", "vda")
                raise MigrationRefusedError(
                    MigrationObstacle.SNAPSHOTS,
                    f"its disk {at} is {path}, and not a file that fuga made: if that is a"
                    f" snapshot's, merge it with `virsh blockcommit {name} {at} --active --pivot"
                    " --delete`",
                )


def layers_on(pool: libvirt.virStoragePool, name: str) -> list[str]:
    """Return the names of a pool's files that rest on a disk of a VM.

    With the disk alone a guest would go on with what is older, and spoil what rests on it.
    """
    with contextlib.suppress(libvirt.libvirtError):  # busy with another volume
        pool.refresh(0)
    volumes = pool.listAllVolumes(0)
    path = next((each.path() for each in volumes if each.name() == name), None)
    found = (each for each in volumes if not _is_ours(each.name()))
    return sorted(each.name() for each in found if _backing(each) == path is not None)


def users_of(
    conn: libvirt.virConnect, pool: str, volumes: Collection[str], vm_id: str = ""
) -> list[str]:
    """Return the names of domains, apart from a VM's, whose disks are or rest on volumes.

    Volumes of fuga's have names of their own, so a pool that is mounted elsewhere is no matter. A
    file in no pool is looked for in ``pool`` by its name: its folder may be a link to that one.
    """
    if not volumes:
        return []
    disks = [
        (document.findtext("name", ""), disk)
        for document in _others(conn, vm_id)
        for disk in document.findall("devices/disk")
    ]
    if any(
        path is not None and not _is_ours(_name(path))
        for path in (_written_to(disk) for _, disk in disks)
    ):
        with contextlib.suppress(libvirt.libvirtError):  # it must know what others made
            conn.storagePoolLookupByName(pool).refresh(0)
    any_image = any(name.startswith(IMAGE_PREFIX) for name in volumes)

    def names(disk: ET.Element) -> list[str]:
        top = _written_to(disk)
        if top is not None and _is_ours(_name(top)) and not any_image:
            return [_name(top)]  # it rests on an image at most: hundreds of VMs need no look
        return [_name(path) for path in _chain(conn, disk, pool)]

    return sorted({name for name, disk in disks if any(each in volumes for each in names(disk))})


def named_by(
    conn: libvirt.virConnect, pool: str, domain: libvirt.virDomain, own: Collection[str]
) -> set[str]:
    """Return the paths of the files that are a VM's besides its ``own`` volumes, by its domain.

    Of a disk those that rest on its own volume. Where the guest writes to a file that does not
    rest on that any more, all but the last, which may be the base of others; of a disk that
    somebody attached, the same. Of a disk that is none of ``own``, as it stays, nothing.
    """
    found: set[str] = set()
    if not any(map(_DISK.fullmatch, own)):
        return found
    documents = [
        domain_xml.from_host(domain.XMLDesc(flags))
        for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE)
    ]
    tops = (_written_to(disk) for each in documents for disk in each.findall("devices/disk"))
    if any(path is not None and not _is_ours(_name(path)) for path in tops):
        with contextlib.suppress(libvirt.libvirtError):  # it must know what QEMU made
            conn.storagePoolLookupByName(pool).refresh(0)
    for document in documents:
        root, _ = disk_xml.disks_of(document)
        for disk in document.findall("devices/disk"):
            chain = _chain(conn, disk)
            above = _above(chain, own)
            if above is None and _is_written(disk):
                above = chain[:-1] or (chain if disk is root else [])
            found |= set(above or ())
    for snapshot in _snapshots(domain):
        document = domain_xml.from_host(snapshot.getXMLDesc(0))
        sources = [each.get("file") for each in document.findall("disks/disk/source")]
        memory = document.find("memory")
        sources.append(None if memory is None else memory.get("file"))
        found |= {path for path in sources if path}
    return {path for path in found if _name(path) not in own}


def named_like(pool: libvirt.virStoragePool, own: Collection[str]) -> set[str]:
    """Return the paths of the files that libvirt names after a VM's own volumes by itself.

    What became of a snapshot that was interrupted, or forgotten, is in no list of libvirt's.
    """
    stems = tuple(f"{name.rpartition('.')[0]}." for name in own if _is_ours(name))
    return {
        volume.path()
        for volume in pool.listAllVolumes(0)
        if stems and volume.name().startswith(stems) and volume.name() not in own
    }


def delete(
    conn: libvirt.virConnect,
    pool: libvirt.virStoragePool,
    paths: Collection[str],
    own: Collection[str],
    vm_id: str,
) -> None:
    """Delete those of a VM's files that lie in pools of its host and belong to no other VM.

    What other domains name or rest on, what files rest on that stay, and copies of images stay.
    """
    if not paths:
        return
    volumes = _volumes(pool)
    for folder in sorted({path.rpartition("/")[0] for path in paths if path not in volumes}):
        with contextlib.suppress(libvirt.libvirtError):  # no pool is there, or it is off
            volumes |= _volumes(conn.storagePoolLookupByTargetPath(folder))
    rests_on = {path: _backing(volume) for path, volume in volumes.items()}
    go = {path for path in paths if path in volumes}
    stay = {path for path in volumes if path not in go and _name(path) not in own}
    for domain in _others(conn, vm_id):
        stay |= set(named_in(conn, domain)) | _rested_on_by(conn, domain, pool.name(), volumes)
    stay |= {below for path, below in rests_on.items() if below and _name(path) in own}
    used = _with_all_below(stay, rests_on)
    for path in sorted(go - used):
        if not _name(path).startswith(IMAGE_PREFIX):
            _delete_one(volumes[path])


def _volumes(pool: libvirt.virStoragePool) -> dict[str, libvirt.virStorageVol]:
    with contextlib.suppress(libvirt.libvirtError):  # busy with another volume
        pool.refresh(0)
    return {volume.path(): volume for volume in pool.listAllVolumes(0)}


def named_in(conn: libvirt.virConnect, document: ET.Element) -> Iterator[str]:
    """Yield the paths of all files that a domain's disks and what they rest on are."""
    for source in document.iterfind("devices/disk//source"):
        path = source.get("file") or _path_in_pool(conn, source)
        if path:
            yield _plain(path)


def _rested_on_by(
    conn: libvirt.virConnect, document: ET.Element, pool: str, known: Collection[str]
) -> set[str]:
    """Return the paths of the files in the chains of a domain's disks, whatever pool they are in.

    A path that is in no pool stands for all ``known`` files of its name. Disks that fuga made are
    left out: they rest on an image at most.
    """
    found: set[str] = set()
    for disk in document.findall("devices/disk"):
        top = _written_to(disk)
        if top is not None and not _is_ours(_name(top)):
            found |= set(_chain(conn, disk, pool))
    unknown = {_name(path) for path in found if _volume_at(conn, path) is None}
    return found | {path for path in known if _name(path) in unknown}


def of_all(conn: libvirt.virConnect) -> set[str]:
    """Return the paths of the files that snapshots of any domain of a host name."""
    found: set[str] = set()
    for domain in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_SNAPSHOT):
        for snapshot in _snapshots(domain):
            document = domain_xml.from_host(snapshot.getXMLDesc(0))
            memory = document.find("memory")
            found |= {each.get("file", "") for each in document.iterfind(".//disk//source")}
            found.add("" if memory is None else memory.get("file", ""))
    return found - {""}


def _others(conn: libvirt.virConnect, vm_id: str) -> Iterator[ET.Element]:
    for domain in conn.listAllDomains(0):
        for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
            try:
                if domain.UUIDString() != vm_id:
                    yield domain_xml.from_host(domain.XMLDesc(flags))
            except libvirt.libvirtError as error:
                if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:  # it went meanwhile
                    raise


def _snapshots(domain: libvirt.virDomain) -> list[libvirt.virDomainSnapshot]:
    try:
        return list(domain.listAllSnapshots(0))
    except libvirt.libvirtError as error:
        if error.get_error_code() not in {libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_NO_DOMAIN}:
            raise
        return []


def _written_to(disk: ET.Element) -> str | None:
    """Return the file, or the volume, that is a disk; None: it is neither."""
    source = disk.find("source")
    return None if source is None else source.get("file") or source.get("volume")


def _is_written(disk: ET.Element) -> bool:
    is_disk = disk.get("device", "disk") == "disk"
    return is_disk and disk.find("readonly") is None and disk.find("shareable") is None


def _chain(conn: libvirt.virConnect, disk: ET.Element, pool: str | None = None) -> list[str]:
    """Return the files of a disk from the one that is written to: as defined, and as they say.

    With a ``pool``, a file that is in no pool rests on what the one of its name there rests on.
    """
    path = _path_in_pool(conn, disk.find("source")) or _written_to(disk)
    chain = [] if path is None else [path]
    defined = [each.get("file", "") for each in disk.iterfind("backingStore//source")]
    chain = [_plain(each) for each in (*chain, *defined) if each]
    while chain and len(chain) < _DEEPEST:
        below = _below(conn, chain[-1], pool)
        if below is None or below in chain:
            break
        chain.append(below)
    return chain


def _path_in_pool(conn: libvirt.virConnect, source: ET.Element | None) -> str | None:
    """Return the path of a disk that names a pool and a volume; None: neither, or gone."""
    if source is None or not source.get("pool") or not source.get("volume"):
        return None
    with _gone_is_no_matter(conn):
        pool = conn.storagePoolLookupByName(source.get("pool", ""))
        with contextlib.suppress(libvirt.libvirtError):  # busy with another volume
            pool.refresh(0)
        return cast("str", pool.storageVolLookupByName(source.get("volume", "")).path())
    return None


def _below(conn: libvirt.virConnect, path: str, pool: str | None) -> str | None:
    """Return the path of the file that a file rests on; None: on none, or it is in no pool."""
    with _gone_is_no_matter(conn):
        volume = _volume_at(conn, path)
        if volume is None and pool is not None:
            volume = conn.storagePoolLookupByName(pool).storageVolLookupByName(_name(path))
        return None if volume is None else _backing(volume)
    return None


def _volume_at(conn: libvirt.virConnect, path: str) -> libvirt.virStorageVol | None:
    with contextlib.suppress(libvirt.libvirtError):
        return conn.storageVolLookupByPath(path)
    with _gone_is_no_matter(conn):  # libvirt knows what others made after a refresh alone
        pool = conn.storagePoolLookupByTargetPath(path.rpartition("/")[0])
        with contextlib.suppress(libvirt.libvirtError):
            pool.refresh(0)
        return conn.storageVolLookupByPath(path)
    return None


@contextlib.contextmanager
def _gone_is_no_matter(conn: libvirt.virConnect) -> Iterator[None]:
    """Suppress libvirt's errors, but for those of a connection that broke.

    Nothing may be deleted because the host did not say who uses it.
    """
    try:
        yield
    except libvirt.libvirtError:
        if not conn.isAlive():
            raise


def _above(chain: list[str], own: Collection[str]) -> list[str] | None:
    """Return what rests on one of its ``own`` volumes; None: none of fuga's is in the chain."""
    for position, path in enumerate(chain):
        if _name(path) in own:
            return chain[:position]
        if _is_ours(_name(path)):
            return []
    return None


def _with_all_below(paths: Collection[str], rests_on: Mapping[str, str | None]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        below: str | None = path
        while below is not None and below not in found:
            found.add(below)
            below = rests_on.get(below)
    return found


def _backing(volume: libvirt.virStorageVol) -> str | None:
    try:
        found = disk_xml.backing_of(volume.XMLDesc(0))
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_VOL:
            raise
        return None
    return None if found is None else _plain(found[0])


def _delete_one(volume: libvirt.virStorageVol) -> None:
    try:
        volume.delete(0)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_VOL:
            raise


def is_fugas(name: str) -> bool:
    """Return whether fuga gave a volume its name."""
    return _is_ours(name) or name.startswith(IMAGE_PREFIX)


def _is_ours(name: str) -> bool:
    """Return whether fuga made a volume of that name for a VM."""
    return _DISK.fullmatch(name) is not None or _SEED.fullmatch(name) is not None


def _plain(path: str) -> str:
    """Return a path without `..` and doubled slashes, which libvirt keeps as somebody wrote them.

    What is not a whole path, such as the name of a volume, is returned as it is.
    """
    return posixpath.normpath(f"/{path.lstrip('/')}") if path.startswith("/") else path


def _name(path: str) -> str:
    return path.rpartition("/")[2]
