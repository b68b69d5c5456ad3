"""Reports of the monitor: hosts that answer, detected capacity, missing VMs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, update

from registry.audit.changes import HOST_HEALTH, VM_OBSERVED, vm_event_row
from registry.audit.events import event_row, record_events
from registry.db.bulk import update_rows
from registry.db.clock import valid_poll_time
from registry.db.schema import hosts, inventories, vms
from registry.hosts.confinement import store_confinement
from registry.hosts.health import change_health
from registry.hosts.ledger_view import HostLedger, read_ledgers
from registry.hosts.machine_identity import is_same_machine
from registry.hosts.machines import Machine, duplicate_message, duplicates_of, store_duplicates
from registry.hosts.silent_pools import pool_trouble, record_silent_pools
from registry.hosts.stored_reports import read_reports, store_latest_reports
from registry.hosts.unaccounted_items import (
    UnaccountedItems,
    domains_on_other_hosts,
    find_unaccounted_items,
    known_assignments,
    record_foreign_domains,
    unknown_marks,
    update_leftovers,
)
from registry.images.copies import disk_of_copies, replace_missing_copies, superseded_copies
from registry.ledger.fences import change_fence, is_being_fenced
from registry.ledger.power import restore_desired_power
from registry.ledger.release import end_missing_vms
from registry.ledger.shared_disks import PoolSharing, sharing_of_pools
from registry.ledger.volume_changes import attach_again
from registry.lifecycle import (
    AssignmentState,
    FenceEvent,
    FenceState,
    HostAdmin,
    HostHealth,
    HostHealthEvent,
    VmDesired,
    VmObservedEvent,
)
from registry.reconciliation import DECIDED, Difference, LedgerAssignment, LedgerVm, vm_difference
from registry.records.hosts import DomainReport, Host, HostReport
from registry.volumes.host_files import volumes_in_use, volumes_without_disk

#: Host label: missing VMs are rebuilt without confirmation.
REBUILD_LABEL: Final = "on_missing=rebuild"
#: Differences for which a worker switches the VM to its desired state.
_SWITCHED: Final = (Difference.VM_LOST_POWER, Difference.VM_CRASHED, Difference.VM_RUNS)
_BEING_FENCED: Final = "it answers, and is being fenced: it stays down until that is over"
_SEEN: Final = {
    "running": VmObservedEvent.SEEN_RUNNING,
    "stopped": VmObservedEvent.SEEN_STOPPED,
    "paused": VmObservedEvent.SEEN_PAUSED,
}


@dataclass(frozen=True, slots=True)
class _AcceptedPoll:
    """A poll of a host that counts, with its report."""

    host: Host
    report: HostReport
    ledger: HostLedger
    double_of: Machine | None = None  #: the first host with the same machine


def record_reports(
    connection: Connection, polls: Sequence[tuple[Host, HostReport]], *, now: datetime, actor: str
) -> set[UUID]:
    """Store one poll of each of these hosts, which are locked. An outdated poll changes nothing.

    The rows of each host are written first, under the locks of the host and of its VMs. Rows that
    others may lock (images, requests) come last, for all hosts together.

    Returns the hosts at which another machine answered; nothing else is written for them.
    """
    ledgers = read_ledgers(connection, [host.id for host, _ in polls])
    counted, others = [], set()
    for host, report in polls:
        ledger = ledgers[host.id]
        if not _is_poll_counted(connection, host, report, ledger.fence, now):
            continue
        if is_same_machine(connection, host, report, ledger.live, now=now, actor=actor):
            counted.append(_AcceptedPoll(host, report, ledger))
            store_confinement(connection, host, report, now=now, actor=actor)
        else:
            others.add(host.id)
    believed = [(each.host, each.report) for each in counted]
    doubles = duplicates_of(connection, believed)
    counted = [replace(each, double_of=doubles.get(each.host.id)) for each in counted]
    _record_volumes_in_use(connection, counted, now=now, actor=actor)
    _store_reports(connection, counted)
    # Before inventories, in the order of locks.
    lost = volumes_without_disk(connection, {host.id: report for host, report in believed})
    attach_again(connection, lost, now=now, actor=actor)
    pools = sharing_of_pools(
        connection, {host.shared_pool for host, _ in polls if host.shared_pool}
    )
    marks = set[UUID]()
    for poll in counted:
        speaks = compares_pool_volumes(pools, poll.host)
        marks |= unknown_marks(poll.report, poll.ledger.live, speaks=speaks)
    known = known_assignments(connection, marks)
    missing: list[Row[Any]] = []
    for poll in counted:
        missing += _compare_with_ledger(connection, poll, known, pools, now=now, actor=actor)
    elsewhere = domains_on_other_hosts(connection, missing)
    missing = [row for row in missing if row.vm_id not in elsewhere]
    end_missing_vms(connection, missing, now=now, actor=actor)
    store_duplicates(connection, believed, doubles, now=now, actor=actor)
    record_silent_pools(connection, believed, now=now, actor=actor)
    return others


def _is_poll_counted(
    connection: Connection, host: Host, report: HostReport, fence: Row[Any] | None, now: datetime
) -> bool:
    """Return whether a poll of a host counts: not outdated, and not from before its fencing."""
    if host.admin == HostAdmin.RETIRED:
        return False
    last = valid_poll_time(host.last_polled_at, now)
    if last is not None and report.polled_at < last:
        return False
    if is_being_fenced(fence, now):
        _set_last_error(connection, host, _BEING_FENCED)  # nothing may begin there until it is over
        return False
    # What was released since its fencing would be taken for a leftover of no VM.
    return fence is None or fence.fenced_at is None or report.started_at > fence.fenced_at


def _store_reports(connection: Connection, polls: Sequence[_AcceptedPoll]) -> None:
    """Store that the polled hosts answered, with their reports."""
    update_rows(
        connection,
        hosts,
        [
            {
                "id": poll.host.id,
                "last_polled_at": poll.report.polled_at,
                "last_error": _shown_error(poll),
                "missed_polls": 0,
                "can_filter": poll.report.can_filter,
            }
            for poll in polls
        ],
    )
    store_latest_reports(connection, {poll.host.id: poll.report for poll in polls})


def _record_volumes_in_use(
    connection: Connection, polls: Sequence[_AcceptedPoll], *, now: datetime, actor: str
) -> None:
    """Add an event for each volume that a domain has against the ledger since this poll."""
    polled = {poll.host.id: poll for poll in polls if poll.double_of is None}
    live = {key: poll.ledger.live for key, poll in polled.items()}
    found = volumes_in_use(connection, {key: poll.report for key, poll in polled.items()}, live)
    if not found:
        return
    before = volumes_in_use(connection, read_reports(connection, found), live)
    record_events(
        connection,
        [
            event_row(
                now,
                actor,
                "volume_in_use",
                "host",
                key,
                reason=DECIDED[Difference.VOLUME_IN_USE].why,
                data={
                    "name": polled[key].host.name,
                    "file": used.file,
                    "volume": used.volume,
                    "domains": list(used.domains),
                },
            )
            for key, those in found.items()
            for used in those
            if used not in before.get(key, ())
        ],
    )


def _shown_error(poll: _AcceptedPoll) -> str | None:
    """Return the error to show at a host that answered: a duplicate, a silent pool, or None."""
    if poll.double_of is not None:
        return duplicate_message(poll.host.name, poll.double_of.host)
    return pool_trouble(poll.host, poll.report)


def _compare_with_ledger(
    connection: Connection,
    poll: _AcceptedPoll,
    known: Mapping[UUID, LedgerAssignment],
    pools: Mapping[str, PoolSharing],
    *,
    now: datetime,
    actor: str,
) -> Sequence[Row[Any]]:
    """Record the differences between a polled host and the ledger.

    Returns the assignments of missing VMs whose places are to be cleared.
    """
    host, report, ledger = poll.host, poll.report, poll.ledger
    unaccounted = find_unaccounted_items(
        report,
        ledger.live,
        known,
        host_id=host.id,
        shared_pool=host.shared_pool,
        speaks=compares_pool_volumes(pools, host),
    )
    if poll.double_of is None or host.health != HostHealth.ENROLLING:
        _return_to_service(connection, host, ledger.fence, unaccounted, now=now, actor=actor)
    to_clear = _observe_vms(connection, host, report, ledger.live, now=now, actor=actor)
    foreign = _foreign_amounts(unaccounted.strangers)
    left = ledger.leftovers
    if report.pool_silent_since is None:
        replace_missing_copies(connection, host, report, ledger.copies, now=now, actor=actor)
        foreign["disk_gib"] += disk_of_copies(ledger.copies)
    else:  # volumes are not known: the stored ones stay
        del foreign["disk_gib"]
        left = [row for row in left if row.kind != "volume"]
    detected = _detected_amounts(host, report, pools)
    if poll.double_of is not None:
        foreign = _whole_capacity(host, detected)
        unaccounted = replace(unaccounted, strangers=())  # the other host reports them
    _write_inventories(connection, host, detected, foreign)
    record_foreign_domains(connection, host, unaccounted, ledger.strangers, now=now, actor=actor)
    copies: set[str] = set()
    if compares_pool_volumes(pools, host):
        known_copies = {row.volume for row in ledger.copies}
        copies = superseded_copies(
            connection, set(report.unnamed) - known_copies, report.started_at
        )
    update_leftovers(
        connection, host, report, unaccounted, left, copies=copies, now=now, actor=actor
    )
    return to_clear


def _set_last_error(connection: Connection, host: Host, error: str) -> None:
    """Store the error that is shown at a host."""
    connection.execute(update(hosts).where(hosts.c.id == host.id).values(last_error=error))


def _return_to_service(
    connection: Connection,
    host: Host,
    fence: Row[Any] | None,
    unaccounted: UnaccountedItems,
    *,
    now: datetime,
    actor: str,
) -> None:
    """Set a host that answers to up; one that was down, only once it is clear of leftovers.

    VMs that were replaced elsewhere are removed from it before it accepts VMs.
    """
    returns = host.health == HostHealth.DOWN and bool(unaccounted.domains or unaccounted.volumes)
    if fence is not None and not (returns and fence.state == FenceState.FENCED.value):
        change_fence(
            connection,
            fence,
            FenceEvent.RETURNED,
            host_id=host.id,
            host_name=host.name,
            now=now,
            actor=actor,
        )
    if not returns:
        if host.returning_since is not None:
            connection.execute(
                update(hosts).where(hosts.c.id == host.id).values(returning_since=None)
            )
        change_health(connection, host, HostHealthEvent.ANSWERED, None, now=now, actor=actor)
        return
    left = len(unaccounted.domains) + len(unaccounted.volumes)
    _set_last_error(connection, host, f"it answers, but must first lose {left} domains and volumes")
    if host.returning_since is None:
        connection.execute(update(hosts).where(hosts.c.id == host.id).values(returning_since=now))
        step = HOST_HEALTH.step(host.health, HostHealthEvent.RETURNED)
        step.record_event(
            connection, now, actor, host.id, data={"name": host.name, "leftovers": left}
        )


def compares_pool_volumes(pools: Mapping[str, PoolSharing], host: Host) -> bool:
    """Return whether this host reports the stray files of its pool, which others may share."""
    found = pools.get(host.shared_pool) if host.shared_pool is not None else None
    return found is None or found.speaker == host.id


def _detected_amounts(
    host: Host, report: HostReport, pools: Mapping[str, PoolSharing]
) -> Mapping[str, int]:
    """Return the amounts that a poll detected, with an even share of a shared pool's disk."""
    found = pools.get(host.shared_pool) if host.shared_pool is not None else None
    if found is None or "disk_gib" not in report.detected:
        return report.detected
    return {**report.detected, "disk_gib": report.detected["disk_gib"] // found.hosts}


def _whole_capacity(host: Host, seen: Mapping[str, int]) -> dict[str, int]:
    """Return the whole capacity of a duplicate host, as foreign amounts, so that it offers none."""
    found = {}
    for each in host.inventories:
        detected = seen.get(each.resource, each.detected or 0)
        has = detected if each.override is None else each.override
        found[each.resource] = max(0, has - each.reserved)
    return found


def _write_inventories(
    connection: Connection, host: Host, seen: Mapping[str, int], foreign: Mapping[str, int]
) -> None:
    """Write a polled host's detected and foreign amounts to its inventories."""
    for each in sorted(host.inventories, key=lambda each: each.resource):
        detected = seen.get(each.resource, each.detected)
        held = foreign.get(each.resource, each.foreign if each.resource == "disk_gib" else 0)
        if (detected, held) != (each.detected, each.foreign):
            connection.execute(
                update(inventories)
                .where(inventories.c.host_id == host.id, inventories.c.resource == each.resource)
                .values(detected=detected, foreign_amount=held)
            )


def _foreign_amounts(others: Collection[DomainReport]) -> dict[str, int]:
    """Return the amounts that foreign domains hold; a stopped one holds only its disk."""
    awake = [domain for domain in others if domain.state != "stopped"]
    return {
        "vcpus": sum(domain.vcpus for domain in awake),
        "memory_mib": sum(domain.memory_mib for domain in awake),
        "disk_gib": sum(domain.disk_gib for domain in others),
    }


def is_state_current(row: Row[Any], report: HostReport) -> bool:
    """Return whether no power action changed an active VM since the poll of its host began."""
    if row.switched_at is not None and row.switched_at >= report.started_at:
        return False
    return row.activated_at is not None and bool(row.activated_at < report.started_at)


def is_rebuilt(host: Host, row: Row[Any]) -> bool:
    """Return whether a missing VM is rebuilt without confirmation."""
    return REBUILD_LABEL in host.labels and row.desired == VmDesired.RUNNING.value


def _paused_event(row: Row[Any], now: datetime, actor: str) -> dict[str, Any]:
    """Return the event that a VM was found paused on its host."""
    return event_row(
        now,
        actor,
        "vm_paused",
        "vm",
        row.vm_id,
        tenant=row.tenant,
        reason=DECIDED[Difference.VM_PAUSED].why,
        data={"host": row.host_name, "assignment": str(row.id)},
    )


def _observe_vms(
    connection: Connection,
    host: Host,
    report: HostReport,
    live: Mapping[UUID, Any],
    *,
    now: datetime,
    actor: str,
) -> Sequence[Row[Any]]:
    """Record the observed states of a polled host's VMs; return missing ones that are rebuilt."""
    seen = {
        domain.assignment_id: domain
        for domain in report.domains
        if domain.assignment_id is not None
    }
    history = []
    to_switch: dict[VmDesired, list[UUID]] = {VmDesired.RUNNING: [], VmDesired.STOPPED: []}
    to_clear = []
    for row in live.values():
        # One that moves may be at either end: its worker reports where.
        if row.state != AssignmentState.ACTIVE.value or row.moves or row.is_moving:
            continue
        domain = seen.get(row.id)
        event = VmObservedEvent.MISSING if domain is None else _SEEN[domain.state]
        settled = is_state_current(row, report)
        switched = row.switched_at is not None and row.switched_at >= report.started_at
        # A worker has switched VMs since; a VM that was not seen to run may
        # have been started after the poll began.
        if switched or (event != VmObservedEvent.SEEN_RUNNING and not settled):
            continue
        step = VM_OBSERVED.step(row.observed, event)
        vm = LedgerVm(
            desired=VmDesired(row.desired),
            observed=step.before,
            started_at=row.switched_at or row.activated_at,
        )
        fate = vm_difference(vm, domain, report.started_at)
        if fate == Difference.VM_MISSING and is_rebuilt(host, row):
            to_clear.append(row)
        is_paused = fate == Difference.VM_PAUSED
        if is_paused != (row.paused_since is not None):
            since = now if is_paused else None
            connection.execute(update(vms).where(vms.c.id == row.vm_id).values(paused_since=since))
            if is_paused:
                history.append(_paused_event(row, now, actor))
        if not step.moved:
            continue
        observed = step.after.value
        connection.execute(update(vms).where(vms.c.id == row.vm_id).values(observed=observed))
        if fate in _SWITCHED:
            to_switch[vm.desired].append(row.vm_id)
        reason = None if fate is None else f"{DECIDED[fate].why}: {DECIDED[fate].action}"
        kind = None
        if event == VmObservedEvent.MISSING:
            kind, reason = "vm_missing", f"host {host.name} knows no such domain"
        history.append(vm_event_row(step, row, now, actor, reason=reason, kind=kind))
    record_events(connection, history)
    for desired, keys in to_switch.items():
        if keys:
            restore_desired_power(connection, keys, desired, now=now)
    return to_clear
