"""`make test` runs the short form of the tests, `make test-all` the rest; together they run all."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.selection import ON_BOTH_DATABASES, PART, REST, SHORT, examples, left_out

ROOT = Path(__file__).resolve().parents[3]
DATABASES = ("sqlite", "postgresql")
USUAL = "tests/unit/registry/test_vms.py"
RACES = ROOT / "tests/integration/ledger/test_races.py"
DIALECT = re.compile("dialect|exec_driver_sql")


def item(
    nodeid: str, *, database: str | None = None, path: Path = Path(__file__), **marks: Any
) -> Any:
    """Return what pytest collects: a name, its drawn parameters, its marks with arguments."""
    return SimpleNamespace(
        nodeid=nodeid,
        path=path,
        callspec=None if database is None else SimpleNamespace(params={"register_url": database}),
        get_closest_marker=lambda name: (
            SimpleNamespace(args=marks[name]) if name in marks else None
        ),
    )


def on_both(test: str, **fields: Any) -> list[Any]:
    return [item(f"{test}[{each}]", database=each, **fields) for each in DATABASES]


def kept(items: list[Any], part: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    monkeypatch.setenv(PART, part)
    return {each.nodeid for each in items} - left_out(items)


@pytest.mark.parametrize(
    ("items", "short"),
    [
        (on_both(f"{USUAL}::test_a"), {f"{USUAL}::test_a[sqlite]"}),
        (on_both("a.py::test_a", path=RACES), {"a.py::test_a[sqlite]", "a.py::test_a[postgresql]"}),
        (
            on_both("tests/integration/registry/test_quotas.py::test_a"),
            {f"tests/integration/registry/test_quotas.py::test_a[{each}]" for each in DATABASES},
        ),
        ([item("a.py::test_a", database="postgresql")], {"a.py::test_a"}),
        ([item("a.py::test_a", qemu=()), item("a.py::test_b", test_driver=())], set()),
        (
            [item("a.py::test_a", qemu=(), essential=()), item("a.py::test_b")],
            {"a.py::test_a", "a.py::test_b"},
        ),
        ([item("a.py::test_a", long=()), item("a.py::test_b")], {"a.py::test_b"}),
        ([item("a.py::test_a", qemu=(), essential=(), long=())], set()),
    ],
)
def test_the_short_form_has_what_it_should_and_the_rest_all_others(
    items: list[Any], short: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = {each.nodeid for each in items}

    assert kept(items, SHORT, monkeypatch) == short
    assert kept(items, REST, monkeypatch) == everything - short
    assert kept(items, "all", monkeypatch) == everything


def test_the_rest_repeats_what_the_short_form_shortens(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [item("a.py::test_a", shortened=()), item("a.py::test_b")]

    assert kept(items, SHORT, monkeypatch) == {"a.py::test_a", "a.py::test_b"}
    assert kept(items, REST, monkeypatch) == {"a.py::test_a"}


@pytest.mark.parametrize("folder", ["tests/e2e/tenants", "tests/integration/registry"])
def test_most_tests_run_on_one_database_and_half_of_them_on_each(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = [f"{folder}/test_vms.py::test_{n}" for n in range(40)]
    items = [each for test in tests for each in on_both(test)]

    short, rest = (kept(items, part, monkeypatch) for part in (SHORT, REST))

    assert sorted(each.partition("[")[0] for each in short | rest) == sorted(tests)
    assert all("sqlite" in each for each in short)
    assert all("postgresql" in each for each in rest)
    assert 10 < len(short) < 30


@pytest.mark.parametrize(("cases", "share", "left"), [(1, 4, 1), (4, 4, 1), (9, 4, 3), (6, 2, 3)])
def test_of_a_sampled_test_one_case_in_so_many_stays(
    cases: int, share: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = [item(f"a.py::test_a[{n}]", sampled=(share,)) for n in range(cases)]
    others = [item(f"a.py::test_b[{n}]") for n in range(cases)]

    short = kept([*ours, *others], SHORT, monkeypatch)

    assert len(short) == left + cases
    assert short == kept([*others, *ours[::-1]], SHORT, monkeypatch)
    assert kept([*ours, *others], REST, monkeypatch) == {each.nodeid for each in ours} - short


def test_each_sampled_test_keeps_a_case_whatever_its_databases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tests = [f"{USUAL}::test_{n}" for n in range(20)]
    items = [each for test in tests for each in on_both(test, sampled=(8,))]

    short = kept(items, SHORT, monkeypatch)

    assert sorted(short) == sorted(f"{test}[sqlite]" for test in tests)


@pytest.mark.parametrize(("most", "drawn"), [(200, 50), (3, 1), (1, 1)])
def test_of_a_property_a_quarter_of_its_examples_is_drawn(
    monkeypatch: pytest.MonkeyPatch, most: int, drawn: int
) -> None:
    monkeypatch.setenv(PART, SHORT)
    assert examples(most) == drawn

    for part in (REST, "all"):
        monkeypatch.setenv(PART, part)
        assert examples(most) == most


def test_each_module_whose_sql_differs_by_database_has_tests_on_both() -> None:
    differing = {
        str(path.relative_to(ROOT))
        for package in ("registry", "controller", "monitor", "workers", "service")
        for path in (ROOT / package).rglob("*.py")
        if DIALECT.search(path.read_text())
    }

    assert differing == ON_BOTH_DATABASES.keys()
    for tests in ON_BOTH_DATABASES.values():
        assert tests
        assert [each for each in tests if not (ROOT / each).is_file()] == []


def test_what_draws_fewer_examples_in_the_short_form_is_marked() -> None:
    users = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if "from tests.selection import" in path.read_text() and path != Path(__file__)
    ]

    assert users
    assert [path for path in users if "mark.shortened" not in path.read_text()] == []
