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

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "third_party_policy"
PROBLEM = ROOT / "docs" / "examples" / "drfh_figure.json"

Solve = Callable[..., subprocess.CompletedProcess[str]]


class Site:
    """A folder of installed distributions: what an installer would leave of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = [folder]

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
            [sys.executable, "-m", "controller.cli.solve", *arguments],
            env={**os.environ, "PYTHONPATH": path},
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

    asked = site.solve(str(PROBLEM), "--policy", "their_policy")
    listed = site.solve("--list", "-o", "json")

    assert (asked.returncode, asked.stdout) == (2, "")
    assert "'their_policy': someones-policy" in asked.stderr
    assert message in asked.stderr
    assert "Traceback" not in asked.stderr
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
