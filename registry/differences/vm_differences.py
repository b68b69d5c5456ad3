"""Differences of VMs: domains whose states are not those of the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, select

from registry.db.bulk import chunks
from registry.db.schema import interfaces, networks
from registry.differences.difference_record import new_difference
from registry.hosts.reports import is_rebuilt, is_state_current
from registry.lifecycle import AssignmentState, VmDesired, VmObserved
from registry.reconciliation import Difference, LedgerVm, vm_difference
from registry.records.hosts import DomainReport, Host, HostDifference, HostReport


def vm_differences(
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
        yield new_difference(
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
