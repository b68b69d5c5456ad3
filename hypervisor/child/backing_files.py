"""The backing file of a moved disk at its destination. In the child process only.

One backing file has different paths on two hosts: each copy of an image has its own name, and each
host's pool its own folder.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

import libvirt

from hypervisor.child import disks
from hypervisor.child.move_hosts import MoveHosts
from hypervisor.errors import MigrationRefusedError
from hypervisor.model import IMAGE_PREFIX
from hypervisor.move_model import MigrationObstacle, MoveSpec
from hypervisor.xml.disks import backing_of

_ABSENT: Final = frozenset({libvirt.VIR_ERR_NO_STORAGE_VOL, libvirt.VIR_ERR_INVALID_STORAGE_VOL})


def backing_path_at_destination(
    hosts: MoveHosts, spec: MoveSpec, disk: libvirt.virStorageVol
) -> str | None:
    """Return the path of a disk's backing file at its destination; None if it has no backing file.

    The volume made at the destination names the path. If there is none yet, the path is the
    source's.

    Raises
    ------
    MigrationRefusedError
        If the file is missing there, or differs from the source's.
    """
    here = backing_of(disk.XMLDesc(0))
    if here is None:
        return None
    pool = hosts.destination.for_move.storagePoolLookupByName(spec.pool)
    made = disks.find_volume(pool, spec.volume)
    there = None if made is None else backing_of(made.XMLDesc(0))
    path = here[0] if there is None else there[0]
    check_same_backing_file(hosts, here[0], path)
    return path


def check_same_backing_file(hosts: MoveHosts, here: str, there: str) -> None:
    """Raise `MigrationRefusedError` if two backing files differ; a move sends only the overlay.

    A move does not read the whole image. Copies of images were verified by digest when they were
    made. Other files are compared by name and sizes.
    """
    mine = _look_up_volume(hosts.source.for_move, here, "the source")
    theirs = _look_up_volume(hosts.destination.for_move, there, "the destination")
    names = [PurePosixPath(path).name for path in (here, there)]
    are_copies = all(name.startswith(IMAGE_PREFIX) for name in names)
    if names[0] != names[1] and not are_copies:
        raise MigrationRefusedError(
            MigrationObstacle.BASE_VOLUME,
            f"the disk rests on {here}, and would rest on {there} at the destination: give both"
            " hosts one base volume under one name",
        )
    sizes = [_virtual_and_file_size(volume) for volume in (mine, theirs)]
    if sizes[0] != sizes[1]:
        raise MigrationRefusedError(
            MigrationObstacle.BASE_VOLUME,
            f"the disk rests on {here} with {sizes[0][1]} bytes, and {there} at the destination"
            f" has {sizes[1][1]} bytes: it is another file",
        )


def _look_up_volume(conn: libvirt.virConnect, path: str, where: str) -> libvirt.virStorageVol:
    """Return the volume at a path on one host of a move, or raise `MigrationRefusedError`."""
    try:
        return conn.storageVolLookupByPath(path)
    except libvirt.libvirtError as error:
        if error.get_error_code() not in _ABSENT:
            raise
        raise MigrationRefusedError(
            MigrationObstacle.BASE_VOLUME,
            f"{where} has no {path} in its pools, on which the disk rests",
        ) from error


def _virtual_and_file_size(volume: libvirt.virStorageVol) -> tuple[int, int]:
    """Return a volume's virtual size and file size in bytes."""
    return volume.info()[1], volume.infoFlags(libvirt.VIR_STORAGE_VOL_GET_PHYSICAL)[2]
