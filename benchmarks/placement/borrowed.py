"""Print what borrowed VMs cost a round, as a ratio to the same round without them.

    python -m benchmarks.placement.borrowed [--hosts 250,500,1000] [--policies best_fit_drfh,fuga]

Hosts of 64 cores are full: ten borrowed VMs of each are of twenty tenants that hold much. Five
requests for each host, of a hundred tenants that hold nothing, find no room, so borrowed VMs end
for them until shares forbid it. "round" is the processor time of the round without borrowed VMs,
in which nothing is placed; "stage" is what they add; "per end" is of each VM that ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks.kit import parser, timed
from placement import Allocation, Policy, Snapshot, decide, policy_by_name
from placement.model.snapshot import Borrowed

_CORES, _GIB = 64, 256
_BORROWERS, _TAKERS = 20, 100
_OF_HOST, _REQUESTS_OF_HOST = 10, 5


def a_full_site(hosts: int, *, seed: int = 1) -> Snapshot:
    """Return hosts full of borrowed VMs, and requests of tenants that hold nothing."""
    rng = np.random.default_rng(seed)
    number, requests = _OF_HOST * hosts, _REQUESTS_OF_HOST * hosts
    tenants = _BORROWERS + _TAKERS
    cores = rng.choice([2, 4, 6], number)
    amounts = np.column_stack((cores, cores * _GIB // _CORES)).astype(np.int64)
    host = np.repeat(np.arange(hosts), _OF_HOST)
    borrower = rng.integers(_BORROWERS, size=number)
    held = np.zeros((tenants, 2), dtype=np.int64)
    np.add.at(held, borrower, amounts)
    # A request of each borrower has all its borrowed VMs; the others wait.
    wanted = rng.choice([1, 2, 4], requests)
    demand = np.column_stack((wanted, wanted * _GIB // _CORES)).astype(np.int64)
    total = _BORROWERS + requests
    return Snapshot(
        resources=("vcpus", "memory_gib"),
        capacity=np.tile(np.array([[_CORES, _GIB]]), (hosts, 1)),
        free=np.zeros((hosts, 2), dtype=np.int64),
        host_class=np.zeros(hosts, dtype=np.int64),
        eligible=np.ones((total, 1), dtype=np.bool_),
        demand=np.concatenate((np.ones((_BORROWERS, 2), dtype=np.int64), demand)),
        count=np.concatenate((np.zeros(_BORROWERS, dtype=np.int64), rng.integers(1, 4, requests))),
        min_count=np.ones(total, dtype=np.int64),
        tenant=np.concatenate(
            (np.arange(_BORROWERS), _BORROWERS + rng.integers(_TAKERS, size=requests))
        ),
        age=np.zeros(total, dtype=np.int64),
        weight=np.ones(tenants),
        held=held,
        borrowed=Borrowed(
            asks=np.arange(total) < _BORROWERS,
            host=host,
            tenant=borrower,
            request=borrower,
            amounts=amounts,
            may_end=np.ones(number, dtype=np.bool_),
            ending=np.zeros(number, dtype=np.bool_),
        ),
    )


def _decided(site: Snapshot, policy: Policy) -> Allocation:
    return decide(site, policy, seed=0, budget_units=None)


def main(argv: Sequence[str] | None = None) -> None:
    given = parser(
        __doc__, hosts=[250, 500, 1000], policies=["best_fit_drfh", "fuga"], repeats=2
    ).parse_args(argv)
    print(
        f"{'policy':<15}{'hosts':>7}{'borrowed':>10}{'requests':>10}{'ends':>7}"
        f"{'round s':>9}{'stage s':>9}{'ratio':>7}{'ms per end':>12}"
    )
    for name in given.policies:
        policy = policy_by_name(name, {})
        for hosts in given.hosts:
            site = a_full_site(hosts)
            plain = dataclasses.replace(site, borrowed=None)
            _, base_s = timed(partial(_decided, plain, policy), repeats=given.repeats)
            found, whole_s = timed(partial(_decided, site, policy), repeats=given.repeats)
            ends, stage_s = len(found.details["borrowed"]["ends"]), whole_s - base_s
            print(
                f"{name:<15}{hosts:>7,}{_OF_HOST * hosts:>10,}{_REQUESTS_OF_HOST * hosts:>10,}"
                f"{ends:>7,}{base_s:>9.3f}{stage_s:>9.2f}{stage_s / base_s:>7.1f}"
                f"{1000 * stage_s / max(ends, 1):>12.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
