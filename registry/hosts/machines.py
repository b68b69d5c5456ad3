"""Whether the machine that answers at a host's address is the host that we know."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, update

from registry.ground.schema import hosts
from registry.hosts.unaccounted import assignment_of_volume
from registry.journal.events import note
from registry.lifecycle import AssignmentState
from registry.records.hosts import Host, HostReport


def is_same_machine(
    connection: Connection,
    host: Host,
    report: HostReport,
    live: Mapping[UUID, Row[Any]],
    *,
    now: datetime,
    actor: str,
) -> bool:
    """Tell whether to believe a look; what answers is the host if it has something of the host's.

    Some machines have no number of their own, and libvirt makes up another at each start.
    So another number alone proves nothing; but with nothing of ours on it, the host may
    have been built anew, or its VMs may run on, elsewhere, where nobody looks.
    """
    found = report.machine_uuid
    if found is None:
        return True
    holds = any(row.state == AssignmentState.ACTIVE.value for row in live.values())
    marks = {domain.assignment_id for domain in report.domains}
    marks |= {assignment_of_volume(name) for name in report.volumes}
    ours = host.machine_uuid in {None, found} or not holds or bool(marks & live.keys())
    known = (found, None) if ours else (host.machine_uuid, found)
    if known == (host.machine_uuid, host.found_machine_uuid):
        return ours
    values = {"machine_uuid": known[0], "found_machine_uuid": known[1]}
    connection.execute(update(hosts).where(hosts.c.id == host.id).values(**values))
    if host.machine_uuid not in {None, found}:
        data = {"name": host.name, "before": host.machine_uuid, "machine": found}
        kind = "machine_changed" if ours else "another_machine"
        note(connection, now, actor, kind, "host", host.id, data=data)
    return ours
