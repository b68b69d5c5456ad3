"""Which hosts are held back, said plainly: every host looked at for every VM."""

from __future__ import annotations

import numpy as np

from placement import Snapshot
from placement.constraints.starving_requests import StarvationPatience, starving_requests


def plain_holding(snapshot: Snapshot, patience: StarvationPatience) -> list[tuple[int, int]]:
    """For snapshots without gangs and waits of the first level."""
    requests, fair = starving_requests(snapshot, patience.patience)
    hosts = range(len(snapshot.capacity))
    open_to = snapshot.eligible[:, snapshot.host_class]
    left = patience.max_hosts(int(open_to.any(axis=0).sum()))
    held = snapshot.held.astype(float)
    rows: list[tuple[int, int]] = []
    for request in requests.tolist():
        tenant, demand = snapshot.tenant[request], snapshot.demand[request]
        requested = demand > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(snapshot.pool > 0, held[tenant] / snapshot.pool, 0).max()
        taken = {host for _, host in rows}
        able = [
            host
            for host in hosts
            if open_to[request, host]
            and host not in taken
            and (snapshot.capacity[host] >= demand).all()
        ]
        if share >= fair[tenant] - 1e-9 or not able or len(rows) == left:
            continue
        in_vms = snapshot.free[:, requested] / demand[requested]
        best = min(able, key=lambda h: (np.maximum(1 - in_vms[h], 0).sum(), in_vms[h].sum(), h))
        rows.append((request, best))
        held[tenant] += demand
    return rows
