"""The example of `fuga simulate` in the README, as it is typed: its table, and its report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, split, typed
from tests.report_page import opened

#: The example is run for all tests of it, which takes a minute and more.
pytestmark = pytest.mark.long

#: Only against a hang: four policies, on a machine that may be busy with a whole suite.
PATIENCE_S = 1800
#: Of the table, what is the same on every machine.
COLUMNS = 11


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where the example has written, and what it has printed."""
    (example,) = (
        each.words[1:]
        for each in typed(ROOT / "README.md", "fuga")
        if each.words[1] == "simulate" and "--from-registry" not in each.words
    )
    folder = tmp_path_factory.mktemp("example") / "results"
    words = [str(folder) if word == "results" else word for word in example]
    done = subprocess.run(
        [sys.executable, "-m", "controller.cli.main", *words],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_the_example_prints_the_table_of_the_guide(results: tuple[Path, str]) -> None:
    guide, _ = split((ROOT / "docs" / "simulate.md").read_text("utf-8"))
    (shown,) = (block.text for block in guide if "VMs requested" in block.text)

    reported = {line for line in rows(shown) if line[0].endswith("-seed0")}

    assert len(reported) == 4
    assert reported <= rows(results[1])


def test_its_report_is_all_that_a_report_must_be(results: tuple[Path, str]) -> None:
    with opened(results[0]) as report:
        report.asks_for_nothing_but_itself()
        report.shows_every_plot_and_has_it_as_files()
        report.says_the_numbers_of_the_summary()
        report.prints()


def rows(table: str) -> set[tuple[str, ...]]:
    return {tuple(re.split(r"\s{2,}", line.strip()))[:COLUMNS] for line in table.splitlines()}
