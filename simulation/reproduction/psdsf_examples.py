"""PS-DSF, the worked examples: Fig. 1 to 4, Tables III and IV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from placement import DivisibleProblem, Division, FloatArray
from placement.mechanisms.tasks_alone import tasks_alone
from simulation.reproduction.example_problems import checked_division, divisible_problem
from simulation.reproduction.model import Item, ItemOutcome, Number, Paper, Setup, Statement, Table
from simulation.reproduction.plots import bar_plotter

_RESOURCES: Final = ("cpu", "memory", "bandwidth")
#: Fig. 1 to 3: CPUs, GB and Mb/s of two servers; the second has no link.
_SERVERS: Final = ((9, 12, 100), (12, 12, 0))
_TWO_USERS: Final = ((1, 2, 10), (1, 2, 0))
_FOUR_USERS: Final = ((1.5, 1, 10), (1, 2, 10), (0.5, 1, 0), (1, 0.5, 0))
#: Fig. 4: rates of two users on three channels.
_RATES: Final = ((1.2, 0.6, 0.4), (0.4, 0.4, 0.8))
CLASSES: Final = ("A", "B", "C", "D")
#: Tasks alone on a class: gamma of the four users on classes A to D.
_GAMMA: Final = (
    (80, 340, 82.5, 55),
    (40, 170, 41.25, 41.25),
    (0, 0, 82.5, 27.5),
    (0, 0, 27.5, 27.5),
)
_TABLE_3: Final = ((40, 170, 0, 0), (20, 85, 0, 0), (0, 0, 82.5, 0), (0, 0, 0, 27.5))


def four_classes() -> DivisibleProblem:
    """Return the paper's 4 classes of servers and 4 users; users 3 and 4 run on C and D alone."""
    return divisible_problem(
        ("cpu", "memory"),
        [(8, 8), (34, 34), (16.5, 8.25), (5.5, 8.25)],
        [(0.1, 0.1), (0.1, 0.2), (0.2, 0.1), (0.2, 0.3)],
        weight=[2, 2, 1, 1],
        eligible=[(1, 1, 1, 1), (1, 1, 1, 1), (0, 0, 1, 1), (0, 0, 1, 1)],
    )


def _reproduce_fig1(setup: Setup) -> ItemOutcome:
    """Reproduce Fig. 1 of PS-DSF: two users, one of whom needs the link of server 1."""
    del setup
    problem = divisible_problem(_RESOURCES, _SERVERS, _TWO_USERS)
    expected = {"psdsf": (6, 6), "cdrfh": (60 / 11, 72 / 11), "tsf": (4, 8)}
    found = {name: checked_division(name, problem) for name in expected}
    numbers = tuple(
        _exact_number(f"tasks of user {user + 1} under {name}", tasks, found[name].totals[user])
        for name, each in expected.items()
        for user, tasks in enumerate(each)
    )
    return ItemOutcome(
        numbers=numbers,
        tables=tuple(_tasks_table(name, division) for name, division in found.items()),
        draw=bar_plotter(
            "Two users, one of whom needs the link of server 1",
            "PS-DSF lets both have six tasks; the others count server 2 for a user who cannot "
            "run there.",
            ("user 1", "user 2"),
            {name: division.totals.tolist() for name, division in found.items()},
            over="user (number)",
            unit="tasks (number)",
        ),
    )


def _four_user_division() -> tuple[DivisibleProblem, Division]:
    """Return the problem of four users on two servers, and its division by PS-DSF."""
    problem = divisible_problem(_RESOURCES, _SERVERS, _FOUR_USERS)
    return problem, checked_division("psdsf", problem)


def _reproduce_fig2(setup: Setup) -> ItemOutcome:
    """Reproduce Fig. 2 of PS-DSF: tasks of four users on the servers of Fig. 1."""
    del setup
    _, division = _four_user_division()
    return _tasks_by_server_outcome(
        division,
        ((3.6, 0), (3.6, 0), (0, 8), (0, 8)),
        ("server 1", "server 2"),
        "Four users on the servers of Fig. 1",
        "Users 1 and 2 need the link and share server 1; 3 and 4 share server 2.",
    )


def _reproduce_fig3(setup: Setup) -> ItemOutcome:
    """Reproduce Fig. 3 of PS-DSF: virtual dominant shares of the four users."""
    del setup
    problem, division = _four_user_division()
    gamma = tasks_alone(problem)
    shares = np.divide(division.totals[:, None], gamma, out=np.zeros_like(gamma), where=gamma > 0)
    expected = ((0.6, 0), (0.6, 0), (8 / 12, 8 / 12), (1, 8 / 12))
    numbers = tuple(
        Number(
            what=f"virtual dominant share of user {i + 1} on server {k + 1}",
            paper=share,
            ours=float(shares[i, k]),
            unit="",
            within=1e-6,
            exact=(i, k) != (3, 0),
        )
        for i, row in enumerate(expected)
        for k, share in enumerate(row)
    )
    minimum = [shares[shares[:, k] > 0, k].min() for k in (0, 1)]
    on_least = [np.isclose(shares[division.tasks[:, k] > 0, k], minimum[k]).all() for k in (0, 1)]
    return ItemOutcome(
        numbers=numbers,
        statements=(
            Statement(
                says="on each server those who run there have the least share of all",
                found=f"{minimum[0]:.3g} on server 1, {minimum[1]:.3g} on server 2",
                holds=all(on_least),
            ),
        ),
        tables=(_rows_table("shares", "virtual_dominant_share", shares),),
        draw=bar_plotter(
            "Virtual dominant shares on both servers",
            "On each server those who share what is used up there have equal shares, the least.",
            [f"user {user}" for user in range(1, 5)],
            {f"server {k + 1}": shares[:, k].tolist() for k in (0, 1)},
            over="user (number)",
            unit="tasks over tasks alone there (ratio)",
        ),
        why="User 4 has 8 tasks and could run 9 on server 1 if it were alone there (9 CPUs, one "
        "for each task): the formula gives 8/9, where 1 is printed. Nothing else depends on it.",
    )


def _reproduce_fig4(setup: Setup) -> ItemOutcome:
    """Reproduce Fig. 4 of PS-DSF: two users of three channels with different rates."""
    del setup
    problem = divisible_problem(("time",), [[1], [1], [1]], [[1], [1]], speed=_RATES)
    division = checked_division("psdsf", problem)
    numbers = (
        _exact_number("rate of user 1", 1.5, division.totals[0], "of the unit"),
        _exact_number("rate of user 2", 1.0, division.totals[1], "of the unit"),
    )
    return ItemOutcome(
        numbers=numbers,
        tables=(_tasks_table("rates", division),),
        draw=bar_plotter(
            "Two users of three channels, which serve them at different rates",
            "Each user has the channels that are best for it, one of them in part.",
            ("channel 1", "channel 2", "channel 3"),
            {f"user {i + 1}": division.tasks[i].tolist() for i in (0, 1)},
            over="channel (number)",
            unit="rate (units per second)",
        ),
    )


def _reproduce_table3(setup: Setup) -> ItemOutcome:
    """Reproduce Table III of PS-DSF: PS-DSF on four classes of servers."""
    del setup
    problem = four_classes()
    gamma = tasks_alone(problem)
    alone = tuple(
        _exact_number(f"tasks of user {i + 1} alone on class {name}", expected, gamma[i, k])
        for i, row in enumerate(_GAMMA)
        for k, (name, expected) in enumerate(zip(CLASSES, row, strict=True))
    )
    outcome = _tasks_by_server_outcome(
        checked_division("psdsf", problem),
        _TABLE_3,
        [f"class {name}" for name in CLASSES],
        "PS-DSF on four classes of servers",
        "Users 1 and 2 leave classes C and D, where 3 and 4 are confined, to these.",
        within=1e-5,
    )
    return ItemOutcome(
        numbers=(*alone, *outcome.numbers),
        tables=(_rows_table("alone", "tasks_alone", gamma), *outcome.tables),
        draw=outcome.draw,
    )


def _reproduce_table4(setup: Setup) -> ItemOutcome:
    """Reproduce Table IV of PS-DSF: TSF on four classes of servers."""
    del setup
    division = checked_division("tsf", four_classes())
    numbers = (
        *(
            # Printed with three to four digits: half a unit of the last one.
            Number(
                what=f"tasks of user {i + 1}",
                paper=paper,
                ours=float(division.totals[i]),
                unit="tasks",
                within=within,
                exact=True,
            )
            for i, (paper, within) in enumerate(
                ((205, 0.5), (107.5, 0.05), (58.33, 0.02), (35.55, 0.02))
            )
        ),
        _exact_number("tasks of user 4 on class C", 8.05, division.tasks[3, 2], within=0.01),
        _exact_number("tasks of user 4 on class D", 27.5, division.tasks[3, 3], within=0.01),
    )
    return ItemOutcome(
        numbers=numbers,
        tables=(_tasks_table("tasks", division),),
        draw=bar_plotter(
            "TSF on the four classes of Table III",
            "Users 3 and 4 have less than under PS-DSF on class C: TSF counts the classes that "
            "they may not use.",
            [f"user {user}" for user in range(1, 5)],
            {
                "tsf": division.totals.tolist(),
                "psdsf": checked_division("psdsf", four_classes()).totals.tolist(),
            },
            over="user (number)",
            unit="tasks (number)",
        ),
    )


def _tasks_by_server_outcome(
    division: Division,
    expected: Sequence[Sequence[float]],
    servers: Sequence[str],
    title: str,
    reading: str,
    *,
    within: float = 1e-6,
) -> ItemOutcome:
    """Return the outcome of a worked example: each user's tasks on each server, with bars."""
    numbers = tuple(
        _exact_number(
            f"tasks of user {i + 1} on {name}", expected[i][k], division.tasks[i, k], within=within
        )
        for i in range(len(expected))
        for k, name in enumerate(servers)
    )
    users: Mapping[str, Sequence[float]] = {
        f"user {i + 1}": division.tasks[i].tolist() for i in range(len(expected))
    }
    return ItemOutcome(
        numbers=numbers,
        tables=(_tasks_table("tasks", division),),
        draw=bar_plotter(
            title, reading, servers, users, over="server (name)", unit="tasks (number)"
        ),
    )


def _exact_number(
    what: str, paper: float, ours: float, unit: str = "tasks", *, within: float = 1e-6
) -> Number:
    """Return a number that must agree with the paper's, rounding errors aside."""
    return Number(what=what, paper=paper, ours=float(ours), unit=unit, within=within, exact=True)


def _tasks_table(name: str, division: Division) -> Table:
    """Return the table of each user's tasks on each server."""
    return _rows_table(name, "tasks", division.tasks)


def _rows_table(name: str, column: str, values: FloatArray) -> Table:
    """Return a table with a value of each user on each server."""
    return Table(
        name=name,
        columns=("user", "server", column),
        rows=[
            (i + 1, k + 1, float(values[i, k]))
            for i in range(values.shape[0])
            for k in range(values.shape[1])
        ],
    )


ITEMS: Final = (
    Item(
        name="psdsf-fig1",
        paper=Paper.PSDSF,
        place="Fig. 1",
        shows="two servers, one without a link: PS-DSF, C-DRFH and TSF for two users",
        run=_reproduce_fig1,
    ),
    Item(
        name="psdsf-fig2",
        paper=Paper.PSDSF,
        place="Fig. 2",
        shows="PS-DSF for four users of the two servers",
        run=_reproduce_fig2,
    ),
    Item(
        name="psdsf-fig3",
        paper=Paper.PSDSF,
        place="Fig. 3",
        shows="virtual dominant shares of the four users on both servers",
        run=_reproduce_fig3,
    ),
    Item(
        name="psdsf-fig4",
        paper=Paper.PSDSF,
        place="Fig. 4",
        shows="one resource that serves users at different rates: three channels",
        run=_reproduce_fig4,
    ),
    Item(
        name="psdsf-table3",
        paper=Paper.PSDSF,
        place="Table III",
        shows="PS-DSF for four users of four classes of servers, and what each could run alone",
        run=_reproduce_table3,
    ),
    Item(
        name="psdsf-table4",
        paper=Paper.PSDSF,
        place="Table IV",
        shows="TSF for the users and servers of Table III",
        run=_reproduce_table4,
    ),
)
