"""DRFH, Fig. 1 to 4: why one pool is not many servers, and what equal global shares do."""

from __future__ import annotations

from typing import Final

import numpy as np

from placement import DivisibleProblem, Division
from placement.mechanisms.max_min.levels import normalised_demands
from simulation.reproduction.example_problems import (
    checked_allocation,
    checked_division,
    divisible_problem,
    round_snapshot,
    vms_of,
)
from simulation.reproduction.model import Item, ItemOutcome, Number, Paper, Setup, Table
from simulation.reproduction.plots import bar_plotter

_RESOURCES: Final = ("cpu", "memory")
#: Fig. 1: CPUs and GB of two servers; Ghodsi et al. have the same 9 CPUs and 18 GB in one.
_FIG_1_SERVERS: Final = ((1, 14), (8, 4))
_FIG_1_DEMANDS: Final = ((1, 4), (3, 1))
#: Fig. 2: two servers, and the tasks of two users.
_SERVERS: Final = ((2.0, 12.0), (12.0, 2.0))
_DEMANDS: Final = ((0.2, 1.0), (1.0, 0.2))
#: The same in whole units, five to one.
_UNITS: Final = 5


def _two_server_problem() -> DivisibleProblem:
    """Return the two servers and two users of the DRFH paper's examples."""
    return divisible_problem(_RESOURCES, _SERVERS, _DEMANDS)


def _reproduce_fig1(setup: Setup) -> ItemOutcome:
    """Reproduce Fig. 1 of DRFH: what DRF gives in one pool does not fit on two servers."""
    del setup  # small enough for every run
    pool = checked_division("drf", divisible_problem(_RESOURCES, [(9, 18)], _FIG_1_DEMANDS))
    snapshot = round_snapshot(_RESOURCES, np.array(_FIG_1_SERVERS), _FIG_1_DEMANDS[:1], 10)
    fitting = float(vms_of(snapshot, checked_allocation("best_fit_drfh", snapshot)).sum())
    numbers = (
        _exact_number("tasks of user 1 when all is one pool", 3, pool.totals[0]),
        _exact_number("tasks of user 2 when all is one pool", 2, pool.totals[1]),
        _exact_number("tasks of user 1 that fit on the two servers, alone there", 2, fitting),
    )
    return ItemOutcome(
        numbers=numbers,
        tables=(_number_table(numbers),),
        draw=bar_plotter(
            "Tasks of user 1 in a pool, and on servers",
            "The pool promises a task that no server has room for.",
            ("share of the pool by DRF", "alone on the servers"),
            {"tasks of user 1": (float(pool.totals[0]), fitting)},
            over="9 CPUs and 18 GB (as one, as two servers)",
            unit="tasks (number)",
        ),
    )


def _reproduce_fig2(setup: Setup) -> ItemOutcome:
    """Reproduce Fig. 2 of DRFH: two users on two servers, with their dominant shares."""
    del setup
    problem = _two_server_problem()
    shape, unit = normalised_demands(problem.demand, problem.pool)
    share = problem.capacity / problem.pool
    numbers = (
        _exact_number("part of all CPUs on server 1", 1 / 7, share[0, 0], "of the pool"),
        _exact_number("part of all memory on server 1", 6 / 7, share[0, 1], "of the pool"),
        _exact_number("dominant demand of user 1", 1 / 14, unit[0], "of the pool"),
        _exact_number("dominant demand of user 2", 1 / 14, unit[1], "of the pool"),
        _exact_number("CPU demand of user 1, normalised", 1 / 5, shape[0, 0], ""),
        _exact_number("memory demand of user 1, normalised", 1, shape[0, 1], ""),
        _exact_number("CPU demand of user 2, normalised", 1, shape[1, 0], ""),
        _exact_number("memory demand of user 2, normalised", 1 / 5, shape[1, 1], ""),
    )
    return ItemOutcome(
        numbers=numbers,
        tables=(_number_table(numbers),),
        draw=bar_plotter(
            "Two servers that two users share",
            "Each server has most of what one of the users wants most.",
            ("server 1", "server 2"),
            {name: (100 * share[:, r]).tolist() for r, name in enumerate(_RESOURCES)},
            over="server (number)",
            unit="capacity (% of the pool)",
        ),
    )


def _reproduce_fig3(setup: Setup) -> ItemOutcome:
    """Reproduce Fig. 3 of DRFH: DRF on each of two servers by itself."""
    del setup
    problem = _two_server_problem()
    division = checked_division("per_server_drf", problem)
    numbers = (*_task_numbers(division, ((5, 1), (1, 5))), *_share_numbers(division, 3 / 7))
    return _two_user_outcome(
        problem,
        division,
        numbers,
        "DRF on each server by itself",
        "Either user has the same share, and much of both servers is left over.",
    )


def _reproduce_fig4(setup: Setup) -> ItemOutcome:
    """Reproduce Fig. 4 of DRFH: DRFH on two servers, exactly and in whole tasks."""
    del setup
    problem = _two_server_problem()
    division = checked_division("drfh", problem)
    whole = round_snapshot(
        _RESOURCES,
        np.array(_SERVERS, dtype=np.int64) * _UNITS,
        [[round(_UNITS * part) for part in row] for row in _DEMANDS],
        50,
    )
    given = vms_of(whole, checked_allocation("best_fit_drfh", whole))
    numbers = (
        *_task_numbers(division, ((10, 0), (0, 10))),
        *_share_numbers(division, 5 / 7),
        _exact_number("whole tasks of user 1 by Best-Fit", 10, float(given[0].sum())),
        _exact_number("whole tasks of user 2 by Best-Fit", 10, float(given[1].sum())),
    )
    return _two_user_outcome(
        problem,
        division,
        numbers,
        "DRFH: each server to the user whom it suits",
        "Shares are as equal as in Fig. 3 and two thirds larger.",
    )


def _two_user_outcome(
    problem: DivisibleProblem,
    division: Division,
    numbers: tuple[Number, ...],
    title: str,
    reading: str,
) -> ItemOutcome:
    """Return the outcome of an example of two users on two servers, with its bars."""
    use = np.einsum("nk,nr->nkr", division.tasks, problem.demand) / problem.capacity
    places = [f"server {k + 1}, {name}" for k in range(2) for name in _RESOURCES]
    return ItemOutcome(
        numbers=numbers,
        tables=(
            _number_table(numbers),
            Table(
                name="tasks",
                columns=("user", "server", "tasks"),
                rows=[(i + 1, k + 1, float(division.tasks[i, k])) for i in (0, 1) for k in (0, 1)],
            ),
        ),
        draw=bar_plotter(
            title,
            reading,
            places,
            {f"user {user + 1}": (100 * use[user]).ravel().tolist() for user in (0, 1)},
            over="server and resource (name)",
            unit="in use (% of the server)",
        ),
    )


def _task_numbers(division: Division, expected: tuple[tuple[int, ...], ...]) -> tuple[Number, ...]:
    """Return the numbers to compare: each user's tasks on each server."""
    return tuple(
        _exact_number(f"tasks of user {i + 1} on server {k + 1}", tasks, division.tasks[i, k])
        for i, row in enumerate(expected)
        for k, tasks in enumerate(row)
    )


def _share_numbers(division: Division, expected: float) -> tuple[Number, ...]:
    """Return the numbers to compare: each user's global dominant share."""
    return tuple(
        _exact_number(f"global dominant share of user {i + 1}", expected, share, "of the pool")
        for i, share in enumerate(division.details["dominant_shares"])
    )


def _exact_number(what: str, paper: float, ours: float, unit: str = "tasks") -> Number:
    """Return a number that must agree with the paper's, rounding errors aside."""
    return Number(what=what, paper=paper, ours=float(ours), unit=unit, within=1e-6, exact=True)


def _number_table(numbers: tuple[Number, ...]) -> Table:
    """Return the table of numbers behind a figure of the DRFH examples."""
    return Table(
        name="numbers",
        columns=("what", "paper", "ours", "unit"),
        rows=[(each.what, each.paper, each.ours, each.unit) for each in numbers],
    )


ITEMS: Final = (
    Item(
        name="drfh-fig1",
        paper=Paper.DRFH,
        place="Fig. 1",
        shows="DRF on the sum of all servers promises tasks that fit on none of them",
        run=_reproduce_fig1,
    ),
    Item(
        name="drfh-fig2",
        paper=Paper.DRFH,
        place="Fig. 2",
        shows="two servers and two users: shares, dominant and normalised demands",
        run=_reproduce_fig2,
    ),
    Item(
        name="drfh-fig3",
        paper=Paper.DRFH,
        place="Fig. 3",
        shows="the naive extension, DRF on each server, on the example of Fig. 2",
        run=_reproduce_fig3,
    ),
    Item(
        name="drfh-fig4",
        paper=Paper.DRFH,
        place="Fig. 4",
        shows="DRFH on the example of Fig. 2, divisible and by Best-Fit in whole tasks",
        run=_reproduce_fig4,
    ),
)
