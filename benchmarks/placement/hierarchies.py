"""MCH against H-DRF on binary trees of tenants, as a table and a plot.

    python -m benchmarks.placement.hierarchies [--levels 2,3,4,5] [--jobs 64,128,256,512]
        [--many 4096,16384,65536] [--tasks 20] [--repeats 3]
        [--plot build/benchmarks/hierarchies.png]

The claim of MCH's paper: it takes about the square root of H-DRF's time. Groups
form a binary tree, jobs hang below its last level, and the pool has room for
some tasks of each. H-DRF is timed twice: as published, every share of the tree
again for each task, O(q) a task and O(q^2) in all for q jobs; and as `hdrf` does
it, along the path of the task alone. MCH is `mch`: weights, then one water
filling.

With few jobs MCH's time is that of calling numpy, whatever their number, so it is
timed with many more jobs as well, which H-DRF would take hours for. The
exponents of both times over the number of jobs, where each has left its
constants behind, tell whether one is the root of the other: 1 against 2. The
last table has them: the powers of the number of jobs, taken from the three
largest sizes of H-DRF, and the power of H-DRF's time that MCH's is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.kit import parser
from placement.mechanisms import MECHANISMS, DivisibleProblem
from placement.mechanisms.hierarchies.flattening import mch_weights
from simulation.reproduction.mch_times import binary_tree_problem, growth_exponent, published_hdrf

NAMES = ("H-DRF as published", "hdrf", "mch", "mch_staged", "weights alone")
PUBLISHED, MCH = NAMES[0], "mch"


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser(
        __doc__.splitlines()[0],
        levels=[2, 3, 4, 5],
        jobs=[64, 128, 256, 512],
        many=([4096, 16384, 65536], "jobs for mch alone"),
        tasks=(20, "per job, on average"),
        repeats=3,
    )
    arguments.add_argument("--plot", type=Path, default=Path("build/benchmarks/hierarchies.png"))
    given = arguments.parse_args(argv)
    levels = given.levels
    sizes = given.jobs

    many = given.many

    seconds: dict[int, dict[str, list[float]]] = {}
    powers: list[str] = []
    for level in levels:
        print(f"\nbinary tree of {level} levels; milliseconds (times less than as published)")
        print(f"{'jobs':>6}" + "".join(f"{name:>22}" for name in NAMES))
        seconds[level] = {name: [] for name in NAMES}
        for size in sizes:
            problem = binary_tree_problem(level, size, given.tasks)
            taken = {name: best_of(given.repeats, run) for name, run in runs(problem).items()}
            for name in NAMES:
                seconds[level][name].append(taken[name])
            cells = [f"{1e3 * t:.2f} ({taken[PUBLISHED] / t:.0f})" for t in taken.values()]
            print(f"{size:>6}" + "".join(f"{cell:>22}" for cell in cells), flush=True)
        slopes = [growth_exponent(sizes, seconds[level][name]) for name in NAMES]
        print(f"{'~ q^':>6}" + "".join(f"{slope:>22.2f}" for slope in slopes))
        alone = [
            best_of(given.repeats, runs(binary_tree_problem(level, size, given.tasks))[MCH])
            for size in many
        ]
        shown = ", ".join(f"{n:,}: {1e3 * t:.1f} ms" for n, t in zip(many, alone, strict=True))
        of_mch = growth_exponent(many, alone)
        of_hdrf = growth_exponent(sizes[-3:], seconds[level][PUBLISHED][-3:])
        print(f"mch with many jobs: {shown}")
        powers.append(f"{level:>6}{of_hdrf:>20.2f}{of_mch:>9.2f}{of_mch / of_hdrf:>24.2f}")
    print(f"\n{'levels':>6}{'H-DRF as published':>20}{'mch':>9}{'one to the power of':>24}")
    print("\n".join(powers))
    plot(given.plot, sizes, seconds)
    print(f"\nplot: {given.plot}")


def runs(problem: DivisibleProblem) -> dict[str, Callable[[], object]]:
    """Return the timed functions by name."""
    rng = np.random.default_rng(0)
    tree, everybody = problem.tree, np.ones(len(problem.count), dtype=np.bool_)
    assert tree is not None

    def divide(name: str) -> Callable[[], object]:
        mechanism = MECHANISMS[name].make({})
        return lambda: mechanism.divide(problem, rng)

    return {
        PUBLISHED: lambda: published_hdrf(problem),
        "hdrf": divide("hdrf"),
        MCH: divide("mch"),
        "mch_staged": divide("mch_staged"),
        "weights alone": lambda: mch_weights(tree, problem.demand, problem.pool, everybody),
    }


def best_of(repeats: int, run: Callable[[], object]) -> float:
    """Return the least seconds of processor time of some runs; the slow ones run once."""
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) < 2.0:
        started = time.process_time()
        run()
        seconds.append(time.process_time() - started)
    return max(min(seconds), 1e-9)


def plot(path: Path, sizes: Sequence[int], seconds: dict[int, dict[str, list[float]]]) -> None:
    """Draw time over jobs, and MCH's time over H-DRF's against a square root."""
    import matplotlib as mpl  # noqa: PLC0415  only the plot needs it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (over_jobs, over_hdrf) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for level, taken in seconds.items():
        for name, style in ((PUBLISHED, "o-"), ("hdrf", "^:"), (MCH, "s--")):
            color = f"C{level}"
            over_jobs.loglog(
                sizes, taken[name], style, color=color, label=f"{name}, {level} levels"
            )
        over_hdrf.loglog(
            taken[PUBLISHED], taken[MCH], "s", color=f"C{level}", label=f"{level} levels"
        )
    over_jobs.set(xlabel="jobs", ylabel="seconds", title="Time to divide the pool")
    over_jobs.legend(fontsize="x-small", ncols=2)
    x = np.array(sorted(t for taken in seconds.values() for t in taken[PUBLISHED]))
    first = np.median([taken[MCH][0] / np.sqrt(taken[PUBLISHED][0]) for taken in seconds.values()])
    over_hdrf.loglog(x, first * np.sqrt(x), "k-", linewidth=1, label="square root")
    over_hdrf.set(
        xlabel="seconds of H-DRF as published", ylabel="seconds of mch", title="The claim"
    )
    over_hdrf.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
