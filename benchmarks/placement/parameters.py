"""Print what fuga's parameters do to a round, each against its default.

    python -m benchmarks.placement.parameters [--hosts 1000] [--seeds 2] [--full]

rounds    one parameter changed at a time. *equal*: the types ask for equally
          many cores, *tenants*: of each type as many tenants, both at 1.2 times
          the cores that there are, on empty hosts of Google's table; *half*:
          such hosts half filled with what runs, asked for 1.2 times the rest.
          Of each ``points``, what is missing to the LP bound in hundredths of
          all cores, ``unfair``, the mean of |share - fair target| as a part of
          the mean target, and ``time``, processor time as a ratio to the
          defaults'.
games     backward induction in small games: leaves of the tree, subgames in the
          median and at most, what sweeps lack of its potential, in the mean as a
          part of it, how many times they end at another one, processor time of the whole
          round in the median and at most, and as a ratio to the same with sweeps.
          *Mixed* hosts are of Google's table.
patience  small VMs come, last up to 20 rounds and refill every gap; a tenant
          waits for large ones. Rounds until all of them run, and what was idle
          in the meantime, of all capacity.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, Final

import numpy as np

from benchmarks.kit import parser, timed
from benchmarks.placement.clusters import fresh_round, half_filled_round
from benchmarks.placement.rounds import unfairness
from placement import Budget, Snapshot, allocation_bound, check_allocation, policy_by_name
from placement.fuga.parameters import MAX_PLAYERS, FugaParameters
from tests.builders import a_snapshot
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
#: Rounds whose games are solved exactly, by seed.
GAMES: Final[Mapping[str, Callable[[int], Snapshot]]] = {
    "2 mixed": lambda seed: fresh_round(2, load=0.8, seed=seed),
    "4 mixed": lambda seed: fresh_round(4, load=0.8, seed=seed),
    "8 mixed": lambda seed: fresh_round(8, load=0.8, seed=seed),
    "16 mixed": lambda seed: fresh_round(16, load=0.8, seed=seed),
    "8 of the paper": lambda seed: the_papers(8, seed),
    "16 such": lambda seed: the_papers(16, seed),
    "32 such": lambda seed: the_papers(32, seed),
}
#: Clusters of the stream: hosts, units of each, units of a large VM, how many, at least at once.
STREAMS: Final = ((10, 8, 8, 1, 1), (40, 16, 16, 4, 4), (40, 16, 8, 12, 6))
PATIENCE: Final = (12, 3, 6, 24, 48, 0)
HELD_PARTS: Final = (0.1, 0.01, 0.05, 0.2, 0.5)
#: What each of them is while the other varies: with the default nothing is held for so long.
_USUAL: Final = {"patience": PATIENCE[0], "held_part": HELD_PARTS[0]}
#: Rounds after which nobody waits any longer.
MAX_ROUNDS: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterFigures:
    """The figures of some rounds under one setting."""

    points: float
    unfair: float
    seconds: float


def main(argv: Sequence[str] | None = None) -> None:
    given = parser(__doc__, hosts=1_000, seeds=2, full=(False, "more hosts and seeds")).parse_args(
        argv
    )
    hosts, seeds = (5_000, 5) if given.full else (given.hosts, given.seeds)
    print_rounds(hosts, seeds)
    print_games(10 * seeds)
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
            line = f"{parameter} = {value}" + (" (both)" if number == 0 else "")
            cells = []
            for name, each in rounds.items():
                found = measure(each, {parameter: value})
                times = found.seconds / base[name].seconds
                cells.append(
                    f"{round(found.points, 2) + 0.0:>12.2f}{found.unfair:>10.4f}{times:>7.2f}"
                )
            print(f"{line:<32}" + "".join(cells), flush=True)


def measure(rounds: Sequence[Snapshot], parameters: Mapping[str, Any]) -> ParameterFigures:
    """Return the means over some rounds; every allocation is checked."""
    policy = policy_by_name("fuga", parameters)
    found = []
    for snapshot in rounds:
        allocation, seconds = timed(
            lambda snapshot=snapshot: policy.place(snapshot, np.random.default_rng(0), Budget()),
            repeats=2,
        )
        check_allocation(snapshot, allocation)
        requests, _, counts = allocation.placed.T
        cores = float((counts * snapshot.demand[requests, 0]).sum())
        bound = allocation_bound(snapshot, 0)
        found.append(
            ParameterFigures(
                points=100 * (bound - cores) / float(snapshot.pool[0]),
                unfair=unfairness(snapshot, allocation),
                seconds=seconds,
            )
        )
    return ParameterFigures(
        points=fmean(each.points for each in found),
        unfair=fmean(each.unfair for each in found),
        seconds=fmean(each.seconds for each in found),
    )


def print_games(seeds: int) -> None:
    print(
        f"\nsmall games, {seeds} seeds; auto is exact up to {MAX_PLAYERS} hosts and"
        f" {FugaParameters().subgames:,} subgames"
    )
    print(
        f"{'hosts':<16}{'leaves':>9}{'subgames':>10}{'at most':>10}{'sweeps lack':>13}"
        f"{'otherwise':>11}{'exact, ms':>11}{'at most':>9}{'exact × sweeps':>16}"
    )
    for name, game in GAMES.items():
        lacking, subgames = [], []
        seconds: dict[str, list[float]] = {"exact": [], "sweeps": []}
        for seed in range(seeds):
            snapshot, potential = game(seed), {}
            for equilibrium, took in seconds.items():
                policy = policy_by_name("fuga", {"equilibrium": equilibrium, "quota": False})
                started = time.process_time()
                allocation = policy.place(snapshot, np.random.default_rng(seed), Budget())
                took.append(time.process_time() - started)
                [played] = allocation.details["games"]
                potential[equilibrium] = played["potential"][-1]
                if equilibrium == "exact":
                    subgames.append(played["subgames"])
            gap = potential["exact"] - potential["sweeps"]
            lacking.append(gap / max(abs(potential["exact"]), 1e-9))
        often = fmean(abs(gap) > 1e-9 for gap in lacking)
        ratio = sum(seconds["exact"]) / sum(seconds["sweeps"])
        print(
            f"{name:<16}{5.0 ** len(snapshot.free):>9.0e}{median(subgames):>10,.0f}"
            f"{max(subgames):>10,}{fmean(lacking):>13.4f}{often:>11.0%}"
            f"{1000 * median(seconds['exact']):>11.1f}{1000 * max(seconds['exact']):>9.1f}"
            f"{ratio:>16.1f}",
            flush=True,
        )


def the_papers(hosts: int, seed: int) -> Snapshot:
    """Return a round on hosts like the eight of the FUGA paper, for two to four tenants.

    Half of the hosts have 8 cores and 16 GiB, half 8 and 32. Each tenant asks for up to
    two VMs per host, of one of the types Tiny, Small, Medium and Large.
    """
    rng = np.random.default_rng([seed, hosts])
    tenants = int(rng.integers(2, 5))
    return a_snapshot(
        capacity=[(8, 16)] * (hosts // 2) + [(8, 32)] * (hosts - hosts // 2),
        demand=rng.permutation([(1, 1), (1, 3), (2, 6), (4, 12)])[:tenants],
        count=rng.integers(1, 2 * hosts, tenants, endpoint=True),
    )


@dataclass
class MeasuredStream(Stream):
    """A stream that records the idle resources at the end of each round."""

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
            cells = [
                stream_cell({**_USUAL, parameter: value}, *size, range(seeds)) for size in STREAMS
            ]
            line = f"{parameter} = {value}" + (" (both)" if number == 0 else "")
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
        rounds.append(stream.rounds_until_placed(MAX_ROUNDS))
        idle.append(fmean(stream.idle))
    waited = [number for number in rounds if number is not None]
    wait = f"{fmean(waited):.0f}" if len(waited) == len(rounds) else f"above {MAX_ROUNDS}"
    return f"{wait:>25}{fmean(idle):>9.4f}"


if __name__ == "__main__":
    main()
