"""Print the processor time of rounds as ratios against baselines of the same run.

    python -m benchmarks.placement.rounds [scan] [slot] [half] [growth] [--full] [--repeats 2]

scan    whole rounds against a compiled loop that scans all hosts for each VM
slot    ten thousand VMs on half filled hosts against a numpy pass of first fit
half    rounds on half filled hosts, and of ``fuga`` its exchanges against their form with arrays
growth  from 1,000 hosts on, each size in a process of its own

Ratios compare across machines, seconds do not. ``cores/bound`` is what was
given out as a part of the LP bound, ``points`` what is missing to it in
hundredths of all cores, ``unfair`` the mean of |share - fair target| as a part
of the mean target. ``--full`` measures up to 128,000 hosts and takes minutes.
"""

from __future__ import annotations

import argparse
import copy
import gc
import math
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np

import placement.fuga.policy as fuga_policy
from benchmarks.kit import parser
from benchmarks.placement.clusters import a_slot, fresh_round, half_filled_round, large_hosts_round
from controller.settings import ControllerSettings
from placement import (
    Allocation,
    Budget,
    Snapshot,
    allocation_bound,
    check_allocation,
    policy_by_name,
    shares_after,
)
from placement.fairness.targets import fair_targets
from placement.fuga.exchange import Exchange, exchange_unfair
from placement.model.vm_kinds import VmKinds
from placement.packing.draft import Draft
from tests.plain.array_exchange import array_exchange

#: What the control centre allows a round by default.
UNITS = ControllerSettings.model_fields["budget_units"].default
QUIET_S = 2.0
POLICIES = ("best_fit_drfh", "fuga")
HALF_SIZES = (1_250, 5_000, 12_500)
SIZES = (1_000, 2_000, 4_000, 8_000, 16_000)
LARGE_SIZES = (32_000, 64_000, 128_000)


def main(argv: Sequence[str] | None = None) -> None:
    tables = {"scan": scan_table, "slot": slot_table, "half": half_table, "growth": growth_table}
    arguments = parser(__doc__, full=(False, "up to 128,000 hosts"), repeats=2)
    arguments.add_argument("tables", nargs="*", default=[*tables], metavar=" | ".join(tables))
    given = arguments.parse_args(argv)
    say = progress()
    for name in given.tables:
        if name not in tables:
            arguments.error(f"{name}: one of {', '.join(tables)}")
        tables[name](given, say)


def scan_table(given: argparse.Namespace, say: Callable[[str], None]) -> None:
    from benchmarks.placement.baseline import scan_all_hosts  # noqa: PLC0415 - compiles

    cases = (
        ("10,000 hosts, as many cores requested", fresh_round(10_000, load=0.98)),
        ("12,500 hosts, 1.2 times, equal CPU per type", fresh_round(12_500)),
        ("12,500 hosts, 1.2 times, equal tenants", fresh_round(12_500, mix="equal tenants")),
        ("1,000 hosts of 128 cores, 20 types, labels", large_hosts_round(1_000)),
    )
    for title, snapshot in cases:
        say(f"{title}: the scan over all hosts")
        seconds, placed = scan_all_hosts(snapshot)
        print_head(title, snapshot, "scan")
        bound = allocation_bound(snapshot, 0)
        cores = float((placed * snapshot.demand[:, 0]).sum())
        print(f"  {'scan of all hosts':<18}{seconds:>9.3f}{1:>15.3f}{cores / bound:>13.4f}")
        for name in POLICIES:
            say(f"{title}: {name}")
            print_line(name, snapshot, measure(snapshot, name, given.repeats), seconds, bound)


def slot_table(given: argparse.Namespace, say: Callable[[str], None]) -> None:
    from benchmarks.placement.baseline import first_fit_pass  # noqa: PLC0415 - imports a compiler

    snapshot = a_slot(12_500, vms=10_000)
    say("a slot's work")
    seconds = min(first_fit_pass(snapshot)[0] for _ in range(given.repeats))
    print_head("a slot: 10,000 VMs on 12,500 half filled hosts", snapshot, "numpy pass")
    print(f"  {'numpy first fit':<18}{seconds:>9.3f}{1:>15.3f}")
    bound = allocation_bound(snapshot, 0)
    for name in POLICIES:
        print_line(name, snapshot, measure(snapshot, name, given.repeats), seconds, bound)


def half_table(given: argparse.Namespace, say: Callable[[str], None]) -> None:
    print("\nhalf filled hosts, requests for 1.2 times the cores that are left")
    print(
        f"  {'hosts':>7}{'VMs':>8}{'best_fit_drfh':>15}{'fuga':>9}{'times':>7}"
        f"{'exchanges':>11}{'seconds':>9}{'with arrays':>13}{'times':>7}"
    )
    for hosts in HALF_SIZES:
        say(f"half filled: {hosts} hosts")
        snapshot = half_filled_round(hosts)
        base = measure(snapshot, "best_fit_drfh", given.repeats, units=None)[0]
        exchanged = Exchanged()
        with patch.object(fuga_policy, "exchange_unfair", exchanged):
            seconds = measure(snapshot, "fuga", 1, units=None)[0] - exchanged.by_arrays
        print(
            f"  {hosts:>7}{snapshot.count.sum():>8}"
            f"{base:>15.3f}{seconds:>9.3f}{seconds / base:>7.1f}"
            f"{exchanged.made:>11}{exchanged.seconds:>9.3f}{exchanged.by_arrays:>13.3f}"
            f"{exchanged.by_arrays / exchanged.seconds:>7.1f}",
            flush=True,
        )


@dataclass
class Exchanged:
    """Exchanges VMs by the product code and by the array form, and compares the results."""

    made: int = 0
    seconds: float = 0.0
    by_arrays: float = 0.0

    def __call__(
        self, draft: Draft, kinds: VmKinds, budget: Budget
    ) -> tuple[tuple[Exchange, ...], bool]:
        started = time.process_time()
        same = array_exchange(copy.deepcopy(draft), kinds, copy.copy(budget))
        between = time.process_time()
        found = exchange_unfair(draft, kinds, budget)
        self.seconds += time.process_time() - between
        self.by_arrays += between - started
        assert found == same
        self.made += len(found[0])
        return found


def growth_table(given: argparse.Namespace, say: Callable[[str], None]) -> None:
    sizes = SIZES + (LARGE_SIZES if given.full else ())
    print("\ngrowth: fresh hosts, 1.2 times the cores requested, equal CPU per type")
    print(f"  {'policy':<18}{'hosts':>9}{'VMs':>10}{'seconds':>10}{'n^':>7}{'peak MiB':>10}  cut")
    context = multiprocessing.get_context("spawn")
    for name in POLICIES:
        first: Grown | None = None
        for hosts in sizes:
            say(f"growth: {name}, {hosts} hosts")
            with context.Pool(1) as pool:
                grown = pool.apply(grow, (name, hosts))
            first = first or grown
            exponent = (
                f"{math.log(grown.seconds / first.seconds) / math.log(hosts / sizes[0]):.2f}"
                if hosts > sizes[0]
                else "-"
            )
            print(
                f"  {name:<18}{hosts:>9}{grown.vms:>10}{grown.seconds:>10.3f}{exponent:>7}"
                f"{grown.peak_mib:>10.0f}  {'yes' if grown.cut else 'no'}"
            )


@dataclass(frozen=True, slots=True)
class Grown:
    """One size of the growth table."""

    vms: int
    seconds: float
    peak_mib: float
    cut: bool


def grow(name: str, hosts: int) -> Grown:
    """Measure one size; the peak is that of this process."""
    snapshot = fresh_round(hosts)
    seconds, allocation = measure(snapshot, name, 1, units=None)
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Grown(int(snapshot.count.sum()), seconds, peak_kib / 1024, allocation.cut)


def measure(
    snapshot: Snapshot, name: str, repeats: int, units: int | None = UNITS
) -> tuple[float, Allocation]:
    """Return the least seconds of processor time of some runs, and the outcome, checked.

    As in the process of a policy, the collector of cyclic garbage is off.
    """
    policy = policy_by_name(name, {})
    seconds = []
    for _ in range(repeats):
        gc.collect()
        gc.disable()
        started = time.process_time()
        allocation = policy.place(snapshot, np.random.default_rng(0), Budget(units))
        seconds.append(time.process_time() - started)
        gc.enable()
    check_allocation(snapshot, allocation)
    return min(seconds), allocation


def print_head(title: str, snapshot: Snapshot, base: str) -> None:
    vectors = len(np.unique(snapshot.free, axis=0))
    print(f"\n{title}: {snapshot.count.sum()} VMs, {vectors} distinct free vectors")
    print(
        f"  {'policy':<18}{'seconds':>9}{'of ' + base:>15}{'cores/bound':>13}{'points':>8}"
        f"{'unfair':>9}  cut"
    )


def print_line(
    name: str, snapshot: Snapshot, measured: tuple[float, Allocation], base_s: float, bound: float
) -> None:
    seconds, allocation = measured
    counts, requests = allocation.placed[:, 2], allocation.placed[:, 0]
    cores = float((counts * snapshot.demand[requests, 0]).sum())
    # Rounding errors are no points at all.
    points = round(100 * (bound - cores) / float(snapshot.pool[0]), 2) + 0.0
    print(
        f"  {name:<18}{seconds:>9.3f}{seconds / base_s:>15.3f}{cores / bound:>13.4f}{points:>8.2f}"
        f"{unfairness(snapshot, allocation):>9.4f}  {'yes' if allocation.cut else 'no'}"
    )


def unfairness(snapshot: Snapshot, allocation: Allocation) -> float:
    """Return the mean distance from the fair target, relative to the mean target."""
    held = snapshot.held.astype(float)
    np.add.at(held, snapshot.tenant, fair_targets(snapshot)[:, None] * snapshot.demand)
    targets = (held / snapshot.pool).max(axis=1)
    return float(np.abs(shares_after(snapshot, allocation) - targets).mean() / targets.mean())


def progress() -> Callable[[str], None]:
    """Return a function that prints the running case to standard error after some seconds."""
    started = time.monotonic()

    def say(what: str) -> None:
        if time.monotonic() - started > QUIET_S:
            print(f"  … {what}", file=sys.stderr, flush=True)

    return say


if __name__ == "__main__":
    main()
