"""Tables and figures of the papers: what they find, how they are judged, what they write."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simulation.errors import InputError
from simulation.reproduction import (
    ITEMS,
    FinishedItem,
    ItemOutcome,
    Setup,
    Verdict,
    items_named,
    run_items,
)
from simulation.reproduction.item_runner import SUMMARY, VERDICT, verdict_document
from simulation.reproduction.model import Number, Statement
from simulation.reproduction.reproduction_page import reproduction_page

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[3] / "docs" / "reproduction.md"
#: Items that nothing excuses: every number of theirs is a worked example.
WORKED = (
    "fuga-fig2",
    "drfh-fig1",
    "drfh-fig2",
    "drfh-fig3",
    "drfh-fig4",
    "psdsf-fig1",
    "psdsf-fig2",
    "psdsf-fig4",
    "psdsf-table3",
    "psdsf-table4",
    "psdsf-fig6",
    "mch-fig4",
)


#: Run twice: one of each way to find numbers.
AGAIN = ("fuga-fig5a", "fuga-fig6", "drfh-fig5", "drfh-table2", "psdsf-fig6")


def run(
    names: Sequence[str], out: Path, setup: Setup | None = None, *, resume: bool = False
) -> list[FinishedItem]:
    return run_items(
        items_named(names),
        setup or Setup(quick=True),
        out,
        command=["fuga", "reproduce", *names, "--quick"],
        resume=resume,
        begins=lambda item: lambda part: None,
        ended=lambda each: None,
    )


def told(name: str) -> dict[str, Any]:
    """Run an item without its files."""
    setup = Setup(quick=True)
    return verdict_document(ITEMS[name], ITEMS[name].run(setup), setup)


def a_number(ours: float, **changes: object) -> Number:
    plain = {"what": "x", "paper": 1.0, "unit": "", "within": 0.1, "exact": False}
    return Number(ours=ours, **{**plain, **changes})  # type: ignore[arg-type]


def an_outcome(*numbers: Number, holds: bool | None = None) -> ItemOutcome:
    statements = () if holds is None else (Statement(says="x", found="y", holds=holds),)

    def draw() -> None:
        raise AssertionError

    return ItemOutcome(numbers=numbers, statements=statements, draw=draw)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (an_outcome(a_number(1.05)), Verdict.AGREES),
        (an_outcome(a_number(1.05), holds=True), Verdict.AGREES),
        (an_outcome(a_number(1.05), holds=False), Verdict.DIFFERS),
        (an_outcome(a_number(1.2), holds=True), Verdict.DIRECTION),
        (an_outcome(a_number(1.2)), Verdict.DIFFERS),
        (an_outcome(holds=True), Verdict.DIRECTION),
        (an_outcome(holds=False), Verdict.DIFFERS),
        (an_outcome(), Verdict.NOT_REPRODUCED),
    ],
)
def test_the_verdict_follows_from_numbers_and_statements(
    outcome: ItemOutcome, verdict: Verdict
) -> None:
    assert outcome.verdict is verdict


@pytest.mark.parametrize(
    ("number", "is_wrong"),
    [
        (a_number(1.2, exact=True), True),
        (a_number(1.2), False),
        (a_number(1.05, exact=True), False),
    ],
)
def test_only_a_number_that_must_agree_makes_an_item_wrong(number: Number, is_wrong: bool) -> None:
    found = verdict_document(ITEMS["drfh-fig1"], an_outcome(number, holds=True), Setup())

    assert FinishedItem(verdict=found, seconds=0.0).is_wrong == is_wrong


@pytest.mark.long
def test_all_quick_has_data_plots_and_verdicts_and_is_the_same_again(tmp_path: Path) -> None:
    """One test, so that what takes longest runs once, whoever runs the tests side by side."""
    out, again = tmp_path / "out", tmp_path / "again"

    finished = run(["all"], out)
    run(AGAIN, again)

    assert [each.verdict["name"] for each in finished] == list(ITEMS)
    for each in finished:
        name = each.verdict["name"]
        found = json.loads((out / name / VERDICT).read_text())
        assert found == each.verdict
        assert found["verdict"] in set(Verdict)
        assert found["numbers"] or found["statements"] or found["comparisons"], name
        assert found["verdict"] == "agrees" or found["why"], name
        assert {"plot.svg", "plot.png", VERDICT} < {path.name for path in (out / name).iterdir()}
        for table in (out / name).glob("*.csv"):
            assert len(table.read_text().splitlines()) > 1, table
    summary = json.loads((out / SUMMARY).read_text())
    assert sum(summary["verdicts"].values()) == len(ITEMS)
    assert summary["wrong"] == []
    for name in AGAIN:
        for path in sorted((out / name).iterdir()):
            assert (again / name / path.name).read_bytes() == path.read_bytes(), path


@pytest.mark.parametrize("name", WORKED)
def test_worked_examples_are_the_papers_to_the_digit(name: str) -> None:
    found = told(name)

    assert found["verdict"] == "agrees"
    assert all(each["exact"] for each in found["numbers"])


def test_a_printed_number_that_no_formula_gives_is_told_as_such() -> None:
    share, tree = told("psdsf-fig3"), told("fuga-fig3")

    off = [each for each in share["numbers"] if not each["agrees"]]
    assert [(each["paper"], round(9 * each["ours"], 6)) for each in off] == [(1, 8)]
    assert share["verdict"] == "agrees in direction"
    assert tree["verdict"] == "differs"
    assert tree["statements"][1]["found"].startswith("(a, f)")


def test_the_hundred_servers_have_the_papers_totals_and_hold_the_first_users_share() -> None:
    totals_and_first = told("drfh-fig5")["numbers"][:3]

    assert all(each["agrees"] for each in totals_and_first)


def test_what_was_run_in_the_same_way_is_taken_and_the_rest_is_run(tmp_path: Path) -> None:
    first = run(["drfh-fig2"], tmp_path)
    (tmp_path / "drfh-fig2" / "plot.png").unlink()

    again = run(["drfh-fig1", "drfh-fig2"], tmp_path, resume=True)

    assert [each.verdict["name"] for each in again] == ["drfh-fig1", "drfh-fig2"]
    assert again[1].verdict == first[0].verdict
    assert not (tmp_path / "drfh-fig2" / "plot.png").exists()


def test_what_was_run_with_another_seed_is_run_again(tmp_path: Path) -> None:
    run(["drfh-fig2"], tmp_path)

    again = run(["drfh-fig2"], tmp_path, Setup(quick=True, seed=1), resume=True)

    assert again[0].verdict["seed"] == 1


def test_the_page_has_a_section_and_a_verdict_for_every_item() -> None:
    text = DOCUMENT.read_text("utf-8")
    sections = dict(re.findall(r"^### (\S+)\n\n(.*)$", text, re.MULTILINE))
    rows = re.findall(r"^\| \[`(\S+)`\]", text, re.MULTILINE)

    assert list(sections) == rows == list(ITEMS)
    for name, item in ITEMS.items():
        assert sections[name].startswith(f"{item.place}: {item.shows}. Verdict: **")
    assert "--quick" not in text


def test_the_page_says_of_worked_examples_what_is_computed() -> None:
    text, page = (
        DOCUMENT.read_text("utf-8"),
        reproduction_page([told(name) for name in WORKED], ["x"]),
    )

    for name in WORKED:
        written, computed = (
            re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", each, re.MULTILINE | re.DOTALL)
            for each in (text, page)
        )
        assert written is not None
        assert computed is not None
        assert written[1].strip() == computed[1].strip()


def test_plots_name_the_units_of_their_axes() -> None:
    for name in ("drfh-fig4", "psdsf-fig6", "mch-fig4"):
        plot = ITEMS[name].run(Setup(quick=True)).draw()

        assert plot.reading.endswith(".")
        for axis in plot.figure.axes:
            assert "(" in axis.get_ylabel()
        assert "(" in plot.figure.axes[-1].get_xlabel()


def test_an_unknown_name_is_told_with_those_that_are_near() -> None:
    with pytest.raises(InputError, match="near are drfh-fig1"):
        items_named(["drfh-fig1x"])
