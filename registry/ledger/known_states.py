"""What VMs do as far as anybody knows: what was seen, unless their hosts fell silent since."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, false, or_, select

from registry.db.bulk import among
from registry.db.schema import assignments, hosts, is_place, unreleased, vms
from registry.lifecycle import OUT_OF_REACH, VmObserved, VmState

#: What a host was seen to do with a VM, and may not do any more once it is out of reach.
SEEN: Final = (VmObserved.RUNNING.value, VmObserved.STOPPED.value)
#: Of a query that joins VMs with their hosts; a VM without a host has none that is silent.
ANSWERS: Final = or_(hosts.c.health.is_(None), hosts.c.health.not_in(OUT_OF_REACH))

RUNS: Final = and_(vms.c.observed == VmObserved.RUNNING.value, ANSWERS)
IS_UNKNOWN: Final = and_(vms.c.observed.in_(SEEN), hosts.c.health.in_(OUT_OF_REACH))


def is_unknown(health: str | None, observed: str) -> bool:
    """Return whether what was observed of a VM is old: its host does not answer any more."""
    return health in OUT_OF_REACH and observed in SEEN


def is_in_state(connection: Connection, state: VmState) -> ColumnElement[bool]:
    """Return what VMs in this state have in common, in a query that joins them with their hosts.

    Hosts that are silent are named one by one: they are few, and mostly there are none. As a part
    of the query they would be looked for among the hosts of all VMs there are.
    """
    if state is not VmState.UNKNOWN:
        seen = vms.c.observed == state.value
        return and_(seen, ANSWERS) if state.value in SEEN else seen
    silent = connection.scalars(select(hosts.c.id).where(hosts.c.health.in_(OUT_OF_REACH))).all()
    if not silent:
        return false()
    return and_(
        vms.c.observed.in_(SEEN),
        is_place,
        unreleased,
        among(connection, assignments.c.host_id, silent),
    )
