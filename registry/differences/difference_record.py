"""The record of one difference, with its remedy."""

from __future__ import annotations

from uuid import UUID

from registry.reconciliation import DECIDED, Difference, Remedy
from registry.records.hosts import Host, HostDifference


def new_difference(
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
