"""`fuga reproduce`: recomputes tables and figures of the papers and compares them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controller.cli.extras import require_simulation_packages
from controller.session.session import CommonOptions, OutputOption
from controller.terminal.errors import BadInputError
from controller.terminal.output import OutputFormat

# `reproduction_run` brings numpy and is imported where it is used: `--help` is there at once

NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME...", help="Tables and figures (see --list), or all"),
]
ListOption = Annotated[
    bool, typer.Option("--list", help="List tables and figures with their papers")
]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="Use small clusters and short traces (a minute in all)")
]
SeedOption = Annotated[
    int, typer.Option(help="Random seed of generated workloads and policies", min=0)
]
OutOption = Annotated[
    Path,
    typer.Option("--out", metavar="DIR", help="Output folder for data, plots and reproduction.md"),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Run only items that DIR does not hold yet")
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
    """Recompute tables and figures of the papers and compare them with the print.

    Each item gets a folder in DIR with data (CSV), plot (SVG, PNG) and verdict:
    the paper's numbers, ours, and the reasons for differences. Exits with status
    1 if a worked example differs. docs/reproduction.md is DIR/reproduction.md.
    """
    from controller.cli.simulations import reproduction_run  # noqa: PLC0415

    before = ctx.obj if isinstance(ctx.obj, CommonOptions) else CommonOptions()
    form = output or before.output or OutputFormat.TABLE
    if list_them:
        reproduction_run.list_items(form)
        return
    if not names:
        raise BadInputError("give tables or figures (see fuga reproduce --list), or all")
    require_simulation_packages("fuga reproduce")
    reproduction_run.reproduce(names, quick=quick, seed=seed, out=out, resume=resume, form=form)
