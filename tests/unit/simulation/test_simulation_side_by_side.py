"""Variants side by side: in a report and at the terminal, few or many, of one seed or several."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from controller.cli.simulations.study_run import print_study
from simulation.experiments.variant_comparison import compare_variants
from simulation.metrics.summary import MEASURES
from simulation.report.comparison_table import comparison_section
from simulation.report.plot_style import Palette


def a_summary(variant: str, seed: int, wait_s: float, placed: float = 1.0) -> dict[str, Any]:
    return {
        "name": f"{variant}-seed{seed}",
        "policy": "fuga",
        "seed": seed,
        "finished": True,
        "vms": {"asked": 12_345, "waiting": 0},
        "placed_part": placed,
        "placed_by_size": placed,
        "waiting_by_size_s": wait_s,
        "wait_s": {"mean": wait_s, "p95": 2 * wait_s},
        "used": {"vcpus": {"mean": 0.5}},
        "fair_distance": None,
        "bound_part": None,
        "moves": None,
        "timing": {"processor_seconds": 1.0, "events_per_processor_second": 1000.0},
    }


def table(told: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The heads of columns and the rows of the report's table, as text."""
    names = [(row["variant"], row["policy"]) for row in told["variants"]]
    html = comparison_section(told, Palette(names))
    head, body = re.findall(r"<t(?:head|body)>(.*?)</t(?:head|body)>", html)
    rows = [
        re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row) for row in re.findall(r"<tr>.*?</tr>", body)
    ]
    heads = re.findall(r"<th>(.*?)</th>", head)
    return [text(each) for each in heads], [[text(each) for each in row] for row in rows]


def text(html: str) -> str:
    return re.sub(r"<[^>]*>", " ", html).strip()


@pytest.mark.parametrize(("variants", "has_rows"), [(4, len(MEASURES)), (5, 5)])
def test_few_variants_are_columns_and_many_are_rows(variants: int, has_rows: int) -> None:
    shown = compare_variants([a_summary(f"v{n}", 0, 10.0 * n) for n in range(variants)])

    head, rows = table(shown)

    assert len(rows) == has_rows
    assert {len(row) for row in rows} == {len(head)}
    assert ("v1" in head) == (variants == 4)
    assert ("v1" in [row[0] for row in rows]) == (variants == 5)


def test_what_looks_best_is_bold_wherever_it_stands_and_nothing_where_all_look_alike() -> None:
    shown = compare_variants(
        [
            a_summary("a", 0, 10.01, placed=0.99999),
            a_summary("b", 0, 10.02),
            a_summary("c", 0, 99.0),
        ]
    )

    html = comparison_section(shown, Palette([(name, name) for name in "abc"]))

    bold = re.findall(r'class="best" data-path="([^"]*)" data-variant="([^"]*)"', html)
    assert [variant for path, variant in bold if path == "wait_s.mean"] == ["a", "b"]
    assert not [path for path, _ in bold if path == "placed_part"]


def test_a_difference_that_cannot_be_seen_is_not_told() -> None:
    shown = compare_variants(
        [a_summary("a", 0, 10.0), a_summary("b", 0, 10.01), a_summary("c", 0, 12.0)]
    )

    _, rows = table(shown)
    (waits,) = (row for row in rows if row[0].startswith("mean wait"))

    assert [re.sub(r"\s+", " ", cell) for cell in waits[1:]] == [
        "10.0 s",
        "10.0 s",
        "12.0 s +2.0 s",
    ]


def test_means_over_seeds_follow_the_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [a_summary("a", seed, 10.0 + seed) for seed in range(3)]

    print_study(compare_variants(runs[:1]), runs[:1])
    one = capsys.readouterr().out
    print_study(compare_variants(runs), runs)
    several = capsys.readouterr().out

    assert "12,345" in one
    assert "means over seeds" not in one
    (line,) = (line for line in several.splitlines() if line.startswith("a "))
    cells = re.split(r"\s{2,}", line)
    assert cells[:4] == ["a", "3", *["100.00 % ± 0.00 %"] * 2]
    assert cells[4:] == [*["11.0 s ± 1.0 s"] * 2, "22.0 s ± 2.0 s", "50.00 % ± 0.00 %", "-", "-"]
