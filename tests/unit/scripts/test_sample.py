"""`make test` runs a sample: one database, some cases of many, nothing that is long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.sample import DATABASES, ON_ONE_DATABASE, SAMPLE, examples, left_out


def item(nodeid: str, *, database: str | None = None, **marks: Any) -> Any:
    """Return what pytest collects: a name, its drawn parameters, its marks with arguments."""
    return SimpleNamespace(
        nodeid=nodeid,
        callspec=None if database is None else SimpleNamespace(params={"register_url": database}),
        get_closest_marker=lambda name: (
            SimpleNamespace(args=marks[name]) if name in marks else None
        ),
    )


def names(items: list[Any]) -> set[str]:
    return {each.nodeid for each in items}


def test_each_test_of_calls_and_workers_keeps_one_database_and_both_have_some() -> None:
    path, stores = f"{ON_ONE_DATABASE[0]}test_a.py", "tests/integration/registry/test_a.py"
    both = [
        item(f"{path}::test_{n}[{each}-x]", database=each) for n in range(40) for each in DATABASES
    ]
    others = [item(f"{stores}::test_1[{each}]", database=each) for each in DATABASES]
    others += [item(f"{path}::test_99[sqlite]", database="sqlite"), item(f"{path}::test_100")]

    left = left_out([*both, *others])

    assert not left & names(others)
    kept = [each for each in both if each.nodeid not in left]
    assert {each.nodeid.partition("[")[0] for each in kept} == {
        f"{path}::test_{n}" for n in range(40)
    }
    assert len(kept) == 40
    assert {each.callspec.params["register_url"] for each in kept} == set(DATABASES)


@pytest.mark.parametrize(("cases", "share", "kept"), [(1, 4, 1), (4, 4, 1), (9, 4, 3), (6, 2, 3)])
def test_of_a_sampled_test_one_case_in_so_many_stays(cases: int, share: int, kept: int) -> None:
    ours = [item(f"a.py::test_a[{n}]", sampled=(share,)) for n in range(cases)]
    others = [item(f"a.py::test_b[{n}]") for n in range(cases)]

    left = left_out([*ours, *others])

    assert not left & names(others)
    assert len(names(ours) - left) == kept
    assert left == left_out([*others, *ours[::-1]])


def test_each_sampled_test_keeps_a_case_whatever_its_databases() -> None:
    path = f"{ON_ONE_DATABASE[0]}test_a.py"
    items = [
        item(f"{path}::test_{n}[{each}]", database=each, sampled=(8,))
        for n in range(20)
        for each in DATABASES
    ]

    kept = names(items) - left_out(items)

    assert sorted(each.partition("[")[0] for each in kept) == sorted(
        f"{path}::test_{n}" for n in range(20)
    )


def test_what_is_long_is_left_out() -> None:
    items = [item("a.py::test_a", long=()), item("a.py::test_b")]

    assert left_out(items) == {"a.py::test_a"}


@pytest.mark.parametrize(("most", "drawn"), [(200, 50), (3, 1), (1, 1)])
def test_of_a_property_a_quarter_of_its_examples_is_drawn(
    monkeypatch: pytest.MonkeyPatch, most: int, drawn: int
) -> None:
    monkeypatch.setenv(SAMPLE, "1")
    assert examples(most) == drawn

    monkeypatch.delenv(SAMPLE)
    assert examples(most) == most
