"""Find the constraint that leaves waiting VMs no room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from placement.model.arrays import BoolArray, IntArray
from placement.model.constraints import Constraints
from placement.model.reasons import hosts_open_to, needed_at_once
from placement.model.snapshot import Reason, Snapshot
from placement.model.vm_kinds import vms_that_fit

#: What a policy may say of hosts that only constraints close: it is looked at again.
OF_HOSTS: Final = (
    Reason.NO_ELIGIBLE_HOST,
    Reason.NO_HOST_LARGE_ENOUGH,
    Reason.NO_ROOM,
    Reason.GANG_NOT_WHOLE,
)


def find_wait_reason(
    rest: Snapshot, snapshot: Snapshot, request: int, missing: int, reason: Reason
) -> Reason:
    """Return why VMs of a request wait: the constraint that leaves no room, else the given reason.

    Parameters
    ----------
    rest : Snapshot
        The snapshot after everything is placed, with the constraints as they are then.
    snapshot : Snapshot
        The snapshot that the policy decided on.
    missing : int
        VMs of the request that wait.
    reason : Reason
        The policy's reason; the policy did not see the constraints.
    """
    constraints = rest.constraints
    if constraints is None or reason in (Reason.NOTHING_ASKED, Reason.HELD_BACK, Reason.QUOTA):
        return reason
    never = not (
        hosts_open_to(snapshot, request)
        & (snapshot.capacity >= snapshot.demand[request]).all(axis=1)
    ).any()
    if never:
        return reason
    needed = needed_at_once(snapshot, request, missing)
    fits = vms_that_fit(rest.free, rest.demand[request]) * hosts_open_to(rest, request)
    if int(fits.sum()) < needed:
        some = Reason.GANG_NOT_WHOLE if fits.any() else Reason.NO_ROOM
        return some if reason in OF_HOSTS else reason
    narrows: Reason = reason
    for narrows, possible in _room_per_constraint(constraints, request, fits):
        if possible < needed:
            return narrows
    # There is room within each constraint, and what the policy saw was one of them closed.
    return narrows if reason in OF_HOSTS else reason


def _room_per_constraint(
    constraints: Constraints, request: int, fits: IntArray
) -> Iterator[tuple[Reason, int]]:
    """Yield how many VMs of a request have room as its hard constraints are added one by one."""
    for group in constraints.groups:
        if group.hard and group.apart and request in group.requests:
            fits = np.minimum(fits, 1)
            fits[list(group.hosts)] = 0
            yield Reason.ANTI_AFFINITY, int(fits.sum())
    for group in constraints.groups:
        if group.hard and not group.apart and request in group.requests:
            if group.hosts:
                fits = fits * _host_mask(group.hosts, len(fits))
                yield Reason.AFFINITY, int(fits.sum())
            else:
                yield Reason.AFFINITY, int(fits.max(initial=0))
    for spread in constraints.spreads:
        if spread.request == request:
            zones = np.array(constraints.zones, dtype=np.int64)
            room = [
                min(int(fits[zones == zone].sum()), max(0, spread.maximum - placed))
                for zone, placed in enumerate(spread.placed)
            ]
            yield Reason.ZONE_FULL, sum(room)


def _host_mask(hosts: tuple[int, ...], size: int) -> BoolArray:
    """Return a mask, (H,), that is True for these hosts."""
    found = np.zeros(size, dtype=np.bool_)
    found[list(hosts)] = True
    return found
