"""Random-Fit: requests in order; each VM goes to a random host where it fits."""

from __future__ import annotations

import numpy as np

from placement.model.arrays import IntArray
from placement.model.vm_kinds import vms_that_fit
from placement.packing.draft import Draft


def random_fit(draft: Draft, request: int, hosts: IntArray, rng: np.random.Generator) -> IntArray:
    """Scatter a request over some hosts, shape (X,): a rule that ignores demands.

    Every host that holds a VM is as likely as another: each VM takes one number
    u of ``rng`` and goes to host floor(u n) of the n hosts that hold it then, in
    order.
    """
    fits = vms_that_fit(draft.room[hosts], draft.snapshot.demand[request])
    hosts, fits = hosts[fits > 0], fits[fits > 0]
    wanted = min(int(draft.remaining[request]), int(fits.sum()))
    open_hosts, places = hosts.tolist(), fits.tolist()
    taken: dict[int, int] = {}
    for number in rng.random(wanted).tolist():
        at = int(number * len(open_hosts))
        host = open_hosts[at]
        taken[host] = taken.get(host, 0) + 1
        places[at] -= 1
        if places[at] == 0:
            del open_hosts[at], places[at]
    rows = [(request, host, count) for host, count in taken.items()]
    draft.put_all(np.array(rows, dtype=np.int64).reshape(-1, 3))
    return hosts
