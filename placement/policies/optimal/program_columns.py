"""Demand as columns of an integer program, and the requests that a solution serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placement.fairness.service_order import service_order_of_vms
from placement.model.arrays import IntArray
from placement.model.snapshot import Snapshot
from placement.model.vm_kinds import VmKinds
from placement.policies.optimal.integer_program import IntegerProgram


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PlaceableVms:
    """VMs that could be placed: single ones by kind, gangs by request."""

    snapshot: Snapshot
    kinds: VmKinds
    wanted: IntArray  #: (Q,) VMs of each request that its hosts could hold by themselves

    @property
    def gangs(self) -> IntArray:
        """Requests of more than one VM or none that could become whole, shape (X,)."""
        minimum = self.snapshot.min_count
        return np.flatnonzero((minimum > 1) & (self.wanted >= minimum)).astype(np.int64)

    @property
    def singles(self) -> IntArray:
        """VMs of each request that is no gang, shape (Q,)."""
        singles: IntArray = np.where(self.snapshot.min_count > 1, 0, self.wanted)
        return singles

    def by_kind(self) -> IntArray:
        """VMs that could be placed of each kind, shape (T,)."""
        total = np.zeros(len(self.kinds), dtype=np.int64)
        np.add.at(total, self.kinds.of_request, self.singles)
        np.add.at(total, self.kinds.of_request[self.gangs], self.wanted[self.gangs])
        return total


class ProgramColumns:
    """Columns for the VMs of each kind, and of each gang, that are placed.

    A gang g of least m and most n has a column x and a switch z of 0 or 1:
    m z <= x <= n z, so that x is 0 or at least m. VMs of one kind are given
    only as far as hosts supply them.
    """

    def __init__(
        self,
        program: IntegerProgram,
        placeable: PlaceableVms,
        supply: Iterable[tuple[int, int, int]],
    ) -> None:
        self._placeable = placeable
        of_kind = placeable.kinds.of_request
        singles = np.zeros(len(placeable.kinds), dtype=np.int64)
        np.add.at(singles, of_kind, placeable.singles)
        self._singles = {
            kind: program.add_column(int(singles[kind]))
            for kind in np.flatnonzero(singles).tolist()
        }
        self._gangs: dict[int, int] = {}
        given = {kind: [(column, 1.0)] for kind, column in self._singles.items()}
        for gang in placeable.gangs.tolist():
            minimum, maximum = int(placeable.snapshot.min_count[gang]), int(placeable.wanted[gang])
            column, switch = program.add_column(maximum), program.add_column(1)
            program.add_row([(column, -1.0), (switch, float(minimum))], maximum=0.0)
            program.add_row([(column, 1.0), (switch, -float(maximum))], maximum=0.0)
            self._gangs[gang] = column
            given.setdefault(int(of_kind[gang]), []).append((column, 1.0))
        for kind, column, count in supply:
            given[kind].append((column, -float(count)))
        for entries in given.values():
            program.add_row(entries, maximum=0.0)

    def gains(self, columns: int, value: Sequence[int]) -> list[int]:
        """Return the gain of each column of the program, given the value of each kind's VM."""
        gains = [0] * columns
        for kind, column in self._singles.items():
            gains[column] = value[kind]
        for gang, column in self._gangs.items():
            gains[column] = value[int(self._placeable.kinds.of_request[gang])]
        return gains

    def read(self, values: Sequence[int]) -> PlacedCounts:
        """Return the VMs that a solution places."""
        return PlacedCounts(
            singles={kind: values[column] for kind, column in self._singles.items()},
            gangs={gang: values[column] for gang, column in self._gangs.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCounts:
    """VMs that a solution places: single VMs by kind, and each gang's."""

    singles: Mapping[int, int]
    gangs: Mapping[int, int]


def assign_to_requests(
    placeable: PlaceableVms, given: PlacedCounts, on_hosts: IntArray
) -> IntArray:
    """Assign the VMs that a solution places on hosts to requests.

    Parameters
    ----------
    placeable : PlaceableVms
    given : PlacedCounts
    on_hosts : ndarray of int64, shape (H, T)
        Room for VMs of each kind that the hosts have been given; fewer than
        ``given`` where not all could be packed.

    Returns
    -------
    ndarray of int64, shape (P, 3)
        Request, host and count. Gangs first; one that does not come out whole
        gets nothing. Single VMs of a kind go to the requests that would come first
        under progressive filling with all VMs placed (derived): the objective
        does not distinguish them, so fairness decides.
    """
    snapshot, of_kind = placeable.snapshot, placeable.kinds.of_request
    counts = np.zeros_like(placeable.wanted)
    left = on_hosts.sum(axis=0)
    for gang, number in given.gangs.items():
        taken = min(number, int(left[of_kind[gang]]))
        if taken >= snapshot.min_count[gang]:
            counts[gang] = taken
            left[of_kind[gang]] -= taken
    held = snapshot.held.copy()
    np.add.at(held, snapshot.tenant, counts[:, None] * snapshot.demand)
    order = service_order_of_vms(snapshot, placeable.singles, held)
    for kind, number in given.singles.items():
        of_this = order[of_kind[order] == kind]
        served = of_this[: min(number, int(left[kind]))]
        np.add.at(counts, served, 1)

    rows = []
    for kind in np.unique(of_kind[counts > 0]).tolist():
        requests = np.flatnonzero((of_kind == kind) & (counts > 0))
        vms = np.repeat(requests, counts[requests])
        hosts = np.repeat(np.arange(len(on_hosts)), on_hosts[:, kind])[: len(vms)]
        rows.append(np.stack([vms, hosts, np.ones_like(vms)], axis=1))
    return np.concatenate([np.zeros((0, 3), dtype=np.int64), *rows]).astype(np.int64)
