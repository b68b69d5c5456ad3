"""PS-DSF, Fig. 6: use of servers over 300 seconds, while a user is away and comes back."""

from __future__ import annotations

import dataclasses
from typing import Final

import numpy as np

from placement import BoolArray, DivisibleProblem, FloatArray
from placement.mechanisms.psdsf.residual import theorem1_residual
from placement.mechanisms.psdsf.sweeps import ScheduledStep, distributed_steps
from simulation.reproduction.example_problems import checked_division
from simulation.reproduction.model import Item, ItemOutcome, Number, Paper, Setup, Statement, Table
from simulation.reproduction.plots import line_plotter
from simulation.reproduction.psdsf_examples import CLASSES, four_classes

_SECONDS: Final = 300
_AWAY_S, _BACK_S = 100, 250
#: The paper's servers settle within a few steps.
_SETTLED_S: Final = 3
_USERS: Final = 4
_C, _D = 2, 3  #: places of the classes that the figure shows
_RIVALS: Final = ("tsf", "cdrfh")


def _reproduce_fig6(setup: Setup) -> ItemOutcome:
    """Reproduce Fig. 6 of PS-DSF: use of servers while a user is away and comes back."""
    del setup
    times = np.arange(_SECONDS)
    away = (times > _AWAY_S) & (times < _BACK_S)
    psdsf = _tasks_by_second(away)
    tasks = {
        "psdsf": psdsf,
        **{
            name: np.where(
                away[:, None, None],
                _tasks_of_mechanism(name, away=True),
                _tasks_of_mechanism(name, away=False),
            )
            for name in _RIVALS
        },
    }
    use = {name: _cpu_use(each) for name, each in tasks.items()}
    settled = times >= _SETTLED_S
    settled &= ~((times > _AWAY_S) & (times <= _AWAY_S + _SETTLED_S))
    settled &= ~((times >= _BACK_S) & (times < _BACK_S + _SETTLED_S))
    numbers = tuple(
        Number(
            what=f"CPU of class {CLASSES[place]} in use, {when}, once settled",
            paper=paper,
            ours=float(use["psdsf"][settled & tenant, place].mean()),
            unit="of the class",
            within=1e-3,
            exact=True,
        )
        for when, tenant, expected in (
            ("all users there", ~away, (1.0, 1.0)),
            ("user 4 away", away, (1.0, 0.75)),
        )
        for place, paper in zip((_C, _D), expected, strict=True)
    )
    worst = max(
        theorem1_residual(_problem_at(away=bool(away[second])), psdsf[second])
        for second in times[settled].tolist()
    )
    both = {name: each[:, [_C, _D]].mean() for name, each in use.items()}
    return ItemOutcome(
        numbers=numbers,
        statements=(
            Statement(
                says="a server's own steps settle into PS-DSF within a few seconds after a "
                "user leaves or returns",
                found=f"from {_SETTLED_S} s after each change on, Theorem 1 is violated by "
                f"{worst:.6f} at most",
                holds=worst <= 1e-6,
            ),
            Statement(
                says="classes C and D are used more under PS-DSF than under TSF and C-DRFH",
                found="CPU in the mean over both and 300 s: "
                + ", ".join(f"{name} {100 * value:.1f} %" for name, value in both.items()),
                holds=all(both["psdsf"] > both[name] for name in _RIVALS),
            ),
        ),
        tables=(
            Table(
                name="cpu_use",
                columns=("second", "policy", *(f"cpu_use_{name}" for name in CLASSES)),
                rows=[
                    (second, name, *values[second].tolist())
                    for name, values in use.items()
                    for second in times.tolist()
                ],
            ),
        ),
        draw=line_plotter(
            "CPU in use of classes C and D while user 4 is away",
            "Higher is better; between 100 and 250 s user 4 is away, and PS-DSF's servers find "
            "the new division by themselves in a few steps.",
            {
                f"class {CLASSES[place]}\nCPU in use (%)": {
                    name: (times, 100 * values[:, place]) for name, values in use.items()
                }
                for place in (_C, _D)
            },
            over="time (s)",
        ),
        why="The split of TSF and C-DRFH over servers is not unique: their lines may lie elsewhere "
        "than the paper's within what their levels allow.",
    )


def _tasks_by_second(away: BoolArray) -> FloatArray:
    """Return the tasks by PS-DSF after each second, (S, N, K); each server steps once a second."""
    all_users = np.ones(_USERS, dtype=np.bool_)
    without = all_users.copy()
    without[-1] = False
    schedule = [
        ScheduledStep(server, without if away[second] else all_users)
        for second in range(_SECONDS)
        for server in range(len(CLASSES))
    ]
    steps = list(distributed_steps(four_classes(), schedule))
    return np.array(steps[len(CLASSES) - 1 :: len(CLASSES)])


def _problem_at(*, away: bool) -> DivisibleProblem:
    """Return the problem of the four classes, without the tasks of the user that is away."""
    problem = four_classes()
    if not away:
        return problem
    count = problem.count.copy()
    count[-1] = 0.0
    return dataclasses.replace(problem, count=count)


def _tasks_of_mechanism(name: str, *, away: bool) -> FloatArray:
    """Return the tasks of each user on each class by another mechanism, (N, K)."""
    return checked_division(name, _problem_at(away=away)).tasks


def _cpu_use(tasks: FloatArray) -> FloatArray:
    """Return the fraction of each class's CPU in use, (S, K)."""
    problem = four_classes()
    use: FloatArray = np.einsum("snk,n->sk", tasks, problem.demand[:, 0]) / problem.capacity[:, 0]
    return use


ITEMS: Final = (
    Item(
        name="psdsf-fig6",
        paper=Paper.PSDSF,
        place="Fig. 6",
        shows="CPU in use on two classes over 300 s, user 4 away from 100 to 250 s, "
        "by the distributed procedure; with TSF and C-DRFH",
        run=_reproduce_fig6,
    ),
)
