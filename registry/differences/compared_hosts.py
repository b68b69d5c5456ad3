"""The ledger's data of many hosts, with which their latest reports are compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, select

from registry.db.bulk import chunks, is_any_of
from registry.db.schema import image_copies, leftovers, power_actions
from registry.hosts.ledger_view import live_assignments
from registry.hosts.machines import first_hosts_of_duplicates
from registry.hosts.stored_reports import read_reports
from registry.ledger.shared_disks import PoolSharing, sharing_of_pools
from registry.lifecycle import PowerState
from registry.records.hosts import Host, HostReport
from registry.volumes.host_files import VolumeFile, VolumeInUse, read_volume_files, volumes_in_use


@dataclass(frozen=True, slots=True)
class ComparedHosts:
    """Data of many hosts for the comparison, read at once to avoid thousands of queries."""

    reports: Mapping[UUID, HostReport]
    live: Mapping[UUID, Mapping[UUID, Row[Any]]]  #: unreleased assignments
    starting: Set[UUID]  #: VMs
    known_files: Mapping[UUID, Set[str]]  #: of images and volumes, by the host that is the machine
    volume_files: Mapping[UUID, Sequence[VolumeFile]]  #: of tenants, by host
    volumes_in_use: Mapping[UUID, Sequence[VolumeInUse]]  #: against the ledger, by host
    pools: Mapping[str, PoolSharing]  #: shared by hosts
    firsts: Mapping[UUID, UUID]  #: the first host of each host that is a second name of its machine
    #: Why leftovers of hosts stay, by whether they are domains, and their names.
    errors: Mapping[UUID, Mapping[tuple[bool, str], str]]


def read_compared_hosts(connection: Connection, compared: Sequence[Host]) -> ComparedHosts:
    """Read the ledger's data of hosts, with which their latest reports are compared."""
    keys = [host.id for host in compared]
    starting = select(power_actions.c.vm_id).where(
        power_actions.c.state == PowerState.STARTING.value
    )
    known_files: defaultdict[UUID, set[str]] = defaultdict(set)
    firsts = first_hosts_of_duplicates(connection)
    machines = {firsts.get(key, key) for key in keys}
    names = sorted({*machines, *(key for key, first in firsts.items() if first in machines)})
    query = select(image_copies.c.host_id, image_copies.c.volume)
    for part in chunks(names):
        for row in connection.execute(
            query.where(is_any_of(connection, image_copies.c.host_id, part))
        ):
            known_files[firsts.get(row.host_id, row.host_id)].add(row.volume)
    volume_files = read_volume_files(connection, names)
    for key, files in volume_files.items():
        known_files[firsts.get(key, key)] |= {each.name for each in files}
    errors: defaultdict[UUID, dict[tuple[bool, str], str]] = defaultdict(dict)
    stay = select(leftovers).where(leftovers.c.last_error.is_not(None))
    for row in connection.execute(stay.where(is_any_of(connection, leftovers.c.host_id, keys))):
        errors[row.host_id][row.kind == "domain", row.name] = row.last_error
    reports, live = read_reports(connection, keys), live_assignments(connection, *keys)
    return ComparedHosts(
        reports=reports,
        errors=errors,
        live=live,
        starting=frozenset(connection.scalars(starting)),
        known_files=known_files,
        volume_files=volume_files,
        volumes_in_use=volumes_in_use(connection, reports, live),
        pools=sharing_of_pools(
            connection, {host.shared_pool for host in compared if host.shared_pool}
        ),
        firsts=firsts,
    )
