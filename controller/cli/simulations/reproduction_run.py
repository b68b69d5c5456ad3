"""The work of `fuga reproduce`: runs items with a bar and prints each verdict."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from controller.terminal.columns import Column
from controller.terminal.errors import BadInputError, CliError
from controller.terminal.output import OutputFormat, echo, print_json, print_records_as, print_table
from simulation import SimulationError
from simulation.reproduction import (
    DOCUMENT,
    ITEMS,
    FinishedItem,
    Item,
    Setup,
    items_named,
    run_items,
    verdicts_document,
)


def list_items(form: OutputFormat) -> None:
    """List the tables and figures of the papers that `fuga reproduce` recomputes."""
    rows = [
        {"name": item.name, "place": item.place, "shows": item.shows, "paper": item.paper.value}
        for item in ITEMS.values()
    ]
    if form is not OutputFormat.TABLE:
        print_records_as(form)
        print_json(rows)
        return
    print_table(_LISTED, rows, empty="nothing")


_LISTED = (
    Column("name", lambda row: row["name"]),
    Column("in the paper", lambda row: row["place"]),
    Column("shows", lambda row: row["shows"]),
)


def reproduce(
    names: Sequence[str], *, quick: bool, seed: int, out: Path, resume: bool, form: OutputFormat
) -> None:
    """Recompute tables and figures and print a verdict of each.

    Errors end the command with their exit status.
    """
    try:
        items = items_named(names)
        out.mkdir(parents=True, exist_ok=True)
    except SimulationError as error:
        raise BadInputError(str(error)) from error
    except OSError as error:
        raise BadInputError(f"{out}: {error.strerror}") from error
    setup, finished = Setup(quick=quick, seed=seed), list[FinishedItem]()
    width = max(len(item.name) for item in items)

    def record_verdict(item: FinishedItem) -> None:
        finished.append(item)
        if form is OutputFormat.TABLE:
            echo(_verdict_line(item, width))

    try:
        with _progress_bar(len(items)) as begins:
            run_items(
                items,
                setup,
                out,
                # what is resumed is what would have been found without
                command=["fuga", *(word for word in sys.argv[1:] if word != "--resume")],
                resume=resume,
                begins=begins,
                ended=record_verdict,
            )
    except KeyboardInterrupt:
        done = f"{len(finished)} of {len(items)} are in {out}"
        raise CliError(f"stopped: {done}; continue with --resume") from None
    except SimulationError as error:
        raise CliError(str(error)) from error
    if form is not OutputFormat.TABLE:
        print_records_as(form)
        print_json(verdicts_document(finished, setup))
    else:
        echo()
        echo(f"report: {out / DOCUMENT}; data and plots are in the same folder")
    wrong = [each.verdict["name"] for each in finished if each.is_wrong]
    if wrong:
        raise CliError(f"worked examples that do not agree exactly: {', '.join(wrong)}")


def _verdict_line(finished: FinishedItem, width: int) -> str:
    """Return a line with the verdict on a table or figure of a paper."""
    printed = finished.verdict
    near = sum(each["agrees"] for each in printed["numbers"])
    held = sum(each["holds"] for each in printed["statements"])
    counts = [
        f"{found} of {len(of)} {what}"
        for found, of, what in (
            (near, printed["numbers"], "numbers near"),
            (held, printed["statements"], "statements held"),
        )
        if of
    ]
    return (
        f"{printed['name']:<{width}}  {printed['verdict']:<19}{finished.seconds:>7.1f} s  "
        f"{', '.join(counts)}"
    )


@contextmanager
def _progress_bar(items: int) -> Iterator[Callable[[Item], Callable[[float], None]]]:
    """Show the running item and the progress on standard error."""
    if not sys.stderr.isatty():
        yield lambda item: lambda part: None
        return
    from rich.console import Console  # noqa: PLC0415 - `fuga --help` is to be there at once
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        everything = bars.add_task(f"{items} items", total=float(items))
        begun = 0

        def begins(item: Item) -> Callable[[float], None]:
            nonlocal begun
            before, begun = begun, begun + 1
            bars.update(everything, completed=before, description=item.name)
            return lambda part: bars.update(everything, completed=before + min(part, 1.0))

        yield begins
