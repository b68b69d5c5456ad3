"""Where hosts drift from the ledger: domains of strangers, and leftovers of ours."""

from __future__ import annotations

import re
from collections.abc import Collection, Container
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, delete, insert, select

from registry.bulk import chunks
from registry.events import event_row, record
from registry.ids import uuid7
from registry.lifecycle import AssignmentState
from registry.records import DomainReport, Host, HostReport
from registry.schema import assignments, leftovers, strangers

_VOLUME: Final = re.compile(
    r"fuga-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?:\.qcow2|-seed\.img)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What one look found that no assignment of the host stands for."""

    strangers: tuple[DomainReport, ...]  #: not ours to touch; they hold capacity
    domains: tuple[DomainReport, ...]  #: leftovers: of assignments that are released
    volumes: tuple[tuple[str, UUID], ...]  #: leftovers: name, assignment


def find_drift(connection: Connection, report: HostReport, live: Container[UUID]) -> Drift:
    """Tell strangers from leftovers; ``live`` are the host's unreleased assignments.

    Only what carries the mark of an assignment that this register center has
    released is a leftover, to be removed. A mark that it does not know (another
    fuga's, or of a time after the backup that was restored), or of an assignment
    that lives on another host (an operator moved it), is a stranger's: nothing
    that we are not sure of is destroyed. What was released after the look began
    is neither: it may be gone by now.
    """
    marked = {
        domain.assignment_id: domain
        for domain in report.domains
        if domain.assignment_id is not None and domain.assignment_id not in live
    }
    volumes = {
        name: UUID(match[1])
        for name in report.volumes
        if (match := _VOLUME.fullmatch(name)) and UUID(match[1]) not in live
    }
    known = _released_at(connection, {*marked, *volumes.values()})
    over = {key for key, at in known.items() if at is not None and at < report.started_at}
    strange = {key for key in marked if key not in known or known[key] is None}
    return Drift(
        strangers=tuple(
            domain
            for domain in report.domains
            if domain.assignment_id is None or domain.assignment_id in strange
        ),
        domains=tuple(domain for key, domain in marked.items() if key in over),
        volumes=tuple((name, key) for name, key in volumes.items() if key in over),
    )


def _released_at(connection: Connection, keys: Collection[UUID]) -> dict[UUID, datetime | None]:
    """Return when each assignment was released; None: it is not, no entry: it is unknown."""
    found: dict[UUID, datetime | None] = {}
    for some in chunks(sorted(keys)):
        query = select(assignments.c.id, assignments.c.state, assignments.c.released_at)
        for row in connection.execute(query.where(assignments.c.id.in_(some))):
            released = row.state == AssignmentState.RELEASED.value
            found[row.id] = row.released_at if released else None
    return found


def note_strangers(
    connection: Connection,
    host: Host,
    found: Collection[DomainReport],
    *,
    now: datetime,
    actor: str,
) -> None:
    """Write an event for each stranger that was not there before; what it holds is `foreign`."""
    known = set(
        connection.scalars(select(strangers.c.domain_uuid).where(strangers.c.host_id == host.id))
    )
    present = {domain.uuid: domain for domain in found}
    gone = known - present.keys()
    if gone:
        connection.execute(
            delete(strangers).where(
                strangers.c.host_id == host.id, strangers.c.domain_uuid.in_(gone)
            )
        )
    new = [domain for uuid, domain in present.items() if uuid not in known]
    if not new:
        return
    connection.execute(
        insert(strangers),
        [
            {
                "host_id": host.id,
                "domain_uuid": domain.uuid,
                "name": domain.name,
                "first_seen_at": now,
            }
            for domain in new
        ],
    )
    history = [
        event_row(
            now,
            actor,
            "stranger_seen",
            "host",
            host.id,
            data={
                "name": host.name,
                "domain": domain.name,
                "uuid": str(domain.uuid),
                "state": domain.state,
                "vcpus": domain.vcpus,
                "memory_mib": domain.memory_mib,
                "disk_gib": domain.disk_gib,
            },
        )
        for domain in new
    ]
    record(connection, history)


def note_leftovers(
    connection: Connection, host: Host, drift: Drift, *, now: datetime, actor: str
) -> None:
    """Keep `leftovers` what this look found of ours and no assignment needs."""
    found: dict[tuple[str, str], tuple[UUID | None, UUID]] = {}
    for domain in drift.domains:
        assert domain.assignment_id is not None  # noqa: S101 - a leftover carries a mark
        found["domain", domain.name] = (domain.uuid, domain.assignment_id)
    for name, key in drift.volumes:
        found["volume", name] = (None, key)
    known = {
        (row.kind, row.name): row.id
        for row in connection.execute(select(leftovers).where(leftovers.c.host_id == host.id))
    }
    gone = [known[key] for key in known.keys() - found.keys()]
    if gone:
        connection.execute(delete(leftovers).where(leftovers.c.id.in_(gone)))
    new = sorted(found.keys() - known.keys())
    if not new:
        return
    connection.execute(
        insert(leftovers),
        [
            {
                "id": uuid7(),
                "host_id": host.id,
                "kind": kind,
                "name": name,
                "vm_uuid": found[kind, name][0],
                "assignment_id": found[kind, name][1],
                "found_at": now,
            }
            for kind, name in new
        ],
    )
    history = [
        event_row(
            now,
            actor,
            "leftover_found",
            "host",
            host.id,
            data={
                "name": host.name,
                "kind": kind,
                "leftover": name,
                "assignment": str(found[kind, name][1]),
            },
        )
        for kind, name in new
    ]
    record(connection, history)
