"""Known states of VMs: the observed state, or unknown if the host no longer answers."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, false, or_, select

from registry.db.bulk import is_any_of
from registry.db.schema import assignments, hosts, is_place, unreleased, vms
from registry.lifecycle import OUT_OF_REACH, WITH_DOMAIN, VmObserved, VmState

#: The condition that a VM's host is out of reach, in a query that joins VMs with their hosts.
ANSWERS: Final = or_(hosts.c.health.is_(None), hosts.c.health.not_in(OUT_OF_REACH))

RUNS: Final = and_(vms.c.observed == VmObserved.RUNNING.value, ANSWERS)
IS_UNKNOWN: Final = and_(vms.c.observed.in_(WITH_DOMAIN), hosts.c.health.in_(OUT_OF_REACH))


def is_state_unknown(health: str | None, observed: str) -> bool:
    """Return whether a VM's observed state is outdated, as its host no longer answers."""
    return health in OUT_OF_REACH and observed in WITH_DOMAIN


def is_in_state(connection: Connection, state: VmState) -> ColumnElement[bool]:
    """Return the condition for VMs in a known state, in a query that joins them with hosts.

    Silent hosts, of which there are few, are listed by id. As a part
    of the query they would be searched among the hosts of all VMs.
    """
    if state is not VmState.UNKNOWN:
        seen = vms.c.observed == state.value
        return and_(seen, ANSWERS) if state.value in WITH_DOMAIN else seen
    silent = connection.scalars(select(hosts.c.id).where(hosts.c.health.in_(OUT_OF_REACH))).all()
    if not silent:
        return false()
    return and_(
        vms.c.observed.in_(WITH_DOMAIN),
        is_place,
        unreleased,
        is_any_of(connection, assignments.c.host_id, silent),
    )
