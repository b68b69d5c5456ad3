"""Destinations by an integer program, for small cases that the heuristics miss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from placement.model.arrays import FloatArray, IntArray
from placement.rebalancing.placement_state import PlacementState
from placement.rebalancing.units import MoveUnit

if TYPE_CHECKING:
    from scipy.sparse import coo_array

#: Nodes that the solver may open: it counts, and takes no time, so that a replay agrees.
_MAX_NODES: Final = 2_000
#: HiGHS status in scipy: an optimum was found.
_OPTIMAL: Final = 0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RebalanceSolution:
    """The most units that get a destination at once."""

    hosts: dict[int, int]  #: unit to host
    proven: bool  #: do no others place more?


def possible_pairs(where: PlacementState, units: Sequence[MoveUnit]) -> list[tuple[int, int]]:
    """Return which units could go to which hosts alone, by room, class and VMs that stay.

    Groups and zones count only as far as VMs that stay are concerned.
    """
    leaving = {vm for unit in units for vm in unit.vms}
    running = where.running
    stay: dict[int, set[int]] = {}
    pairs = []
    for number, unit in enumerate(units):
        open_to = where.open_to(unit.eligible).copy()
        open_to[where.host[unit.vms[0]]] = False
        demanded = unit.demand > 0
        open_to &= (where.room[:, demanded] >= unit.demand[demanded]).all(axis=1)
        hosts = set(np.flatnonzero(open_to).tolist())
        if unit.hosts is not None:
            hosts &= set(unit.hosts)
        for group in (each for vm in unit.vms for each in where.apart_groups(vm)):
            if group not in stay:
                members = running.groups[group]
                stay[group] = {where.host[vm] for vm in members.vms if vm not in leaving} | set(
                    members.hosts
                )
            hosts -= stay[group]
        if any(map(where.is_spread, unit.vms)):
            hosts -= set(np.flatnonzero(running.zones < 0).tolist())
        pairs += [(number, host) for host in sorted(hosts)]
    return pairs


def solve_destinations(
    where: PlacementState, units: Sequence[MoveUnit], pairs: Sequence[tuple[int, int]]
) -> RebalanceSolution | None:
    """Return the most units that get destinations at once, among these pairs.

    Everything that leaves has left: whether an order of moves leads there is not checked.

    Returns
    -------
    Solved or None
        None where the solver found nothing within its nodes.

    Notes
    -----
    Maximises ``sum x[u,h]`` over binary x with ``sum_h x[u,h] <= 1``, what arrives at most
    the room of each host, of a group that keeps apart one VM on a host at most, and
    of a spread at most its part in each zone.
    """
    from scipy import optimize  # noqa: PLC0415 - slow to import, and only needed here

    if not pairs:
        return RebalanceSolution(hosts={}, proven=True)
    unit_of = np.array([unit for unit, _ in pairs], dtype=np.int64)
    host_of = np.array([host for _, host in pairs], dtype=np.int64)
    rows = _ConstraintRows(len(pairs))
    rows.add_each(unit_of, np.ones(len(pairs)), np.ones(len(units)))
    demand = np.array([unit.demand for unit in units])
    for resource in range(demand.shape[1]):
        # In parts of the largest amount: HiGHS minds coefficients of a billion.
        scale = max(1, int(demand[:, resource].max(initial=0)))
        room = np.maximum(where.room[:, resource], 0)
        rows.add_each(host_of, demand[unit_of, resource] / scale, room / scale)
    _add_constraint_rows(rows, where, units, unit_of, host_of)
    solution = optimize.milp(
        c=-np.ones(len(pairs)),
        constraints=optimize.LinearConstraint(rows.matrix(), -np.inf, rows.maximum),
        integrality=np.ones(len(pairs)),
        bounds=optimize.Bounds(0, 1),
        options={"node_limit": _MAX_NODES},
    )
    if solution.x is None:
        return None
    chosen = np.flatnonzero(np.round(solution.x) > 0)
    hosts = {int(unit_of[place]): int(host_of[place]) for place in chosen}
    return RebalanceSolution(hosts=hosts, proven=solution.status == _OPTIMAL)


class _ConstraintRows:
    """Rows of an integer program for destinations, with their upper bounds."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._parts: list[tuple[IntArray, IntArray, FloatArray]] = []
        self.maximum = np.zeros(0)

    def add_each(self, row: IntArray, amount: FloatArray, maximum: FloatArray) -> None:
        """Add one row for each bound in ``maximum``.

        Column i enters row ``row[i]`` of them with the coefficient ``amount[i]``.
        """
        self._parts.append(
            (row + len(self.maximum), np.arange(self._columns, dtype=np.int64), amount)
        )
        self.maximum = np.concatenate([self.maximum, maximum])

    def add(self, columns: Sequence[int], amounts: Sequence[int], maximum: int) -> None:
        """Add one row, with coefficients of some columns."""
        row = np.full(len(columns), len(self.maximum), dtype=np.int64)
        self._parts.append(
            (row, np.array(columns, dtype=np.int64), np.array(amounts, dtype=np.float64))
        )
        self.maximum = np.append(self.maximum, maximum)

    def matrix(self) -> coo_array:
        """Return all rows as a sparse matrix."""
        from scipy.sparse import coo_array  # noqa: PLC0415 - slow to import, and only needed here

        row, column, amount = (np.concatenate(each) for each in zip(*self._parts, strict=True))
        return coo_array((amount, (row, column)), shape=(len(self.maximum), self._columns)).tocsr()


def _add_constraint_rows(
    rows: _ConstraintRows,
    where: PlacementState,
    units: Sequence[MoveUnit],
    unit_of: IntArray,
    host_of: IntArray,
) -> None:
    """Add the rows of anti-affinity groups and spreads to the program."""
    running = where.running
    unit_with = {vm: number for number, unit in enumerate(units) for vm in unit.vms}
    columns_of: dict[int, list[int]] = {}
    for column, unit in enumerate(unit_of.tolist()):
        columns_of.setdefault(unit, []).append(column)
    for group in running.groups:
        members = [unit_with[vm] for vm in group.vms if vm in unit_with]
        if not (group.apart and group.hard) or len(members) < 2:
            continue
        on_host: dict[int, list[int]] = {}
        for column in (column for unit in members for column in columns_of.get(unit, ())):
            on_host.setdefault(int(host_of[column]), []).append(column)
        for columns in on_host.values():
            rows.add(columns, [1] * len(columns), 1)
    for spread in running.spreads:
        leaving = [vm for vm in spread.vms if vm in unit_with]
        held = [0] * (int(running.zones.max(initial=-1)) + 1)
        for zone, others in enumerate(spread.others):
            held[zone] += others
        for vm in spread.vms:
            zone = int(running.zones[where.host[vm]])
            if vm not in unit_with and zone >= 0:
                held[zone] += 1
        in_zone: dict[int, list[int]] = {}
        for column in (column for vm in leaving for column in columns_of.get(unit_with[vm], ())):
            in_zone.setdefault(int(running.zones[host_of[column]]), []).append(column)
        for zone, columns in in_zone.items():
            rows.add(columns, [1] * len(columns), max(0, spread.maximum - held[zone]))
