"""The guide to the mechanisms: its examples run, and its tables are what is measured."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.properties.cases import FAMILIES, PropertyCase, draw, in_groups, with_a_lie
from benchmarks.properties.checks import PROPERTIES, VIOLATION
from benchmarks.properties.document import (
    PARTS,
    markdown,
    put_into,
    read_cells,
    read_examples,
    read_seed,
)
from benchmarks.properties.search import search, why_not_checked
from placement.catalog.policies import POLICIES
from placement.mechanisms import MECHANISMS

GUIDE = Path(__file__).parents[2] / "docs" / "mechanisms.md"
TEXT = GUIDE.read_text("utf-8")
FEW = 2
OF_PARTS = pytest.mark.parametrize("part", PARTS.values(), ids=lambda part: part.name)


def test_the_examples_of_the_guide_run():
    outcome = doctest.testfile(str(GUIDE), module_relative=False, encoding="utf-8")

    assert outcome.attempted > 40
    assert outcome.failed == 0


def test_every_mechanism_and_policy_has_its_part():
    headings = re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    shown = {name for heading in headings for name in re.findall(r"`([^`]+)`", heading)}

    assert shown == {*MECHANISMS, *POLICIES}


def test_every_parameter_is_told_with_who_reads_it():
    table = TEXT.partition("## Parameters\n")[2].partition("# What we measured")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", table, re.MULTILINE))

    for name, entry in {**POLICIES, **MECHANISMS}.items():
        for parameter in entry.parameters:  # type: ignore[attr-defined]
            groups = ("all policies", "all that claim fairness")
            assert shown[parameter] == f"`{name}`" or shown[parameter] in groups, (name, parameter)
    assert shown.keys() == {
        each
        for entry in {**POLICIES, **MECHANISMS}.values()
        for each in entry.parameters  # type: ignore[attr-defined]
    }


@OF_PARTS
def test_the_tables_have_everything_that_is_measured(part):
    shown = read_cells(TEXT, part)

    for key in part.searches():
        if not why_not_checked(*key):
            assert re.fullmatch(r"fails|not shown|none in \d+", shown[key]), key


@OF_PARTS
def test_the_first_cases_say_what_the_tables_say(part):
    shown, seed = read_cells(TEXT, part), read_seed(TEXT, part)

    for key in part.searches():
        cell = search(*key, seed=seed, cases=FEW, shrink=False)
        if cell and cell.example:
            assert shown[key] in {"fails", "not shown"}, (key, str(cell.example))


@OF_PARTS
def test_every_counter_example_violates_as_it_says(part):
    examples = read_examples(TEXT, part)

    for prop, mechanism, reported, case in examples:
        by = PROPERTIES[prop].check(mechanism, case)
        assert by > VIOLATION, (prop, mechanism, str(case))
        assert by == pytest.approx(reported, abs=6e-4), (prop, mechanism, str(case))
    shown = {(prop, mechanism) for prop, mechanism, _, _ in examples}
    told_to_fail = {
        key[:2]
        for key, reported in read_cells(TEXT, part).items()
        if reported in {"fails", "not shown"}
    }
    assert shown == told_to_fail


def test_a_case_is_read_as_it_was_written():
    for number in range(100):
        rng = np.random.default_rng(number)
        for family in FAMILIES:
            case = with_a_lie(draw(rng, family), rng, family)
            assert PropertyCase.read(str(case)) == case
            assert PropertyCase.read(str(in_groups(case, rng))).groups


@OF_PARTS
def test_what_is_found_is_written_between_the_markers_and_read_back(part):
    only = part.properties[0]
    found = {
        key: search(*key, seed=1, cases=1, shrink=False) if key[0] == only else None
        for key in part.searches()
    }

    written = put_into(TEXT, part, markdown(part, found, cases=1, seed=1))

    assert written.startswith(TEXT.partition(part.begin)[0])
    assert written.endswith(TEXT.partition(part.end)[2])
    mechanism = part.mechanisms[0]
    assert read_cells(written, part)[only, mechanism, "plain"] in {"none in 1", "fails"}


def test_a_document_without_markers_is_refused():
    with pytest.raises(ValueError, match="markers"):
        put_into("nothing here", PARTS["trees"], "x")
