"""Guests by plain libvirt calls, one after the other: what building through fuga is compared with.

    python -m benchmarks.lab.bare_guests URI...

Connects to the hosts and obeys lines on standard input: ``build FIRST COUNT STEP`` starts
the guests of ``range(FIRST, COUNT, STEP)``, on the hosts in turn, and answers when they run;
``remove`` removes them. They are what fuga's workers make: the same volumes, the same
domain XML, filtered by their hosts, started paused and resumed. It looks up nothing that it can
know, keeps no record, and could not tell what it had begun.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import libvirt

from hypervisor import DomainSpec, Guard, Mark, domain_name, seed_name, volume_name
from hypervisor.xml import domain as domain_xml
from hypervisor.xml import network_filters
from hypervisor.xml.disks import DiskFile, DiskFiles
from lab.cluster import BASE_VOLUME
from workers import vfat

POOL: Final = "default"
NETWORK: Final = "default"
MEMORY_MIB: Final = 80
DISK_GIB: Final = 1
#: What fuga has hosts filter where nothing else is said.
GUARD: Final = Guard(filtered=True, isolated=False)
_SEED: Final = {
    "user-data": b"#cloud-config\n{}\n",
    "network-config": b'{"version": 2, "ethernets": {"nic0": {"dhcp4": true}}}\n',
}


@dataclass(frozen=True)
class Built:
    """A guest with its disk and its cloud-init seed."""

    vm_id: str
    domain: libvirt.virDomain
    volumes: Sequence[libvirt.virStorageVol]


@dataclass
class BareHost:
    """A host and the guests built on it."""

    connection: libvirt.virConnect
    pool: libvirt.virStoragePool
    base_path: str
    built: list[Built] = field(default_factory=list)

    def build(self) -> None:
        """Create and start a guest; return once it runs."""
        spec = _spec()
        assert spec.seed_volume is not None
        volumes = self.make_volumes(spec.mark.vm_id, spec.volume, spec.seed_volume)
        domain = self.connection.defineXML(domain_xml.build_domain_xml(spec, self.files(volumes)))
        self.built.append(Built(spec.mark.vm_id, domain, volumes))
        domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
        domain.resume()
        assert domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING

    def make_volumes(self, vm_id: str, disk: str, seed: str) -> list[libvirt.virStorageVol]:
        """Make a guest's disk, which is empty, and its seed."""
        overlay = domain_xml.overlay_xml(disk, DISK_GIB, self.base_path, "qcow2")
        return [self.pool.createXML(overlay, 0), self._seed(vm_id, seed)]

    def files(self, volumes: Sequence[libvirt.virStorageVol]) -> DiskFiles:
        """Return the files of a disk and a seed."""
        root, seed = (volume.path() for volume in volumes)
        base = DiskFile(path=self.base_path, format="qcow2")
        return DiskFiles(
            root=DiskFile(path=root, format="qcow2", backing=base),
            seed=DiskFile(path=seed, format="raw"),
        )

    def remove(self) -> None:
        """Remove all guests of the host."""
        for guest in self.built:
            guest.domain.destroy()
            guest.domain.undefine()
            for volume in guest.volumes:
                volume.delete(0)
        self.built.clear()

    def _seed(self, vm_id: str, name: str) -> libvirt.virStorageVol:
        meta_data = f'{{"instance-id": "{vm_id}", "local-hostname": "bare"}}\n'
        content = vfat.vfat_volume("cidata", {"meta-data": meta_data.encode(), **_SEED})
        volume = self.pool.createXML(domain_xml.raw_volume_xml(name, len(content)), 0)
        stream = self.connection.newStream(0)
        volume.upload(stream, 0, len(content), 0)
        sent = 0
        while sent < len(content):
            sent += stream.send(content[sent:])
        stream.finish()
        return volume


def main(uris: Sequence[str]) -> None:
    hosts = [opened(uri) for uri in uris]
    print("ready", flush=True)
    try:
        for line in sys.stdin:  # its end is ours
            word, *numbers = line.split()
            if word == "build":
                for number in range(*map(int, numbers)):
                    hosts[number % len(hosts)].build()
            else:
                _remove(hosts)
            print("done", flush=True)
    finally:
        _remove(hosts)


def opened(uri: str) -> BareHost:
    """Connect to a host, and define the network filter of the guests in its libvirt."""
    connection = libvirt.open(uri)
    wanted = network_filters.build_filter(GUARD)
    assert wanted is not None
    connection.nwfilterDefineXML(wanted.xml)
    pool = connection.storagePoolLookupByName(POOL)
    return BareHost(connection, pool, pool.storageVolLookupByName(BASE_VOLUME).path())


def _remove(hosts: Sequence[BareHost]) -> None:
    for host in hosts:
        host.remove()


def _spec() -> DomainSpec:
    vm_id, assignment_id = str(uuid.uuid4()), str(uuid.uuid4())
    return DomainSpec(
        mark=Mark(vm_id=vm_id, assignment_id=assignment_id, generation=1, tenant="a", round=1),
        name=domain_name(vm_id),
        domain_type="qemu",
        vcpus=1,
        memory_mib=MEMORY_MIB,
        pool=POOL,
        volume=volume_name(assignment_id),
        seed_volume=seed_name(assignment_id),
        network=NETWORK,
        guard=GUARD,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
