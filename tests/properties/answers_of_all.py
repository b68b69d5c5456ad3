"""Print what every policy and mechanism answers to some random problems, a line for each.

    python -m tests.properties.answers_of_all [--problems 3] [--first 0]

A line holds the name, the number of the problem, and the answer's bytes as
`fuga solve -o json` writes them, but for times. The same lines must come out of
every process: see `tests.properties.test_same_bytes_in_every_process`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from controller.cli.problems.problem_run import solve_problem
from placement import MECHANISMS
from tests.properties.strategies import POLICY_SETTINGS

LABELS = ("ssd", "gpu", "10g", "sgx", "nvme")
TIMES = ("seconds", "timings")


def main() -> None:
    """Print the lines."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--problems", type=int, default=3)
    arguments.add_argument("--first", type=int, default=0)
    given = arguments.parse_args()
    for line in lines(range(given.first, given.first + given.problems)):
        print(line)


def lines(numbers: range) -> Iterator[str]:
    """Yield a line for each problem, policy under its settings, and mechanism."""
    settings = [*POLICY_SETTINGS, *((name, {}) for name in MECHANISMS)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "problem.json"
        for number in numbers:
            for name, parameters in settings:
                problem = a_problem(np.random.default_rng(number))
                if name in MECHANISMS:
                    make_divisible(problem, name)
                problem["parameters"] = dict(parameters)
                if name == "collapsed":
                    problem["parameters"]["resource"] = "memory_mib"
                file.write_text(json.dumps(problem))
                answer = without_times(solve_problem(str(file), name, None, details=True))
                yield f"{name} {json.dumps(parameters)} {number} {json.dumps(answer)}"


def without_times(value: Any) -> Any:
    """Return an answer without what may differ: times."""
    if isinstance(value, dict):
        return {
            key: without_times(each)
            for key, each in value.items()
            if key not in TIMES and not key.endswith("_seconds")
        }
    return [without_times(each) for each in value] if isinstance(value, list) else value


def make_divisible(problem: dict[str, Any], name: str) -> None:
    """Leave one demand of each tenant, and nothing that the mechanism does not take."""
    problem["demands"] = problem["demands"][:6]
    for demand in problem["demands"]:
        demand["min_count"] = 1
        if name == "per_server_drf":
            demand["count"] = None
    if not MECHANISMS[name].reads_tree:
        problem["tenants"] = problem["tenants"][:6]
        for tenant in problem["tenants"]:
            tenant.pop("parent", None)


def a_problem(rng: np.random.Generator) -> dict[str, Any]:
    """Return a problem of some hosts, with labels, groups, gangs and many ties."""
    hosts = [
        {
            "name": f"host-{h}",
            "capacity": capacity,
            "free": [int(rng.integers(c // 2, c + 1)) for c in capacity],
            "labels": some(rng, LABELS),
        }
        for h, capacity in enumerate(
            rng.choice([[8, 16384, 500], [16, 32768, 500], [4, 4096, 200]], size=9).tolist()
        )
    ]
    tenants: list[dict[str, Any]] = [
        {"name": f"tenant-{n}", "weight": float(rng.choice([1.0, 1.0, 2.0, 0.3]))} for n in range(6)
    ]
    for tenant in tenants[:4] if rng.random() < 0.5 else ():
        tenant["parent"] = str(rng.choice(["team-1", "team-2"]))
    if any("parent" in tenant for tenant in tenants):
        tenants += [{"name": "team-1"}, {"name": "team-2", "weight": 1.7}]
    types = [[1, 1024, 10], [1, 3072, 15], [2, 6144, 30], [4, 12288, 60], [2, 2048, 0]]
    return {
        "resources": ["vcpus", "memory_mib", "disk_gib"],
        "hosts": hosts,
        "tenants": tenants,
        "demands": [
            {
                "name": f"demand-{q}",
                "tenant": f"tenant-{q % 6}",
                "per_vm": types[int(rng.integers(len(types)))],
                "count": int(rng.integers(4, 20)),
                "min_count": int(rng.choice([1, 1, 1, 3])),
                "requires": some(rng, LABELS) if rng.random() < 0.3 else [],
                "hosts": some(rng, [h["name"] for h in hosts]) if rng.random() < 0.2 else None,
            }
            for q in range(14)
        ],
    }


def some(rng: np.random.Generator, names: Any) -> list[str]:
    """Return some of the names in random order, at least one."""
    return [str(n) for n in rng.permutation(names)[: rng.integers(1, len(names))]]


if __name__ == "__main__":
    main()
