"""Moves of guests by plain libvirt calls: what evacuating through fuga is compared with.

    python -m benchmarks.lab.bare_moves URI URI...

Connects to the hosts and obeys lines on standard input. ``build COUNT`` starts guests on the
first host, as `benchmarks.lab.bare_guests` does. ``leave`` moves them to the others in turn, one
after the other: the volumes that fuga's workers make at a destination, the call with their
parameters, the words that let the guest run there, its statistics, and the removal of what it
leaves behind. It answers with the standstill of each guest in ms. ``remove`` removes them.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from typing import Any, Final

import libvirt

from benchmarks.lab.bare_guests import GUARD, NETWORK, BareHost, Built, opened
from hypervisor import Mark, MoveSpec, seed_name, volume_name
from hypervisor.xml import migration_target

_FLAGS: Final = (
    libvirt.VIR_MIGRATE_LIVE
    | libvirt.VIR_MIGRATE_PERSIST_DEST
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    | libvirt.VIR_MIGRATE_ABORT_ON_ERROR
    | libvirt.VIR_MIGRATE_PAUSED
    | libvirt.VIR_MIGRATE_NON_SHARED_INC
    | libvirt.VIR_MIGRATE_AUTO_CONVERGE
)
_LIVE: Final = libvirt.VIR_DOMAIN_XML_MIGRATABLE | libvirt.VIR_DOMAIN_XML_SECURE
_DEFINED: Final = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE


def move(guest: Built, to: BareHost) -> tuple[Built, int]:
    """Live-migrate a guest; return it as it is on the destination, and its downtime in ms."""
    assignment = str(uuid.uuid4())
    mark = Mark(vm_id=guest.vm_id, assignment_id=assignment, generation=2, tenant="a", round=1)
    volumes = to.make_volumes(guest.vm_id, volume_name(assignment), seed_name(assignment))
    spec = MoveSpec(
        vm_id=guest.vm_id,
        mark=mark,
        pool=to.pool.name(),
        volume=volumes[0].name(),
        seed_volume=volumes[1].name(),
        network=NETWORK,
        guard=GUARD,
    )
    files = to.files(volumes)
    parameters: dict[str, Any] = {
        name: migration_target.destination_xml(
            guest.domain.XMLDesc(flags), spec, files, shares=False
        )
        for name, flags in (
            (libvirt.VIR_MIGRATE_PARAM_DEST_XML, _LIVE),
            (libvirt.VIR_MIGRATE_PARAM_PERSIST_XML, _DEFINED),
        )
    }
    there = guest.domain.migrate3(to.connection, parameters, _FLAGS)
    there.resume()
    still_ms = int(there.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)["downtime"])
    for volume in guest.volumes:
        volume.delete(0)
    return Built(guest.vm_id, there, volumes), still_ms


def leave(hosts: Sequence[BareHost]) -> list[int]:
    """Move the guests of the first host to the others in turn; return downtimes in ms."""
    first, *others = hosts
    still_ms = []
    while first.built:
        to = others[len(first.built) % len(others)]
        arrived, ms = move(first.built[0], to)
        first.built.pop(0)
        to.built.append(arrived)
        still_ms.append(ms)
    return still_ms


def main(uris: Sequence[str]) -> None:
    hosts = [opened(uri) for uri in uris]
    print("ready", flush=True)
    try:
        for line in sys.stdin:  # its end is ours
            word, *numbers = line.split()
            answer: list[int] = []
            if word == "build":
                for _ in range(int(numbers[0])):
                    hosts[0].build()
            elif word == "leave":
                answer = leave(hosts)
            else:
                _remove(hosts)
            print("done", *answer, flush=True)
    finally:
        _remove(hosts)


def _remove(hosts: Sequence[BareHost]) -> None:
    for host in hosts:
        host.remove()


if __name__ == "__main__":
    main(sys.argv[1:])
