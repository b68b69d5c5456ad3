"""A report in a real browser: it asks for nothing, and shows what the summary says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from service.version import engine_version
from simulation import RunSpec, TraceSpec, simulate, write_summary
from simulation.report import write_report
from tests.report_page import ReportPage, opened

POLICIES = ("best_fit_drfh", "first_fit")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two policies, two seeds each, on a trace that does not fit."""
    folder = tmp_path_factory.mktemp("study")
    rows = "".join(
        f"{3 * n},{60 * (1 + n % 9)},<t{n % 5}>,{1 + n % 3},{1024 * (1 + n % 4)},{1 + n % 2}\n"
        for n in range(200)
    )
    trace = folder / "trace.csv"
    trace.write_text(f"arrival_s,lifetime_s,tenant,vcpus,memory_mib,count\n{rows}600,1,x,y,1,1\n")
    base = RunSpec(
        name="",
        trace=TraceSpec(path=str(trace), sample=0.9),
        hosts="4:12c:24g",
        slot_length_s=30,
        ideal_every=4,
    )
    summaries = [
        simulate(
            replace(base, name=f"{policy}-seed{seed}", policy=policy, seed=seed),
            folder / "runs" / f"{policy}-seed{seed}",
        )
        for policy in POLICIES
        for seed in range(2)
    ]
    write_report(folder, write_summary(folder, summaries, ["fuga", "simulate", "<trace>"]))
    return folder


@pytest.fixture(scope="module")
def report(study: Path) -> Iterator[ReportPage]:
    with opened(study) as page:
        yield page


def test_the_report_asks_for_nothing_but_itself(report: ReportPage) -> None:
    report.asks_for_nothing_but_itself()


def test_every_plot_is_visible_and_lies_beside_the_report(report: ReportPage) -> None:
    report.shows_every_plot_and_has_it_as_files()


def test_the_numbers_are_those_of_the_summary(report: ReportPage) -> None:
    report.says_the_numbers_of_the_summary()


def test_words_of_the_trace_are_text_and_bad_rows_are_told(report: ReportPage) -> None:
    text = report.page.locator("body").inner_text()

    assert "fuga simulate <trace>" in text
    assert f"By fuga {engine_version()}" in text
    assert "trace.csv:202: vcpus: found 'y'" in text


def test_the_report_prints(report: ReportPage) -> None:
    report.prints()
