"""`psdsf_fit` and `tsf_fit` VM by VM, every request and host looked at each time."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from placement import Snapshot
from placement.packing.buckets import mismatch
from tests.plain.whole_vms import Cluster, Rows


def gamma(snapshot: Snapshot, request: int, host: int) -> Fraction:
    demand, capacity = snapshot.demand[request].tolist(), snapshot.capacity[host].tolist()
    return min(
        (Fraction(c, d) for c, d in zip(capacity, demand, strict=True) if d), default=Fraction(0)
    )


def tasks(cluster: Cluster, request: int) -> Fraction:
    """What the tenant holds, in VMs of this request."""
    held = cluster.held[int(cluster.snapshot.tenant[request])]
    demand = cluster.snapshot.demand[request].tolist()
    return max(
        (Fraction(h, d) for h, d in zip(held, demand, strict=True) if d), default=Fraction(0)
    )


def weight(snapshot: Snapshot, request: int) -> Fraction:
    return Fraction(float(snapshot.weight[snapshot.tenant[request]]))


def psdsf_fit(snapshot: Snapshot) -> Rows:
    cluster = Cluster(snapshot)
    while True:
        pairs = [
            (tasks(cluster, q) / gamma(snapshot, q, host) / weight(snapshot, q), q, host)
            for q in np.flatnonzero(np.array(cluster.left, dtype=np.int64)).tolist()
            for host in cluster.fitting(q)
        ]
        if not pairs:
            return cluster.rows()
        _, request, host = min(pairs)
        cluster.put(request, host)


def tsf_fit(snapshot: Snapshot) -> Rows:
    cluster = Cluster(snapshot)
    hosts = range(len(snapshot.capacity))
    while True:
        waiting = [
            (
                tasks(cluster, q)
                / sum(gamma(snapshot, q, host) for host in hosts)
                / weight(snapshot, q),
                q,
            )
            for q in np.flatnonzero(np.array(cluster.left, dtype=np.int64)).tolist()
            if cluster.fitting(q)
        ]
        if not waiting:
            return cluster.rows()
        _, request = min(waiting)
        demand, pool = snapshot.demand[request].tolist(), snapshot.pool.tolist()
        cluster.put(
            request,
            min(
                cluster.fitting(request),
                key=lambda host: (mismatch(demand, cluster.free[host], pool), host),
            ),
        )
