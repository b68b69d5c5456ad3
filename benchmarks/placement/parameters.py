"""Print what fuga's parameters do to a round, each beside its default.

    python -m benchmarks.placement.parameters [--hosts 1000] [--seeds 2] [--full]

rounds    one parameter changed at a time. *equal*: the types ask for equally
          many cores, *tenants*: of each type as many tenants, both at 1.2 times
          the cores that there are, on empty hosts of Google's table; *half*:
          such hosts half filled with what runs, asked for 1.2 times the rest.
          Of each ``points``, what is missing to the LP bound in hundredths of
          all cores, ``unfair``, the mean of |share - fair target| as a part of
          the mean target, and ``time``, processor time as a ratio to the
          defaults'.
trees     how far sweeps stay behind backward induction, in small games: the mean
          of the potential that they lack, as a part of it, how often they lack
          any, and what the exact equilibrium takes, as a ratio to sweeps.
patience  small VMs come, last up to 20 rounds and refill every gap; a tenant
          waits for large ones. Rounds until all of them run, and what was idle
          in the meantime, of all capacity.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final

import numpy as np

from benchmarks.placement.clusters import fresh_round, half_filled_round
from benchmarks.placement.rounds import unfairness
from placement import Budget, Snapshot, allocation_bound, check_allocation, policy_by_name
from placement.fuga.parameters import LARGEST_TREE
from tests.servers.stream import Stream

#: One parameter at a time; the first of each is its default.
CHANGES: Final[Mapping[str, Sequence[Any]]] = {
    "alpha": (2.0, 1.1, 1.5, 3.0, 5.0),
    "eta": (5, 1, 2, 3, 8, 10, 20),
    "overload": (1.0, 0.95, 0.9, 0.8),
    "equilibrium": ("sweeps", "sequential"),
    "sweeps": (20, 1, 3),
    "quota": (True, False),
    "fallback": (True, False),
}
#: Players of the games whose trees are searched, and strategies of each.
GAMES: Final = ((2, 5), (3, 5), (4, 5), (5, 5), (6, 5))
#: Clusters of the stream: hosts, units of each, units of a large VM, how many, at least at once.
STREAMS: Final = ((10, 8, 8, 1, 1), (40, 16, 16, 4, 4), (40, 16, 8, 12, 6))
PATIENCE: Final = (12, 3, 6, 24, 48, 0)
HELD_PARTS: Final = (0.1, 0.05, 0.2, 0.5)
#: Rounds after which nobody waits any longer.
MOST_ROUNDS: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one setting made of some rounds."""

    points: float
    unfair: float
    seconds: float


def main(argv: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--hosts", type=int, default=1_000)
    arguments.add_argument("--seeds", type=int, default=2)
    arguments.add_argument("--full", action="store_true", help="more hosts and seeds")
    given = arguments.parse_args(argv)
    hosts, seeds = (5_000, 5) if given.full else (given.hosts, given.seeds)
    print_rounds(hosts, seeds)
    print_trees(10 * seeds)
    print_patience(seeds)


def print_rounds(hosts: int, seeds: int) -> None:
    rounds = {
        "equal": [fresh_round(hosts, seed=seed) for seed in range(seeds)],
        "tenants": [fresh_round(hosts, mix="equal tenants", seed=seed) for seed in range(seeds)],
        "half": [half_filled_round(hosts, seed=seed) for seed in range(seeds)],
    }
    print(f"\n{hosts} hosts, {seeds} seeds")
    print(f"{'parameter':<32}" + "".join(f"{name:>12}{'':>17}" for name in rounds))
    print(" " * 32 + f"{'points':>12}{'unfair':>10}{'time':>7}" * len(rounds))
    for each in rounds.values():  # the first run of anything takes longer
        measure(each, {})
    base = {name: measure(each, {}) for name, each in rounds.items()}
    for parameter, values in CHANGES.items():
        for number, value in enumerate(values):
            line = f"{parameter} = {value}" + (" (default)" if number == 0 else "")
            cells = []
            for name, each in rounds.items():
                found = measure(each, {parameter: value})
                times = found.seconds / base[name].seconds
                cells.append(
                    f"{round(found.points, 2) + 0.0:>12.2f}{found.unfair:>10.4f}{times:>7.2f}"
                )
            print(f"{line:<32}" + "".join(cells), flush=True)


def measure(rounds: Sequence[Snapshot], parameters: Mapping[str, Any]) -> Measured:
    """Return the means over some rounds; every allocation is checked."""
    policy = policy_by_name("fuga", parameters)
    found = []
    for snapshot in rounds:
        seconds = []
        for _ in range(2):
            started = time.process_time()
            allocation = policy.place(snapshot, np.random.default_rng(0), Budget())
            seconds.append(time.process_time() - started)
        check_allocation(snapshot, allocation)
        requests, _, counts = allocation.placed.T
        cores = float((counts * snapshot.demand[requests, 0]).sum())
        bound = allocation_bound(snapshot, 0)
        found.append(
            Measured(
                points=100 * (bound - cores) / float(snapshot.pool[0]),
                unfair=unfairness(snapshot, allocation),
                seconds=min(seconds),
            )
        )
    return Measured(
        points=fmean(each.points for each in found),
        unfair=fmean(each.unfair for each in found),
        seconds=fmean(each.seconds for each in found),
    )


def print_trees(seeds: int) -> None:
    print(f"\ngames of few hosts, {seeds} seeds; auto is exact up to {LARGEST_TREE:,} leaves")
    print(f"{'players':>7}{'leaves':>9}{'lacking':>10}{'how often':>11}{'exact × sweeps':>16}")
    for players, eta in GAMES:
        lacking, seconds = [], {"exact": 0.0, "sweeps": 0.0}
        for seed in range(seeds if eta**players < LARGEST_TREE / 2 else max(seeds // 4, 2)):
            snapshot, potential = fresh_round(players, load=0.8, seed=seed), {}
            for name in seconds:
                policy = policy_by_name("fuga", {"equilibrium": name, "eta": eta, "quota": False})
                started = time.process_time()
                allocation = policy.place(snapshot, np.random.default_rng(seed), Budget())
                seconds[name] += time.process_time() - started
                potential[name] = allocation.details["potential"][-1]
            gap = potential["exact"] - potential["sweeps"]
            lacking.append(gap / max(abs(potential["exact"]), 1e-9))
        often = fmean(gap > 1e-9 for gap in lacking)
        ratio = seconds["exact"] / seconds["sweeps"]
        print(
            f"{players:>7}{eta**players:>9}{fmean(lacking):>10.4f}{often:>11.0%}{ratio:>16.1f}",
            flush=True,
        )


@dataclass
class MeasuredStream(Stream):
    """A stream that notes what is idle at the end of each round."""

    idle: list[float] = field(default_factory=list)

    def look(self, snapshot: Snapshot, allocation: Any) -> None:
        requests, _, counts = allocation.placed.T
        given = int((counts * snapshot.demand[requests, 0]).sum())
        self.idle.append((int(snapshot.free[:, 0].sum()) - given) / int(snapshot.pool[0]))


def print_patience(seeds: int) -> None:
    print(f"\nlarge VMs among small ones, {seeds} seeds")
    sizes = [
        f"{hosts} hosts: {count} of {large}/{size}" + (f", gang of {gang}" if gang > 1 else "")
        for hosts, size, large, count, gang in STREAMS
    ]
    print(f"{'parameter':<28}" + "".join(f"{size:>34}" for size in sizes))
    print(" " * 28 + f"{'rounds':>25}{'idle':>9}" * len(sizes))
    for parameter, values in (("patience", PATIENCE), ("held_part", HELD_PARTS)):
        for number, value in enumerate(values):
            cells = [stream_cell({parameter: value}, *size, range(seeds)) for size in STREAMS]
            line = f"{parameter} = {value}" + (" (default)" if number == 0 else "")
            print(f"{line:<28}" + "".join(cells), flush=True)


def stream_cell(
    parameters: Mapping[str, Any],
    hosts: int,
    size: int,
    large: int,
    count: int,
    gang: int,
    seeds: Iterable[int],
) -> str:
    rounds, idle = [], []
    for seed in seeds:
        stream = MeasuredStream(
            hosts=hosts,
            size=size,
            large=large,
            count=count,
            min_count=gang,
            policy="best_fit_drfh",
            parameters=dict(parameters),
            seed=seed,
        )
        rounds.append(stream.rounds_until_placed(MOST_ROUNDS))
        idle.append(fmean(stream.idle))
    waited = [number for number in rounds if number is not None]
    told = f"{fmean(waited):.0f}" if len(waited) == len(rounds) else f"above {MOST_ROUNDS}"
    return f"{told:>25}{fmean(idle):>9.4f}"


if __name__ == "__main__":
    main()
