"""Differences between hosts' latest reports and the ledger, and their repair by operators.

The functions that handle reports also compute these differences. So the list shows what was done
about each difference, or would be done.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import delete, select, update

from registry.audit.events import record_event
from registry.db.bulk import chunks
from registry.db.clock import db_now
from registry.db.engine import Database, retry_on_rollback
from registry.db.locks import lock_hosts, lock_vms_on
from registry.db.schema import host_reports, hosts
from registry.differences.compared_hosts import read_compared_hosts
from registry.differences.host_differences import host_differences
from registry.differences.repairs import (
    check_domain_is_off,
    check_vm_runs_elsewhere,
    request_removal,
)
from registry.errors import ConflictError
from registry.hosts.host_records import find_host_id, read_host, to_hosts
from registry.hosts.ledger_view import live_assignments
from registry.hosts.machine_names import NO_UUID
from registry.hosts.unaccounted_items import domains_on_other_hosts
from registry.ledger.release import end_missing_vms
from registry.lifecycle import HostAdmin
from registry.reconciliation import Difference
from registry.records.hosts import HostDifference

_AT_ONCE: Final = 200  #: hosts, whose reports are in memory


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
                seen = read_compared_hosts(connection, some)
                for each in some:
                    found += host_differences(connection, each, seen)
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
            for found in host_differences(connection, at, read_compared_hosts(connection, [at])):
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
                    check_vm_runs_elsewhere(connection, at, found)
                check_domain_is_off(connection, at, found)
                request_removal(connection, at, found, now=now, actor=actor)
            return found
