"""How long one estimate of everything that waits takes, on a full cluster with a long backlog.

    python -m benchmarks.large_forecast [--hosts 12500] [--waiting 10000] [--policy fuga]

Hosts of 64 cores with eight VMs each, slots of ten seconds, lifetimes around five hours, requests
that come as fast as VMs end. Prints samples, seconds, and the estimates of the first and the last.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from benchmarks.kit import parser
from placement import Snapshot, policy_by_name
from placement.forecast.current_state import CurrentState, RecentArrivals, RunningVms
from placement.forecast.estimate import estimate_wait
from placement.forecast.lifetimes import Lifetimes, ObservedLifetimes
from placement.forecast.run_ahead import RunAheadOptions, simulate_waits

_VMS, _TENANTS, _KINDS, _CAME = 8, 10, 20, 2000  # on a host; in all; of requests to come
_LIFE_S, _SPREAD = 5 * 3600.0, 1.5
_SLOT_S = 10.0


def large_present(hosts: int, waiting: int, rng: np.random.Generator) -> CurrentState:
    """Return a full cluster of equal hosts and equal VMs."""
    vms, rows = hosts * _VMS, waiting + _KINDS
    vm = np.array([[8, 32_768]])
    capacity = np.tile(vm * _VMS, (hosts, 1))
    tenant = rng.integers(0, _TENANTS, vms)
    count = (np.arange(rows) < waiting).astype(np.int64)
    span_s = _CAME * 3 * _LIFE_S / vms
    return CurrentState(
        snapshot=Snapshot(
            resources=("vcpus", "memory_mib"),
            capacity=capacity,
            free=np.zeros_like(capacity),
            host_class=np.zeros(hosts, dtype=np.int64),
            eligible=np.ones((rows, 1), dtype=np.bool_),
            demand=np.tile(vm, (rows, 1)),
            count=count,
            min_count=np.ones(rows, dtype=np.int64),
            tenant=rng.integers(0, _TENANTS, rows),
            age=np.zeros(rows, dtype=np.int64),
            weight=np.ones(_TENANTS),
            held=np.bincount(tenant, minlength=_TENANTS)[:, None] * vm,
        ),
        groups=np.zeros((rows, 1), dtype=np.int64),
        ends_in_s=np.full(rows, np.inf),
        running=RunningVms(
            host=np.repeat(np.arange(hosts), _VMS),
            tenant=tenant,
            request=np.arange(vms),
            count=np.ones(vms, dtype=np.int64),
            demand=np.tile(vm, (vms, 1)),
            groups=np.zeros((vms, 1), dtype=np.int64),
            age_s=rng.exponential(_LIFE_S, vms),
            ends_in_s=np.full(vms, np.inf),
        ),
        arrivals=RecentArrivals(
            at_s=np.sort(rng.random(_CAME) * span_s),
            row=rng.integers(waiting, rows, _CAME),
            count=np.ones(_CAME, dtype=np.int64),
            span_s=span_s,
        ),
    )


def main(argv: Sequence[str] | None = None) -> None:
    given = parser(
        __doc__, hosts=12_500, waiting=10_000, policy="fuga", seconds=(20.0, "for samples at most")
    ).parse_args(argv)
    rng = np.random.default_rng(1)
    present = large_present(given.hosts, given.waiting, rng)
    lived_s = rng.lognormal(np.log(_LIFE_S), _SPREAD, 5000)
    lifetimes = Lifetimes(
        ObservedLifetimes(
            groups=np.zeros((len(lived_s), 1), dtype=np.int64),
            age_s=np.minimum(lived_s, 200_000.0),
            ended=lived_s < 200_000.0,
        )
    )
    policy = policy_by_name(given.policy, {})
    ahead = RunAheadOptions(policy=lambda _: policy, slot_length_s=_SLOT_S, budget_units=2_000_000)
    began = time.monotonic()
    waits_s = simulate_waits(
        present, lifetimes, ahead, lambda: time.monotonic() - began > given.seconds
    )
    print(f"{len(waits_s)} samples in {time.monotonic() - began:.1f} s")
    for row in (0, given.waiting - 1):
        estimate = estimate_wait(waits_s[:, row], slot_length_s=_SLOT_S, horizon_s=ahead.horizon_s)
        print(f"request {row + 1}: {estimate}")


if __name__ == "__main__":
    main()
