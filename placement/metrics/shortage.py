"""Which resource is short on how many hosts, and the nearest miss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.model.reasons import hosts_open_to
from placement.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """One resource that keeps one more VM of a request off its hosts."""

    resource: int  #: an index of R
    hosts_short: int  #: hosts open to the request with too little of it
    hosts: int  #: hosts open to the request
    nearest_host: int  #: of those too short, the one that misses least; an index of H
    missing: int  #: what the nearest host misses, in units of the resource


def shortages(snapshot: Snapshot, request: int) -> tuple[Shortage, ...]:
    """Return the shortage of each resource that keeps one more VM of ``request`` off hosts.

    Judged against what is free on the hosts that the request may use; for what
    a round leaves, pass `Snapshot.after_placing`. Empty when no host is open to
    it or none is short. Among equal misses the first host is named.
    """
    open_to = np.flatnonzero(hosts_open_to(snapshot, request))
    missing = snapshot.demand[request] - snapshot.free[open_to]
    found = []
    for resource in range(len(snapshot.resources)):
        short = np.flatnonzero(missing[:, resource] > 0)
        if len(short) == 0:
            continue
        nearest = short[np.argmin(missing[short, resource])]
        found.append(
            Shortage(
                resource=resource,
                hosts_short=len(short),
                hosts=len(open_to),
                nearest_host=int(open_to[nearest]),
                missing=int(missing[nearest, resource]),
            )
        )
    return tuple(found)
