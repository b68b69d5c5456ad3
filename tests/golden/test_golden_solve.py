"""Worked examples of the papers, end to end through `fuga solve`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"


def solved(problem: dict[str, Any], policy: str) -> dict[str, Any]:
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "controller.cli.problems.solve",
            "-",
            "--policy",
            policy,
            "-o",
            "json",
        ],
        input=json.dumps(problem).encode(),
        capture_output=True,
        check=False,
        cwd=ROOT,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def example(name: str) -> dict[str, Any]:
    problem: dict[str, Any] = json.loads((EXAMPLES / f"{name}.json").read_text())
    return problem


def totals(answer: dict[str, Any]) -> list[int]:
    return [each["tasks"] for each in answer["tenants"]]


def only(problem: dict[str, Any], **strategies: list[list[int]]) -> dict[str, Any]:
    return {**problem, "parameters": {**problem["parameters"], "strategies": strategies}}


def test_fuga_worked_example_ends_in_the_equilibrium_a_f() -> None:
    """Xu and Yu 2014, the example of two hosts."""
    answer = solved(example("fuga_worked_example"), "fuga")

    assert answer["details"]["order"] == ["host2", "host1"]
    assert answer["details"]["strategies"] == {"host1": [1, 0, 1], "host2": [1, 2, 0]}
    assert answer["tasks"] == [
        {"demand": "type1", "host": "host1", "tasks": 1},
        {"demand": "type1", "host": "host2", "tasks": 1},
        {"demand": "type2", "host": "host2", "tasks": 2},
        {"demand": "type3", "host": "host1", "tasks": 1},
    ]


@pytest.mark.parametrize(
    ("host2", "answered"),
    [([1, 2, 0], [1, 0, 1]), ([1, 0, 1], [1, 2, 0]), ([0, 0, 2], [1, 2, 0])],
    ids=["a by f", "b by e", "c by e"],
)
def test_host_1_answers_each_strategy_of_host_2(host2: list[int], answered: list[int]) -> None:
    problem = example("fuga_worked_example")
    host1 = problem["parameters"]["strategies"]["host1"]

    answer = solved(only(problem, host1=host1, host2=[host2]), "fuga")

    assert answer["details"]["strategies"]["host1"] == answered


def test_the_utilities_at_b_e_are_those_of_the_formulas() -> None:
    problem = example("fuga_worked_example")

    answer = solved(only(problem, host1=[[1, 2, 0]], host2=[[1, 0, 1]]), "fuga")

    assert answer["details"]["utilities"]["host1"] == pytest.approx(-1.238, abs=5e-4)
    assert answer["details"]["utilities"]["host2"] == pytest.approx(-1.392, abs=5e-4)
    assert totals(answer) == [2, 2, 1]


@pytest.mark.parametrize("policy", ["best_fit_drfh", "fuga"])
def test_drfh_figure_gives_ten_and_ten(policy: str) -> None:
    """Wang, Li, Liang 2014: shares of 5/7."""
    answer = solved(example("drfh_figure"), policy)

    assert totals(answer) == [10, 10]
    for each in answer["tenants"]:
        assert each["dominant_share"] == pytest.approx(5 / 7)
    assert answer["tasks"] == [
        {"demand": "memory_heavy", "host": "server1", "tasks": 10},
        {"demand": "cpu_heavy", "host": "server2", "tasks": 10},
    ]
    assert answer["left_out"] == []


def test_first_fit_gives_the_first_demand_all_that_fits() -> None:
    answer = solved(example("drfh_figure"), "first_fit")

    assert totals(answer) == [12, 0]


def test_finite_counts_of_the_drfh_figure_leave_the_rest_out() -> None:
    problem = example("drfh_figure")
    for demand in problem["demands"]:
        demand["count"] = 15

    answer = solved(problem, "best_fit_drfh")

    assert totals(answer) == [10, 10]
    assert answer["left_out"] == [
        {"demand": "memory_heavy", "count": 5, "reason": "no_room"},
        {"demand": "cpu_heavy", "count": 5, "reason": "no_room"},
    ]
