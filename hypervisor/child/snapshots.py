"""Files that snapshots of a VM made. In the child process only.

An operator may take snapshots with any libvirt tool. From then on the guest writes to an overlay on
the disk that fuga made, and another file may hold its memory. These files belong to the VM: they
are deleted with it, and it does not move without them.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import libvirt

from hypervisor.child.backing_chains import (
    HostFiles,
    file_name,
    is_data_volume,
    is_vm_disk,
    is_vm_volume,
    top_file_of,
)
from hypervisor.errors import MigrationRefusedError, OperationFailedError
from hypervisor.model import IMAGE_PREFIX
from hypervisor.move_model import MigrationObstacle
from hypervisor.xml import attached_disks, named_files
from hypervisor.xml import disks as disk_xml
from hypervisor.xml import domain as domain_xml

_SHOWN: Final = 5  #: maximum snapshots in an error message
#: What was listed is gone, or its host cannot show it.
_VANISHED: Final = frozenset(
    {
        libvirt.VIR_ERR_NO_DOMAIN,
        libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT,
        libvirt.VIR_ERR_NO_DOMAIN_CHECKPOINT,
        libvirt.VIR_ERR_NO_SUPPORT,
    }
)
#: The image of a saved state is gone, or incomplete, so that the next start ignores it.
_NO_SAVED_STATE: Final = frozenset(
    {libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_OPERATION_FAILED}
)


def refuse_snapshots(domain: libvirt.virDomain) -> None:
    """Raise `MigrationRefusedError` if a VM has snapshots: their files would stay behind.

    Reads only the definition, as the pool does not list files that QEMU made.
    """
    name = domain.name()
    known = [each.getName() for each in _list_snapshots(domain)]
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
            path = None if disk is None else top_file_of(disk)
            if disk is not None and path is not None and not is_vm_volume(file_name(path)):
                target = disk.find("target")
                at = "vda" if target is None else target.get("dev", "vda")
                raise MigrationRefusedError(
                    MigrationObstacle.SNAPSHOTS,
                    f"its disk {at} is {path}, and not a file that fuga made: if that is a"
                    f" snapshot's, merge it with `virsh blockcommit {name} {at} --active --pivot"
                    " --delete`",
                )


def overlays_of(files: HostFiles, name: str) -> list[str]:
    """Return the names of files in a VM's pool whose backing chain contains its disk.

    Writing to the disk corrupts those files.
    """
    path = files.path_in(files.pool, name)
    found = (each for each in files.volumes_in(files.pool) if not is_vm_volume(each.name()))
    return sorted(
        each.name() for each in found if path in files.backing_files_of(files.path_of(each))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainDefinitions:
    """The definitions of a VM's domain: live, persistent, and of its snapshots."""

    domain: Sequence[ET.Element] = ()
    snapshots: Sequence[ET.Element] = ()


def read_definitions(domain: libvirt.virDomain) -> DomainDefinitions:
    """Return the definitions of a domain and of its snapshots; read no pool."""
    return DomainDefinitions(
        domain=[
            domain_xml.parse_tree(domain.XMLDesc(flags))
            for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE)
        ],
        snapshots=[domain_xml.parse_tree(each.getXMLDesc(0)) for each in _list_snapshots(domain)],
    )


@dataclass(frozen=True, slots=True)
class OtherDefinition:
    """A definition that libvirt has of another domain: its own, or one that it had once."""

    domain: str  #: name of the domain
    what: str  #: as what libvirt keeps it; empty if it is the domain's own
    document: ET.Element


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeUses:
    """Users of a VM's volumes, and the VM's files to delete with them."""

    domains: Mapping[str, str]  #: by name, with what of it names the volumes
    volumes: list[str]  #: as `POOL/NAME`
    files: list[str]  #: paths of the VM's other files, which nothing else needs


def volume_uses(
    files: HostFiles,
    volumes: Collection[str],
    vm_id: str = "",
    definitions: DomainDefinitions | None = None,
) -> VolumeUses:
    """Return the users of a VM's volumes, and the files to delete with them."""
    if not volumes:
        return VolumeUses(domains={}, volumes=[], files=[])
    files.follow_links_to(volumes)
    others = list(_list_other_definitions(files.conn, vm_id))
    own = [] if definitions is None else definitions.domain
    files.skip_headers_of_raw_disks([*(each.document for each in others), *own])
    domains = _select_users(others, files, volumes)
    if domains:
        return VolumeUses(domains=domains, volumes=[], files=[])
    more = _files_of_own_snapshots(files, volumes)
    if definitions is not None:
        for path in _files_of_domain(files, definitions, volumes):
            found = files.volume_at(path)
            more.add(path if found is None else files.path_of(found))
        more -= _files_of_data_volumes(files, definitions, more)
    if rest_on := _dependent_volumes(files, volumes, more):
        return VolumeUses(domains={}, volumes=rest_on, files=[])
    unused = _unused_files(files, more, others)
    return VolumeUses(domains={}, volumes=[], files=sorted(unused))


def domains_using(files: HostFiles, volumes: Collection[str]) -> list[str]:
    """Return the names of domains that use these volumes, with what of them does."""
    if not volumes:
        return []
    files.follow_links_to(volumes)
    users = _select_users(_list_other_definitions(files.conn, ""), files, volumes)
    return [f"{name} ({what})" if what else name for name, what in users.items()]


def _select_users(
    others: Iterable[OtherDefinition], files: HostFiles, volumes: Collection[str]
) -> dict[str, str]:
    """Return the domains that name these volumes or have them in a chain, sorted by name.

    The value is empty if the domain's own definition does. fuga's volume names are unique, so names
    identify them in any pool.
    """
    any_image = any(name.startswith(IMAGE_PREFIX) for name in volumes)

    def chain_names(disk: ET.Element) -> Iterator[str]:
        top = top_file_of(disk)
        if top is not None and is_vm_volume(file_name(top)) and not any_image:
            yield file_name(top)  # only an image can be below: skip the chain for speed
        else:
            yield from map(file_name, files.possible_chain_of(disk))

    def uses_volumes(document: ET.Element) -> bool:
        return named_files.names_any(document, volumes) or any(
            name in volumes for disk in named_files.disks_in(document) for name in chain_names(disk)
        )

    found: dict[str, set[str]] = {}
    for other in others:
        if uses_volumes(other.document):
            found.setdefault(other.domain, set()).add(other.what)
    return {
        name: "" if "" in kinds else ", ".join(sorted(kinds))
        for name, kinds in sorted(found.items())
    }


def _dependent_volumes(files: HostFiles, own: Collection[str], paths: Collection[str]) -> list[str]:
    """Return other volumes whose backing chain contains a VM's volume or file, as `POOL/NAME`.

    Deletion of the VM's files would break those volumes. ``own`` are its volumes, ``paths`` its
    other files. Only images back fuga's own volumes, so VMs' disks are read only if ``own``
    contains an image. With ``paths``, all pools of files are read, otherwise the VM's pool alone.
    """
    any_image = any(name.startswith(IMAGE_PREFIX) for name in own)
    of_the_vm = set(paths)
    of_the_vm |= {path for name in own if (path := files.path_in(files.pool, name)) is not None}
    names = {file_name(path) for path in paths}

    def belongs_to_vm(path: str) -> bool:
        name = file_name(path)
        if path in of_the_vm or (name in own and files.volume_at(path) is None):
            return True
        return (name in own or name in names) and any(
            files.may_be_same_file(path, each) for each in of_the_vm if file_name(each) == name
        )

    found = []
    for pool in files.pools() if paths else [files.pool]:
        for volume in files.volumes_in(pool):
            # By their names first: of fuga's thousands nothing more is read.
            if is_fuga_volume(volume.name()) and not (any_image and is_vm_disk(volume.name())):
                continue
            path = files.path_of(volume)
            if not belongs_to_vm(path) and any(
                map(
                    belongs_to_vm,
                    files.with_backing_files(files.backing_files_of(path, is_top=True)),
                )
            ):
                found.append(f"{pool}/{volume.name()}")
    return sorted(found)


def _files_of_domain(
    files: HostFiles, definitions: DomainDefinitions, own: Collection[str]
) -> set[str]:
    """Return the paths of a VM's files other than its ``own`` volumes, from its definitions.

    For each disk: the overlays above its own volume. If the chain has no own volume any more, or an
    operator attached the disk, all files but the last, which may be a shared base. Nothing for a
    disk of fuga's that is not in ``own``, as it stays.
    """
    found: set[str] = set()
    if not any(map(is_vm_disk, own)):
        return found
    for document in definitions.domain:
        root, _ = disk_xml.disks_of(document)
        for disk in document.findall("devices/disk"):
            chain = files.declared_chain_of(disk)
            above = _overlays_in_chain(chain, own)
            if above is None and _is_writable(disk):
                above = chain[:-1] or (chain if disk is root else [])
            found |= set(above or ())
    for document in definitions.snapshots:
        found |= _files_of_snapshot(document)
    return {path for path in found if file_name(path) not in own}


def _files_of_data_volumes(
    files: HostFiles, definitions: DomainDefinitions, paths: Collection[str]
) -> set[str]:
    """Return those paths of a VM's files that have content of data volumes attached to it.

    A snapshot's overlay has what the guest wrote last. It rests on its volume, or was pulled from
    it and is in the chain of the attached disk alone.
    """
    of_disks = {
        file_name(path)
        for document in definitions.domain
        for disk in document.iterfind("devices/disk")
        if attached_disks.is_attached_by_fuga(disk)
        for path in files.declared_chain_of(disk)
    }
    for document in definitions.snapshots:
        of_disks |= set(map(file_name, _data_files_of_snapshot(document)))
    return {
        path
        for path in paths
        if file_name(path) in of_disks
        or any(is_data_volume(file_name(each)) for each in files.with_backing_files([path]))
    }


def _data_files_of_snapshot(document: ET.Element) -> set[str]:
    """Return the overlays that a snapshot made on disks that fuga attached to its domain."""
    targets = {
        attached_disks.target_of(disk)
        for disk in named_files.disks_in(document)
        if attached_disks.is_attached_by_fuga(disk)
    }
    return {
        source.get("file", "")
        for disk in document.iterfind("disks/disk")
        if disk.get("name") in targets
        for source in disk.iterfind("source")
    }


def _files_of_own_snapshots(files: HostFiles, own: Collection[str]) -> set[str]:
    """Return the paths of a VM's snapshot files, found by libvirt's pattern of their names.

    Files of interrupted or forgotten snapshots are in no list of libvirt's. Overlays on data
    volumes do not count: they have what was written last.
    """
    of_the_vm = (name for name in own if is_vm_volume(name) and not is_data_volume(name))
    stems = tuple(f"{name.rpartition('.')[0]}." for name in of_the_vm)
    return {
        files.path_of(volume)
        for volume in (files.volumes_in(files.pool) if stems else ())
        if volume.name().startswith(stems) and volume.name() not in own
    }


def _unused_files(
    files: HostFiles, paths: Collection[str], others: Iterable[OtherDefinition]
) -> set[str]:
    """Return a VM's files in pools of its host that nothing else uses.

    Files stay if another domain or a remaining file has them in its chain. Copies of images stay.
    """
    volumes = (files.volume_at(path) for path in paths)
    found = {files.path_of(volume): volume for volume in volumes if volume is not None}
    if not found:
        return set()
    stay: set[str] = set()
    unknown: set[str] = set()  # such a path may be a link to any file of its name
    for document in (each.document for each in others):
        below = _chain_paths_in_any_pool(files, document)
        unknown |= {file_name(path) for path in below if files.volume_at(path) is None}
        stay |= below | set(named_files.paths_in(document))
    stay |= {path for path in found if file_name(path) in unknown}
    for pool in {files.pool, *(each.storagePoolLookupByVolume().name() for each in found.values())}:
        for volume in files.volumes_in(pool):
            if (path := files.path_of(volume)) not in found:
                stay |= set(files.backing_files_of(path, is_top=True))
    used = files.with_backing_files(stay)
    return {path for path in found.keys() - used if not file_name(path).startswith(IMAGE_PREFIX)}


def delete_files(conn: libvirt.virConnect, paths: Collection[str]) -> None:
    """Delete files in pools of a host, if they exist."""
    for path in paths:
        try:
            conn.storageVolLookupByPath(path).delete(0)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_VOL:
                raise


def _chain_paths_in_any_pool(files: HostFiles, document: ET.Element) -> set[str]:
    """Return the paths of the files in the backing chains of a domain's disks.

    Disks that fuga made are left out: only an image can be below them.
    """
    return {
        path
        for disk in named_files.disks_in(document)
        if (top := top_file_of(disk)) is not None and not is_vm_volume(file_name(top))
        for path in files.possible_chain_of(disk)
    }


def files_of_all_snapshots(conn: libvirt.virConnect) -> set[str]:
    """Return the paths of the files that snapshots of any domain of a host name."""
    found: set[str] = set()
    for domain in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_SNAPSHOT):
        for snapshot in _list_snapshots(domain):
            document = domain_xml.parse_tree(snapshot.getXMLDesc(0))
            found |= {each.get("file", "") for each in document.iterfind(".//disk//source")}
            found |= _files_of_snapshot(document)
    return found - {""}


def _files_of_snapshot(document: ET.Element) -> set[str]:
    memory = document.find("memory")
    found = {each.get("file", "") for each in document.iterfind("disks/disk/source")}
    found.add("" if memory is None else memory.get("file", ""))
    return found - {""}


def _list_other_definitions(conn: libvirt.virConnect, vm_id: str) -> Iterator[OtherDefinition]:
    """Yield all definitions that libvirt has of the domains other than a VM's.

    A domain that is reverted to a snapshot, or restored, has the disks that it had then.
    """
    for domain in conn.listAllDomains(0):
        if domain.UUIDString() != vm_id:
            for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
                yield from _read_definitions(domain, "", partial(_read_own_definition, flags=flags))
    for kind, subject, read in _KEPT_DEFINITIONS:
        for domain in _list_domains_with(conn, kind):
            if domain.UUIDString() != vm_id:
                yield from _read_definitions(domain, subject, read)


def _read_definitions(
    domain: libvirt.virDomain,
    subject: str,
    read: Callable[[libvirt.virDomain], Iterator[tuple[str, str]]],
) -> Iterator[OtherDefinition]:
    """Yield definitions of one kind; none if the domain or its snapshot has vanished."""
    try:
        for name, xml in read(domain):
            what = f"{subject} {name}".strip()
            yield OtherDefinition(domain.name(), what, domain_xml.parse_tree(xml))
    except libvirt.libvirtError as error:
        if not domain.connect().isAlive():
            raise
        if error.get_error_code() not in _VANISHED:
            raise OperationFailedError(
                "remove",
                f"{subject or 'the definition'} of domain {domain.name()} cannot be read, and may"
                f" name the VM's files: {error}; repair it, or remove it with virsh",
            ) from error


def _read_own_definition(domain: libvirt.virDomain, *, flags: int) -> Iterator[tuple[str, str]]:
    yield "", domain.XMLDesc(flags)


def _read_snapshots(domain: libvirt.virDomain) -> Iterator[tuple[str, str]]:
    for each in domain.listAllSnapshots(0):
        yield each.getName(), each.getXMLDesc(0)


def _read_checkpoints(domain: libvirt.virDomain) -> Iterator[tuple[str, str]]:
    for each in domain.listAllCheckpoints(0):
        yield each.getName(), each.getXMLDesc(0)


def _read_saved_state(domain: libvirt.virDomain) -> Iterator[tuple[str, str]]:
    try:
        yield "", domain.managedSaveGetXMLDesc(0)
    except libvirt.libvirtError as error:
        if error.get_error_code() not in _NO_SAVED_STATE:
            raise


def _list_domains_with(conn: libvirt.virConnect, kind: int) -> list[libvirt.virDomain]:
    """Return the domains of which libvirt keeps a kind of definition; none if it knows no such."""
    try:
        return list(conn.listAllDomains(kind))
    except libvirt.libvirtError as error:
        if error.get_error_code() not in {libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_INVALID_ARG}:
            raise
        return []


#: What libvirt keeps of domains, each with a definition in it.
_KEPT_DEFINITIONS: Final = (
    (libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_SNAPSHOT, "snapshot", _read_snapshots),
    (libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_CHECKPOINT, "checkpoint", _read_checkpoints),
    (libvirt.VIR_CONNECT_LIST_DOMAINS_MANAGEDSAVE, "saved state", _read_saved_state),
)


def _list_snapshots(domain: libvirt.virDomain) -> list[libvirt.virDomainSnapshot]:
    try:
        return list(domain.listAllSnapshots(0))
    except libvirt.libvirtError as error:
        if error.get_error_code() not in {libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_NO_DOMAIN}:
            raise
        return []


def _is_writable(disk: ET.Element) -> bool:
    is_disk = disk.get("device", "disk") == "disk"
    return is_disk and disk.find("readonly") is None and disk.find("shareable") is None


def _overlays_in_chain(chain: list[str], own: Collection[str]) -> list[str] | None:
    """Return the chain's files above an ``own`` volume; None if it has no volume of fuga's."""
    for position, path in enumerate(chain):
        if file_name(path) in own:
            return chain[:position]
        if is_vm_volume(file_name(path)):
            return []
    return None


def is_fuga_volume(name: str) -> bool:
    """Return whether fuga made a volume of that name."""
    return is_vm_volume(name) or name.startswith(IMAGE_PREFIX)
