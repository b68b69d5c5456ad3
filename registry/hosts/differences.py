"""Differences between hosts' latest reports and the ledger, and their repair by operators.

The functions that handle reports also compute these differences. So the list shows what was done
about each difference, or would be done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, delete, insert, select, update

from registry.audit.events import record_event
from registry.db.bulk import chunks, is_any_of
from registry.db.clock import db_now
from registry.db.engine import Database, retry_on_rollback
from registry.db.ids import uuid7
from registry.db.locks import lock_hosts, lock_vms_on
from registry.db.schema import (
    assignments,
    host_reports,
    hosts,
    image_copies,
    interfaces,
    is_place,
    leftovers,
    networks,
    power_actions,
    unreleased,
    vms,
)
from registry.errors import ConflictError
from registry.hosts.host_records import find_host_id, read_host, to_hosts
from registry.hosts.ledger_view import live_assignments
from registry.hosts.machine_addresses import other_address_of_machine
from registry.hosts.machine_names import NO_UUID, other_machine_message
from registry.hosts.machines import (
    are_different,
    first_hosts_of_duplicates,
    host_with_machine,
    read_machines,
)
from registry.hosts.reports import compares_pool_volumes, is_rebuilt, is_state_current
from registry.hosts.stored_reports import latest_report, read_reports
from registry.hosts.unaccounted_items import (
    UnaccountedItems,
    assignment_of_volume,
    domains_on_other_hosts,
    find_unaccounted_items,
    known_assignments,
    unknown_marks,
)
from registry.ledger.release import end_missing_vms
from registry.ledger.shared_disks import PoolSharing, sharing_of_pools
from registry.lifecycle import (
    AssignmentState,
    HostAdmin,
    HostHealth,
    PowerState,
    VmDesired,
    VmObserved,
)
from registry.reconciliation import (
    DECIDED,
    Difference,
    LedgerAssignment,
    LedgerVm,
    Remedy,
    vm_difference,
)
from registry.records.hosts import DomainReport, Host, HostDifference, HostReport
from registry.volumes.host_files import VolumeFile, missing_files, read_volume_files

#: Prefix of the names of volumes that are image copies.
_IMAGE_COPY: Final = "fuga-image-"
_SHOWN: Final = 5  #: names of files
_AT_ONCE: Final = 200  #: hosts, whose reports are in memory
_SILENT: Final = (HostHealth.UNREACHABLE, HostHealth.DOWN)


class Differences:
    """Lists differences between hosts and the ledger, and repairs them for operators."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list(self, host: str | None = None) -> tuple[HostDifference, ...]:
        """Return the differences of hosts from the ledger, by host: a dry run of their repair."""
        query = select(hosts).where(hosts.c.admin != HostAdmin.RETIRED.value).order_by(hosts.c.name)
        with self._database.read() as connection:
            if host is not None:
                query = select(hosts).where(hosts.c.id == find_host_id(connection, host))
            rows = connection.execute(query).all()
            found: list[HostDifference] = []
            for some in chunks(to_hosts(connection, rows), _AT_ONCE):
                seen = _read_compared_hosts(connection, some)
                for each in some:
                    found += _host_differences(connection, each, seen)
            return tuple(found)

    @retry_on_rollback
    def repair(
        self, host: str, difference: Difference, subject: str, *, actor: str
    ) -> HostDifference:
        """Repair a difference of a host from the ledger that needs an operator's confirmation.

        Raises
        ------
        ConflictError
            If the difference does not exist (any more), or a confirmation does not change it.
        """
        with self._database.write() as connection:
            key = find_host_id(connection, host)
            lock_hosts(connection, key)
            lock_vms_on(connection, key)
            at = read_host(connection, key)
            for found in _host_differences(connection, at, _read_compared_hosts(connection, [at])):
                if (found.difference, found.subject) == (difference, subject):
                    break
            else:
                raise ConflictError(f"host {host} has no difference {difference} of {subject}")
            if found.on_confirmation is None:
                raise ConflictError(
                    f"{difference} of {subject} on host {host} is not repaired by a word:"
                    f" {found.why}; {found.action}"
                )
            now = db_now(connection)
            data = {"name": host, "difference": difference.value, "subject": subject}
            record_event(connection, now, actor, "repair_asked", "host", key, data=data)
            if difference == Difference.VM_MISSING:
                [row] = [
                    row
                    for row in live_assignments(connection, key)[key].values()
                    if row.id == found.assignment_id
                ]
                if there := domains_on_other_hosts(connection, [row]).get(row.vm_id):
                    raise ConflictError(
                        f"VM {row.vm_name} is not cleared from host {host}: host {there} shows its"
                        " domain, which may be the only one there is. Move it back, or remove it"
                        " there if its disk is not needed"
                    )
                end_missing_vms(connection, [row], now=now, actor=actor)
            elif difference == Difference.ANOTHER_MACHINE:
                uuid = at.found_machine_uuid
                taken = {
                    "machine_uuid": None if uuid == NO_UUID else uuid,
                    "machine_name": at.found_machine_name,
                    "machine_domain": None,
                    "found_machine_uuid": None,
                    "found_machine_name": None,
                }
                connection.execute(update(hosts).where(hosts.c.id == key).values(**taken))
                # Its interfaces are those of the machine before.
                connection.execute(delete(host_reports).where(host_reports.c.host_id == key))
            else:
                # First, so that the advice is never to switch off the VM itself.
                if difference == Difference.WRONG_HOST:
                    _check_vm_runs_elsewhere(connection, at, found)
                _check_domain_is_off(connection, at, found)
                _request_removal(connection, at, found, now=now, actor=actor)
            return found


@dataclass(frozen=True, slots=True)
class _ComparedHosts:
    """Data of many hosts for the comparison, read at once to avoid thousands of queries."""

    reports: Mapping[UUID, HostReport]
    live: Mapping[UUID, Mapping[UUID, Row[Any]]]  #: unreleased assignments
    starting: Set[UUID]  #: VMs
    known_files: Mapping[UUID, Set[str]]  #: of images and volumes, by the host that is the machine
    volume_files: Mapping[UUID, Sequence[VolumeFile]]  #: of tenants, by host
    pools: Mapping[str, PoolSharing]  #: shared by hosts
    firsts: Mapping[UUID, UUID]  #: the first host of each host that is a second name of its machine
    #: Why leftovers of hosts stay, by whether they are domains, and their names.
    errors: Mapping[UUID, Mapping[tuple[bool, str], str]]


def _read_compared_hosts(connection: Connection, compared: Sequence[Host]) -> _ComparedHosts:
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
    return _ComparedHosts(
        reports=read_reports(connection, keys),
        errors=errors,
        live=live_assignments(connection, *keys),
        starting=frozenset(connection.scalars(starting)),
        known_files=known_files,
        volume_files=volume_files,
        pools=sharing_of_pools(
            connection, {host.shared_pool for host in compared if host.shared_pool}
        ),
        firsts=firsts,
    )


def _host_differences(
    connection: Connection, host: Host, seen: _ComparedHosts
) -> Iterator[HostDifference]:
    """Yield the differences between a host's latest report and the ledger."""
    if host.found_machine_uuid is not None:
        what = other_machine_message(
            host.machine_uuid, host.found_machine_uuid, host.machine_name, host.found_machine_name
        )
        other = _new_difference(host, Difference.ANOTHER_MACHINE, host.found_machine_uuid, what)
        why = _owner_of_machine(connection, host) or other_address_of_machine(connection, host.id)
        if why is not None:
            other = replace(other, remedy=Remedy.NOTE, why=why, on_confirmation=None)
        yield other
        return
    if host.same_machine_as is not None:
        what = f"machine {host.machine_uuid} is host {host.same_machine_as}"
        yield _new_difference(host, Difference.SAME_MACHINE, host.same_machine_as, what)
    if host.health in _SILENT and host.returning_since is None:
        yield _new_difference(
            host, Difference.SILENT, host.name, f"{host.health}: {host.last_error}"
        )
        return
    report = seen.reports.get(host.id)
    if report is None:
        return
    if host.machine_uuid is not None and report.machine_uuid is None:
        what = f"machine {host.machine_uuid} reports no UUID now"
        yield _new_difference(host, Difference.NO_MACHINE_UUID, host.machine_uuid, what)
    for each in host.inventories:
        if each.committed > each.capacity and host.same_machine_as is None:
            what = f"{each.committed} {each.resource} are committed, {each.capacity} offered"
            yield _new_difference(host, Difference.CAPACITY_SHRANK, each.resource, what)
    live = seen.live[host.id]
    yield from _vm_differences(connection, host, report, live, seen.starting)
    speaks = compares_pool_volumes(seen.pools, host)
    marks = unknown_marks(report, live, speaks=speaks)
    known = known_assignments(connection, marks) if marks else {}
    found = find_unaccounted_items(
        report, live, known, host_id=host.id, shared_pool=host.shared_pool, speaks=speaks
    )
    if seen.firsts:
        found = _drop_items_of_other_names(host, report, found, known, seen.firsts)
    for difference in _domain_differences(host, report, found):
        which = (difference.vm_uuid is not None, difference.subject)
        error = seen.errors.get(host.id, {}).get(which)
        if error is not None:
            difference = replace(difference, what=f"{difference.what}; it stays: {error}")  # noqa: PLW2901
        yield difference
    yield from _pool_differences(host, report, seen)


def _pool_differences(
    host: Host, report: HostReport, seen: _ComparedHosts
) -> Iterator[HostDifference]:
    """Yield missing files of volumes, and one difference for all files nobody knows."""
    if report.pool_silent_since is None:
        files = seen.volume_files.get(host.id, ())
        for lost in missing_files(files, report.volumes, report.started_at):
            what = f"{lost.name}: volume {lost.volume}, {lost.size_gib} GiB"
            yield _new_difference(host, Difference.VOLUME_MISSING, lost.name, what)
    is_first = host.same_machine_as is None
    if is_first and host.shared_pool is None:  # else a domain of another host may name them
        yield from _file_differences(host, report, seen.known_files.get(host.id, frozenset()))


def _vm_differences(
    connection: Connection,
    host: Host,
    report: HostReport,
    live: Mapping[UUID, Row[Any]],
    starting: Set[UUID],
) -> Iterator[HostDifference]:
    """Yield the differences between a host's domains and the ledger's states of its VMs."""
    domains = {each.assignment_id: each for each in report.domains}
    to_filter = _vms_to_filter(connection, report, live)
    for row in live.values():
        here = row.state == AssignmentState.ACTIVE.value and not (row.moves or row.is_moving)
        if not (here and is_state_current(row, report)):
            continue
        vm = LedgerVm(
            desired=VmDesired(row.desired),
            observed=VmObserved(row.observed),
            started_at=row.switched_at or row.activated_at,
            being_started=row.vm_id in starting,
        )
        domain = domains.get(row.id)
        fate = vm_difference(vm, domain, report.started_at)
        if fate is None and domain is not None and row.vm_id in to_filter:
            fate = _filter_difference(domain)
        if fate is None:
            continue
        state = "no domain" if domain is None else f"its domain is {domain.state}"
        rebuilt = fate == Difference.VM_MISSING and is_rebuilt(host, row)
        yield _new_difference(
            host,
            fate,
            str(row.vm_id),
            f"VM {row.vm_name} of {row.tenant}, wanted {row.desired}: {state}",
            assignment_id=row.id,
            rebuilt=rebuilt,
        )


def _filter_difference(domain: DomainReport) -> Difference | None:
    """Return the difference of a running domain without network filters, or None."""
    runs_so = domain.filtered is False and domain.state != "stopped"
    return Difference.VM_UNFILTERED if runs_so else None


def _vms_to_filter(
    connection: Connection, report: HostReport, live: Mapping[UUID, Any]
) -> set[UUID]:
    """Return the VMs without network filters whose networks are filtered."""
    bare = {each.assignment_id for each in report.domains if each.filtered is False}
    keys = [row.vm_id for key, row in live.items() if key in bare]
    found: set[UUID] = set(keys)
    for some in chunks(sorted(keys)):
        query = (
            select(interfaces.c.vm_id)
            .join(networks, networks.c.id == interfaces.c.network_id)
            .where(interfaces.c.vm_id.in_(some), networks.c.filtered.is_(False))
        )
        found.difference_update(connection.scalars(query))
    return found


def _domain_differences(
    host: Host, report: HostReport, unaccounted: UnaccountedItems
) -> Iterator[HostDifference]:
    """Yield a difference for each domain and volume that belongs to no assignment of its host."""
    for domain in report.domains:
        difference = unaccounted.of_domains.get(domain.uuid)
        if difference is not None:
            yield _new_difference(
                host,
                difference,
                domain.name,
                f"domain {domain.name}, {domain.state}, {domain.vcpus} vcpus,"
                f" {domain.memory_mib} memory_mib, {domain.disk_gib} disk_gib"
                + _capped_text(domain),
                assignment_id=domain.assignment_id,
                vm_uuid=domain.uuid,
            )
    for name, (difference, assignment_id) in unaccounted.of_volumes.items():
        found = _new_difference(
            host, difference, name, f"volume {name}", assignment_id=assignment_id
        )
        if difference == Difference.UNKNOWN_MARK:
            # A name proves nothing of a disk: a pool may have users that no register center knows.
            found = replace(
                found,
                remedy=Remedy.NOTE,
                action="it is left alone, as a host that is not registered here may have it open:"
                f" if nobody needs it, `virsh vol-delete {name} {host.pool}` on the host",
                on_confirmation=None,
            )
        yield found


def _capped_text(domain: DomainReport) -> str:
    if domain.capped_disk is None:
        return ""
    return (
        f"; its disk {domain.capped_disk} claims more than the pool holds and counts as all of it:"
        " if no such disk is meant, remove it from the domain"
    )


def _drop_items_of_other_names(
    host: Host,
    report: HostReport,
    unaccounted: UnaccountedItems,
    known: Mapping[UUID, LedgerAssignment],
    firsts: Mapping[UUID, UUID],
) -> UnaccountedItems:
    """Drop items that belong to another name of the machine, and report the others once.

    A machine may be registered under several names. VMs of any of these names are on the right
    machine, and so are their disks. Foreign domains are shown at the machine's first host.
    """
    machine = firsts.get(host.id, host.id)
    elsewhere = {Difference.WRONG_HOST, Difference.DISK_ELSEWHERE}

    def is_counted(difference: Difference, assignment_id: UUID | None) -> bool:
        if host.id in firsts and difference == Difference.STRANGER:
            return False
        its = None if assignment_id is None else known.get(assignment_id)
        is_here = its is not None and firsts.get(its.host_id, its.host_id) == machine
        return not (is_here and difference in elsewhere)

    marks = {domain.uuid: domain.assignment_id for domain in report.domains}
    return replace(
        unaccounted,
        of_domains={
            key: found
            for key, found in unaccounted.of_domains.items()
            if is_counted(found, marks.get(key))
        },
        of_volumes={
            name: found for name, found in unaccounted.of_volumes.items() if is_counted(*found)
        },
    )


def _file_differences(host: Host, report: HostReport, known: Set[str]) -> Iterator[HostDifference]:
    """Yield one difference for all unaccounted files of a pool, if there are any."""
    ours = {host.base_volume, *known}
    strays = [
        name for name in report.unnamed if name not in ours and assignment_of_volume(name) is None
    ]
    if strays:
        more = f" and {len(strays) - _SHOWN} more" if len(strays) > _SHOWN else ""
        shown = ", ".join(strays[:_SHOWN])
        count = "1 file" if len(strays) == 1 else f"{len(strays)} files"
        what = f"{count}: {shown}{more}"
        if copies_left := sum(name.startswith(_IMAGE_COPY) for name in strays):
            what += (
                f"; {copies_left} named {_IMAGE_COPY}… are copies of images that no host of this"
                f" register center has: no domain of {host.name} names them. Those of hosts here go"
                " by themselves if nothing rests on them. Of others look whether volumes"
                " rest on one (`qemu-img info`) or another fuga made it, else delete it"
                f" (`virsh vol-delete NAME {host.pool}`)"
            )
        yield _new_difference(host, Difference.STRAY_FILES, host.pool, what)


def _new_difference(
    host: Host,
    difference: Difference,
    subject: str,
    what: str,
    *,
    assignment_id: UUID | None = None,
    vm_uuid: UUID | None = None,
    rebuilt: bool = False,
) -> HostDifference:
    """Return the record of a difference, with the remedy that it has or needs."""
    decided = DECIDED[difference]
    needs_answer = not rebuilt
    return HostDifference(
        host=host.name,
        difference=difference,
        subject=subject,
        what=what,
        remedy=decided.remedy if needs_answer else Remedy.REPAIR,
        action=decided.action if needs_answer else decided.on_confirmation or decided.action,
        why=decided.why,
        on_confirmation=decided.on_confirmation if needs_answer else None,
        assignment_id=assignment_id,
        vm_uuid=vm_uuid,
    )


def _owner_of_machine(connection: Connection, host: Host) -> str | None:
    """Return text that the machine at a host's address is another host, with advice, or None."""
    assert host.found_machine_uuid is not None  # noqa: S101 - it is the difference
    owner = host_with_machine(
        connection, host.found_machine_uuid, host.found_machine_name, apart_from=host.id
    )
    if owner is None:
        return None
    return (
        f"machine {host.found_machine_uuid}, which answers at the address of host {host.name}, is"
        f" host {owner}: give host {host.name} its own address again"
    )


def _check_domain_is_off(connection: Connection, host: Host, found: HostDifference) -> None:
    """Raise `ConflictError` if the domain, or the domain of the disk, runs."""
    report = latest_report(connection, host.id)
    for domain in () if report is None else report.domains:
        its = domain.assignment_id is not None and domain.assignment_id == found.assignment_id
        if (its or domain.uuid == found.vm_uuid) and domain.state != "stopped":
            raise ConflictError(
                f"domain {domain.name} on host {host.name} is {domain.state}, and no repair"
                f" destroys what runs: switch it off there first (`virsh destroy {domain.name}`)"
            )


def _check_vm_runs_elsewhere(connection: Connection, here: Host, found: HostDifference) -> None:
    """Raise `ConflictError` unless the VM runs elsewhere, as this may be its only copy."""
    marked = assignments.alias("marked")
    query = (
        select(hosts.c.id, hosts.c.name, vms.c.observed, hosts.c.health, hosts.c.found_machine_uuid)
        .select_from(marked)
        .join(vms, vms.c.id == marked.c.vm_id)
        .join(assignments, (assignments.c.vm_id == vms.c.id) & unreleased & is_place)
        .join(hosts, hosts.c.id == assignments.c.host_id)
        .where(marked.c.id == found.assignment_id)
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        raise ConflictError(
            f"{found.subject} on host {found.host} may be the only one there is: its VM has no host"
        )
    if row.observed != VmObserved.RUNNING.value or row.health != HostHealth.UP.value:
        raise ConflictError(
            f"{found.subject} on host {found.host} may be the only one there is: on host"
            f" {row.name}, which is {row.health}, the VM is {row.observed}"
        )
    if row.found_machine_uuid is not None:
        raise ConflictError(
            f"{found.subject} on host {found.host} may be the only one there is: another machine"
            f" answers as host {row.name}"
        )
    machines = read_machines(connection, here.id, row.id)
    report_theirs = all(
        report is not None and report.machine_uuid is not None
        for report in (latest_report(connection, key) for key in (here.id, row.id))
    )
    if not report_theirs or not are_different(machines[here.id], machines[row.id]):
        raise ConflictError(
            f"hosts {here.name} and {row.name} may be one machine: {found.subject} is removed only"
            " where the UUIDs that both report prove that they are two"
        )


def _request_removal(
    connection: Connection, host: Host, found: HostDifference, *, now: Any, actor: str
) -> None:
    """Record that an operator wants a foreign domain or volume removed from its host."""
    kind = "domain" if found.vm_uuid is not None else "volume"
    one = (leftovers.c.host_id == host.id) & (leftovers.c.kind == kind)
    one &= leftovers.c.name == found.subject
    if connection.scalar(select(leftovers.c.id).where(one).with_for_update()) is not None:
        # It stays so far: the removal begins again at once.
        again = update(leftovers).where(one)
        connection.execute(again.values(requested_by=actor, sent_at=None))
        return
    connection.execute(
        insert(leftovers).values(
            id=uuid7(),
            host_id=host.id,
            kind=kind,
            name=found.subject,
            vm_uuid=found.vm_uuid,
            assignment_id=found.assignment_id,
            requested_by=actor,
            found_at=now,
        )
    )
