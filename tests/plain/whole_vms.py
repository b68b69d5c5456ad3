"""Whole-VM policies VM by VM and host by host, as they are said: oracles of the fast forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from placement import Snapshot
from placement.fairness.levels import level_in_steps
from placement.fairness.targets import fair_targets, whole_targets
from placement.packing.buckets import mismatch

Rows = list[list[int]]


class Cluster:
    """What is free and held while VMs are placed one by one."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.capacity = snapshot.capacity.tolist()
        self.free = snapshot.free.tolist()
        self.held = snapshot.held.tolist()
        self.left = snapshot.count.tolist()
        self.placed: dict[tuple[int, int], int] = {}

    def open_to(self, request: int) -> list[int]:
        if not self.snapshot.demand[request].any():
            return []
        return [
            host
            for host in range(len(self.free))
            if self.snapshot.eligible[request, self.snapshot.host_class[host]]
        ]

    def fits(self, request: int, host: int) -> bool:
        demand = self.snapshot.demand[request].tolist()
        return all(a <= b for a, b in zip(demand, self.free[host], strict=True))

    def fitting(self, request: int) -> list[int]:
        return [host for host in self.open_to(request) if self.fits(request, host)]

    def put(self, request: int, host: int) -> None:
        self.placed[request, host] = self.placed.get((request, host), 0) + 1
        self.left[request] -= 1
        tenant = int(self.snapshot.tenant[request])
        for r, amount in enumerate(self.snapshot.demand[request].tolist()):
            self.free[host][r] -= amount
            self.held[tenant][r] += amount

    def level(self, tenant: int) -> Fraction:
        pool = self.snapshot.pool.tolist()
        shares = (Fraction(a, b) for a, b in zip(self.held[tenant], pool, strict=True) if b)
        return max(shares, default=Fraction(0)) / Fraction(float(self.snapshot.weight[tenant]))

    def rows(self) -> Rows:
        return [[request, host, count] for (request, host), count in sorted(self.placed.items())]


def in_turn(cluster: Cluster, choose: Callable[[int], int | None]) -> None:
    """Serve the tenant of least level again and again; a request without a host leaves."""
    snapshot = cluster.snapshot
    while True:
        first: dict[int, int] = {}
        for request in range(len(cluster.left)):
            if cluster.left[request]:
                first.setdefault(int(snapshot.tenant[request]), request)
        if not first:
            return
        tenant = min(first, key=lambda each: (cluster.level(each), first[each]))
        host = choose(first[tenant])
        if host is None:
            cluster.left[first[tenant]] = 0
        else:
            cluster.put(first[tenant], host)


def in_order(cluster: Cluster, choose: Callable[[int], int | None]) -> None:
    """Serve one request after the other."""
    for request in range(len(cluster.left)):
        while cluster.left[request] and (host := choose(request)) is not None:
            cluster.put(request, host)


def first_fit_drfh(snapshot: Snapshot) -> Rows:
    cluster = Cluster(snapshot)
    in_turn(cluster, lambda request: next(iter(cluster.fitting(request)), None))
    return cluster.rows()


def drf_pool(snapshot: Snapshot) -> Rows:
    cluster = Cluster(snapshot)

    def first(request: int) -> int | None:
        return next(iter(cluster.fitting(request)), None)

    for request, offered in enumerate(whole_targets(fair_targets(snapshot)).tolist()):
        for _ in range(offered):
            if (host := first(request)) is not None:
                cluster.put(request, host)
    in_turn(cluster, first)
    return cluster.rows()


def two_choices_drfh(snapshot: Snapshot, rng: np.random.Generator) -> Rows:
    cluster = Cluster(snapshot)
    pool = snapshot.pool.tolist()

    def h(request: int, host: int) -> float:
        return mismatch(snapshot.demand[request].tolist(), cluster.free[host], pool)

    def choose(request: int) -> int | None:
        fitting = cluster.fitting(request)
        if not fitting:
            return None
        probed = list(probe(cluster.open_to(request), rng))
        held = [host for host in probed if host in fitting]
        return min(held or fitting, key=lambda host: h(request, host))

    in_turn(cluster, choose)
    return cluster.rows()


def probe(hosts: list[int], rng: np.random.Generator) -> Iterator[int]:
    """Draw two different hosts, or the only one."""
    first, second = rng.random(2).tolist()
    one = int(first * len(hosts))
    yield hosts[one]
    others = hosts[:one] + hosts[one + 1 :]
    if others:
        yield others[int(second * len(others))]


def best_fit(snapshot: Snapshot) -> Rows:
    cluster = Cluster(snapshot)

    def left_with(request: int, host: int) -> int:
        demand = snapshot.demand[request].tolist()
        parts = zip(cluster.free[host], demand, cluster.capacity[host], strict=True)
        return level_in_steps(
            sum((free - need) / offered for free, need, offered in parts if offered)
        )

    def choose(request: int) -> int | None:
        fitting = cluster.fitting(request)
        return min(fitting, key=lambda host: left_with(request, host), default=None)

    in_order(cluster, choose)
    return cluster.rows()


def random_fit(snapshot: Snapshot, rng: np.random.Generator) -> Rows:
    cluster = Cluster(snapshot)

    def choose(request: int) -> int | None:
        fitting = cluster.fitting(request)
        return fitting[int(rng.random() * len(fitting))] if fitting else None

    in_order(cluster, choose)
    return cluster.rows()


def slots(snapshot: Snapshot, number: int) -> Rows:
    """Count slots in fractions: a slot is the largest host divided by ``number``."""
    largest = snapshot.capacity.max(axis=0, initial=0).tolist()
    slot = [Fraction(most, number) for most in largest]

    def within(amounts: list[int]) -> int:
        return min((int(a // s) for a, s in zip(amounts, slot, strict=True) if s), default=0)

    def covering(amounts: list[int]) -> int:
        return max((-int(-a // s) for a, s in zip(amounts, slot, strict=True) if s), default=0)

    cluster = Cluster(snapshot)
    offered = [within(row) for row in cluster.capacity]
    in_use = (snapshot.capacity - snapshot.free).tolist()
    free = [a - covering(b) for a, b in zip(offered, in_use, strict=True)]
    held = [covering(row) for row in cluster.held]
    needs = [covering(row) for row in snapshot.demand.tolist()]
    for request, demand in enumerate(snapshot.demand.tolist()):
        if any(need and not most for need, most in zip(demand, largest, strict=True)):
            cluster.left[request] = 0

    while any(cluster.left):
        first: dict[int, int] = {}
        for request, left in enumerate(cluster.left):
            if left:
                first.setdefault(int(snapshot.tenant[request]), request)
        levels = {each: Fraction(held[each]) / Fraction(snapshot.weight[each]) for each in first}
        tenant = min(first, key=lambda each: (levels[each], first[each]))
        request = first[tenant]
        hosts = [host for host in cluster.open_to(request) if free[host] >= needs[request]]
        if not hosts:
            cluster.left[request] = 0
            continue
        free[hosts[0]] -= needs[request]
        held[tenant] += needs[request]
        cluster.put(request, hosts[0])
    return cluster.rows()


def most(snapshot: Snapshot, value: list[int]) -> tuple[int, int]:
    """Return the most that any allocation gains, and the most VMs among those; by trying all.

    Parameters
    ----------
    value : list of int, length Q
        Of one VM of each request.
    """
    hosts = range(len(snapshot.free))
    demand = snapshot.demand.tolist()
    found: dict[tuple[int, ...], bool] = {tuple(snapshot.count.tolist()): True}

    def combinations(left: tuple[int, ...], free: list[int], host: int, at: int = 0):
        if at == len(left):
            yield ()
            return
        open_to = snapshot.eligible[at, snapshot.host_class[host]] and any(demand[at])
        for count in range(left[at] + 1 if open_to else 1):
            rest = [a - count * b for a, b in zip(free, demand[at], strict=True)]
            if min(rest) < 0:
                break
            for others in combinations(left, rest, host, at + 1):
                yield (count, *others)

    for host in hosts:
        reached: dict[tuple[int, ...], bool] = {}
        for left in found:
            for taken in combinations(left, snapshot.free[host].tolist(), host):
                reached[tuple(a - b for a, b in zip(left, taken, strict=True))] = True
        found = reached
    best = (0, 0)
    for left in found:
        given = [a - b for a, b in zip(snapshot.count.tolist(), left, strict=True)]
        if all(n == 0 or n >= least for n, least in zip(given, snapshot.min_count, strict=True)):
            best = max(best, (sum(n * v for n, v in zip(given, value, strict=True)), sum(given)))
    return best
