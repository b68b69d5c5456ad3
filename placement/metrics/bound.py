"""An upper bound on what a round could place, by linear programming."""

from __future__ import annotations

import numpy as np

from placement.errors import SolverError
from placement.model.arrays import FloatArray, IntArray
from placement.model.row_groups import group_rows
from placement.model.snapshot import Snapshot
from placement.model.vm_kinds import vm_kinds


def allocation_bound(snapshot: Snapshot, resource: int) -> float:
    """Return an upper bound, by linear programming, on what this round could place of a resource.

    Parameters
    ----------
    resource : int
        An index of R.

    Returns
    -------
    float
        In units of the resource; no allocation of whole VMs places more.

    Raises
    ------
    SolverError
        If HiGHS does not report an optimum.

    Notes
    -----
    Maximises the sum of x[v, t] demand[t, resource] over classes v of hosts
    with equal free vectors and labels, and kinds t of requests, subject to the
    free vectors of each class and the requested VMs of each kind. Every unknown
    is the part, within [0, 1], of the most VMs that the class could hold of the
    kind, and every row is divided by its right hand side: in units of tasks a
    large pool falls below the tolerances of the solver.
    """
    from scipy import optimize, sparse  # noqa: PLC0415 - slow to import, and only needed here

    free, host_class, hosts = _merged_hosts(snapshot)
    kinds = vm_kinds(snapshot)
    wanted = np.zeros(len(kinds))
    np.add.at(wanted, kinds.of_request, snapshot.count.astype(np.float64))
    room = free.astype(np.float64) * hosts[:, None]

    pairs: list[tuple[IntArray, IntArray, FloatArray]] = []
    for kind in np.flatnonzero((wanted > 0) & kinds.demand.any(axis=1)).tolist():
        demand = kinds.demand[kind]
        demanded = demand > 0
        holds = np.flatnonzero((free >= demand).all(axis=1) & kinds.eligible[kind, host_class])
        maximum = (room[np.ix_(holds, demanded)] / demand[demanded]).min(axis=1)
        pairs.append((holds, np.full(len(holds), kind), np.minimum(maximum, wanted[kind])))
    if not any(len(holds) for holds, _, _ in pairs):
        return 0.0

    groups, of_kind, amount = (np.concatenate(each) for each in zip(*pairs, strict=True))
    columns = np.arange(len(amount))
    gain = amount * kinds.demand[of_kind, resource]
    if gain.max() <= 0:
        return 0.0
    resources = len(snapshot.resources)
    amounts = amount[:, None] * kinds.demand[of_kind]
    limits = room[groups]
    inside = amounts > 0
    capacity_rows = groups[:, None] * resources + np.arange(resources)
    matrix = sparse.coo_matrix(
        (
            np.concatenate([(amounts[inside] / limits[inside]), amount / wanted[of_kind]]),
            (
                np.concatenate([capacity_rows[inside], len(free) * resources + of_kind]),
                np.concatenate([np.nonzero(inside)[0], columns]),
            ),
        ),
        shape=(len(free) * resources + len(kinds), len(amount)),
    ).tocsr()
    matrix = matrix[np.diff(matrix.indptr) > 0]
    result = optimize.linprog(
        -gain / gain.max(),
        A_ub=matrix,
        b_ub=np.ones(matrix.shape[0]),
        bounds=(0.0, 1.0),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
    )
    if result.status != 0:
        raise SolverError("allocation bound", int(result.status), str(result.message))
    return float(-result.fun * gain.max())


def _merged_hosts(snapshot: Snapshot) -> tuple[IntArray, IntArray, IntArray]:
    """Return alike hosts merged: free vectors (V, R), host classes (V,) and numbers (V,)."""
    groups = group_rows(snapshot.free, snapshot.host_class)
    free, host_class = snapshot.free[groups.first], snapshot.host_class[groups.first]
    hosts = np.bincount(groups.of_row, minlength=len(groups))
    # In order of what is free, whichever host comes first: of equal optima the solver finds one.
    order = np.lexsort((host_class, *free.T[::-1]))
    return free[order], host_class[order], hosts[order].astype(np.int64)
