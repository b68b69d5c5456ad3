"""The command `fuga`: the options of every command, and how commands end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from controller.cli.commands import Commands
from controller.client.errors import ApiError
from controller.session.session import AsOption, CommonOptions, OutputOption, UrlOption
from controller.terminal.errors import CliError, command_error
from controller.terminal.guarded_stdout import READER_LEFT, OutputLostError, drop_output
from controller.terminal.output import echo_lines
from controller.terminal.times import RULE

app = typer.Typer(
    name="fuga",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Place VMs on KVM hosts, fairly between tenants, in time slots.",
    epilog=RULE,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from service.version import release  # noqa: PLC0415 - seldom needed

        echo_lines(f"fuga {release()}")
        raise typer.Exit


@app.callback()
def fuga(
    ctx: typer.Context,
    output: OutputOption = None,
    as_tenant: AsOption = None,
    url: UrlOption = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show version and commit", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Store the options that are allowed before or after a command's name."""
    ctx.obj = CommonOptions(output, as_tenant, url)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; turn each error into a message and an exit status."""
    try:
        try:
            app(args=arguments, prog_name="fuga")
        finally:
            if sys.stdout:  # a shell may have closed it
                sys.stdout.flush()  # what fails here is an error of the command, too
    except OutputLostError as error:
        drop_output()
        if error.reader_left:
            sys.exit(READER_LEFT)
        _exit_with_error(CliError(str(error)))
    except ApiError as error:
        _exit_with_error(command_error(error))
    except CliError as error:
        _exit_with_error(error)
    except Exception as error:
        from registry import RegistryError  # noqa: PLC0415 - slow to import, and seldom needed

        if not isinstance(error, RegistryError):
            raise
        _exit_with_error(CliError(str(error)))


def _exit_with_error(error: CliError) -> NoReturn:
    try:
        echo_lines(f"fuga: {error}", err=True)
    except OSError:
        sys.stderr = None  # its flush at the end would fail
    sys.exit(error.status)


if __name__ == "__main__":
    main()
