"""Properties of whole-VM policies, up to one VM: by how much a policy misses each on a case.

Exact properties are out of reach of whole VMs: somebody gets the last one.
These allow for one VM, and judge with code of their own. ``hdrf`` hands out
whole tasks in one pool and is judged there, as if all hosts were one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from benchmarks.properties.cases import PropertyCase
from placement import POLICIES, mechanism_by_name, policy_by_name
from placement.model.arrays import FloatArray, IntArray
from placement.model.budget import Budget
from placement.model.snapshot import Snapshot

#: A mechanism, but of whole tasks.
POOLED: Final = ("hdrf",)
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A case and the VMs that a policy placed; a pooled policy has one host."""

    case: PropertyCase
    vms: IntArray  #: (N, H)

    @classmethod
    def of(cls, policy: str, case: PropertyCase) -> Placed:
        if policy in POOLED:
            case = _as_one_host(case)
            divided = mechanism_by_name(policy, {}).divide(_bounded(case), _rng())
            return cls(case, np.rint(divided.tasks).astype(np.int64))
        snapshot = to_snapshot(case)
        allocation = _made(policy).place(snapshot, _rng(), Budget())
        vms = np.zeros((len(snapshot.count), len(snapshot.capacity)), dtype=np.int64)
        requests, hosts, counts = allocation.placed.T
        vms[requests, hosts] = counts
        return cls(case, vms)

    @property
    def totals(self) -> list[int]:
        totals: list[int] = self.vms.sum(axis=1).tolist()
        return totals

    def runs(self, tenant: int, amounts: FloatArray | IntArray) -> int:
        """Return the whole VMs that a tenant could run with ``amounts``, (H, R), and wants."""
        return whole_vms(self.case, tenant, amounts)

    def bundle(self, tenant: int) -> IntArray:
        """Return the amounts that a tenant got on each host, (H, R)."""
        bundle: IntArray = self.vms[tenant][:, None] * np.array(self.case.demands[tenant])
        return bundle


def whole_vms(case: PropertyCase, tenant: int, amounts: FloatArray | IntArray) -> int:
    """Return the whole VMs that fit into ``amounts`` on allowed hosts, at most those wanted."""
    demand = np.array(case.demands[tenant])
    demanded = demand > 0
    if not demanded.any():
        return 0
    per_host = np.floor((amounts[:, demanded] / demand[demanded]).min(axis=1) + _ROUNDING)
    count = case.counts[tenant]
    runs = int(per_host[np.array(case.allowed[tenant]) > 0].sum())
    return runs if count is None else min(runs, count)


def to_snapshot(case: PropertyCase) -> Snapshot:
    """Return the case as policies see it; without a count, as many VMs as there is room for."""
    capacity = np.array(case.hosts, dtype=np.int64)
    tenants = len(case.demands)
    return Snapshot(
        resources=tuple(f"r{r}" for r in range(capacity.shape[1])),
        capacity=capacity,
        free=capacity.copy(),
        host_class=np.arange(len(capacity)),
        eligible=np.array(case.allowed) > 0,
        demand=np.array(case.demands, dtype=np.int64),
        count=np.array([whole_vms(case, i, capacity) for i in range(tenants)], dtype=np.int64),
        min_count=np.ones(tenants, dtype=np.int64),
        tenant=np.arange(tenants),
        age=np.zeros(tenants, dtype=np.int64),
        weight=np.array(case.weights, dtype=np.float64),
        held=np.zeros((tenants, capacity.shape[1]), dtype=np.int64),
    )


def sharing_incentive(policy: str, case: PropertyCase) -> float | None:
    placed = Placed.of(policy, case)
    capacity = np.array(placed.case.hosts)
    return max(
        _short(total, placed.runs(i, capacity * weight / sum(case.weights)))
        for i, (total, weight) in enumerate(zip(placed.totals, case.weights, strict=True))
    )


def envy_freeness(policy: str, case: PropertyCase) -> float | None:
    placed, worst = Placed.of(policy, case), 0.0
    for i, has in enumerate(placed.totals):
        for j in range(len(case.weights)):
            scale = case.weights[i] / case.weights[j]
            envied = []
            for host in np.flatnonzero(placed.vms[j]).tolist():
                without = placed.bundle(j)
                without[host] -= np.array(case.demands[j])
                envied.append(placed.runs(i, without * scale))
            worst = max(worst, _lacks(has, min(envied, default=0)))
    return worst


def pareto(policy: str, case: PropertyCase) -> float | None:
    placed = Placed.of(policy, case)
    capacity, demand = np.array(placed.case.hosts), np.array(case.demands)
    tenants, hosts = placed.vms.shape
    rows = [
        np.kron(demand[:, r], np.eye(hosts)[host])
        for host in range(hosts)
        for r in range(capacity.shape[1])
    ]
    mine = np.kron(np.eye(tenants), np.ones(hosts))
    most = np.array([placed.runs(i, capacity) for i in range(tenants)])
    may = (np.array(placed.case.allowed) > 0) & (demand.sum(axis=1) > 0)[:, None]
    found = milp(
        -np.ones(tenants * hosts),
        integrality=np.ones(tenants * hosts),
        bounds=Bounds(0, np.where(may.ravel(), max(most.max(initial=0), 1), 0)),
        constraints=[
            LinearConstraint(np.array(rows), -np.inf, capacity.ravel()),
            LinearConstraint(mine, placed.totals, most),
        ],
    )
    if found.status != 0:
        raise ArithmeticError(f"{policy} on {case}: {found.message}")
    return _lacks(sum(placed.totals), round(-found.fun))


def no_waste(policy: str, case: PropertyCase) -> float | None:
    placed = Placed.of(policy, case)
    used = sum(placed.bundle(i) for i in range(len(case.weights)))
    free = np.array(placed.case.hosts) - used
    most = [placed.runs(i, np.array(placed.case.hosts)) for i in range(len(case.weights))]
    return max(
        _lacks(has, min(has + placed.runs(i, free), most[i])) for i, has in enumerate(placed.totals)
    )


def strategyproofness(policy: str, case: PropertyCase) -> float | None:
    if case.says is None:
        return None
    honest = Placed.of(policy, replace(case, says=None))
    lied = Placed.of(policy, replace(case, demands=(case.says, *case.demands[1:]), says=None))
    return _short(honest.totals[0], honest.runs(0, lied.bundle(0)))


def population_monotonicity(policy: str, case: PropertyCase) -> float | None:
    if len(case.demands) < 2:
        return None
    before, worst = Placed.of(policy, case).totals, 0.0
    for leaves in range(len(case.demands)):
        after = Placed.of(policy, case.without_tenant(leaves)).totals
        stayed = before[:leaves] + before[leaves + 1 :]
        worst = max(worst, *(_short(has, had) for has, had in zip(after, stayed, strict=True)))
    return worst


def single_server_drf(policy: str, case: PropertyCase) -> float | None:
    if len(case.hosts) != 1:
        return None
    drf = mechanism_by_name("drf", {}).divide(case.problem(), _rng()).totals.tolist()
    return max(
        _short(has, due) for has, due in zip(Placed.of(policy, case).totals, drf, strict=True)
    )


def _lacks(has: float, owed: float) -> float:
    return max(0.0, 1.0 - has / owed) if owed > 0 else 0.0


def _short(has: float, owed: float) -> float:
    """Return the shortage beyond one VM as a fraction of the owed amount."""
    return _lacks(has + 1, owed)


def _as_one_host(case: PropertyCase) -> PropertyCase:
    tenants = len(case.demands)
    pool = tuple(sum(column) for column in zip(*case.hosts, strict=True))
    return replace(case, hosts=(pool,), allowed=((1,),) * tenants)


def _bounded(case: PropertyCase):
    capacity = np.array(case.hosts)
    counts = tuple(whole_vms(case, i, capacity) for i in range(len(case.demands)))
    return replace(case, counts=counts).problem()


@cache
def _made(policy: str):
    assert policy in POLICIES
    return policy_by_name(policy, {})


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)
