"""The order in which VMs are served under progressive filling."""

from __future__ import annotations

import numpy as np

from placement.fairness.levels import levels_in_steps, relative_weights
from placement.model.arrays import FloatArray, IntArray
from placement.model.snapshot import Snapshot


def service_order_of_vms(snapshot: Snapshot, wanted: IntArray, held: IntArray) -> IntArray:
    """Return the request of every wanted VM, in the order of service.

    Parameters
    ----------
    snapshot : Snapshot
    wanted : ndarray of int64, shape (Q,)
        VMs of each request.
    held : ndarray of int64, shape (N, R)
        Amounts that each tenant holds before.

    Returns
    -------
    ndarray of int64, shape (V,)

    Notes
    -----
    Progressive filling serves the tenant of least dominant share per weight. Ties go
    to the tenant whose request comes first. A tenant takes its requests in
    order. As long as all VMs find room the level that a tenant has reached
    before each of its VMs does not depend on the others, so that sorting by
    those levels is the same as taking the least one again and again.
    """
    requests = np.flatnonzero(wanted)
    by_tenant = requests[np.argsort(snapshot.tenant[requests], kind="stable")]
    tenant, count = snapshot.tenant[by_tenant], wanted[by_tenant]
    # In floats: the demand may exceed the integers, what fits does not.
    demand = snapshot.demand[by_tenant].astype(np.float64)
    before = _sums_before(count[:, None] * demand, tenant) + held[tenant]

    order = np.repeat(by_tenant, count)
    nth = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)
    scale = relative_weights(snapshot.weight)[tenant]
    levels = np.zeros(len(order))
    for resource, pool in enumerate(snapshot.pool.tolist()):
        if pool > 0:
            start = np.repeat(before[:, resource], count)
            start += nth * np.repeat(demand[:, resource], count)
            np.maximum(levels, start / pool, out=levels)
    levels /= np.repeat(scale, count)
    return order[np.lexsort((nth, order, levels_in_steps(levels)))]


def _sums_before(amounts: FloatArray, tenant: IntArray) -> FloatArray:
    """Return for each row of ``amounts``, (Q, R), the sum of its tenant's rows before it.

    The rows of one tenant are consecutive.
    """
    sums = np.cumsum(amounts, axis=0) - amounts
    starts = np.flatnonzero(np.diff(tenant, prepend=-1))
    lengths = np.diff(np.append(starts, len(tenant)))
    return np.asarray(sums - np.repeat(sums[starts], lengths, axis=0))
