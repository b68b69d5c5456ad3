"""The properties: each a function that says by how much a mechanism misses it on a case.

All judge with code of their own, not the mechanisms'. 0 is no violation, 0.1 a
tenth too little (or too much); None where the case is not one that the property
speaks of. Pooled mechanisms are judged as if all hosts were one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
from scipy.optimize import linprog

from benchmarks.properties import whole_vms
from benchmarks.properties.cases import PropertyCase
from placement.catalog.names import mechanism_by_name
from placement.mechanisms import DivisibleProblem
from placement.model.arrays import FloatArray

#: A violation is at least so large: linear programs and sweeps are not exact.
VIOLATION: Final = 1e-3
_NOTHING: Final = 1e-9

Check: TypeAlias = Callable[[str, PropertyCase], float | None]


@dataclass(frozen=True, slots=True, eq=False)
class CheckedCase:
    """A case and a mechanism's division by host; a pooled mechanism has one host."""

    problem: DivisibleProblem
    tasks: FloatArray  #: (N, K)

    @classmethod
    def of(cls, mechanism: str, case: PropertyCase) -> CheckedCase:
        problem = case.problem()
        name, _, option = mechanism.partition("+")
        made = mechanism_by_name(name, {option: True} if option else {})
        division = made.divide(problem, np.random.default_rng(0))
        return cls(as_one_host(problem) if division.pooled else problem, division.tasks)

    @property
    def totals(self) -> FloatArray:
        return self.tasks.sum(axis=1)

    def runs(self, tenant: int, amounts: FloatArray) -> float:
        """Return the tasks that a tenant could run with ``amounts``, (K, R), and wants."""
        demanded = self.problem.demand[tenant] > 0
        if not demanded.any():
            return 0.0
        per_host = (amounts[:, demanded] / self.problem.demand[tenant, demanded]).min(axis=1)
        runs = float(per_host[self.problem.eligible[tenant]].sum())
        return min(runs, float(self.problem.count[tenant]))

    def bundle(self, tenant: int) -> FloatArray:
        """Return the amounts that a tenant got, (K, R)."""
        return self.tasks[tenant][:, None] * self.problem.demand[tenant]


def as_one_host(problem: DivisibleProblem) -> DivisibleProblem:
    """Return the problem with all hosts in one."""
    return replace(
        problem,
        capacity=problem.pool[None, :].copy(),
        free=problem.free.sum(axis=0, keepdims=True),
        hosts=np.ones(1, dtype=np.int64),
        speed=np.ones((len(problem.weight), 1)),
        eligible=problem.eligible.any(axis=1, keepdims=True),
    )


def _lacks(has: float, owed: float) -> float:
    return 1.0 - has / owed if owed > _NOTHING else 0.0


def sharing_incentive(mechanism: str, case: PropertyCase) -> float | None:
    given = CheckedCase.of(mechanism, case)
    part = given.problem.weight / given.problem.weight.sum()
    return max(
        _lacks(total, given.runs(i, part[i] * given.problem.capacity))
        for i, total in enumerate(given.totals.tolist())
    )


def weak_sharing_incentive(mechanism: str, case: PropertyCase) -> float | None:
    if set(case.weights) != {1} or not np.array(case.hosts).any(axis=0).all():
        return None
    given = CheckedCase.of(mechanism, case)
    tenants, pool = len(case.weights), given.problem.pool
    mine = np.array([given.bundle(i) for i in range(tenants)])
    # The shares to be evened out may be above 1/n: then of what everybody has, a part.
    most = (mine.sum(axis=1) / pool).max()
    mine *= min(1.0, 1.0 / (tenants * most)) if most > 0 else 1.0
    left = np.maximum(given.problem.capacity - mine.sum(axis=0), 0.0)
    missing = pool / tenants - mine.sum(axis=1)
    parts = missing / np.maximum(left.sum(axis=0), _NOTHING)
    even = mine + parts[:, None, :] * left
    return max(_lacks(total, given.runs(i, even[i])) for i, total in enumerate(given.totals))


def envy_freeness(mechanism: str, case: PropertyCase) -> float | None:
    given = CheckedCase.of(mechanism, case)
    weight = given.problem.weight
    return max(
        _lacks(given.totals[i], given.runs(i, given.bundle(j) * weight[i] / weight[j]))
        for i in range(len(weight))
        for j in range(len(weight))
    )


def pareto(mechanism: str, case: PropertyCase) -> float | None:
    given = CheckedCase.of(mechanism, case)
    problem = given.problem
    tenants, hosts = given.tasks.shape
    alone = np.array([given.runs(i, problem.capacity) for i in range(tenants)])
    able = np.flatnonzero(problem.eligible & (problem.demand.sum(axis=1) > 0)[:, None])
    if not alone.any():
        return 0.0
    owner, host = np.divmod(able, hosts)
    uses = np.zeros((hosts, len(problem.resources), len(able)))
    uses[host, :, np.arange(len(able))] = problem.demand[owner]
    mine = (owner == np.arange(tenants)[:, None]).astype(float)
    most = np.where(np.isinf(problem.count), 1e9, problem.count)
    found = linprog(
        -np.divide(1.0, alone[owner], out=np.zeros(len(able)), where=alone[owner] > 0),
        A_ub=np.vstack((uses.reshape(-1, len(able)), -mine, mine)),
        b_ub=np.concatenate(
            (problem.capacity.ravel(), -given.totals * (1 - 1e-7), np.maximum(most, given.totals))
        ),
        method="highs",
    )
    if found.status != 0:
        raise ArithmeticError(f"{mechanism} on {case}: {found.message}")
    x = np.bincount(owner, found.x, tenants)
    gains = np.divide(x - given.totals, alone, out=np.zeros(tenants), where=alone > 0)
    return float(gains.max())


def strategyproofness(mechanism: str, case: PropertyCase) -> float | None:
    if case.says is None:
        return None
    honest = CheckedCase.of(mechanism, replace(case, says=None))
    lied = CheckedCase.of(
        mechanism, replace(case, demands=(case.says, *case.demands[1:]), says=None)
    )
    gained = honest.runs(0, lied.bundle(0))
    return _gain(gained, float(honest.totals[0]))


def _gain(after: float, before: float) -> float:
    if after <= before + _NOTHING:
        return 0.0
    return after / before - 1.0 if before > _NOTHING else 1.0


def bottleneck_fairness(mechanism: str, case: PropertyCase) -> float | None:
    capacity, demand = np.array(case.hosts), np.array(case.demands)
    if (capacity == 0).any() or (demand[:, 0] == 0).any():
        return None
    parts = demand[:, None, :] / capacity[None, :, :]
    if (parts > parts[:, :, :1]).any():
        return None
    given = CheckedCase.of(mechanism, case)
    problem, worst = given.problem, 0.0
    level = given.totals * problem.demand[:, 0] / problem.weight
    for i in range(len(level)):
        if given.totals[i] >= problem.count[i] * (1 - 1e-6):
            continue
        for host in np.flatnonzero(problem.eligible[i]):
            used = given.tasks[:, host] * problem.demand[:, 0]
            free = 1.0 - used.sum() / problem.capacity[host, 0]
            there = level[used > 1e-6 * problem.capacity[host, 0]].max(initial=0.0)
            worst = max(worst, free, _lacks(level[i], there))
    return worst


def single_server_drf(mechanism: str, case: PropertyCase) -> float | None:
    if len(case.hosts) != 1:
        return None
    found = CheckedCase.of(mechanism, case).totals
    drf = CheckedCase.of("drf", case).totals
    return float(np.abs(found - drf).max() / max(drf.max(), _NOTHING))


def population_monotonicity(mechanism: str, case: PropertyCase) -> float | None:
    if len(case.demands) < 2:
        return None
    before, worst = CheckedCase.of(mechanism, case).totals, 0.0
    for leaves in range(len(case.demands)):
        after = CheckedCase.of(mechanism, case.without_tenant(leaves)).totals
        stayed = np.delete(before, leaves)
        worst = max(worst, *(_lacks(has, had) for has, had in zip(after, stayed, strict=True)))
    return worst


def hierarchical_shares(mechanism: str, case: PropertyCase) -> float | None:
    given = CheckedCase.of(mechanism, case)
    problem, tree = given.problem, given.problem.tree
    if tree is None or (problem.pool <= 0).any():
        return None
    held = np.zeros((len(tree.parent), len(problem.pool)))
    for tenant, leaf in enumerate(tree.leaf):
        for node in (*tree.path(leaf), 0):
            held[node] += given.totals[tenant] * problem.demand[tenant] / problem.pool
    level = held.max(axis=1) / tree.weight
    worst = 0.0
    for tenant, leaf in enumerate(tree.leaf):
        demands = problem.demand[tenant] > 0
        if not demands.any() or given.totals[tenant] >= problem.count[tenant] * (1 - 1e-9):
            continue
        misses = []
        for r in np.flatnonzero(demands & (held[0] >= 1 - 1e-6)).tolist():
            ahead = [
                held[sibling, r] / tree.weight[sibling] - level[node]
                for node in tree.path(leaf)
                for sibling in tree.children(tree.parent[node])
                if sibling != node
            ]
            misses.append(max(ahead, default=0.0))
        worst = max(worst, min(misses, default=1.0))
    return worst


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """A property with its name and description in the document."""

    title: str
    says: str
    check: Check
    found: str  #: what a violation of {} says


PROPERTIES: Final[Mapping[str, Property]] = MappingProxyType(
    {
        "sharing_incentive": Property(
            title="Sharing incentive",
            says="Nobody has fewer tasks than it could run with its weight's part `w_i / Σw` of "
            "*every* host that it may use (of the pool, for `drf`), nor than it requested.",
            check=sharing_incentive,
            found="somebody has {} less than its part of every host would run",
        ),
        "weak_sharing_incentive": Property(
            title="Weak sharing incentive",
            says="With equal weights there is *some* way to cut up the hosts that gives everybody "
            "1/n of every resource in total, and nobody could run more with its piece than it "
            "has. What we try: everybody keeps what it was given (all scaled down alike, if "
            "somebody has more than 1/n of something), and what is left is handed out in "
            "proportion until totals are equal. Where that cut does not show it, another might.",
            check=weak_sharing_incentive,
            found="with its piece of that cut somebody has {} less than it could run",
        ),
        "envy_freeness": Property(
            title="Envy-freeness",
            says="Nobody could run more of its tasks, of those it wants and on hosts that it may "
            "use, with what another was given on each host, scaled by `w_i / w_j`.",
            check=envy_freeness,
            found="somebody has {} less than it could run with what another has",
        ),
        "pareto": Property(
            title="Pareto optimality",
            says="Nobody's tasks could be more while nobody's are fewer. Gains are given as part "
            "of what the tenant could run alone.",
            check=pareto,
            found="somebody could have {} more of all that it could run alone, at nobody's cost",
        ),
        "strategyproofness": Property(
            title="Strategyproofness",
            says="By claiming another demand vector (random, one tenant at a time, before it is "
            "known who else asks what) nobody is given what runs more of its true tasks.",
            check=strategyproofness,
            found="tenant 1 runs {} more by lying",
        ),
        "bottleneck_fairness": Property(
            title="Bottleneck fairness",
            says="When everybody's task needs a larger part of one and the same resource than of "
            "any other, on every host, then that resource is divided by weighted max-min: nobody "
            "who wants more has less of it per weight than another who has some on a host that "
            "it may use, and none of it is left there.",
            check=bottleneck_fairness,
            found="of the common bottleneck somebody has {} less than another where it could run",
        ),
        "single_server_drf": Property(
            title="Single-server DRF",
            says="With one host alone the answer is that of `drf`.",
            check=single_server_drf,
            found="a number of tasks is {} away from DRF's largest",
        ),
        "population_monotonicity": Property(
            title="Population monotonicity",
            says="When a tenant leaves, nobody who stays has less than before.",
            check=population_monotonicity,
            found="when somebody leaves, another has {} less",
        ),
        "hierarchical_shares": Property(
            title="Hierarchical share guarantee",
            says="For everybody who wants more there is a resource, used up, of which no sibling "
            "of it or of a group above it holds more per weight than the dominant share per "
            "weight of that node. A miss is given in parts of the pool.",
            check=hierarchical_shares,
            found="a sibling holds {} of the pool more than it may",
        ),
        "no_waste": Property(
            title="Nothing that fits is left out",
            says="Nobody who wants more has room for one more VM on a host that it may use.",
            check=whole_vms.no_waste,
            found="{} of somebody's VMs are left out though they fit",
        ),
        "sharing_incentive_1": Property(
            title="Sharing incentive up to one VM",
            says="Nobody, with one VM more than it has, would still run fewer than the whole VMs "
            "that fit into its weight's part of every host that it may use, nor than it requested.",
            check=whole_vms.sharing_incentive,
            found="with one VM more somebody still has {} less than its part of every host holds",
        ),
        "envy_freeness_1": Property(
            title="Envy-freeness up to one VM",
            says="Nobody could run more of its VMs, of those it wants and on hosts that it may "
            "use, with what another was given but for one VM, scaled by `w_i / w_j`.",
            check=whole_vms.envy_freeness,
            found="somebody has {} less than it could run with what another has but for one VM",
        ),
        "strategyproofness_1": Property(
            title="Strategyproofness up to one VM",
            says="By claiming another demand vector (random, by one tenant, before it is known who "
            "else asks what) nobody is given what runs two or more of its true VMs more.",
            check=whole_vms.strategyproofness,
            found="with one VM more tenant 1 still has {} less than by lying",
        ),
        "single_server_drf_1": Property(
            title="Single-server DRF up to one VM",
            says="With one host alone nobody has more than one VM less than `drf` gives it.",
            check=whole_vms.single_server_drf,
            found="with one VM more somebody still has {} less than by DRF",
        ),
        "population_monotonicity_1": Property(
            title="Population monotonicity up to one VM",
            says="When a tenant leaves, nobody who stays has two or more VMs less than before.",
            check=whole_vms.population_monotonicity,
            found="when somebody leaves, another, even with one VM more, has {} less",
        ),
        "pareto_1": Property(
            title="Pareto optimality of whole VMs",
            says="However VMs are repacked, nobody's could be more while nobody's are fewer.",
            check=whole_vms.pareto,
            found="repacked, with nobody worse off, {} of all VMs would be new",
        ),
    }
)
