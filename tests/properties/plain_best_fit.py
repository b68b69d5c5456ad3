"""Best-Fit DRFH host by host, as the paper says it: the oracle of the fast form."""

from __future__ import annotations

from fractions import Fraction
from math import gcd

import numpy as np

from placement import Snapshot


class TiedShapesError(Exception):
    """Hosts of different shapes have the very same H: rounding decides between them elsewhere."""


def plain_best_fit(snapshot: Snapshot) -> list[list[int]]:
    """Return rows of request, host, count, in exact arithmetic.

    Raises
    ------
    TiedShapesError
        If hosts whose free vectors are no multiples of each other tie. The fast form promises
        the lowest index among hosts of one shape alone (`placement.packing.buckets.mismatch`).
    """
    free = snapshot.free.tolist()
    held = snapshot.held.tolist()
    pool = snapshot.pool.tolist()
    demand = snapshot.demand.tolist()
    left = snapshot.count.tolist()
    placed: dict[tuple[int, int], int] = {}

    def level(tenant: int) -> Fraction:
        share = max(
            (Fraction(a, b) for a, b in zip(held[tenant], pool, strict=True) if b), default=0
        )
        return share / Fraction(float(snapshot.weight[tenant]))

    def h(request: int, host: int) -> Fraction:
        reference = next(r for r, amount in enumerate(demand[request]) if amount)
        return sum(
            abs(
                Fraction(demand[request][r], pool[r])
                / Fraction(demand[request][reference], pool[reference])
                - Fraction(free[host][r], pool[r])
                / Fraction(free[host][reference], pool[reference])
            )
            for r in range(len(pool))
            if pool[r]
        )

    def fitting(request: int) -> list[int]:
        return [
            host
            for host in range(len(free))
            if snapshot.eligible[request, snapshot.host_class[host]]
            and any(demand[request])
            and all(a <= b for a, b in zip(demand[request], free[host], strict=True))
        ]

    while True:
        first = {}
        for request in np.flatnonzero(np.array(left, dtype=np.int64)).tolist():
            first.setdefault(int(snapshot.tenant[request]), request)
        if not first:
            break
        request = min(first.values(), key=lambda q: (level(int(snapshot.tenant[q])), q))
        hosts = fitting(request)
        if not hosts:
            left[request] = 0
            continue
        host = min(hosts, key=lambda each: (h(request, each), each))
        tied = {_shape(free[each]) for each in hosts if h(request, each) == h(request, host)}
        if len(tied) > 1:
            raise TiedShapesError
        placed[request, host] = placed.get((request, host), 0) + 1
        left[request] -= 1
        for r, amount in enumerate(demand[request]):
            free[host][r] -= amount
            held[int(snapshot.tenant[request])][r] += amount
    return [[q, h_, n] for (q, h_), n in sorted(placed.items())]


def _shape(free: list[int]) -> tuple[int, ...]:
    divisor = gcd(*free)
    return tuple(amount // divisor for amount in free)
