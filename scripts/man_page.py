"""Write the manual page fuga(1) from the commands themselves, as their --help does.

    PYTHON_OF_FUGA scripts/man_page.py >fuga.1

It imports what is installed with the interpreter and nothing else, so that a package's page is
of the package's commands.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import typer
from typer.core import TyperGroup

FILES = {
    "/etc/fuga/fuga.toml": "Settings of every process, named by FUGA_CONFIG.",
    "/etc/fuga/fuga.env": "Database and broker with their passwords; read by the units.",
    "/var/lib/fuga": "State of the processes, FUGA_STATE_DIR, and the images.",
}
VARIABLES = {
    "FUGA_URL": "Address of the API.",
    "FUGA_TOKEN": "Token of the caller.",
    "FUGA_CA": "Certificate of the authority that signed the API's.",
    "FUGA_CONFIG": "File of settings. Each setting NAME is the variable FUGA_NAME as well.",
}


def manual(group: TyperGroup, released: str) -> Iterator[str]:
    """Yield the lines of the page."""
    root = typer.Context(group, info_name="fuga")
    yield f'.TH FUGA 1 "" "fuga {_plain(released)}" "fuga"'
    yield ".SH NAME"
    yield r"fuga \- " + _plain((group.help or "").strip().rstrip("."))
    yield ".SH SYNOPSIS"
    yield r"\fBfuga\fR [\fIOPTION\fR]... \fICOMMAND\fR [\fIARGUMENT\fR]..."
    yield ".SH OPTIONS"
    yield from _parameters(group, root)
    yield ".SH COMMANDS"
    yield from _commands(group, root)
    for title, named in (("ENVIRONMENT", VARIABLES), ("FILES", FILES)):
        yield f".SH {title}"
        for name, says in named.items():
            yield from (".TP", rf"\fB{_plain(name)}\fR", _plain(says))
    yield ".SH EXIT STATUS"
    yield "0: done. 1: not done, with the reason on standard error. 2: called wrongly."


def _commands(group: TyperGroup, within: typer.Context) -> Iterator[str]:
    """Yield every command below a group, with its groups' names before its own."""
    for name in sorted(group.list_commands(within)):
        command = group.get_command(within, name)
        if command is None or command.hidden:
            continue
        context = typer.Context(command, info_name=name, parent=within)
        if isinstance(command, TyperGroup):
            yield from _commands(command, context)
            continue
        words = [context.command_path, *command.collect_usage_pieces(context)]
        yield f'.SS "{_plain(" ".join(words))}"'
        yield from _text(command.help or "")
        yield from _parameters(command, context)


def _parameters(command: Any, context: typer.Context) -> Iterator[str]:
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is None or getattr(parameter, "hidden", False):
            continue
        name, says = record
        yield from (
            ".TP",
            rf"\fB{_plain(name.strip())}\fR",
            _plain(" ".join(says.split())) or r"\&",
        )


def _text(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.replace("\b", "").strip()):
        yield _plain(" ".join(paragraph.split()))
        yield ".PP"


def _plain(text: str) -> str:
    """Escape what groff(7) would read as its own."""
    shown = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq")
    return rf"\&{shown}" if shown[:1] in (".", "'") else shown


def main() -> int:
    """Print the page."""
    from controller.cli.main import app  # noqa: PLC0415 - of the installed package

    group = typer.main.get_command(app)
    if not isinstance(group, TyperGroup):
        raise SystemExit("man_page: fuga has no commands")
    print("\n".join(manual(group, version("fuga-controller"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
