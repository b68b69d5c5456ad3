"""Why a unit has no destination, and what room is missing."""

from __future__ import annotations

import numpy as np

from placement.model.arrays import BoolArray, FloatArray
from placement.rebalancing.model import MissingRoom, StayingVm, StayReason
from placement.rebalancing.placement_state import PlacementState
from placement.rebalancing.units import MoveUnit


class StayExplainer:
    """Explains why units of a plan have no destination; alike units are checked once."""

    def __init__(self, where: PlacementState) -> None:
        self._where = where
        self._known: dict[tuple[object, ...], tuple[StayReason, MissingRoom | None]] = {}

    def stays(self, unit: MoveUnit) -> list[StayingVm]:
        """Return why each VM of a unit has to stay."""
        ruled = any(map(self._where.is_ruled, unit.vms))
        source = self._where.host[unit.vms[0]]
        # Where units alike are matters only if they could stay there.
        home = source if self._where.running.receives[source] else -1
        vms = unit.vms if ruled else None
        key = (*unit.key, unit.hosts, len(unit.vms) > 1, vms, home)
        if key not in self._known:
            self._known[key] = self._reason_and_room(unit, source)
        why, missing = self._known[key]
        return [StayingVm(vm=vm, why=why, missing=missing) for vm in unit.vms]

    def _reason_and_room(
        self, unit: MoveUnit, source: int
    ) -> tuple[StayReason, MissingRoom | None]:
        """Return why a unit stays, and the room that it lacks, if room is the reason."""
        where = self._where
        open_to = where.open_to(unit.eligible).copy()
        open_to[source] = False
        if not open_to.any():
            return StayReason.NO_ELIGIBLE_HOST, None
        if unit.hosts is not None:
            among = np.zeros(len(open_to), dtype=np.bool_)
            among[list(unit.hosts)] = True
            open_to &= among
            if not open_to.any():
                return StayReason.AFFINITY, None
        capacity = where.running.snapshot.capacity
        demanded = unit.demand > 0
        large = open_to & (capacity[:, demanded] >= unit.demand[demanded]).all(axis=1)
        together = len(unit.vms) > 1 or unit.hosts is not None
        if not large.any():
            return (StayReason.AFFINITY if together else StayReason.NO_HOST_LARGE_ENOUGH), None
        room = large & (where.room[:, demanded] >= unit.demand[demanded]).all(axis=1)
        allowed = self._allowed_hosts(unit, large)
        missing = self._missing_room(unit, allowed) if allowed.any() else None
        if room.any():
            apart = [h for h in np.flatnonzero(room).tolist() if where.is_kept_apart(unit.vms, h)]
            return (StayReason.ANTI_AFFINITY if apart else StayReason.ZONE_FULL), missing
        return (StayReason.AFFINITY if together else StayReason.NO_ROOM), missing

    def _allowed_hosts(self, unit: MoveUnit, hosts: BoolArray) -> BoolArray:
        """Return those of some hosts that groups and spreads leave open to a unit, (H,)."""
        if not any(map(self._where.is_ruled, unit.vms)):
            return hosts
        allowed = hosts.copy()
        for host in np.flatnonzero(hosts).tolist():
            allowed[host] = self._where.allows(unit.vms, host)
        return allowed

    def _missing_room(self, unit: MoveUnit, hosts: BoolArray) -> MissingRoom | None:
        """Return the room that a unit lacks on the host that lacks least, in parts of capacity."""
        lacks = np.maximum(unit.demand - self._where.room, 0) * (unit.demand > 0)
        capacity = self._where.running.snapshot.capacity
        parts: FloatArray = np.divide(
            lacks, capacity, out=np.zeros(lacks.shape), where=capacity > 0
        )
        total = np.where(hosts, parts.sum(axis=1), np.inf)
        host = int(np.argmin(total))
        if not lacks[host].any():
            return None
        return MissingRoom(host=host, amounts=tuple(lacks[host].tolist()))
