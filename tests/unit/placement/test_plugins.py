"""Policies and mechanisms of other distributions, through `fuga solve` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "third_party_policy"
PROBLEM = ROOT / "docs" / "examples" / "drfh_figure.json"

Solve = Callable[..., subprocess.CompletedProcess[str]]


class Site:
    """A folder of installed distributions: what an installer would leave of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = [folder]
        self.environment: dict[str, str] = {}

    def install(self, name: str, entry_points: Mapping[str, Mapping[str, str]]) -> None:
        info = self.folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
        lines = []
        for group, points in entry_points.items():
            lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")

    def install_example(self) -> None:
        project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
        self.install(project["name"], project["entry-points"])
        self.paths.append(EXAMPLE)

    def module(self, name: str, text: str) -> None:
        (self.folder / f"{name}.py").write_text(text)

    def solve(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(map(str, [*self.paths, ROOT]))
        return subprocess.run(
            [sys.executable, "-m", "controller.cli.problems.solve", *arguments],
            env={**os.environ, "PYTHONPATH": path, **self.environment},
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_example_policy_decides_by_name(site: Site) -> None:
    site.install_example()

    ended = site.solve(str(PROBLEM), "--policy", "largest_first", "-o", "json")

    assert (ended.returncode, ended.stderr) == (0, "")
    answer = json.loads(ended.stdout)
    assert (answer["policy"], answer["divisible"]) == ("largest_first", False)
    assert [each["tasks"] for each in answer["tenants"]] == [12, 0]


def test_the_example_mechanism_divides_by_name(site: Site) -> None:
    site.install_example()

    ended = site.solve(str(PROBLEM), "--policy", "equal_slices", "-o", "json")

    assert (ended.returncode, ended.stderr) == (0, "")
    answer = json.loads(ended.stdout)
    assert [each["tasks"] for each in answer["tenants"]] == pytest.approx([7, 7])
    assert {each["host"] for each in answer["tasks"]} == {None}


def test_the_list_tells_where_others_come_from(site: Site) -> None:
    site.install_example()

    ended = site.solve("--list", "-o", "json")

    assert (ended.returncode, ended.stderr) == (0, "")
    rows = {row["name"]: row for row in json.loads(ended.stdout)["policies"]}
    assert rows["largest_first"]["kind"] == "policy"
    assert rows["largest_first"]["parameters"] == ["least_share"]
    assert rows["equal_slices"]["kind"] == "mechanism"
    assert rows["equal_slices"]["origin"] == "fuga-largest-first (largest_first:EQUAL_SLICES)"
    assert rows["fuga"]["origin"] is None


def test_parameters_of_others_are_checked(site: Site, tmp_path: Path) -> None:
    site.install_example()
    problem = json.loads(PROBLEM.read_text())
    problem["parameters"] = {"least_share": 2}
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(problem))

    ended = site.solve(str(file), "--policy", "largest_first")

    assert ended.returncode == 2
    assert "parameters.least_share: must be a number from 0 to 1, found 2" in ended.stderr
    assert "no policy reads" in site.solve(str(file), "--policy", "fuga").stderr


BROKEN = {
    "raises": ("bad:ENTRY", "raise RuntimeError('not today')", "RuntimeError: not today"),
    "missing": ("nowhere_at_all:ENTRY", "", "No module named 'nowhere_at_all'"),
    "attribute": ("bad:OTHER", "ENTRY = 1", "AttributeError"),
    "type": ("bad:ENTRY", "ENTRY = 'a policy'", "must name a CatalogEntry"),
}


@pytest.mark.parametrize(("point", "text", "message"), BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_loaded_says_so_at_its_name_alone(
    site: Site, point: str, text: str, message: str
) -> None:
    site.module("bad", text)
    site.install("someones-policy", {"fuga.policies": {"their_policy": point}})

    requested = site.solve(str(PROBLEM), "--policy", "their_policy")
    listed = site.solve("--list", "-o", "json")

    assert (requested.returncode, requested.stdout) == (2, "")
    assert "'their_policy': someones-policy" in requested.stderr
    assert message in requested.stderr
    assert "Traceback" not in requested.stderr
    assert site.solve(str(PROBLEM), "--policy", "first_fit").returncode == 0
    assert listed.returncode == 0
    assert message in listed.stderr
    assert "their_policy" not in [row["name"] for row in json.loads(listed.stdout)["policies"]]


def test_a_module_of_others_is_imported_only_when_its_name_is_asked_for(site: Site) -> None:
    site.module("bad", "import sys; sys.exit('imported')")
    site.install("someones-policy", {"fuga.policies": {"their_policy": "bad:ENTRY"}})

    ended = site.solve(str(PROBLEM), "--policy", "first_fit", "-o", "json")

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("group", ["fuga.policies", "fuga.mechanisms"])
@pytest.mark.parametrize("name", ["fuga", "drfh"])
def test_the_name_of_a_built_in_cannot_be_taken(site: Site, group: str, name: str) -> None:
    site.install("sly", {group: {name: "sly:ENTRY"}})

    ended = site.solve(str(PROBLEM), "--policy", name)

    assert ended.returncode == 2
    assert f"'{name}': sly (sly:ENTRY) takes the name of a built-in" in ended.stderr
    assert site.solve(str(PROBLEM), "--policy", "first_fit").returncode == 0
    assert "takes the name of a built-in" in site.solve("--list").stderr


def test_a_name_that_two_distributions_claim_belongs_to_neither(site: Site) -> None:
    site.install("one", {"fuga.policies": {"theirs": "one:ENTRY"}})
    site.install("two", {"fuga.mechanisms": {"theirs": "two:ENTRY"}})

    ended = site.solve(str(PROBLEM), "--policy", "theirs")

    assert ended.returncode == 2
    assert "claimed by one (one:ENTRY) and two (two:ENTRY)" in ended.stderr


THEIR_POLICY = """
from placement import Allocation, CatalogEntry, Division, LeftOut, MechanismEntry, Reason
import numpy as np

class Theirs:
    def __init__(self, given):
        {make}

    def {method}(self, *asked):
        return self.inner()

    def inner(self):
        {body}

ENTRY = {entry}
"""
A_POLICY = "CatalogEntry(summary='theirs', parameters=frozenset(), make=Theirs)"
A_MECHANISM = (
    "MechanismEntry(summary='theirs', paper='', guarantees='', complexity='', make=Theirs)"
)
NOTHING = "np.zeros((0, 3), dtype=np.int64)"

FAILING = {
    "raises": ("1 / 0", "failed in place: ZeroDivisionError: division by zero ("),
    "exits": ("import sys; sys.exit('enough')", "failed in place: SystemExit: enough ("),
    "nothing": ("pass", "the answer is of type NoneType, not Allocation"),
    "a list": ("return Allocation(placed=[], left_out=())", "placed is of type list, not ndarray"),
    "numpy numbers": (
        f"return Allocation(placed={NOTHING}, left_out=("
        "LeftOut(request=np.int64(0), count=1, reason=Reason.NO_ROOM),))",
        "request of a LeftOut is of type int64, not int",
    ),
    "no JSON": (
        f"return Allocation(placed={NOTHING}, left_out=(), details={{'a': b''}})",
        "TypeError: Object of type bytes is not JSON serializable",
    ),
}


@pytest.mark.parametrize(("body", "message"), FAILING.values(), ids=FAILING)
def test_a_policy_that_fails_is_told_with_its_distribution_and_place(
    site: Site, body: str, message: str
) -> None:
    text = THEIR_POLICY.format(make="pass", method="place", body=body, entry=A_POLICY)
    site.module("theirs", text)
    site.install("someones-policy", {"fuga.policies": {"their_policy": "theirs:ENTRY"}})

    ended = site.solve(str(PROBLEM), "--policy", "their_policy", "-o", "json")

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("fuga: 'their_policy': someones-policy (theirs:ENTRY) failed in")
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stderr.endswith("\nFUGA_DEBUG=1 shows the traceback\n")


def test_the_place_of_a_failure_is_a_line_of_theirs_and_the_traceback_can_be_had(
    site: Site,
) -> None:
    body = "return np.zeros(2).reshape(3)"  # raised deep in a library
    text = THEIR_POLICY.format(make="pass", method="divide", body=body, entry=A_MECHANISM)
    site.module("theirs", text)
    site.install("someones-policy", {"fuga.mechanisms": {"their_policy": "theirs:ENTRY"}})

    ended = site.solve(str(PROBLEM), "--policy", "their_policy")
    site.environment["FUGA_DEBUG"] = "1"
    traced = site.solve(str(PROBLEM), "--policy", "their_policy")

    assert "failed in divide: ValueError: cannot reshape" in ended.stderr
    assert f"({site.folder / 'theirs.py'}, line 13, in inner)" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert traced.returncode == ended.returncode == 1
    assert "Traceback (most recent call last)" in traced.stderr
    assert body in traced.stderr


def test_a_policy_that_cannot_be_made_is_told_likewise(site: Site) -> None:
    text = THEIR_POLICY.format(
        make="raise KeyError('x')", method="place", body="pass", entry=A_POLICY
    )
    site.module("theirs", text)
    site.install("someones-policy", {"fuga.policies": {"their_policy": "theirs:ENTRY"}})

    ended = site.solve(str(PROBLEM), "--policy", "their_policy")

    assert ended.returncode == 1
    assert "someones-policy (theirs:ENTRY) failed in make: KeyError: 'x'" in ended.stderr


def test_an_infeasible_answer_of_theirs_names_the_rule(site: Site) -> None:
    body = f"return Allocation(placed={NOTHING}, left_out=())"
    text = THEIR_POLICY.format(make="pass", method="place", body=body, entry=A_POLICY)
    site.module("theirs", text)
    site.install("someones-policy", {"fuga.policies": {"their_policy": "theirs:ENTRY"}})

    ended = site.solve(str(PROBLEM), "--policy", "their_policy")

    assert ended.returncode == 1
    assert "their_policy broke a rule, please report it: infeasible allocation" in ended.stderr


def test_a_division_of_another_shape_is_told_without_a_traceback(site: Site) -> None:
    body = "return Division(tasks=np.zeros((9, 9)))"
    text = THEIR_POLICY.format(make="pass", method="divide", body=body, entry=A_MECHANISM)
    site.module("theirs", text)
    site.install("someones-policy", {"fuga.mechanisms": {"their_policy": "theirs:ENTRY"}})

    ended = site.solve(str(PROBLEM), "--policy", "their_policy")

    assert ended.returncode == 1
    assert "their_policy broke a rule, please report it: tasks has shape (9, 9)" in ended.stderr


@pytest.mark.parametrize(
    ("large", "status", "told"),
    [
        (
            10**6,
            2,
            "amounts of 'cpu' reach from 0.000001 (demands[0].per_vm[0]) "
            "to 2000000 (hosts[0].capacity[0]), too far apart for their_policy: the program",
        ),
        (7, 1, "their_policy found no answer, please report it: the program: solver status 4"),
    ],
)
def test_a_solver_that_fails_names_the_amounts_that_lie_too_far_apart(
    site: Site, tmp_path: Path, large: int, status: int, told: str
) -> None:
    body = "from placement import SolverError; raise SolverError('the program', 4, 'numerics')"
    text = THEIR_POLICY.format(make="pass", method="divide", body=body, entry=A_MECHANISM)
    site.module("theirs", text)
    site.install("someones-policy", {"fuga.mechanisms": {"their_policy": "theirs:ENTRY"}})
    file = tmp_path / "problem.json"
    file.write_text(
        json.dumps(
            {
                "resources": ["cpu"],
                "hosts": [{"name": "h", "capacity": [large], "count": 2}],
                "tenants": [{"name": "t"}],
                "demands": [{"name": "d", "tenant": "t", "per_vm": [1e-6]}],
            }
        )
    )

    ended = site.solve(str(file), "--policy", "their_policy")

    assert (ended.returncode, ended.stdout) == (status, "")
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr
