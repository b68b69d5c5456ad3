"""A report in a real browser: it asks for nothing, and shows what the summary says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from registry.version import engine_version
from simulation import RunSpec, TraceSpec, simulate, write_summary
from simulation.report import write_report
from simulation.summary import measure

#: Long: the machine may be busy with a whole suite.
PATIENCE_MS = 300_000
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
def opened(study: Path) -> Any:
    """The report's page, and the addresses that it asked for."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
            timeout=PATIENCE_MS,
        )
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        page.set_default_timeout(PATIENCE_MS)
        asked: list[str] = []
        faults: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"file://{study}/report.html")
        yield page, asked, faults
        browser.close()


def test_the_report_asks_for_nothing_but_itself(opened: Any, study: Path) -> None:
    _, asked, faults = opened

    assert asked == [f"file://{study}/report.html"]
    assert faults == []


def test_every_plot_is_visible_and_lies_beside_the_report(opened: Any, study: Path) -> None:
    page: Page = opened[0]

    sections = page.locator("section.plot").all()
    boxes = [section.locator("figure > svg").bounding_box() for section in sections]

    assert len(sections) >= 10
    assert all(box is not None and box["width"] > 300 and box["height"] > 100 for box in boxes)
    assert all(box is not None and box["x"] + box["width"] <= 1100 for box in boxes)
    names = {section.get_attribute("id") for section in sections}
    assert {path.stem for path in (study / "plots").glob("*.svg")} == names
    assert {path.stem for path in (study / "plots").glob("*.png")} == names
    assert all(section.locator("p.reading").inner_text() for section in sections)


def test_the_numbers_are_those_of_the_summary(opened: Any, study: Path) -> None:
    page: Page = opened[0]
    document = json.loads((study / "summary.json").read_text())
    variants = {row["variant"]: row for row in document["comparison"]["variants"]}
    runs = {run["name"]: run for run in document["runs"]}

    cells = page.eval_on_selector_all(
        "td[data-path]", "all => all.map(e => ({...e.dataset, text: e.innerText}))"
    )

    assert len(cells) == 9 * 2 + 7 * 4
    for cell in cells:
        if "run" in cell:
            expected = measure(runs[cell["run"]], cell["path"])
        else:
            expected = variants[cell["variant"]]["measures"][cell["path"]]["mean"]
        assert (float(cell["value"]) if cell["value"] else None) == expected
        if expected is not None:
            shown = float(re.sub(r"[^\d.]", "", cell["text"].split("\n")[0]))
            scale = 100 if "%" in cell["text"].split("\n")[0] else 1
            assert shown == pytest.approx(scale * expected, abs=0.051)


def test_words_of_the_trace_are_text_and_bad_rows_are_told(opened: Any) -> None:
    page: Page = opened[0]

    text = page.locator("body").inner_text()

    assert "fuga simulate <trace>" in text
    assert f"By fuga {engine_version()}" in text
    assert "trace.csv:202: vcpus: found 'y'" in text


def test_the_report_prints(opened: Any) -> None:
    page: Page = opened[0]

    printed = page.pdf(format="A4")

    assert printed.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) > 2
