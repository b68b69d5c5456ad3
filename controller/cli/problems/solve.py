"""`fuga solve`: reads a problem file and prints an answer, without database or cluster."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Annotated, Any

import typer

from controller.cli.problems import answer_tables
from controller.session.session import CommonOptions, OutputOption
from controller.terminal.errors import BadInputError, CliError
from controller.terminal.guarded_stdout import keep_output_clean
from controller.terminal.output import OutputFormat, echo_lines
from controller.terminal.pairs import parse_parameters

# `problem_run` brings numpy and is imported where it is used: `--help` is there at once

FileArgument = Annotated[
    str | None, typer.Argument(metavar="FILE|-", help="Problem file (JSON); - reads standard input")
]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", metavar="NAME", help="Policy or mechanism (see --list)")
]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        "-p",
        metavar="NAME=VALUE",
        help="Parameter, in place of the file's (see --list); repeatable",
    ),
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", metavar="S", help="Random seed (default: the file's, or 0)")
]
DetailsOption = Annotated[
    bool, typer.Option("--details", help="Show every host, even in large clusters")
]
ListOption = Annotated[
    bool, typer.Option("--list", help="List policies and mechanisms with paper and guarantees")
]


def solve_command(
    ctx: typer.Context,
    *,
    file: FileArgument = None,
    policy: PolicyOption = None,
    parameter: ParameterOption = None,
    seed: SeedOption = None,
    output: OutputOption = None,
    details: DetailsOption = False,
    list_policies: ListOption = False,
) -> None:
    """Run a policy or a mechanism on a problem file.

    Policies place whole VMs on hosts; mechanisms divide the hosts' resources.
    The command reads only the file. On bad input it prints the place of each
    error and exits with status 2.

    Limits: 32 MiB per file; 200,000 hosts (counting each host of a class),
    tenants and demands each; quantities up to 10^12 with at most six decimal
    places; 2,000,000 VMs.
    """
    before = ctx.obj if isinstance(ctx.obj, CommonOptions) else CommonOptions()
    form = output or before.output or OutputFormat.TABLE
    if form not in (OutputFormat.TABLE, OutputFormat.JSON):
        raise BadInputError(f"-o: found {form.value!r}, wanted table or json")
    as_json = form is OutputFormat.JSON
    if list_policies:
        rows, broken = _catalogue_entries()
        _print_json({"policies": rows}) if as_json else answer_tables.print_catalogue(rows)
        for message in broken:
            echo_lines(f"fuga: {message}", err=True)
        return
    if file is None:
        raise BadInputError("give a problem file, or - for standard input")
    if policy is None:
        raise BadInputError("give a policy with --policy; `fuga solve --list` shows all")
    from controller.cli.problems.problem_run import solve_problem  # noqa: PLC0415

    keep_output_clean()
    parameters = parse_parameters("-p", parameter or ())
    answer = solve_problem(file, policy, seed, parameters=parameters, details=details)
    _print_json(answer) if as_json else answer_tables.print_answer(answer, details=details)


def _catalogue_entries() -> tuple[list[dict[str, Any]], list[str]]:
    """Return the entries for `--list`, and the errors of unusable plugins."""
    from placement.catalog.names import catalog_listings  # noqa: PLC0415

    rows, broken = catalog_listings()
    return [dataclasses.asdict(row) for row in rows], [str(error) for error in broken]


def _print_json(value: object) -> None:
    """Print one strict JSON object, in ASCII: no terminal and no locale can spoil it."""
    echo_lines(json.dumps(value, indent=2, allow_nan=False))


def main() -> None:
    """Run as ``python -m controller.cli.problems.solve``, without the other commands."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command(context_settings={"help_option_names": ["-h", "--help"]})(solve_command)
    try:
        app()
    except CliError as error:
        echo_lines(f"fuga: {error}", err=True)
        sys.exit(error.status)


if __name__ == "__main__":
    main()
