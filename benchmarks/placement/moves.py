"""Print the processor time of plans of moves against baselines of the same run.

    python -m benchmarks.placement.moves [evacuate] [growth] [spare] [room] [--repeats 2]

evacuate  100 of 10,000 hosts are emptied, against a numpy pass over all hosts for each VM
growth    one host in a hundred is emptied, from 1,000 hosts on; n^ is of the VMs
spare     a round of 10,000 VMs on 12,500 hosts that keeps spare, against one that does not
room      a VM as large as a host, for which VMs must move

Every plan is replayed by `check_plan`. Ratios compare across machines, seconds do not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks.kit import parser, timed
from benchmarks.placement.clusters import TENANTS, VM_TYPES, IntArray, google_hosts, heavy_parts
from placement import Budget, Policy, Snapshot, check_allocation, policy_by_name
from placement.rebalancing.check import check_plan
from placement.rebalancing.evacuate import evacuate
from placement.rebalancing.model import Mobility, RunningState
from placement.rebalancing.room import plan_room
from placement.rebalancing.spare_capacity import spare_capacity
from placement.rebalancing.spare_policy import SpareCapacityPolicy

MIB_PER_GIB: Final = 1024
SIZES: Final = (1_000, 2_000, 5_000, 10_000, 20_000)


def main(argv: Sequence[str] | None = None) -> None:
    tables = {
        "evacuate": evacuate_table,
        "growth": growth_table,
        "spare": spare_table,
        "room": room_table,
    }
    arguments = parser(__doc__, repeats=2)
    arguments.add_argument("tables", nargs="*", default=[*tables], metavar=" | ".join(tables))
    given = arguments.parse_args(argv)
    for name in given.tables:
        if name not in tables:
            arguments.error(f"{name}: one of {', '.join(tables)}")
        tables[name](given.repeats)


def a_site(hosts: int, *, load: float = 0.75, vms: int = 0, seed: int = 5) -> RunningState:
    """Return hosts of Google's table with VMs up to ``load`` of their cores, and requests.

    About ten VMs run on a host, of 900 tenants and five types; ``vms`` wait in requests of one
    to twenty.
    """
    rng = np.random.default_rng(seed)
    capacity = google_hosts(hosts)
    room = capacity.copy()
    parts: list[tuple[IntArray, IntArray]] = []
    for _ in range(64):
        kind = rng.integers(0, len(VM_TYPES), hosts)
        fits = (room >= VM_TYPES[kind]).all(axis=1)
        fits &= (capacity - room)[:, 0] + VM_TYPES[kind, 0] <= load * capacity[:, 0]
        room -= VM_TYPES[kind] * fits[:, None]
        parts.append((np.flatnonzero(fits), kind[fits]))
    host = np.concatenate([part[0] for part in parts])
    kind = np.concatenate([part[1] for part in parts])
    tenant = rng.choice(TENANTS, len(host), p=heavy_parts(rng, TENANTS))
    held = np.zeros((TENANTS, 2), dtype=np.int64)
    np.add.at(held, tenant, VM_TYPES[kind])
    count = rng.integers(1, 21, vms // 10 + 1) if vms else np.zeros(0, dtype=np.int64)
    count = count[np.cumsum(count) <= vms]
    requests = len(count)
    snapshot = Snapshot(
        resources=("vcpus", "memory_gib"),
        capacity=capacity,
        free=room,
        host_class=np.zeros(hosts, dtype=np.int64),
        eligible=np.ones((requests, 1), dtype=np.bool_),
        demand=VM_TYPES[rng.integers(0, len(VM_TYPES), requests)],
        count=count.astype(np.int64),
        min_count=np.ones(requests, dtype=np.int64),
        tenant=rng.integers(0, TENANTS, requests),
        age=np.zeros(requests, dtype=np.int64),
        weight=np.ones(TENANTS),
        held=held,
    )
    return RunningState(
        snapshot=snapshot,
        kind=kind,
        host=host,
        tenant=tenant,
        transfer_mib=VM_TYPES[kind, 1] * MIB_PER_GIB,
        mobility=np.full(len(host), Mobility.LIVE, dtype=np.int64),
        obstacle=np.full(len(host), -1, dtype=np.int64),
        rests=np.zeros(len(host), dtype=np.bool_),
        demand=VM_TYPES.astype(np.int64),
        eligible=np.ones((len(VM_TYPES), 1), dtype=np.bool_),
        receives=np.ones(hosts, dtype=np.bool_),
        over=np.zeros_like(capacity),
    )


def scan_all_hosts(running: RunningState, leaving: Sequence[int]) -> int:
    """Put each VM on the tightest host by a pass over all of them; return how many fit."""
    capacity, room = running.snapshot.capacity, running.room.copy()
    room[list(leaving)] = 0
    fit = 0
    for vm in running.vms_on(leaving).tolist():
        left = room - running.demand[running.kind[vm]]
        parts = np.where((left >= 0).all(axis=1), (left / capacity).sum(axis=1), np.inf)
        host = int(np.argmin(parts))
        if parts[host] < np.inf:
            room[host] = left[host]
            fit += 1
    return fit


def evacuate_table(repeats: int) -> None:
    running = a_site(10_000)
    leaving = range(100)
    print(f"\nevacuate 100 of 10,000 hosts: {len(running)} VMs run in all")
    print(f"  {'':<24}{'seconds':>9}{'of the scan':>13}{'VMs moved':>11}{'stay':>6}{'waves':>7}")
    fit, base_s = timed(lambda: scan_all_hosts(running, leaving), repeats=repeats)
    print(f"  {'numpy pass for each VM':<24}{base_s:>9.3f}{1:>13.3f}{fit:>11}")
    plan, seconds = timed(lambda: evacuate(running, leaving), repeats=repeats)
    check_plan(running, plan)
    print(
        f"  {'plan':<24}{seconds:>9.3f}{seconds / base_s:>13.3f}{len(plan.moves):>11}"
        f"{len(plan.stays):>6}{len(plan.waves):>7}"
    )


def growth_table(repeats: int) -> None:
    print("\ngrowth: one host in a hundred is emptied")
    print(f"  {'hosts':>9}{'VMs':>10}{'VMs moved':>11}{'seconds':>10}{'n^':>7}")
    first: tuple[int, float] | None = None
    for hosts in SIZES:
        running = a_site(hosts)
        leaving = range(hosts // 100)
        plan, seconds = timed(lambda: evacuate(running, leaving), repeats=repeats)  # noqa: B023
        check_plan(running, plan)
        first = first or (len(running), seconds)
        growth = "-"
        if hosts > SIZES[0]:
            grown = math.log(seconds / first[1]) / math.log(len(running) / first[0])
            growth = f"{grown:.2f}"
        print(f"  {hosts:>9}{len(running):>10}{len(plan.moves):>11}{seconds:>10.3f}{growth:>7}")


def spare_table(repeats: int) -> None:
    print("\nspare for each of 12,500 hosts, kept by a round of 10,000 VMs")
    print(
        f"  {'policy':<16}{'load':>6}{'VMs run':>9}{'holds':>8}{'asking s':>10}{'round s':>9}"
        f"{'keeping s':>11}{'ratio':>7}{'waits':>7}"
    )
    for load in (0.75, 0.98):
        running = a_site(12_500, load=load, vms=10_000)
        domain = np.arange(12_500)
        found, asking_s = timed(lambda: spare_capacity(running, domain), repeats=repeats)  # noqa: B023
        for name in ("best_fit_drfh", "fuga"):
            plain = policy_by_name(name, {})
            _, plain_s = timed(lambda: placed(plain, running.snapshot), repeats=repeats)  # noqa: B023
            keeping = SpareCapacityPolicy(plain, running, domain)
            waits, keeping_s = timed(lambda: placed(keeping, running.snapshot), repeats=repeats)  # noqa: B023
            print(
                f"  {name:<16}{load:>6.2f}{len(running):>9}{found.holds.mean():>8.3f}"
                f"{asking_s:>10.3f}{plain_s:>9.3f}{keeping_s:>11.3f}"
                f"{keeping_s / plain_s:>7.2f}{waits:>7}"
            )


def placed(policy: Policy, snapshot: Snapshot) -> int:
    """Run a policy; return how many VMs wait because of kept spare capacity."""
    allocation = policy.place(snapshot, np.random.default_rng(0), Budget(None))
    check_allocation(snapshot, allocation)
    return int(allocation.details.get("spare", {}).get("kept_for", 0))


def room_table(repeats: int) -> None:
    print("\nroom for one VM of 64 cores and 256 GiB")
    print(f"  {'hosts':>9}{'VMs':>10}{'seconds':>10}{'VMs moved':>11}{'GiB':>8}{'at least':>10}")
    for hosts in (1_000, 12_500):
        running = asking(a_site(hosts), (64, 256))
        plan, seconds = timed(lambda: plan_room(running, 0), repeats=repeats)  # noqa: B023
        check_plan(running, plan)
        large = np.flatnonzero((running.snapshot.capacity >= (64, 256)).all(axis=1))
        on = np.bincount(running.host, running.transfer_mib, minlength=hosts)[large].min()
        print(
            f"  {hosts:>9}{len(running):>10}{seconds:>10.3f}{len(plan.moves):>11}"
            f"{plan.measures_after.moved_gib:>8.0f}{on / MIB_PER_GIB:>10.0f}"
        )


def asking(running: RunningState, demand: tuple[int, int]) -> RunningState:
    """Return the running state with one request for one VM."""
    one = np.ones(1, dtype=np.int64)
    snapshot = dataclasses.replace(
        running.snapshot,
        demand=np.array([demand], dtype=np.int64),
        count=one,
        min_count=one,
        tenant=one * 0,
        age=one * 0,
        eligible=np.ones((1, 1), dtype=np.bool_),
    )
    return dataclasses.replace(running, snapshot=snapshot)


if __name__ == "__main__":
    main()
