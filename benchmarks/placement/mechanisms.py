"""Print the seconds of divisible mechanisms, and how they grow.

    python -m benchmarks.placement.mechanisms [--sizes 100x10,300x10,900x10] [--large] [--repeats 3]

A size is tenants x classes of hosts, no two of either alike, so that merging
does not help; the ratio is to pooled DRF in the same run, the growth to the
size before. ``--large`` adds 100 tenants on 1,000 distinct hosts, which takes
minutes. The Google table with five VM types shows what merging does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.kit import parser, timed
from benchmarks.placement.clusters import GOOGLE_SERVERS
from placement.mechanisms import MECHANISMS, DivisibleProblem

BASE = "drf"
NAMES = ("per_server_drf", "drfh", "tsf", "cdrf", "cdrfh")
#: Seconds that 900 tenants on 10 classes should take.
TARGETS = {"drfh": 0.3, "tsf": 2.0, "cdrf": 2.0, "cdrfh": 2.0}
RESOURCES = 3


def main(argv: Sequence[str] | None = None) -> None:
    given = parser(__doc__, sizes="100x10,300x10,900x10", large=False, repeats=3).parse_args(argv)
    sizes = [tuple(int(part) for part in size.split("x")) for size in given.sizes.split(",")]
    divided("drfh", distinct(2, 2))  # the first call imports the solver

    for title, make in CASES.items():
        print(f"\n{title}")
        header(sizes_of="tenants x classes")
        before: dict[str, float] = {}
        for tenants, classes in sizes:
            before = row_block(
                make(tenants, classes), f"{tenants}x{classes}", before, given.repeats
            )
    if given.large:
        print("\n100 tenants on 1,000 distinct hosts (target: a minute each)")
        header(sizes_of="tenants x classes")
        row_block(distinct(100, 1000), "100x1000", {}, 1)


def row_block(
    problem: DivisibleProblem, size: str, before: dict[str, float], repeats: int
) -> dict[str, float]:
    taken = {}
    for name in (BASE, *NAMES):
        if name == "per_server_drf" and np.isfinite(problem.count).any():
            continue
        taken[name], programs = measure(name, problem, repeats)
        growth = f"{taken[name] / before[name]:.1f}" if name in before else "-"
        target = TARGETS.get(name) if size == "900x10" else None
        print(
            f"{size:>18}  {name:<15}{taken[name]:>10.4f}{taken[name] / taken[BASE]:>12.1f}"
            f"{growth:>9}{programs:>10}{f'{target:g}' if target else '-':>9}"
        )
    return taken


def header(sizes_of: str) -> None:
    print(
        f"{sizes_of:>18}  {'mechanism':<15}{'seconds':>10}{'× ' + BASE:>12}"
        f"{'growth':>9}{'programs':>10}{'target':>9}"
    )


def measure(name: str, problem: DivisibleProblem, repeats: int) -> tuple[float, str]:
    """Return the least seconds of processor time of some runs, and programs solved."""
    details, seconds = timed(lambda: divided(name, problem), repeats=repeats)
    return seconds, str(details.get("programs", "-"))


def divided(name: str, problem: DivisibleProblem) -> dict[str, object]:
    return dict(MECHANISMS[name].make({}).divide(problem, np.random.default_rng(0)).details)


def distinct(
    tenants: int, classes: int, *, finite: bool = False, labels: bool = False
) -> DivisibleProblem:
    """Return tenants and classes of which no two are alike."""
    rng = np.random.default_rng(tenants * 10_007 + classes)
    capacity = rng.uniform(1, 10, (classes, RESOURCES))
    demand = rng.uniform(0.01, 1, (tenants, RESOURCES))
    eligible = np.ones((tenants, classes), dtype=np.bool_)
    if labels:
        zone = rng.integers(0, 4, classes)
        eligible = (zone == 0) | (zone == rng.integers(0, 4, (tenants, 1)))
    count = np.full(tenants, np.inf)
    if finite:
        count = rng.pareto(1.2, tenants) * 10.0 * classes / tenants
    return DivisibleProblem(
        resources=("cpu", "memory", "disk"),
        capacity=capacity,
        free=capacity.copy(),
        hosts=np.ones(classes, dtype=np.int64),
        demand=demand,
        speed=np.ones((tenants, classes)),
        eligible=eligible,
        count=count,
        weight=np.ones(tenants),
        held=np.zeros_like(demand),
    )


def google(tenants: int, classes: int) -> DivisibleProblem:
    """Return the Google table's classes (ten) and its five VM types in turn."""
    table = np.array(GOOGLE_SERVERS[:classes])
    types = np.array([(1, 1), (1, 3), (2, 6), (4, 12), (8, 24)]) / np.array([64.0, 256.0])
    capacity = table[:, :1] * table[:, 1:]
    demand = np.resize(types, (tenants, 2))
    return DivisibleProblem(
        resources=("cpu", "memory"),
        capacity=capacity,
        free=capacity.copy(),
        hosts=table[:, 0].astype(np.int64),
        demand=demand,
        speed=np.ones((tenants, len(table))),
        eligible=np.ones((tenants, len(table)), dtype=np.bool_),
        count=np.full(tenants, np.inf),
        weight=np.ones(tenants),
        held=np.zeros_like(demand),
    )


CASES: dict[str, Callable[[int, int], DivisibleProblem]] = {
    "the Google table, five VM types, unlimited": google,
    "all distinct, unlimited": distinct,
    "all distinct, heavy-tailed counts": lambda n, k: distinct(n, k, finite=True),
    "all distinct, labels restrict tenants": lambda n, k: distinct(n, k, labels=True),
}


if __name__ == "__main__":
    main()
