"""MCH, Fig. 4: shares of the jobs of three groups over time, as jobs leave."""

from __future__ import annotations

from typing import Final

import numpy as np

from placement import FloatArray, TenantTree
from simulation.reproduction.example_problems import checked_division, divisible_problem
from simulation.reproduction.model import Item, ItemOutcome, Number, Paper, Setup, Statement, Table
from simulation.reproduction.plots import line_plotter

_POOL: Final = (200.0, 200.0)  #: CPUs and GB
_TASKS: Final = 2000  #: of one CPU or one GB, in each job
_JOBS: Final = ("n1 CPU", "n1 memory", "n2 CPU 1", "n2 CPU 2", "n2 memory", "n3 CPU")
_CPU, _MEMORY = (1.0, 0.0), (0.0, 1.0)
_DEMANDS: Final = (_CPU, _MEMORY, _CPU, _CPU, _MEMORY, _CPU)
_N1_MEMORY, _N2_MEMORY = 1, 4
#: The root, its three groups, and a leaf for each job.
_PARENT: Final = (-1, 0, 0, 0, 1, 1, 2, 2, 2, 3)
_WEIGHTS: Final = (1, 1, 0.5, 0.5, 1, 1)
_SHARES: Final = (0.33, 0.5, 0.165, 0.165, 0.5, 0.33)
#: The jobs that leave at the end of each stage.
_LEAVING: Final = (_N1_MEMORY, 5, 2, 0)
_STAGE_S: Final = 20.0
_MECHANISMS: Final = ("mch", "hdrf")
#: Shares of a task, or of as much as whole tasks may be off.
_A_TASK: Final = 1 / 200


def _shares_and_weights(name: str, gone: tuple[int, ...]) -> tuple[FloatArray, list[float]]:
    """Return the share of each job by a mechanism, and MCH's weights, once some jobs are gone."""
    count = np.full(len(_JOBS), float(_TASKS))
    count[list(gone)] = 0.0
    tree = TenantTree(parent=_PARENT, weight=np.ones(len(_PARENT)), leaf=(4, 5, 6, 7, 8, 9))
    problem = divisible_problem(
        ("cpu", "memory"), [_POOL], _DEMANDS, count=count.tolist(), tree=tree
    )
    division = checked_division(name, problem)
    return division.totals / _POOL[0], division.details.get("weights", [])


def _reproduce_fig4(setup: Setup) -> ItemOutcome:
    """Reproduce Fig. 4 of MCH: shares of the jobs of three groups, as jobs leave."""
    del setup
    stages = [_LEAVING[:stage] for stage in range(len(_LEAVING) + 1)]
    shares = {
        name: np.array([_shares_and_weights(name, gone)[0] for gone in stages])
        for name in _MECHANISMS
    }
    mch, apart = shares["mch"], np.abs(shares["mch"] - shares["hdrf"]).max()
    others = [job for job in range(len(_JOBS)) if job not in (_N1_MEMORY, _N2_MEMORY)]
    moved = np.abs(mch[1, others] - mch[0, others]).max()
    weights = _shares_and_weights("mch", ())[1]
    numbers = (
        *(
            Number(
                what=f"weight of {job}",
                paper=paper,
                ours=float(ours),
                unit="",
                within=1e-9,
                exact=True,
            )
            for job, paper, ours in zip(_JOBS, _WEIGHTS, weights, strict=True)
        ),
        *(
            Number(
                what=f"share of {job}, all jobs there",
                paper=paper,
                ours=float(ours),
                unit="of its resource",
                within=_A_TASK,
                exact=True,
            )
            for job, paper, ours in zip(_JOBS, _SHARES, mch[0], strict=True)
        ),
        Number(
            what="share of n2 memory after n1's memory job has left",
            paper=1.0,
            ours=float(mch[1, _N2_MEMORY]),
            unit="of its resource",
            within=_A_TASK,
            exact=True,
        ),
    )
    times = [stage * _STAGE_S for stage in range(len(stages) + 1)]
    return ItemOutcome(
        numbers=numbers,
        statements=(
            Statement(
                says="when a memory job leaves, shares of CPU jobs do not change",
                found=f"they move by {moved:.4f} at most",
                holds=bool(moved <= _A_TASK),
            ),
            Statement(
                says="MCH gives what H-DRF gives, at every stage",
                found=f"shares are {apart:.4f} apart at most; a task is {_A_TASK:g}",
                holds=bool(apart <= _A_TASK + 1e-9),
            ),
        ),
        tables=(
            Table(
                name="shares",
                columns=("from_s", "mechanism", *_JOBS),
                rows=[
                    (stage * _STAGE_S, name, *row.tolist())
                    for name, rows in shares.items()
                    for stage, row in enumerate(rows)
                ],
            ),
        ),
        draw=line_plotter(
            "Shares of six jobs in three groups as four of them leave",
            "What a job leaves goes to its siblings first, and to other groups when none is left; "
            "MCH and H-DRF lie on each other.",
            {
                f"{name}: share\n(% of its resource)": {
                    job: (times, 100 * np.append(rows[:, place], rows[-1, place]))
                    for place, job in enumerate(_JOBS)
                }
                for name, rows in shares.items()
            },
            over="time (s)",
            steps=True,
        ),
        why="The paper does not print when which further jobs leave; the order here is n1 memory, "
        "n3 CPU, n2 CPU 1, n1 CPU, one every 20 s.",
    )


ITEMS: Final = (
    Item(
        name="mch-fig4",
        paper=Paper.MCH,
        place="Fig. 4",
        shows="weights and shares of six jobs in three groups, as jobs leave",
        run=_reproduce_fig4,
    ),
)
