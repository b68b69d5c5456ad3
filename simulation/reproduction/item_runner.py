"""Run items one after the other, and write data, plot and verdict of each to a folder."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from simulation.report.plot_files import save_plot
from simulation.reproduction.model import Item, ItemOutcome, Setup, Table, Verdict
from simulation.reproduction.reproduction_page import reproduction_page

VERDICT: Final = "verdict.json"
SUMMARY: Final = "summary.json"
DOCUMENT: Final = "reproduction.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedItem:
    """The verdict of a reproduced item as JSON values, and the time it took."""

    verdict: Mapping[str, Any]
    seconds: float

    @property
    def is_wrong(self) -> bool:
        """Whether a number of the item differs that must agree exactly."""
        return any(each["exact"] and not each["agrees"] for each in self.verdict["numbers"])


def earlier_result(folder: Path, setup: Setup) -> FinishedItem | None:
    """Return a reproduced item's earlier result with the same options, or None."""
    try:
        verdict = json.loads((folder / VERDICT).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    settings = {"quick": setup.quick, "seed": setup.seed}
    same = isinstance(verdict, dict) and settings.items() <= verdict.items()
    return FinishedItem(verdict=verdict, seconds=0.0) if same else None


def run_item(item: Item, setup: Setup, folder: Path) -> FinishedItem:
    """Reproduce one item, and write its files to a folder."""
    started = time.perf_counter()
    outcome = item.run(setup)
    folder.mkdir(parents=True, exist_ok=True)
    for table in outcome.tables:
        _write_table(table, folder / f"{table.name}.csv")
    save_plot(outcome.draw(), folder)
    verdict = verdict_document(item, outcome, setup)
    (folder / VERDICT).write_text(json.dumps(verdict, indent=2) + "\n", encoding="utf-8")
    return FinishedItem(verdict=verdict, seconds=time.perf_counter() - started)


def run_items(
    items: Sequence[Item],
    setup: Setup,
    out: Path,
    *,
    command: Sequence[str],
    resume: bool = False,
    begins: Callable[[Item], Callable[[float], None]],
    ended: Callable[[FinishedItem], None],
) -> list[FinishedItem]:
    """Reproduce items in order, and write their common summary after each.

    Parameters
    ----------
    command : sequence of str
        The command that was typed, printed in the page.
    resume : bool
        Take what items that ran in the same way have left.
    begins : callable
        Called with the item that begins; what it returns is called with the part done.
    """
    finished: list[FinishedItem] = []
    for item in items:
        folder, report = out / item.name, begins(item)
        there = earlier_result(folder, setup) if resume else None
        finished.append(there or run_item(item, replace(setup, report=report), folder))
        ended(finished[-1])
        summary = verdicts_document(finished, setup)
        (out / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
        page = reproduction_page([each.verdict for each in finished], command)
        (out / DOCUMENT).write_text(page, "utf-8")
    return finished


def verdicts_document(finished: Sequence[FinishedItem], setup: Setup) -> dict[str, Any]:
    """Return the verdicts of all reproduced items as JSON values."""
    verdicts = [each.verdict["verdict"] for each in finished]
    return {
        "quick": setup.quick,
        "seed": setup.seed,
        "verdicts": {each.value: verdicts.count(each.value) for each in Verdict},
        "wrong": [each.verdict["name"] for each in finished if each.is_wrong],
        "items": [{**each.verdict, "seconds": each.seconds} for each in finished],
    }


def verdict_document(item: Item, outcome: ItemOutcome, setup: Setup) -> dict[str, Any]:
    """Return a reproduced item and its outcome as JSON values."""
    verdict = outcome.verdict
    return {
        "name": item.name,
        "paper": item.paper.value,
        "place": item.place,
        "shows": item.shows,
        "instead": item.instead,
        "timed": item.is_timed,
        "quick": setup.quick,
        "seed": setup.seed,
        "verdict": verdict.value,
        "numbers": [
            {
                "what": each.what,
                "paper": each.paper,
                "ours": each.ours,
                "difference": each.ours - each.paper,
                "unit": each.unit,
                "within": each.within,
                "exact": each.exact,
                "agrees": each.agrees,
                "runs": list(each.runs),
                "plus_minus": each.margin_of_error,
            }
            for each in outcome.numbers
        ],
        "statements": [
            {"says": each.says, "found": each.found, "holds": each.holds}
            for each in outcome.statements
        ],
        "comparisons": [
            {"what": each.what, "paper": each.paper, "ours": each.ours}
            for each in outcome.comparisons
        ],
        "note": outcome.note,
        "why": "" if verdict is Verdict.AGREES else outcome.why,
    }


def _write_table(table: Table, path: Path) -> None:
    """Write the data behind a reproduced figure as a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(table.rows)
