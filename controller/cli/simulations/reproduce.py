"""`fuga reproduce`: tables and figures of the papers, computed anew beside what is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controller.calling.session import Common, OutputOption
from controller.cli.extras import need_simulation
from controller.terminal.errors import BadInputError
from controller.terminal.output import OutputFormat

# `reproducing` brings numpy and is imported where it is used: `--help` is there at once

NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME...", help="Tables and figures, as --list has them; or all."),
]
ListOption = Annotated[
    bool, typer.Option("--list", help="Tell which there are, with paper and what they show.")
]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="Smaller clusters and shorter traces: a minute in all.")
]
SeedOption = Annotated[
    int, typer.Option(help="Of workloads that are made and of policies' choices.", min=0)
]
OutOption = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Data, plots, verdicts, reproduction.md.")
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Run only what DIR does not have, run in the same way.")
]


def reproduce_command(
    ctx: typer.Context,
    *,
    names: NamesArgument = None,
    list_them: ListOption = False,
    quick: QuickOption = False,
    seed: SeedOption = 0,
    out: OutOption = Path("reproduction-results"),
    resume: ResumeOption = False,
    output: OutputOption = None,
) -> None:
    """Compute tables and figures of the papers anew, and judge them beside what is printed.

    Each gets a folder in DIR with data (CSV), plot (SVG and PNG) and verdict: the
    paper's numbers, ours, the differences, and why where they differ. The status
    is 1 if a worked example is off. docs/reproduction.md is DIR/reproduction.md.
    """
    from controller.cli.simulations import reproducing  # noqa: PLC0415

    before = ctx.obj if isinstance(ctx.obj, Common) else Common()
    form = output or before.output or OutputFormat.TABLE
    if list_them:
        reproducing.list_items(form)
        return
    if not names:
        raise BadInputError("name a table or figure (fuga reproduce --list), or all of them: all")
    need_simulation("fuga reproduce")
    reproducing.reproduce(names, quick=quick, seed=seed, out=out, resume=resume, form=form)
