"""Files that snapshots made of a VM's disks. In the child process only.

An operator may take snapshots with any tool of libvirt. From then on the guest writes to a new
file, which rests on the disk that fuga made, and another file may hold its memory. They are the
VM's: they go with it, and it does not move without them.
"""

from __future__ import annotations

import contextlib
import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterator
from typing import Final

import libvirt

from hypervisor.child import chains
from hypervisor.errors import MigrationRefusedError
from hypervisor.model import IMAGE_PREFIX
from hypervisor.move_model import MigrationObstacle
from hypervisor.xml import backing_names
from hypervisor.xml import disks as disk_xml
from hypervisor.xml import domain as domain_xml

_SHOWN: Final = 5  #: snapshots that a refusal names
_DISK: Final = re.compile(r"fuga-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.qcow2")
_SEED: Final = re.compile(r"(fuga-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-seed\.img")


def refuse_snapshots(domain: libvirt.virDomain) -> None:
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
        for disk in disk_xml.disks_of(domain_xml.parse_tree(domain.XMLDesc(flags))):
            path = None if disk is None else chains.top_of(disk)
            if disk is not None and path is not None and not _is_vm_volume(chains.name_of(path)):
                target = disk.find("target")
                at = "vda" if target is None else target.get("dev", "vda")
                raise MigrationRefusedError(
                    MigrationObstacle.SNAPSHOTS,
                    f"its disk {at} is {path}, and not a file that fuga made: if that is a"
                    f" snapshot's, merge it with `virsh blockcommit {name} {at} --active --pivot"
                    " --delete`",
                )


def overlays_of(pool: libvirt.virStoragePool, name: str) -> list[str]:
    """Return the names of a pool's files that rest on a disk of a VM.

    With the disk alone a guest would go on with what is older, and spoil what rests on it.
    """
    with contextlib.suppress(libvirt.libvirtError):  # busy with another volume
        pool.refresh(0)
    volumes = pool.listAllVolumes(0)
    path = next((each.path() for each in volumes if each.name() == name), None)
    found = (each for each in volumes if not _is_vm_volume(each.name()))
    return sorted(each.name() for each in found if path in chains.backing_files_of(each))


def domains_using(
    conn: libvirt.virConnect, pool: str, volumes: Collection[str], vm_id: str = ""
) -> list[str]:
    """Return the names of domains, apart from a VM's, whose disks are or rest on volumes.

    Volumes of fuga's have names of their own, so a pool that is mounted elsewhere is no matter. A
    file in no pool is looked for in ``pool`` by its name: its folder may be a link to that one.
    """
    if not volumes:
        return []
    disks = [
        (document, disk)
        for document in _other_domains(conn, vm_id)
        for disk in document.findall("devices/disk")
    ]
    if any(
        path is not None and not _is_vm_volume(chains.name_of(path))
        for path in (chains.top_of(disk) for _, disk in disks)
    ):
        with contextlib.suppress(libvirt.libvirtError):  # it must know what others made
            conn.storagePoolLookupByName(pool).refresh(0)
    any_image = any(name.startswith(IMAGE_PREFIX) for name in volumes)

    def names(disk: ET.Element) -> Iterator[str]:
        top = chains.top_of(disk)
        if top is not None and _is_vm_volume(chains.name_of(top)) and not any_image:
            yield chains.name_of(top)  # it rests on an image at most: hundreds of VMs: no look
        else:
            yield from map(chains.name_of, chains.chain_of(conn, disk, pool))
        yield from map(chains.name_of, chains.other_sources_of(disk))

    users = (document for document, disk in disks if any(each in volumes for each in names(disk)))
    return sorted({document.findtext("name", "") for document in users})


def dependent_volumes(
    conn: libvirt.virConnect, pool: str, own: Collection[str], paths: Collection[str] = ()
) -> list[str]:
    """Return the volumes, as `POOL/NAME`, that rest on a VM's ``own`` volumes or other ``paths``.

    Without the files below them they are broken. Volumes of fuga's rest on images at most, and
    files that are the VM's go with it. The VM's pool is read, and all pools of the host if there
    are files of snapshots: pools of others may be long.
    """
    stems = _snapshot_prefixes(own)
    seen = _candidate_volumes(conn, pool, paths)
    others = {
        path: chains.backing_files_of(volume)
        for path, (at, volume) in seen.items()
        if path not in paths
        and not is_fuga_volume(volume.name())
        and not (at == pool and stems and volume.name().startswith(stems))
    }
    of_the_vm = {chains.name_of(path) for path in paths}
    found = []
    for path in others:
        below = chains.with_backing_files([path], others) - {path}
        # A path that no pool knows may lead to the VM's file by a link.
        unknown = {chains.name_of(each) for each in below - seen.keys()}
        names = {chains.name_of(each) for each in below}
        if below & set(paths) or unknown & of_the_vm or names & set(own):
            at, volume = seen[path]
            found.append(f"{at}/{volume.name()}")
    return sorted(found)


def _candidate_volumes(
    conn: libvirt.virConnect, pool: str, paths: Collection[str]
) -> dict[str, tuple[str, libvirt.virStorageVol]]:
    """Return the volumes by their paths, with their pools, among which users are looked for.

    Pools with one of the ``paths`` are refreshed: they must know what qemu-img made.
    """
    if not paths:
        volumes = conn.storagePoolLookupByName(pool).listAllVolumes(0)
        return {volume.path(): (pool, volume) for volume in volumes}
    folders = {path.rpartition("/")[0] for path in paths}
    found: dict[str, tuple[str, libvirt.virStorageVol]] = {}
    for each in conn.listAllStoragePools(libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE):
        with contextlib.suppress(libvirt.libvirtError):  # busy with another volume
            folder = domain_xml.parse_tree(each.XMLDesc(0)).findtext("target/path")
            if each.name() == pool or folder in folders:
                each.refresh(0)
        try:
            found |= {volume.path(): (each.name(), volume) for volume in each.listAllVolumes(0)}
        except libvirt.libvirtError:
            if each.name() == pool or each.isActive():
                raise
    return found


def files_of_domain(
    conn: libvirt.virConnect, pool: str, domain: libvirt.virDomain, own: Collection[str]
) -> set[str]:
    """Return the paths of the files that are a VM's besides its ``own`` volumes, by its domain.

    Of a disk those that rest on its own volume. Where the guest writes to a file that does not
    rest on that any more, all but the last, which may be the base of others; of a disk that
    that was attached by hand, the same. Of a disk that is none of ``own``, as it stays, nothing.
    """
    found: set[str] = set()
    if not any(map(_DISK.fullmatch, own)):
        return found
    documents = [
        domain_xml.parse_tree(domain.XMLDesc(flags))
        for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE)
    ]
    tops = (chains.top_of(disk) for each in documents for disk in each.findall("devices/disk"))
    if any(path is not None and not _is_vm_volume(chains.name_of(path)) for path in tops):
        with contextlib.suppress(libvirt.libvirtError):  # it must know what QEMU made
            conn.storagePoolLookupByName(pool).refresh(0)
    for document in documents:
        root, _ = disk_xml.disks_of(document)
        for disk in document.findall("devices/disk"):
            chain = chains.chain_of(conn, disk)
            above = _overlays_in_chain(chain, own)
            if above is None and _is_written(disk):
                above = chain[:-1] or (chain if disk is root else [])
            found |= set(above or ())
    for snapshot in _snapshots(domain):
        document = domain_xml.parse_tree(snapshot.getXMLDesc(0))
        sources = [each.get("file") for each in document.findall("disks/disk/source")]
        memory = document.find("memory")
        sources.append(None if memory is None else memory.get("file"))
        found |= {path for path in sources if path}
    return {path for path in found if chains.name_of(path) not in own}


def files_of_own_snapshots(pool: libvirt.virStoragePool, own: Collection[str]) -> set[str]:
    """Return the paths of the files that libvirt names after a VM's own volumes by itself.

    What became of a snapshot that was interrupted, or forgotten, is in no list of libvirt's.
    """
    stems = _snapshot_prefixes(own)
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
    for path in sorted(paths):
        if path not in volumes and (found := chains.volume_at(conn, path)) is not None:
            with contextlib.suppress(libvirt.libvirtError):  # it, or its pool, has vanished
                volumes |= _volumes(found.storagePoolLookupByVolume())
    backing = {path: chains.backing_files_of(volume) for path, volume in volumes.items()}
    go = {path for path in paths if path in volumes}
    stay = {path for path in volumes if path not in go and chains.name_of(path) not in own}
    for domain in _other_domains(conn, vm_id):
        stay |= set(_chain_paths(conn, domain)) | _chain_paths_in_any_pool(
            conn, domain, pool.name(), volumes
        )
    for path, below in backing.items():
        if chains.name_of(path) in own:
            stay |= set(below)
    used = chains.with_backing_files(stay, backing)
    for path in sorted(go - used):
        if not chains.name_of(path).startswith(IMAGE_PREFIX):
            _delete_one(volumes[path])


def _volumes(pool: libvirt.virStoragePool) -> dict[str, libvirt.virStorageVol]:
    with contextlib.suppress(libvirt.libvirtError):  # busy with another volume
        pool.refresh(0)
    return {volume.path(): volume for volume in pool.listAllVolumes(0)}


def _chain_paths(conn: libvirt.virConnect, document: ET.Element) -> Iterator[str]:
    """Yield the paths of all files that a domain's disks and what they rest on are."""
    for source in document.iterfind("devices/disk//source"):
        path = source.get("file") or chains.path_in_pool(conn, source)
        if path:
            yield backing_names.normalized_path(path)


def _chain_paths_in_any_pool(
    conn: libvirt.virConnect, document: ET.Element, pool: str, known: Collection[str]
) -> set[str]:
    """Return the paths of the files in the chains of a domain's disks, whatever pool they are in.

    A path that is in no pool stands for all ``known`` files of its name. Disks that fuga made are
    left out: they rest on an image at most.
    """
    found: set[str] = set()
    for disk in document.findall("devices/disk"):
        top = chains.top_of(disk)
        if top is not None and not _is_vm_volume(chains.name_of(top)):
            found |= set(chains.chain_of(conn, disk, pool))
    unknown = {chains.name_of(path) for path in found if chains.volume_at(conn, path) is None}
    return found | {path for path in known if chains.name_of(path) in unknown}


def files_of_all_snapshots(conn: libvirt.virConnect) -> set[str]:
    """Return the paths of the files that snapshots of any domain of a host name."""
    found: set[str] = set()
    for domain in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_SNAPSHOT):
        for snapshot in _snapshots(domain):
            document = domain_xml.parse_tree(snapshot.getXMLDesc(0))
            memory = document.find("memory")
            found |= {each.get("file", "") for each in document.iterfind(".//disk//source")}
            found.add("" if memory is None else memory.get("file", ""))
    return found - {""}


def _other_domains(conn: libvirt.virConnect, vm_id: str) -> Iterator[ET.Element]:
    for domain in conn.listAllDomains(0):
        for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
            try:
                if domain.UUIDString() != vm_id:
                    yield domain_xml.parse_tree(domain.XMLDesc(flags))
            except libvirt.libvirtError as error:
                if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:  # it has vanished
                    raise


def _snapshots(domain: libvirt.virDomain) -> list[libvirt.virDomainSnapshot]:
    try:
        return list(domain.listAllSnapshots(0))
    except libvirt.libvirtError as error:
        if error.get_error_code() not in {libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_NO_DOMAIN}:
            raise
        return []


def _is_written(disk: ET.Element) -> bool:
    is_disk = disk.get("device", "disk") == "disk"
    return is_disk and disk.find("readonly") is None and disk.find("shareable") is None


def _overlays_in_chain(chain: list[str], own: Collection[str]) -> list[str] | None:
    """Return what rests on one of its ``own`` volumes; None: none of fuga's is in the chain."""
    for position, path in enumerate(chain):
        if chains.name_of(path) in own:
            return chain[:position]
        if _is_vm_volume(chains.name_of(path)):
            return []
    return None


def _delete_one(volume: libvirt.virStorageVol) -> None:
    try:
        volume.delete(0)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_VOL:
            raise


def is_fuga_volume(name: str) -> bool:
    """Return whether fuga gave a volume its name."""
    return _is_vm_volume(name) or name.startswith(IMAGE_PREFIX)


def _snapshot_prefixes(own: Collection[str]) -> tuple[str, ...]:
    """Return how the names begin that libvirt gives to files of snapshots of volumes."""
    return tuple(f"{name.rpartition('.')[0]}." for name in own if _is_vm_volume(name))


def _is_vm_volume(name: str) -> bool:
    """Return whether fuga made a volume of that name for a VM."""
    return _DISK.fullmatch(name) is not None or _SEED.fullmatch(name) is not None
