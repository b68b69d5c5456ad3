"""docs/architecture.md says where things are: each place is there, and its walks lead somewhere."""

from __future__ import annotations

import ast
import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from controller.cli.commands import COMMAND_ENTRIES
from controller.rest.app import create_app
from controller.rest.middleware.callers import PROTECTED_PREFIX
from controller.rounds.interfaces import PolicyChoice
from controller.rounds.policy_process import PolicyProcess
from placement.catalog.plugins import POLICY_GROUP
from placement.catalog.policies import POLICIES
from registry import Registry, lifecycle
from registry.db.schema import metadata
from scripts.house import IMAGES, PICTURES, PackagePicture, packages, picture_path, plans
from scripts.walk import walks
from tests.docs.markdown import ROOT, mentioned
from tests.e2e.slots import run_slot
from tests.register import ACTOR, add_host, add_request, add_tenant, add_vm_type
from tests.unit.registry.test_registry_lifecycle import GRIDS

PAGE: Final = ROOT / "docs" / "architecture.md"
DECISIONS: Final = ROOT / "docs" / "adr"
MAX_MODULES: Final = 25
#: A file of ours, with or without something in it.
_PLACE: Final = re.compile(r"(?P<file>[\w./]+(\.\w+|/))(:(?P<name>[\w.]+))?")
_FILES: Final = frozenset({".json", ".md", ".py", ".svg", ".toml"})
_BARE: Final = re.compile(r"[a-z]+(_[a-z]+)+")
#: A revision is a file, and they only become more.
_HISTORY: Final = ROOT / "migrations" / "versions"


def test_every_place_that_the_page_names_is_there() -> None:
    missing = [
        f"{PAGE.name}:{line}: {span}" for line, span in mentioned(PAGE) if not _is_there(span)
    ]

    assert missing == []


def test_triggers_and_indexes_of_an_invariant_are_in_a_file_that_its_row_names() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    missing: list[str] = []
    for row in rows:
        spans = re.findall(r"`([^`]+)`", row)
        places = [found for span in spans if (found := _PLACE.fullmatch(span))]
        texts = [(ROOT / each["file"]).read_text() for each in places if each["file"][-1] != "/"]
        missing += [
            f"{span}: {row[:60]}"
            for span in filter(_BARE.fullmatch, spans)
            if not any(span in text for text in texts)
        ]

    assert missing == []


def test_every_invariant_names_a_test_that_notices() -> None:
    _, section = PAGE.read_text().split("## Invariants", 1)
    rows = [line for line in section.split("\n## ")[0].splitlines() if line.startswith("| ")][1:]

    assert len(rows) > 10
    assert [row for row in rows if not re.search(r"`tests/\S+\.py:test_\w+`", row)] == []


def test_the_drawings_are_those_of_the_imports() -> None:
    found = plans()

    stale = [
        name
        for name in PICTURES
        if _drawn_in(IMAGES / picture_path(name)) != (set(found[name].modules), found[name].drawn)
    ]

    assert stale == [], "run make house"


@pytest.mark.parametrize("name", PICTURES)
def test_the_page_shows_every_drawing(name: str) -> None:
    assert f"](images/{picture_path(name)})" in PAGE.read_text()


def test_rooms_that_know_one_another_are_refused() -> None:
    circle = PackagePicture(
        {"a": 1, "b": 1, "c": 1}, frozenset({("a", "b"), ("b", "c"), ("c", "a")})
    )

    with pytest.raises(CycleError):
        _ = circle.drawn


def test_no_room_is_too_full() -> None:
    beside = ("benchmarks", "scripts", "tests")
    modules = {
        str(room.relative_to(ROOT)): len(_modules(room))
        for room in _rooms([*packages(), *beside])
        if room != _HISTORY
    }

    assert {room: count for room, count in modules.items() if count > MAX_MODULES} == {}


def test_every_room_says_what_it_holds() -> None:
    silent = [
        str(room.relative_to(ROOT))
        for room in _rooms(packages())
        if room != _HISTORY and not _docstring(room / "__init__.py")
    ]

    assert silent == []


def test_a_walk_passes_no_more_rooms_than_it_did(tmp_path: Path) -> None:
    asking, deciding = walks(tmp_path)

    assert "controller/rest/routers/requests.py" in asking.files
    assert "registry/rounds/commit.py" in deciding.files
    assert len({Path(each).parent for each in asking.files}) <= 10
    assert [each.kind for each in asking.transactions] == ["write"]
    assert len({Path(each).parent for each in deciding.files}) <= 12
    assert [each.kind for each in deciding.transactions] == ["read", "write"]


# ---- how to add a policy -----------------------------------------------------------


def test_a_policy_of_another_package_decides_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "last_come.py").write_text(_LAST_COME)
    info = tmp_path / "last_come-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: last-come\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{POLICY_GROUP}]\nlast_come = last_come:ENTRY\n")
    problem = tmp_path / "problem.json"
    problem.write_text(json.dumps(_PROBLEM))

    solve = "controller.cli.problems.solve"
    ended = subprocess.run(
        [sys.executable, "-m", solve, str(problem), "--policy", "last_come", "-o", "json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    answer = json.loads(ended.stdout)
    assert {each["name"]: each["tasks"] for each in answer["tenants"]} == {"first": 0, "last": 2}
    assert answer["left_out"][0]["demand"] == "early"


def test_every_policy_of_ours_tells_what_the_walk_asks_for() -> None:
    for name, entry in POLICIES.items():
        shown = (entry.paper, entry.guarantees, entry.complexity)
        assert "not told" not in shown, name


# ---- how to add a resource -----------------------------------------------------------


@pytest.mark.sqlite
def test_a_resource_is_added_by_rows_and_rounds_place_by_it(
    upgraded_database: Path, decider: PolicyProcess, tmp_path: Path
) -> None:
    shutil.copy(upgraded_database, tmp_path / "fuga.db")
    registry = Registry.connect(f"sqlite:///{tmp_path}/fuga.db")
    try:
        add_tenant(registry, "a")
        plain, with_gpus = add_host(registry, "plain"), add_host(registry, "with-gpus")
        registry.resources.add("gpu", "GPU", actor=ACTOR)
        registry.hosts.update("with-gpus", overrides={"gpu": 2}, actor=ACTOR)
        add_vm_type(registry, "render", gpu=1)
        request = add_request(registry, vm_type="render", count=3)
        run_slot(registry, decider)
        by_another = PolicyChoice(
            name="first_fit", parameters={}, budget_units=None, decision_time_s=60
        )
        run_slot(registry, decider, 2, by_another)

        vms = registry.vms.list(request_id=request.id).items
        waiting = registry.requests.get(request.id).waiting
        committed = {
            each.resource: each.committed for each in registry.hosts.get("with-gpus").inventories
        }
        found = registry.check()
    finally:
        registry.close()

    assert sorted(vm.host or "" for vm in vms) == ["", with_gpus.name, with_gpus.name]
    assert plain.name not in {vm.host for vm in vms}
    assert committed["gpu"] == 2
    assert waiting is not None
    assert waiting.count == 1
    assert found == []


# ---- how to add a state --------------------------------------------------------------


def test_every_machine_has_a_grid() -> None:
    tables = {name.removesuffix("_TRANSITIONS") for name in dir(lifecycle) if "_TRANSIT" in name}

    assert set(GRIDS) == tables


def test_every_stored_state_is_checked_by_its_column() -> None:
    states = {
        frozenset(state.value for state in {*(before for before, _ in table), *table.values()})
        for name, table in vars(lifecycle).items()
        if name.endswith("_TRANSITIONS")
    }
    checked = {
        frozenset(re.findall(r"'(\w+)'", str(getattr(constraint, "sqltext", ""))))
        for table in metadata.tables.values()
        for constraint in table.constraints
    }

    # A row that is idle, or of a copy that is gone, is no row, and that a spot VM ends is that its
    # row is there: such states are not stored.
    missing = [each for each in states if not any(each - some <= _UNSTORED for some in checked)]
    assert missing == []


# ---- how to add a route ---------------------------------------------------------------


def test_every_route_is_in_the_application_and_in_the_published_document(
    upgraded_database: Path,
) -> None:
    published = json.loads((ROOT / "docs" / "openapi.json").read_text())
    registry = Registry.connect(f"sqlite:///{upgraded_database}")
    try:
        served = create_app(registry).openapi()
    finally:
        registry.close()
    folder = ROOT / "controller" / "rest" / "routers"
    modules = [import_module(f"controller.rest.routers.{each.stem}") for each in _modules(folder)]
    written = {
        f"{PROTECTED_PREFIX}{route.path}"
        for module in modules
        for route in _each(module.router.routes)
    }

    assert len(written) > 50
    assert written <= served["paths"].keys()
    assert _routes(served) == _routes(published), "run make api-docs"


def test_every_command_is_written_where_its_list_says() -> None:
    for name, entry in COMMAND_ENTRIES.items():
        module, _, attribute = entry.location.partition(":")
        assert hasattr(import_module(f"controller.cli.{module}"), attribute), name


# ---- how to add a field ---------------------------------------------------------------


def test_a_field_passes_the_files_that_the_page_names_and_no_others() -> None:
    _, section = PAGE.read_text().split("## How to add a field", 1)
    named = set(re.findall(r"`([\w./-]+/[\w-]+\.\w+)[:`]", section.split("\n## ")[0]))
    tests = {name for name in named if name.startswith("tests/")}

    passed = {
        str(path.relative_to(ROOT))
        for folder, endings in _FIELD_FILES.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in endings and path.parent != DECISIONS and _FIELDS.search(path.read_text())
    }

    assert named - tests - _OF_ANY_FIELD == passed - _NO_STEP
    assert [name for name in tests if not _FIELDS.search((ROOT / name).read_text())] == []


#: The fields that the walk follows, as code and as options of commands.
_FIELDS: Final = re.compile(r"\b(fence[_-]target|moving_to)\b")
_FIELD_FILES: Final = {
    **dict.fromkeys(("controller", "hypervisor", "monitor", "registry", "workers"), (".py",)),
    "docs": (".json", ".md"),
    "web/src": (".ts", ".tsx"),
}
#: The marks of fields, and the way from rows to records: they name no field.
_OF_ANY_FIELD: Final = {"registry/records/fields.py", "registry/db/row_conversion.py"}
#: The page itself, and what generators write and git ignores.
_NO_STEP: Final = {
    "docs/architecture.md",
    "controller/client/models.py",
    "web/src/api/generated.ts",
}
_UNSTORED: Final = frozenset({"idle", "stays", "ending", "gone"})
_PROBLEM: Final = {
    "resources": ["vcpus"],
    "hosts": [{"name": "h1", "capacity": [2]}],
    "tenants": [{"name": "first"}, {"name": "last"}],
    "demands": [
        {"name": "early", "tenant": "first", "per_vm": [1], "count": 2},
        {"name": "late", "tenant": "last", "per_vm": [1], "count": 2},
    ],
}
#: What the walk asks for, as short as it can be said: the last request is served first.
_LAST_COME: Final = """
import numpy as np
from placement import Allocation, CatalogEntry, LeftOut, Reason

class LastCome:
    def place(self, snapshot, rng, budget):
        free, rows, left_out = snapshot.free.copy(), [], []
        for request in reversed(range(len(snapshot.count))):
            missing = int(snapshot.count[request])
            for host in range(len(free)):
                while missing and (snapshot.demand[request] <= free[host]).all():
                    free[host] -= snapshot.demand[request]
                    rows.append((request, host))
                    missing -= 1
            if missing:
                left_out.append(LeftOut(request=request, count=missing, reason=Reason.NO_ROOM))
        pairs, counts = np.unique(np.array(rows).reshape(-1, 2), axis=0, return_counts=True)
        return Allocation(placed=np.column_stack([pairs, counts]), left_out=tuple(left_out))

ENTRY = CatalogEntry("the last request first; not fair", frozenset(), lambda given: LastCome())
"""


def _is_there(span: str) -> bool:
    """Tell whether a span names something of ours that is there, or no place at all."""
    found = _PLACE.fullmatch(span)
    if found is None:
        return True
    path, name = ROOT / found["file"], found["name"]
    if found["file"].endswith("/"):
        return path.is_dir()
    if path.suffix not in _FILES:
        return True
    return path.is_file() and (name is None or name in _names_in(path))


@cache
def _names_in(path: Path) -> frozenset[str]:
    """Return what a module defines, and what its classes do."""
    return frozenset(_defined(ast.parse(path.read_text()).body))


def _defined(body: list[ast.stmt], within: str = "") -> Iterator[str]:
    for each in body:
        match each:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield within + each.name
            case ast.ClassDef():
                yield within + each.name
                yield from _defined(each.body, f"{within}{each.name}.")
            case ast.Assign():
                yield from (within + to.id for to in each.targets if isinstance(to, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield within + name


def _drawn_in(svg: Path) -> tuple[set[str], frozenset[tuple[str, str]]]:
    """Return the rooms and arrows of a drawing."""
    titles = map(html.unescape, re.findall(r"<title>(.*?)</title>", svg.read_text())[1:])
    rooms, arrows = set(), set()
    for title in titles:
        room, arrow, known = title.partition("->")
        if arrow:
            arrows.add((room, known))
        else:
            rooms.add(room)
    return rooms, frozenset(arrows)


def _rooms(names: Iterable[str]) -> list[Path]:
    """Return the folders of the packages that have modules."""
    return sorted({each.parent for name in names for each in (ROOT / name).rglob("*.py")})


def _modules(room: Path) -> list[Path]:
    return [each for each in room.glob("*.py") if each.stem != "__init__"]


def _docstring(path: Path) -> str | None:
    return ast.get_docstring(ast.parse(path.read_text())) if path.exists() else None


def _each(routes: Iterable[Any]) -> Iterator[Any]:
    """Yield routes, those of routers within a router among them."""
    for route in routes:
        if hasattr(route, "original_router"):
            yield from _each(route.original_router.routes)
        else:
            yield route


def _routes(document: dict[str, dict[str, dict[str, object]]]) -> set[tuple[str, str]]:
    return {
        (path, method) for path, operations in document["paths"].items() for method in operations
    }
