"""Print what every policy makes of the same rounds, side by side.

    python -m benchmarks.placement.policies [--hosts 500] [--loads 0.8,1.0,1.2] [--seeds 3]

Hosts in the proportions of Google's table, the largest 64 cores and 256 GiB.
Fifty tenants of equal weight ask for one of five types of VM each, ten for each
type, in heavy-tailed numbers; the types ask for equally many cores in all, and
together for a multiple of the cores that there are (load).

  cores/bound  cores given out, as a part of the LP bound on any allocation
  unfair       largest |dominant share − fair share| over tenants, as a part of
               the mean fair share; fair is weighted DRF on the pool
  seconds      of processor time, the median of the seeds
  × first_fit  the same as a ratio, which compares across machines
  growth       n of the power n of the hosts that the time grew with, from a
               quarter of them, at the last load

The parts are means over the seeds.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from benchmarks.kit import parser, timed
from benchmarks.placement.clusters import VM_TYPES, google_hosts
from placement import (
    POLICIES,
    Budget,
    Snapshot,
    allocation_bound,
    check_allocation,
    policy_by_name,
    shares_after,
    target_shares,
)

BASE = "first_fit"
TENANTS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """The figures of one policy on one round."""

    cores: float  #: part of the bound
    unfair: float  #: part of the mean fair share
    seconds: float
    cut: bool


def main(argv: Sequence[str] | None = None) -> None:
    given = parser(__doc__, hosts=500, loads=[0.8, 1.0, 1.2], seeds=3).parse_args(argv)
    loads = given.loads
    names = [BASE, *(name for name in POLICIES if name != BASE)]
    tables = {}
    for load in loads:
        rounds = [a_round(given.hosts, load, seed) for seed in range(given.seeds)]
        print(f"  … {load:g} times the cores requested", file=sys.stderr, flush=True)
        tables[load] = {name: measure(rounds, name) for name in names}
    fewer = [a_round(given.hosts // 4, loads[-1], seed) for seed in range(given.seeds)]
    growth = {
        name: math.log(tables[loads[-1]][name].seconds / measure(fewer, name).seconds, 4)
        for name in names
    }
    print_table(loads, names, tables, growth, given.hosts)


def a_round(hosts: int, load: float, seed: int) -> Snapshot:
    """Return a round on empty hosts."""
    rng = np.random.default_rng(seed)
    capacity = np.array(google_hosts(hosts), dtype=np.int64)[:, :2]
    types = np.array(VM_TYPES, dtype=np.int64)[:, :2]
    of_tenant = np.arange(TENANTS) % len(types)
    sizes = np.minimum(1 + rng.pareto(1.5, TENANTS), 20.0)
    of_type = np.bincount(of_tenant, sizes)[of_tenant]
    cores = load * int(capacity[:, 0].sum()) / len(types) * sizes / of_type
    demand = types[of_tenant]
    count = np.maximum(np.rint(cores / demand[:, 0]), 1).astype(np.int64)
    return Snapshot(
        resources=("vcpus", "memory_gib"),
        capacity=capacity,
        free=capacity.copy(),
        host_class=np.zeros(hosts, dtype=np.int64),
        eligible=np.ones((TENANTS, 1), dtype=np.bool_),
        demand=demand,
        count=count,
        min_count=np.ones(TENANTS, dtype=np.int64),
        tenant=np.arange(TENANTS),
        age=np.zeros(TENANTS, dtype=np.int64),
        weight=np.ones(TENANTS),
        held=np.zeros((TENANTS, 2), dtype=np.int64),
    )


def measure(rounds: Sequence[Snapshot], name: str) -> PolicyFigures:
    """Return the means over some rounds; every allocation is checked."""
    runs = [measure_one(snapshot, name, seed) for seed, snapshot in enumerate(rounds)]
    return PolicyFigures(
        cores=fmean(run.cores for run in runs),
        unfair=fmean(run.unfair for run in runs),
        seconds=median(run.seconds for run in runs),
        cut=any(run.cut for run in runs),
    )


def measure_one(snapshot: Snapshot, name: str, seed: int) -> PolicyFigures:
    policy = policy_by_name(name, {})
    allocation, seconds = timed(
        lambda: policy.place(snapshot, np.random.default_rng(seed), Budget(2_000_000))
    )
    check_allocation(snapshot, allocation)
    requests, _, counts = allocation.placed.T
    cores = float((counts * snapshot.demand[requests, 0]).sum())
    fair = target_shares(snapshot)
    distance = np.abs(shares_after(snapshot, allocation) - fair).max()
    return PolicyFigures(
        cores=cores / allocation_bound(snapshot, 0),
        unfair=float(distance / fair.mean()),
        seconds=seconds,
        cut=allocation.cut,
    )


def print_table(
    loads: Sequence[float],
    names: Sequence[str],
    tables: dict[float, dict[str, PolicyFigures]],
    growth: dict[str, float],
    hosts: int,
) -> None:
    print(f"{hosts} hosts; load is what is requested, in times the cores that there are")
    print(f"{'':<18}" + "".join(f"{f'load {load:g}':^44}" for load in loads))
    columns = f"{'cores/bound':>12}{'unfair':>9}{'seconds':>10}{'× ' + BASE:>13}"
    print(f"{'policy':<18}" + columns * len(loads) + f"{'growth':>9}")
    for name in names:
        cells = []
        for load in loads:
            run, base = tables[load][name], tables[load][BASE]
            ratio = f"{run.seconds / base.seconds:.1f}{' cut' if run.cut else ''}"
            cells.append(f"{run.cores:>12.4f}{run.unfair:>9.3f}{run.seconds:>10.3f}{ratio:>13}")
        print(f"{name:<18}" + "".join(cells) + f"{growth[name]:>9.2f}")


if __name__ == "__main__":
    main()
