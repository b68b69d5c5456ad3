"""Checks whether two hosts see one pool. In the child process only.

No host reports this: two folders of one name may be one mount or two folders. A guest moved without
its disk would continue there with another disk.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import Final

import libvirt

from hypervisor.child import disks
from hypervisor.child.move_hosts import MoveHosts
from hypervisor.errors import MigrationRefusedError
from hypervisor.move_model import MigrationObstacle, MoveSpec
from hypervisor.xml import domain as domain_xml

#: Attempts: a network file system may show another host's file a moment later.
_TRIES: Final = 4
_PAUSE_S: Final = 0.5
_PROBE_BYTES: Final = 512


def check_pool_shared(hosts: MoveHosts, spec: MoveSpec, domain: libvirt.virDomain) -> None:
    """Raise `MigrationRefusedError` unless source and destination share the VM's pool.

    Creates a volume next to the disk at the source, and looks it up at the destination.
    """
    disk = disks.root_volume(hosts.source.for_move, domain)
    here = disk.storagePoolLookupByVolume()
    there = hosts.destination.for_move.storagePoolLookupByName(spec.pool)
    if disk.name() != spec.volume:
        raise MigrationRefusedError(
            MigrationObstacle.VOLUME,
            f"on a shared pool the guest keeps its disk {disk.name()}, not {spec.volume}",
        )
    name = f"fuga-probe-{uuid.uuid4()}.img"
    probe = here.createXML(domain_xml.raw_volume_xml(name, _PROBE_BYTES), 0)
    try:
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_S)
            if disks.find_volume(there, name) is not None:
                return
    finally:
        with contextlib.suppress(libvirt.libvirtError):
            probe.delete(0)
        with contextlib.suppress(libvirt.libvirtError):  # it must not list the deleted volume
            there.refresh(0)
    raise MigrationRefusedError(
        MigrationObstacle.POOL,
        f"pool {spec.pool} is not shared: what the source puts into {here.name()} is not there",
    )
