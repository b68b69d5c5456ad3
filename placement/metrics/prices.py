"""Prices of resources and of fairness in a round, from one small linear program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from placement.constraints.allowances import snapshot_within_allowances
from placement.errors import ProgramTooLargeError, SolverError
from placement.model.arrays import FloatArray, IntArray
from placement.model.row_groups import group_rows
from placement.model.snapshot import Snapshot
from placement.model.vm_kinds import VmKinds, vm_kinds

#: Pairs of a class and a kind: beyond these a program may take longer than its round.
MAX_PAIRS: Final = 10_000
#: Of the solver, for each of two programs: one that ends takes a few for each pair.
MAX_ITERATIONS: Final = 50_000
#: Parts of the largest gain below this are rounding, not prices.
_NOTHING: Final = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class HostClassPrices:
    """The price of one more unit of each resource on the hosts of one class and size."""

    host: int  #: the first of them, an index of H
    hosts: int
    room: IntArray  #: (R,) what of their free amounts could serve a VM that waits
    price: FloatArray  #: (R,) units of the measured resource per unit of each


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Prices of a round in units of one resource."""

    resource: int  #: an index of R, in whose units all prices are given
    maximum: float  #: that could be placed if shares did not count
    fair: float  #: the most of that within all tenants' fair targets
    classes: tuple[HostClassPrices, ...]  #: those with hosts that may take a VM that waits

    @property
    def price_of_fairness(self) -> float:
        """Amount that fairness keeps from being placed: ``maximum`` less ``fair``, at least 0."""
        return self.maximum - self.fair


def round_prices(snapshot: Snapshot, targets: FloatArray, resource: int) -> Prices:
    """Return the prices of resources, and of fairness, in a round.

    Parameters
    ----------
    targets : ndarray of float64, shape (Q,)
        The fair number of VMs of each request (`placement.metrics.fair_holdings.fair_vms`).
    resource : int
        An index of R: prices say how much of it more would have been placed.

    Raises
    ------
    ProgramTooLargeError
        If there are more than `MAX_PAIRS` pairs of a class and a kind of VM.
    SolverError
        If HiGHS does not report an optimum within `MAX_ITERATIONS`.

    Notes
    -----
    Derived. Maximises the sum of x[c, t] demand[t, resource] over classes c of
    hosts that are alike to every request and of one capacity, and kinds t of VMs
    that would fit on such a host were it empty, subject to

    - for each class and resource r: sum over t of x[c, t] demand[t, r] <= room[c, r]
    - for each kind: sum over c of x[c, t] <= the requested VMs, within allowances

    Its optimum is the field ``maximum``. The dual of a row of the first sort is the price of r on
    c. Where several duals are right (a degenerate optimum) it is one of them: one more
    unit brings at most the price, one less costs at least the price.

    What is free on a host is room only if it is enough for the smallest demand
    for that resource of a kind that may go there: pieces that serve no request do not count.
    Beyond that hosts of a class count as one, so ``maximum`` is no less than
    `allocation_bound`. Limits of a snapshot (rules, not resources) are left out.

    ``fair`` is the maximum of the same program with each kind's VMs cut to the sum
    of ``targets``. It depends on no policy: the price of fairness of [1]_, not
    as a part of ``maximum``, with the fair targets of the round as the fair solution.

    References
    ----------
    .. [1] Bertsimas, Farias, Trichakis, "The Price of Fairness", Operations
       Research 59(1), 2011.
    """
    kinds = vm_kinds(snapshot)
    wanted = _sums_by_kind(kinds, snapshot_within_allowances(snapshot).count.astype(np.float64))
    owed = np.minimum(_sums_by_kind(kinds, targets), wanted)
    classes = _merged_hosts(snapshot, kinds, wanted > 0)
    if classes is None:
        return Prices(resource, 0.0, 0.0, ())
    program = _PriceProgram(classes, kinds.demand[:, : snapshot.resource_count], wanted, resource)
    maximum, price = program.solve(wanted)
    fair = maximum if np.array_equal(owed, wanted) else min(maximum, program.solve(owed)[0])
    return Prices(
        resource,
        maximum,
        fair,
        tuple(
            HostClassPrices(int(host), int(hosts), room, price)
            for host, hosts, room, price in zip(
                classes.first, classes.hosts, classes.room, price, strict=True
            )
        ),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _MergedHosts:
    """Hosts merged by class and capacity: those that may take something; R without limits."""

    first: IntArray  #: (C,)
    hosts: IntArray  #: (C,)
    room: IntArray  #: (C, R)
    capacity: IntArray  #: (C, R) of all hosts of a class together
    takes: Any  #: (C, T) bool: would this kind fit on an empty one?


def _sums_by_kind(kinds: VmKinds, vms: FloatArray) -> FloatArray:
    """Add up the VMs of requests by kind of VM, (T,)."""
    of_kind = np.zeros(len(kinds))
    np.add.at(of_kind, kinds.of_request, vms)
    return of_kind


def _merged_hosts(snapshot: Snapshot, kinds: VmKinds, requested: Any) -> _MergedHosts | None:
    """Merge alike hosts that may take a requested kind of VM; None if there are none."""
    capacity, counted = snapshot.capacity, snapshot.resource_count
    merged = group_rows(snapshot.host_class, capacity)
    takes = kinds.eligible[:, snapshot.host_class[merged.first]].T & requested
    takes &= kinds.demand[:, :counted].any(axis=1)
    for kind in np.flatnonzero(takes.any(axis=0)).tolist():
        takes[:, kind] &= (capacity[merged.first] >= kinds.demand[kind]).all(axis=1)
    open_ones = np.flatnonzero(takes.any(axis=1))
    if not len(open_ones):
        return None
    if (pairs := int(takes.sum())) > MAX_PAIRS:
        raise ProgramTooLargeError("prices", pairs, MAX_PAIRS)
    maximum = np.iinfo(np.int64).max
    # Room of a resource that no kind demands serves no request.
    smallest = np.full((len(merged), counted), maximum)
    demanded = np.where(kinds.demand > 0, kinds.demand, maximum)[:, :counted]
    for each in open_ones.tolist():
        smallest[each] = demanded[takes[each]].min(axis=0)
    free = snapshot.free[:, :counted]
    usable = np.where(free >= smallest[merged.of_row], free, 0)
    room = np.zeros((len(merged), counted), dtype=np.int64)
    np.add.at(room, merged.of_row, usable)
    hosts = np.bincount(merged.of_row, minlength=len(merged))
    in_all = capacity[merged.first][:, :counted] * hosts[:, None]
    return _MergedHosts(
        first=merged.first[open_ones],
        hosts=hosts[open_ones],
        room=room[open_ones],
        capacity=in_all[open_ones],
        takes=takes[open_ones],
    )


class _PriceProgram:
    """The program of `round_prices`, ready for any number of requested VMs.

    Every unknown is a part of the most VMs of its kind that its class could hold if empty;
    every row is divided by what these come to: in units of VMs a large pool falls below the
    tolerances of the solver. A row that cannot bind is left out.
    """

    def __init__(
        self, classes: _MergedHosts, demand: IntArray, wanted: FloatArray, resource: int
    ) -> None:
        from scipy import sparse  # noqa: PLC0415 - slow to import, and only needed here

        of_class, of_kind = np.nonzero(classes.takes)
        needs = demand[of_kind].astype(np.float64)
        with np.errstate(divide="ignore"):
            holds = np.where(needs > 0, classes.capacity[of_class] / needs, np.inf).min(axis=1)
        vms = np.minimum(holds, wanted[of_kind])
        amounts = vms[:, None] * needs
        self._gain = amounts[:, resource]
        self._wanted = wanted
        self._shape = classes.room.shape
        # Rows of classes and resources, unless there is room for the whole demand.
        fullest, demanded = np.zeros(self._shape), np.zeros(self._shape)
        np.add.at(fullest, of_class, amounts)
        np.add.at(demanded, of_class, wanted[of_kind][:, None] * needs)
        self._binds = np.flatnonzero((demanded > classes.room).ravel())
        row_of = np.full(fullest.size, -1)
        row_of[self._binds] = np.arange(len(self._binds))
        rows = row_of.reshape(self._shape)[of_class]
        inside = (amounts > 0) & (rows >= 0)
        column, which = np.nonzero(inside)
        self._scale = fullest.ravel()[self._binds]
        self._room = classes.room.ravel()[self._binds] / self._scale
        # Rows of kinds, behind them.
        distinct, kind_row = np.unique(of_kind, return_inverse=True)
        self._kinds = distinct
        first = len(self._binds)
        self._matrix = sparse.csr_matrix(
            (
                np.concatenate(
                    [amounts[inside] / fullest[of_class[column], which], vms / wanted[of_kind]]
                ),
                (
                    np.concatenate([rows[inside], first + kind_row]),
                    np.concatenate([column, np.arange(len(vms))]),
                ),
            ),
            shape=(first + len(distinct), len(vms)),
        )

    def solve(self, wanted: FloatArray) -> tuple[float, FloatArray]:
        """Solve for these VMs of each kind, (T,); return the maximum and the prices, (C, R)."""
        from scipy import optimize  # noqa: PLC0415 - slow to import, and only needed here

        price = np.zeros(self._shape)
        largest = float(self._gain.max())
        if largest <= 0:
            return 0.0, price
        result = optimize.linprog(
            -self._gain / largest,
            A_ub=self._matrix,
            b_ub=np.concatenate([self._room, wanted[self._kinds] / self._wanted[self._kinds]]),
            bounds=(0.0, None),
            method="highs",
            options={
                "maxiter": MAX_ITERATIONS,
                "primal_feasibility_tolerance": 1e-9,
                "dual_feasibility_tolerance": 1e-9,
            },
        )
        if result.status != 0:
            raise SolverError("prices", int(result.status), str(result.message))
        dual = -result.ineqlin.marginals[: len(self._binds)]
        price.ravel()[self._binds] = np.where(dual > _NOTHING, dual, 0.0) * largest / self._scale
        # Not -0.0, where nothing could be placed.
        return 0.0 - float(result.fun) * float(largest), price
