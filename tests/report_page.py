"""A report of `fuga simulate` in a real browser, and what every report must be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page

from simulation.metrics.summary import measure_at
from tests.servers.browser import WIDTH, a_page


@dataclass(frozen=True)
class ReportPage:
    """A report as it is open, and all that it asked for and stumbled over."""

    page: Page
    folder: Path
    asked: list[str]
    faults: list[str]

    def asks_for_nothing_but_itself(self) -> None:
        assert self.asked == [f"file://{self.folder}/report.html"]
        assert self.faults == []

    def shows_every_plot_and_has_it_as_files(self) -> None:
        sections = self.page.locator("section.plot").all()
        boxes = [section.locator("figure > svg").bounding_box() for section in sections]

        assert len(sections) >= 10
        assert all(box is not None and box["width"] > 300 and box["height"] > 100 for box in boxes)
        assert all(box is not None and box["x"] + box["width"] <= WIDTH for box in boxes)
        names = {section.get_attribute("id") for section in sections}
        for suffix in (".svg", ".png"):
            assert {path.stem for path in (self.folder / "plots").glob(f"*{suffix}")} == names
        assert all(section.locator("p.reading").inner_text() for section in sections)

    def says_the_numbers_of_the_summary(self) -> None:
        document = json.loads((self.folder / "summary.json").read_text())
        variants = {row["variant"]: row for row in document["comparison"]["variants"]}
        runs = {run["name"]: run for run in document["runs"]}

        cells = self.page.eval_on_selector_all(
            "td[data-path]", "all => all.map(e => ({...e.dataset, text: e.innerText}))"
        )

        assert len(cells) == 11 * len(variants) + 7 * len(runs)
        for cell in cells:
            if "run" in cell:
                expected = measure_at(runs[cell["run"]], cell["path"])
            else:
                expected = variants[cell["variant"]]["measures"][cell["path"]]["mean"]
            assert (float(cell["value"]) if cell["value"] else None) == expected
            if expected is not None:
                shown = float(re.sub(r"[^\d.]", "", cell["text"].split("\n")[0]))
                scale = 100 if "%" in cell["text"].split("\n")[0] else 1
                assert shown == pytest.approx(scale * expected, abs=0.051)

    def prints(self) -> None:
        printed = self.page.pdf(format="A4")

        assert printed.startswith(b"%PDF")
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) > 2


@contextmanager
def opened(folder: Path) -> Iterator[ReportPage]:
    """Open the report in a folder."""
    with a_page() as page:
        report = ReportPage(page, folder, [], [])
        page.on("request", lambda request: report.asked.append(request.url))
        page.on("pageerror", lambda error: report.faults.append(str(error)))
        page.goto(f"file://{folder}/report.html")
        yield report
