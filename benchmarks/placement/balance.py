"""Print how long balancing takes and how level it leaves hosts, against Ganeti's hbal.

    python -m benchmarks.placement.balance [--full]

The clusters are seeded: hosts of five sizes, filled unevenly with VMs of nine types. hbal
reads the same cluster from a file of its text backend (`ganeti-htools`). Its VMs have disks
of the kind ``ext``, which every node reaches, so its only move is the one that is ours: a VM to
another host, live. It looks at no load that changes (``--ignore-dynu``) and takes every gain
(``--min-gain 1e-9``), so its score is the sum over CPU and memory of the standard deviation, over
hosts, of the part that is in use. Ours makes as many moves as hbal made, without a price, so
that both do the same; "away" is the sum of squared distances from the load of the
pool (`placement.rebalancing.local_search.host_costs.LoadImbalance`), which ours lowers.

"hbal" and "fuga" are seconds of processor time on one core; "times" is their ratio. hbal
weighs every VM on every host before each move, each time in a time that grows with the hosts;
where its number of moves is bounded, so is ours. On a thousand hosts one move of it would take
hours: there only some VMs, drawn by the seed, may move ("of"), for both; with all of them hbal is
ended after ten minutes of the processor. Without hbal the first table is left out, with a word.

On clusters so small that single VMs decide, either may end a little better, so the scores are
compared by the geometric mean of their ratios, and the table counts how many times each was better.
Exits with status 1 if ours is worse than hbal by one of these means, or less than 20 times as
fast on any cluster, or needs more than 5 s where it is alone.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.kit import parser, timed
from placement import Snapshot
from placement.rebalancing.balance import BALANCE_OBJECTIVE, balance
from placement.rebalancing.local_search.objective import MoveObjective
from placement.rebalancing.model import (
    OBSTACLES,
    Mobility,
    MovePlan,
    RebalanceObstacle,
    RunningState,
)
from placement.rebalancing.pack import pack

IntArray = npt.NDArray[np.int64]

#: Cores and GiB, and how many of a hundred hosts.
HOSTS: Final = (
    ((64, 256), 40),
    ((96, 384), 20),
    ((128, 512), 15),
    ((48, 384), 15),
    ((64, 128), 10),
)
#: Cores and GiB, and how many of a hundred VMs.
TYPES: Final = (
    ((1, 2), 15), ((1, 4), 15), ((2, 4), 15), ((2, 8), 15), ((4, 8), 12),
    ((4, 16), 10), ((8, 16), 6), ((8, 32), 4), ((2, 16), 8),
)  # fmt: skip
TENANTS: Final = 20
MIB: Final = 1024
#: What hbal knows of a price: nothing.
UNPRICED: Final = MoveObjective(price_per_gib=0.0, least_gain=1e-9)
MIN_TIMES: Final = 20
MAX_SECONDS: Final = 5.0
#: After so much processor time hbal is ended, where it weighs every VM of a large cluster.
HBAL_SECONDS: Final = 600

_MOVE: Final = re.compile(r"^\s*\d+\. vm(\d+) +host\d+ +=> host(\d+) ", re.MULTILINE)
_SCORES: Final = re.compile(r"score[^\d]*improved from ([\d.]+) to ([\d.]+)")
#: hbal's policy: VMs of any size, no over-commit.
_POLICY: Final = "|128,1,0,1,1,0|1,1,0,1,1,0;99999999,9999,9999999,16,8,12|ext|1.0|32.0"


def uneven_cluster(hosts: int, vms: int, *, seed: int = 1) -> RunningState:
    """Return hosts filled unevenly: how much each attracts differs by up to ten times."""
    rng = np.random.default_rng(seed)
    sizes, types = _drawn(rng, HOSTS, hosts), np.array([each for each, _ in TYPES])
    capacity, demand = sizes * [1, MIB], types * [1, MIB]
    kind = rng.choice(len(types), vms, p=np.array([part for _, part in TYPES]) / 100)
    attraction = sizes[:, 0] * rng.uniform(0.1, 1.0, hosts)
    wishes = rng.choice(hosts, (vms, 3), p=attraction / attraction.sum())
    room, host = capacity.copy(), np.empty(vms, dtype=np.int64)
    for vm, wanted in enumerate(demand[kind]):
        fits = (room[wishes[vm]] >= wanted).all(axis=1)
        if fits.any():
            host[vm] = wishes[vm][fits.argmax()]
        else:
            host[vm] = np.flatnonzero((room >= wanted).all(axis=1))[0]
        room[host[vm]] -= wanted
    tenant = rng.integers(0, TENANTS, vms)
    held = np.zeros((TENANTS, 2), dtype=np.int64)
    np.add.at(held, tenant, demand[kind])
    nothing = np.zeros(0, dtype=np.int64)
    snapshot = Snapshot(
        resources=("vcpus", "memory_mib"),
        capacity=capacity,
        free=room,
        host_class=np.zeros(hosts, dtype=np.int64),
        eligible=np.ones((0, 1), dtype=np.bool_),
        demand=np.zeros((0, 2), dtype=np.int64),
        count=nothing,
        min_count=nothing,
        tenant=nothing,
        age=nothing,
        weight=np.ones(TENANTS),
        held=held,
    )
    return RunningState(
        snapshot=snapshot,
        kind=kind,
        host=host,
        tenant=tenant,
        transfer_mib=demand[kind][:, 1],
        mobility=np.full(vms, Mobility.LIVE, dtype=np.int64),
        obstacle=np.full(vms, -1),
        rests=np.zeros(vms, dtype=np.bool_),
        demand=demand,
        eligible=np.ones((len(demand), 1), dtype=np.bool_),
        receives=np.ones(hosts, dtype=np.bool_),
        over=np.zeros_like(capacity),
    )


def _drawn(rng: np.random.Generator, table: Sequence[tuple[tuple[int, int], int]], number: int):
    sizes = np.array([size for size, _ in table])
    parts = np.array([part for _, part in table]) / 100
    return sizes[rng.choice(len(sizes), number, p=parts)]


def to_hbal_text(running: RunningState) -> str:
    """Return the cluster as a file of hbal's text backend: groups, nodes, VMs, tags, policy."""
    capacity = running.snapshot.capacity.tolist()
    nodes = [
        f"host{number}|{memory}|0|{free}|1000000|1000000|{cores}|N|all|1||N|0|0|1.0"
        for number, ((cores, memory), (_, free)) in enumerate(
            zip(capacity, running.room.tolist(), strict=True)
        )
    ]
    vms = [
        f"vm{number}|{memory}|0|{cores}|running|Y|host{host}||ext||0"
        for number, (host, (cores, memory)) in enumerate(
            zip(running.host.tolist(), running.demand[running.kind].tolist(), strict=True)
        )
    ]
    lines = ["all|all|preferred||", "", *nodes, "", *vms, "", "", _POLICY, ""]
    return "\n".join(lines)


class Hbal(NamedTuple):
    """The result of a run of hbal."""

    seconds: float  #: of processor time
    moves: tuple[tuple[int, int], ...]  #: VM and host, in order; a VM may move again
    before: float  #: its score as it prints it
    after: float


def only_some(running: RunningState, number: int, *, seed: int) -> RunningState:
    """Return the cluster in which only ``number`` VMs, drawn at random, may move."""
    chosen = np.random.default_rng(seed).permutation(len(running))[:number]
    stays = np.ones(len(running), dtype=np.bool_)
    stays[chosen] = False
    return dataclasses.replace(
        running,
        mobility=np.where(stays, Mobility.NEVER, running.mobility),
        obstacle=np.where(stays, OBSTACLES.index(RebalanceObstacle.LABEL), running.obstacle),
        transfer_mib=np.where(stays, 0, running.transfer_mib),
    )


def by_hbal(running: RunningState, most_moves: int | None) -> Hbal:
    """Balance a cluster by hbal, to its end or with at most ``most_moves`` moves."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "cluster")
        file.write_text(to_hbal_text(running))
        command = ["hbal", "-t", str(file), "--ignore-dynu", "--min-gain", "1e-9"]
        command += [] if most_moves is None else ["-l", str(most_moves)]
        if not running.movable.all():
            names = ",".join(f"vm{vm}" for vm in np.flatnonzero(running.movable).tolist())
            command.append(f"--select-instances={names}")
        used = os.times()
        done = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        now = os.times()
    seconds = now.children_user + now.children_system - used.children_user - used.children_system
    moves = tuple((int(vm), int(host)) for vm, host in _MOVE.findall(done))
    scores = _SCORES.search(done)
    if scores is None:
        raise RuntimeError(f"hbal says no score:\n{done}")
    return Hbal(seconds, moves, float(scores[1]), float(scores[2]))


def one_move_by_hbal(hosts: int, vms: int) -> None:
    """Print the processor time in which hbal makes one move on a large cluster, if it ends."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "cluster")
        file.write_text(to_hbal_text(uneven_cluster(hosts, vms)))
        used = os.times().children_user
        done = subprocess.run(
            ["prlimit", f"--cpu={HBAL_SECONDS}", "hbal", "-t", str(file), "--ignore-dynu",
             "--min-gain", "1e-9", "-l", "1"],
            stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    seconds = os.times().children_user - used
    took = f"{seconds:.0f} s" if done.returncode == 0 else f"more than {seconds:.0f} s"
    print(f"hbal, one move on {hosts} hosts with {vms} VMs: {took}", flush=True)


def used_after(running: RunningState, moves: Sequence[tuple[int, int]]) -> IntArray:
    """Return the used amounts of each host after moves of (VM, host), (H, R)."""
    host = running.host.copy()
    for vm, destination in moves:
        host[vm] = destination
    used = np.zeros_like(running.snapshot.capacity)
    np.add.at(used, host, running.demand[running.kind])
    return used


def hbal_score(running: RunningState, used: IntArray) -> float:
    """Return hbal's score: the sum of the standard deviations of the used fractions over hosts."""
    return float((used / running.snapshot.capacity).std(axis=0).sum())


def away(running: RunningState, used: IntArray) -> float:
    """Return the sum of squared distances from the load of the pool."""
    capacity = running.snapshot.capacity
    target = used.sum(axis=0) / capacity.sum(axis=0)
    return float((((used / capacity) - target) ** 2).sum())


def moves_of(plan: MovePlan) -> list[tuple[int, int]]:
    return [(move.vm, move.destination) for move in plan.moves]


class BalanceCase(NamedTuple):
    """A cluster that both fuga and hbal balance."""

    hosts: int
    vms: int
    seed: int = 1
    most_moves: int | None = None
    of: int | None = None  #: number of VMs that may move; None: all


def compare_with_hbal(cases: Sequence[BalanceCase]) -> bool:
    """Print a line for each case against hbal; return whether all figures keep their limits."""
    print(
        f"{'hosts':>6} {'VMs':>6} {'of':>6} {'moves':>11} | "
        f"{'score':>6} {'hbal':>7} {'fuga':>7} | "
        f"{'away':>7} {'hbal':>7} {'fuga':>7} | {'hbal s':>8} {'fuga s':>7} {'times':>7}"
    )
    ratios, least_times = [], np.inf
    for hosts, vms, seed, most, of in cases:
        running = uneven_cluster(hosts, vms, seed=seed)
        if of is not None:
            running = only_some(running, of, seed=seed)
        theirs = by_hbal(running, most)
        number = len(theirs.moves)
        plan, seconds = _timed(running, UNPRICED, number)
        used = used_after(running, ()), used_after(running, theirs.moves), _used(running, plan)
        score = [hbal_score(running, each) for each in used]
        far = [away(running, each) for each in used]
        if max(abs(score[0] - theirs.before), abs(score[1] - theirs.after)) > 1e-6:
            raise RuntimeError(f"hbal's scores are {theirs[2:]}, found {score}")
        ratios.append((score[2] / score[1], far[2] / far[1]))
        least_times = min(least_times, theirs.seconds / seconds)
        print(
            f"{hosts:>6} {vms:>6} {of or vms:>6} {number:>5}/{len(plan.moves):>5} | "
            f"{score[0]:>6.4f} {score[1]:>7.4f} {score[2]:>7.4f} | "
            f"{far[0]:>7.2f} {far[1]:>7.3f} {far[2]:>7.3f} | "
            f"{theirs.seconds:>8.2f} {seconds:>7.3f} {theirs.seconds / seconds:>7.0f}",
            flush=True,
        )
    means = np.exp(np.log(ratios).mean(axis=0))
    for name, column, mean in zip(("score", "away"), np.array(ratios).T, means, strict=True):
        better, worse = (column < 1 - 1e-9).sum(), (column > 1 + 1e-9).sum()
        print(
            f"{name}: fuga / hbal {mean:.3f}, lower on {better} of {len(column)}, higher on {worse}"
        )
    return bool((means <= 1).all() and least_times >= MIN_TIMES)


def alone(sizes: Sequence[tuple[int, int, int | None]]) -> bool:
    """Print a line for each (hosts, VMs, most moves) with the default price."""
    print(
        f"\n{'hosts':>6} {'VMs':>7} {'moves':>6} {'waves':>6} {'GiB':>7} {'outcome':>8} | "
        f"{'score':>6} {'after':>6} | {'fuga s':>7}"
    )
    well = True
    for hosts, vms, most in sizes:
        running = uneven_cluster(hosts, vms)
        plan, seconds = _timed(running, BALANCE_OBJECTIVE, most)
        well &= seconds <= MAX_SECONDS
        print(
            f"{hosts:>6} {vms:>7} {len(plan.moves):>6} {len(plan.waves):>6} "
            f"{plan.measures_after.moved_gib:>7.0f} {plan.details['outcome']:>8} | "
            f"{hbal_score(running, used_after(running, ())):>6.4f} "
            f"{hbal_score(running, _used(running, plan)):>6.4f} | {seconds:>7.3f}",
            flush=True,
        )
    return well


def packed(sizes: Sequence[tuple[int, int]]) -> None:
    """Print hosts in use before and after packing, and the fewest that the sums would need."""
    print(f"\n{'hosts':>6} {'VMs':>7} {'in use':>7} {'packed':>7} {'sums':>6} {'GiB':>7} {'s':>6}")
    for hosts, vms in sizes:
        running = uneven_cluster(hosts, vms)
        plan, seconds = timed(lambda running=running: pack(running))
        used = used_after(running, ()).sum(axis=0)
        largest = np.sort(running.snapshot.capacity, axis=0)[::-1].cumsum(axis=0)
        fewest = int((largest < used).sum(axis=0).max()) + 1
        print(
            f"{hosts:>6} {vms:>7} {plan.measures_before.hosts_in_use:>7} "
            f"{plan.measures_after.hosts_in_use:>7} "
            f"{fewest:>6} {plan.measures_after.moved_gib:>7.0f} {seconds:>6.2f}",
            flush=True,
        )


def _timed(
    running: RunningState, worth: MoveObjective, most_moves: int | None
) -> tuple[MovePlan, float]:
    return timed(lambda: balance(running, worth.with_given({"most_moves": most_moves})))


def _used(running: RunningState, plan: MovePlan) -> IntArray:
    return used_after(running, moves_of(plan))


def main(argv: Sequence[str] | None = None) -> None:
    full = parser(__doc__, full=(False, "larger clusters, half an hour")).parse_args(argv).full
    cases = [
        *(BalanceCase(20, 200, seed) for seed in range(1, 7)),
        *(BalanceCase(20, 320, seed) for seed in range(1, 5)),
        BalanceCase(100, 1600, most_moves=3),
    ]
    if full:
        cases += [
            BalanceCase(40, 640),
            BalanceCase(40, 640, seed=2),
            BalanceCase(100, 1600, most_moves=50),
        ]
        cases += [BalanceCase(1000, 16000, most_moves=3, of=32)]
    well = True
    if shutil.which("hbal") is None:
        print("hbal is not installed (apt-get install ganeti-htools): fuga alone")
    else:
        well = compare_with_hbal(cases)
        if full:
            one_move_by_hbal(1000, 16000)
    most: list[tuple[int, int, int | None]] = [(1000, 16000, None), (10000, 100000, 500)]
    well &= alone([(500, 8000, None), *most, (2000, 32000, None)] if full else most)
    packed([(100, 1000), (1000, 10000), (10000, 100000)] if full else [(100, 1000)])
    if not well:
        sys.exit("worse than hbal, or slower than it may be")


if __name__ == "__main__":
    main()
