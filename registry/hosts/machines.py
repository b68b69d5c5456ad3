"""The machine of each host, identified by the UUID that its libvirt reports.

A machine is one host. A second host with the same machine stays registered, but gets no VMs, and
its capacity does not count, as the first host has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, Select, select, tuple_, update

from plain_text import are_host_names_apart, split_host_name
from registry.audit.events import record_event
from registry.db.bulk import chunks, is_any_of
from registry.db.locks import take_advisory_lock
from registry.db.schema import hosts
from registry.hosts.machine_names import MACHINE_LABEL, machine_label_of
from registry.ledger.release import release_unclaimed
from registry.lifecycle import HostAdmin
from registry.records.hosts import Host, HostReport

_TURN: Final = "machines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine of a host: its UUID, label and name."""

    id: UUID  #: the host's id
    host: str
    uuid: str | None
    label: str | None  #: the operators' name for it
    name: str | None  #: what it calls itself
    domain: str | None  #: that its name had last
    double_of: UUID | None
    polled_at: datetime | None


def are_distinguishable(one: Machine, other: Machine) -> bool:
    """Return whether labels distinguish two machines with one UUID.

    Some vendors give one UUID to many boards. Labels alone prove nothing: machines with one host
    name are one machine, whatever their labels are. Names with different domains are different.
    """
    if one.label == other.label:
        return False
    if None in {one.name, other.name}:
        return True
    return are_host_names_apart((one.name, one.domain), (other.name, other.domain))


def are_different(one: Machine, other: Machine) -> bool:
    """Return whether two registered hosts are proven to be different machines."""
    if one.id == other.double_of or other.id == one.double_of:
        return False
    if one.uuid is None or other.uuid is None:
        return False
    return one.uuid != other.uuid or are_distinguishable(one, other)


def read_machines(connection: Connection, *keys: UUID) -> dict[UUID, Machine]:
    """Return the machines of hosts, by host."""
    rows = connection.execute(_QUERY.where(hosts.c.id.in_(keys)))
    return {row.id: _to_machine(row) for row in rows}


def first_hosts_of_duplicates(connection: Connection) -> dict[UUID, UUID]:
    """Return, by duplicate host, the host registered first with the same machine."""
    query = select(hosts.c.id, hosts.c.same_machine_as).where(hosts.c.same_machine_as.is_not(None))
    return {row.id: row.same_machine_as for row in connection.execute(query)}


def host_with_machine(
    connection: Connection, uuid: str, name: str | None, *, apart_from: UUID
) -> str | None:
    """Return the name of another host that is the machine with this UUID.

    If several machines report it, it is the one with this ``name``.
    """
    others = (hosts.c.machine_uuid == uuid) & (hosts.c.id != apart_from) & IS_OWN_MACHINE
    query = select(hosts.c.name).where(others).order_by(hosts.c.id)
    if name is not None:
        named_so = query.where(hosts.c.machine_name == name).limit(1)
        if (found := connection.scalar(named_so)) is not None:
            return str(found)
        own = select(hosts.c.machine_uuid).where(hosts.c.id == apart_from)
        if connection.scalar(own) == uuid:
            return None  # its own machine has this UUID, too
    found = connection.scalars(query.limit(2)).all()
    return found[0] if len(found) == 1 else None


def duplicates_of(
    connection: Connection, polls: Sequence[tuple[Host, HostReport]]
) -> dict[UUID, Machine]:
    """Return, by duplicate host, the machine of the host that is registered already.

    The hosts are locked. Hosts with new machines also take an advisory lock, so that of two hosts
    that report one machine at the same moment the second is a duplicate.
    """
    comparable = [(host, report) for host, report in polls if _has_comparable_machine(host, report)]
    if any(_is_new_machine(host, report) or _is_duplicate(host) for host, report in comparable):
        take_advisory_lock(connection, _TURN)
    known = _candidate_machines(connection, comparable)
    for host, _ in comparable:
        label = machine_label_of(host.labels)
        if label != known[host.id].label:  # an earlier release, which writes labels alone, set them
            change = update(hosts).where(hosts.c.id == host.id)
            connection.execute(change.values(machine_label=label))
        known[host.id] = replace(known[host.id], uuid=host.machine_uuid, label=label)
    found: dict[UUID, Machine] = {}
    for host, report in sorted(comparable, key=lambda each: each[0].id):
        mine = replace(known[host.id], uuid=report.machine_uuid or host.machine_uuid)
        first = _find_first_host(mine, known, is_new=_is_new_machine(host, report))
        if first is not None:
            found[host.id] = first
        known[host.id] = replace(mine, double_of=None if first is None else first.id)
    return found


def store_duplicates(
    connection: Connection,
    polls: Sequence[tuple[Host, HostReport]],
    doubles: Mapping[UUID, Machine],
    *,
    now: datetime,
    actor: str,
) -> None:
    """Store which of these locked hosts are duplicates of others, and which no longer are."""
    why: dict[UUID, str] = {}
    for host, report in polls:
        first = doubles.get(host.id)
        if (first.host if first else None) == host.same_machine_as:
            continue
        values = {"same_machine_as": first and first.id, "version": hosts.c.version + 1}
        connection.execute(update(hosts).where(hosts.c.id == host.id).values(**values))
        data = {"name": host.name, "machine": report.machine_uuid}
        if first is None:
            data["before"] = host.same_machine_as
            record_event(connection, now, actor, "own_machine", "host", host.id, data=data)
            continue
        data["first"] = first.host
        why[host.id] = duplicate_message(host.name, first.host)
        reason = why[host.id]
        record_event(
            connection, now, actor, "same_machine", "host", host.id, data=data, reason=reason
        )
    release_unclaimed(connection, why, now=now, actor=actor)


def duplicate_message(host: str, first: str) -> str:
    """Return text that a host has the same machine as another, with advice for the operator."""
    return (
        f"host {host} is the machine that is registered as host {first}: it gets no VMs and its"
        f" capacity does not count. Retire one of the two; if they are two machines with one"
        f" UUID, give each a label {MACHINE_LABEL}NAME"
    )


#: A host that is not retired and no second name of a machine.
IS_OWN_MACHINE: Final = hosts.c.same_machine_as.is_(None) & (
    hosts.c.admin != HostAdmin.RETIRED.value
)
_QUERY: Final[Select[Any]] = select(
    hosts.c.id,
    hosts.c.name,
    hosts.c.machine_uuid,
    hosts.c.machine_label,
    hosts.c.machine_name,
    hosts.c.machine_domain,
    hosts.c.same_machine_as,
    hosts.c.last_polled_at,
)


def _has_comparable_machine(host: Host, report: HostReport) -> bool:
    """Return whether a polled host's machine can be compared with those of other hosts."""
    return report.machine_uuid is not None or _is_duplicate(host)


def _is_new_machine(host: Host, report: HostReport) -> bool:
    """Return whether another machine answers for a host than before, by its UUID or its name."""
    known = (host.machine_name, host.machine_domain)
    return host.machine_uuid != (report.machine_uuid or host.machine_uuid) or are_host_names_apart(
        known, split_host_name(report.hostname)
    )


def _is_duplicate(host: Host) -> bool:
    """Return whether a host is registered on the machine of another host."""
    return host.same_machine_as is not None


def _candidate_machines(
    connection: Connection, polls: Sequence[tuple[Host, HostReport]]
) -> dict[UUID, Machine]:
    """Return the machines of the polled hosts, and of hosts that may have the same machines."""
    found: dict[UUID, Machine] = {}
    for some in chunks([host.id for host, _ in polls]):
        own = is_any_of(connection, hosts.c.id, some)
        found |= {row.id: _to_machine(row) for row in connection.execute(_QUERY.where(own))}
    firsts = {each.double_of for each in found.values() if each.double_of} - found.keys()
    wanted = [hosts.c.id.in_(sorted(firsts))] if firsts else []
    for which in (*wanted, *_candidate_conditions(polls, found)):
        query = _QUERY.where(which, hosts.c.admin != HostAdmin.RETIRED.value)
        found = {row.id: _to_machine(row) for row in connection.execute(query)} | found
    return found


def _candidate_conditions(
    polls: Sequence[tuple[Host, HostReport]], found: Mapping[UUID, Machine]
) -> Iterator[ColumnElement[bool]]:
    """Yield conditions for hosts that may have the machine of a polled host.

    They match UUID and label, or UUID and name, as thousands of machines may report one UUID.
    """
    labels: set[tuple[str, str]] = set()
    names: set[tuple[str, str]] = set()
    without: set[str] = set()
    for host, report in polls:
        if report.machine_uuid is None:
            continue
        label = machine_label_of(host.labels)
        if label is None:
            without.add(report.machine_uuid)
        else:
            labels.add((report.machine_uuid, label))
        if (name := split_host_name(report.hostname)[0]) is not None:
            names.add((report.machine_uuid, name))
    uuid, is_first = hosts.c.machine_uuid, hosts.c.same_machine_as.is_(None)
    if without:
        yield is_first & hosts.c.machine_label.is_(None) & uuid.in_(sorted(without))
    if labels:
        yield is_first & tuple_(uuid, hosts.c.machine_label).in_(sorted(labels))
    if names:
        yield is_first & tuple_(uuid, hosts.c.machine_name).in_(sorted(names))


def _find_first_host(
    mine: Machine, known: Mapping[UUID, Machine], *, is_new: bool
) -> Machine | None:
    """Return the earliest registered host that has this machine, or None."""
    rivals = [
        each
        for each in known.values()
        if each.id != mine.id
        and each.double_of is None
        and each.uuid == mine.uuid
        and not are_distinguishable(mine, each)
    ]
    if mine.double_of is None and not is_new:
        rivals = [each for each in rivals if each.id < mine.id]
    if rivals:
        return min(rivals, key=lambda each: each.id)
    first = known.get(mine.double_of) if mine.double_of is not None else None
    if first is None or first.uuid == mine.uuid:
        return None
    # libvirt makes up a UUID at each start where a machine has none. So another UUID counts
    # once the first host was seen between two polls that showed it, with its own.
    polled_between = (
        not is_new
        and mine.polled_at is not None
        and first.polled_at is not None
        and first.polled_at > mine.polled_at
    )
    return None if polled_between or are_distinguishable(mine, first) else first


def _to_machine(row: Row[Any]) -> Machine:
    """Return the machine of a host from its row."""
    return Machine(
        id=row.id,
        host=row.name,
        uuid=row.machine_uuid,
        label=row.machine_label,
        name=row.machine_name,
        domain=row.machine_domain,
        double_of=row.same_machine_as,
        polled_at=row.last_polled_at,
    )
