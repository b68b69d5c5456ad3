"""What the monitor saw: health, what is detected, VMs gone missing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, select, update

from registry.bulk import insert_rows, update_rows
from registry.drift import (
    Drift,
    find_drift,
    known_assignments,
    note_leftovers,
    note_strangers,
    unknown_marks,
)
from registry.events import assignment_row, event_row, record
from registry.fences import change_fence, is_being_fenced
from registry.host_ledger import HostLedger, read_ledgers
from registry.image_copies import disk_of_copies, note_missing
from registry.lifecycle import (
    ASSIGNMENT_TRANSITIONS,
    HOST_HEALTH_TRANSITIONS,
    VM_OBSERVED_TRANSITIONS,
    AssignmentEvent,
    AssignmentState,
    FenceEvent,
    FenceState,
    HostAdmin,
    HostHealth,
    HostHealthEvent,
    VmDesired,
    VmObserved,
    VmObservedEvent,
    next_state,
)
from registry.machines import is_same_machine
from registry.missing import clear_missing, is_rebuilt
from registry.power import drop_power, switch_again
from registry.progress import recompute
from registry.reconciliation import DECIDED, Difference, Known, LedgerVm, fate_of
from registry.records import DomainReport, Host, HostReport
from registry.schema import (
    assignments,
    host_reports,
    hosts,
    inventories,
    tenants,
    unreleased,
    vms,
)

#: A worker switches the VM to what its tenant wants.
_SWITCHED: Final = (Difference.VM_LOST_POWER, Difference.VM_CRASHED, Difference.VM_RUNS)
_DOMAIN_FIELDS: Final = tuple(field.name for field in fields(DomainReport))
_REPORT_FIELDS: Final = tuple(field.name for field in fields(HostReport))
_BEING_FENCED: Final = "it answers, and is being fenced: it stays down until that is over"
_SEEN: Final = {
    "running": VmObservedEvent.SEEN_RUNNING,
    "stopped": VmObservedEvent.SEEN_STOPPED,
    "paused": VmObservedEvent.SEEN_PAUSED,
}


@dataclass(frozen=True, slots=True)
class _Look:
    """A look at a host that counts."""

    host: Host
    report: HostReport
    ledger: HostLedger


def record_reports(
    connection: Connection,
    looks: Sequence[tuple[Host, HostReport]],
    *,
    now: datetime,
    actor: str,
) -> set[UUID]:
    """Write looks at hosts, which are locked, one of each. An older look changes nothing.

    Returns at which hosts another machine answered in their place: nothing else is
    written of these.
    """
    ledgers = read_ledgers(connection, [host.id for host, _ in looks])
    counted, others = [], set()
    for host, report in looks:
        ledger = ledgers[host.id]
        if not _counts(connection, host, report, ledger.fence, now):
            continue
        if is_same_machine(connection, host, report, ledger.live, now=now, actor=actor):
            counted.append(_Look(host, report, ledger))
        else:
            others.add(host.id)
    _keep(connection, counted)
    marks = set[UUID]()
    for look in counted:
        marks |= unknown_marks(look.report, look.ledger.live)
    known = known_assignments(connection, marks)
    for look in counted:
        _compare(connection, look, known, now=now, actor=actor)
    return others


def _counts(
    connection: Connection,
    host: Host,
    report: HostReport,
    fence: Row[Any] | None,
    now: datetime,
) -> bool:
    if host.admin == HostAdmin.RETIRED:
        return False
    if host.last_polled_at is not None and report.polled_at < host.last_polled_at:
        return False
    if is_being_fenced(fence, now):
        _say(connection, host, _BEING_FENCED)  # nothing may begin there until it is over
        return False
    # What was released since it was fenced would be taken for nobody's leftover.
    return fence is None or fence.fenced_at is None or report.started_at > fence.fenced_at


def _keep(connection: Connection, looks: Sequence[_Look]) -> None:
    """Write that the hosts answered, and what."""
    update_rows(
        connection,
        hosts,
        [
            {
                "id": look.host.id,
                "last_polled_at": look.report.polled_at,
                "last_error": None,
                "missed_polls": 0,
            }
            for look in looks
        ],
    )
    rows = [
        {
            "host_id": look.host.id,
            "report": _to_json(look.report),
            "polled_at": look.report.polled_at,
        }
        for look in looks
    ]
    keys = [look.host.id for look in looks]
    query = select(host_reports.c.host_id).where(host_reports.c.host_id.in_(keys))
    there = set(connection.scalars(query)) if keys else set()
    update_rows(
        connection,
        host_reports,
        [row for row in rows if row["host_id"] in there],
        keys=("host_id",),
    )
    insert_rows(connection, host_reports, [row for row in rows if row["host_id"] not in there])


def _compare(
    connection: Connection,
    look: _Look,
    known: Mapping[UUID, Known],
    *,
    now: datetime,
    actor: str,
) -> None:
    """Write what follows from how the host differs from what the ledger has of it."""
    host, report, ledger = look.host, look.report, look.ledger
    drift = find_drift(report, ledger.live, known)
    _take_back(connection, host, ledger.fence, drift, now=now, actor=actor)
    _observe_vms(connection, host, report, ledger.live, now=now, actor=actor)
    note_missing(connection, host, report, ledger.copies, now=now, actor=actor)
    foreign = foreign_amounts(drift.strangers)
    foreign["disk_gib"] += disk_of_copies(ledger.copies)
    _write_inventories(connection, host, report, foreign)
    note_strangers(connection, host, drift, ledger.strangers, now=now, actor=actor)
    note_leftovers(connection, host, report, drift, ledger.leftovers, now=now, actor=actor)


def record_miss(
    connection: Connection,
    host: Host,
    error: str,
    *,
    unreachable_after: int,
    down_after: int,
    started_at: datetime | None,
    apart_s: float,
    now: datetime,
    actor: str,
) -> None:
    """Write that a poll failed. After so many in a row the host is unreachable, then down.

    Several monitors look at the same host. Of looks that began within ``apart_s``
    of each other one is counted, whoever took them; one that began before the
    host last answered another monitor is not.
    """
    if host.admin == HostAdmin.RETIRED:
        return
    if started_at is not None and not _is_counted(connection, host, started_at, apart_s):
        return
    missed = host.missed_polls + 1
    connection.execute(
        update(hosts)
        .where(hosts.c.id == host.id)
        .values(
            last_error=error,
            missed_polls=missed,
            last_missed_at=started_at or now,
            returning_since=None,
        )
    )
    event = None
    if missed >= down_after:
        event = HostHealthEvent.GIVEN_UP
    elif missed >= unreachable_after:
        event = HostHealthEvent.UNANSWERED
    if event is not None:
        after = _change_health(connection, host, event, error, now=now, actor=actor)
        if after == HostHealth.DOWN:
            _withdraw_reserved(connection, host, now=now, actor=actor)


def _is_counted(connection: Connection, host: Host, began_at: datetime, apart_s: float) -> bool:
    if host.last_polled_at is not None and began_at < host.last_polled_at:
        return False
    query = select(hosts.c.last_missed_at).where(hosts.c.id == host.id)
    counted_at = connection.scalars(query).one()
    return counted_at is None or began_at >= counted_at + timedelta(seconds=apart_s)


def latest_reports(connection: Connection) -> Mapping[UUID, HostReport]:
    """Return the latest report by host."""
    query = (
        select(host_reports)
        .join(hosts, hosts.c.id == host_reports.c.host_id)
        .where(hosts.c.admin != HostAdmin.RETIRED.value)
        .order_by(hosts.c.name)
    )
    return {row.host_id: _from_json(row.report) for row in connection.execute(query)}


def latest_report(connection: Connection, host_id: UUID) -> HostReport | None:
    """Return the latest report of one host; None if it never answered."""
    query = select(host_reports.c.report).where(host_reports.c.host_id == host_id)
    found = connection.scalars(query).one_or_none()
    return _from_json(found) if found is not None else None


def _say(connection: Connection, host: Host, error: str) -> None:
    connection.execute(update(hosts).where(hosts.c.id == host.id).values(last_error=error))


def _take_back(
    connection: Connection,
    host: Host,
    fence: Row[Any] | None,
    drift: Drift,
    *,
    now: datetime,
    actor: str,
) -> None:
    """Let a host that answers be up; one that was down only when it is clear of leftovers.

    What was placed elsewhere meanwhile is gone from it before it may take VMs.
    """
    returns = host.health == HostHealth.DOWN and bool(drift.domains or drift.volumes)
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
        _change_health(connection, host, HostHealthEvent.ANSWERED, None, now=now, actor=actor)
        return
    left = len(drift.domains) + len(drift.volumes)
    _say(connection, host, f"it answers, and is cleared of {left} leftovers before it is up")
    if host.returning_since is None:
        connection.execute(update(hosts).where(hosts.c.id == host.id).values(returning_since=now))
        health = next_state(HOST_HEALTH_TRANSITIONS, host.health, HostHealthEvent.RETURNED)
        data = {"name": host.name, "leftovers": left}
        history = event_row(
            now,
            actor,
            "host_health",
            "host",
            host.id,
            change=(host.health, health),
            event=HostHealthEvent.RETURNED,
            data=data,
        )
        record(connection, [history])


def _change_health(
    connection: Connection,
    host: Host,
    event: HostHealthEvent,
    reason: str | None,
    *,
    now: datetime,
    actor: str,
) -> HostHealth:
    after = next_state(HOST_HEALTH_TRANSITIONS, host.health, event)
    if after != host.health:
        connection.execute(update(hosts).where(hosts.c.id == host.id).values(health=after.value))
        history = event_row(
            now,
            actor,
            "host_health",
            "host",
            host.id,
            change=(host.health, after),
            event=event,
            reason=reason,
            data={"name": host.name},
        )
        record(connection, [history])
    return after


def _write_inventories(
    connection: Connection, host: Host, report: HostReport, foreign: Mapping[str, int]
) -> None:
    for each in sorted(host.inventories, key=lambda each: each.resource):
        detected = report.detected.get(each.resource, each.detected)
        held = foreign.get(each.resource, 0)
        if (detected, held) != (each.detected, each.foreign):
            connection.execute(
                update(inventories)
                .where(inventories.c.host_id == host.id, inventories.c.resource == each.resource)
                .values(detected=detected, foreign_amount=held)
            )


def foreign_amounts(others: Collection[DomainReport]) -> dict[str, int]:
    """Return what domains that are not ours hold: a stopped one only its disk."""
    awake = [domain for domain in others if domain.state != "stopped"]
    return {
        "vcpus": sum(domain.vcpus for domain in awake),
        "memory_mib": sum(domain.memory_mib for domain in awake),
        "disk_gib": sum(domain.disk_gib for domain in others),
    }


def settled_before(row: Row[Any], report: HostReport) -> bool:
    """Tell whether a look shows what became of an active VM: nobody switched it since it began."""
    if row.switched_at is not None and row.switched_at >= report.started_at:
        return False
    return row.activated_at is not None and bool(row.activated_at < report.started_at)


def _observe_vms(
    connection: Connection,
    host: Host,
    report: HostReport,
    live: Mapping[UUID, Any],
    *,
    now: datetime,
    actor: str,
) -> None:
    seen = {
        domain.assignment_id: domain
        for domain in report.domains
        if domain.assignment_id is not None
    }
    history = []
    to_switch: dict[VmDesired, list[UUID]] = {VmDesired.RUNNING: [], VmDesired.STOPPED: []}
    to_clear = []
    for row in live.values():
        if row.state != AssignmentState.ACTIVE.value:
            continue
        domain = seen.get(row.id)
        event = VmObservedEvent.MISSING if domain is None else _SEEN[domain.state]
        settled = settled_before(row, report)
        switched = row.switched_at is not None and row.switched_at >= report.started_at
        # A worker knows better what it switched since; what was not seen to run may
        # have been started after the look began.
        if switched or (event != VmObservedEvent.SEEN_RUNNING and not settled):
            continue
        before = VmObserved(row.observed)
        after = next_state(VM_OBSERVED_TRANSITIONS, before, event)
        vm = LedgerVm(
            desired=VmDesired(row.desired),
            observed=before,
            started_at=row.switched_at or row.activated_at,
        )
        fate = fate_of(vm, domain, report.started_at)
        if fate == Difference.VM_MISSING and is_rebuilt(host, row):
            to_clear.append(row)
        if after == before:
            continue
        connection.execute(update(vms).where(vms.c.id == row.vm_id).values(observed=after.value))
        if fate in _SWITCHED:
            to_switch[vm.desired].append(row.vm_id)
        missing = event == VmObservedEvent.MISSING
        reason = None if fate is None else f"{DECIDED[fate].why}: {DECIDED[fate].action}"
        history.append(
            event_row(
                now,
                actor,
                "vm_missing" if missing else "vm_observed",
                "vm",
                row.vm_id,
                tenant=row.tenant,
                change=(before, after),
                event=event,
                reason=f"host {host.name} knows no such domain" if missing else reason,
                data={"host": host.name, "assignment": str(row.id)},
            )
        )
    record(connection, history)
    for desired, keys in to_switch.items():
        if keys:
            switch_again(connection, keys, desired, now=now)
    clear_missing(connection, host, to_clear, now=now, actor=actor)


def _withdraw_reserved(connection: Connection, host: Host, *, now: datetime, actor: str) -> None:
    """Release what nobody claimed on a host that is down, so that it is decided again."""
    rows = connection.execute(
        select(
            assignments.c.id,
            assignments.c.vm_id,
            vms.c.request_id,
            tenants.c.name.label("tenant"),
        )
        .select_from(assignments)
        .join(vms, vms.c.id == assignments.c.vm_id)
        .join(tenants, tenants.c.id == vms.c.tenant_id)
        .where(
            assignments.c.host_id == host.id,
            unreleased,
            assignments.c.state == AssignmentState.RESERVED.value,
        )
        .order_by(assignments.c.id)
        .with_for_update(of=assignments, key_share=True)
    ).all()
    if not rows:
        return
    before, event = AssignmentState.RESERVED, AssignmentEvent.WITHDRAWN
    after = next_state(ASSIGNMENT_TRANSITIONS, before, event)
    connection.execute(
        update(assignments)
        .where(assignments.c.id.in_([row.id for row in rows]))
        .values(state=after.value, released_at=now)
    )
    history = [
        assignment_row(
            now,
            actor,
            row.id,
            vm_id=row.vm_id,
            tenant=row.tenant,
            change=(before, after),
            event=event,
            reason=f"host {host.name} is down and nobody had claimed it",
            host=host.name,
        )
        for row in rows
    ]
    record(connection, history)
    drop_power(connection, [row.vm_id for row in rows], now=now, actor=actor)
    recompute(
        connection,
        {row.request_id for row in rows},
        now=now,
        actor=actor,
        reason=f"host {host.name} is down",
    )


def _to_json(report: HostReport) -> dict[str, Any]:
    return {
        "hostname": report.hostname,
        "detected": dict(report.detected),
        "cpu_busy_percent": report.cpu_busy_percent,
        "memory_used_mib": report.memory_used_mib,
        "disk_used_gib": report.disk_used_gib,
        "domains": [
            {
                "uuid": str(domain.uuid),
                "name": domain.name,
                "state": domain.state,
                "vcpus": domain.vcpus,
                "memory_mib": domain.memory_mib,
                "disk_gib": domain.disk_gib,
                "assignment_id": str(domain.assignment_id) if domain.assignment_id else None,
                "generation": domain.generation,
                "cpu_time_ns": domain.cpu_time_ns,
                "memory_used_mib": domain.memory_used_mib,
                "off_reason": domain.off_reason,
            }
            for domain in report.domains
        ],
        "volumes": list(report.volumes),
        "started_at": report.started_at.isoformat(),
        "polled_at": report.polled_at.isoformat(),
        "took_ms": report.took_ms,
        "machine_uuid": report.machine_uuid,
    }


def _from_json(stored: Mapping[str, Any]) -> HostReport:
    """Read a report back; what a later version added to it is left out."""
    domains = tuple(
        DomainReport(
            **{name: each[name] for name in _DOMAIN_FIELDS if name in each}
            | {
                "uuid": UUID(each["uuid"]),
                "assignment_id": UUID(each["assignment_id"]) if each["assignment_id"] else None,
            }
        )
        for each in stored["domains"]
    )
    times = {key: datetime.fromisoformat(stored[key]) for key in ("started_at", "polled_at")}
    kept = {name: stored[name] for name in _REPORT_FIELDS if name in stored}
    return HostReport(**(kept | times | {"domains": domains, "volumes": tuple(stored["volumes"])}))
