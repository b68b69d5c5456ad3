"""`fuga console`: the serial console of a VM on any host, to type or to read."""

from __future__ import annotations

import base64
import codecs
import contextlib
import sys
import time
from typing import Annotated, Any

import typer

from controller.session.name_lookup import find_target
from controller.session.session import Session, pass_session
from controller.terminal.errors import BadInputError, CliError
from controller.terminal.output import echo, echo_lines, print_json

_FOLLOW_EVERY_S = 1.0


class PlainTextFilter:
    """Removes control characters from a guest's output, for the reader's terminal."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def clean(self, content: bytes) -> str:
        """Replace line ends by plain ones and remove all other control characters."""
        text = self._decode(content)
        return "".join(each for each in text if each in "\n\t" or each.isprintable())


ReadOnlyOption = Annotated[
    bool, typer.Option("--read-only", help="Show the output without taking the keyboard")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Take the console from its current user")
]


@pass_session
def console(
    session: Session,
    vm: Annotated[str, typer.Argument(metavar="VM", help="VM name, id or end of the id")],
    log: Annotated[bool, typer.Option("--log", help="Print the last 64 KiB and exit")] = False,
    read_only: ReadOnlyOption = False,
    force: ForceOption = False,
) -> None:
    """Attach to a VM's serial console. End with Ctrl-], or with Ctrl-C if read-only."""
    target = find_target(session.api, vm)
    if target.kind != "vm":
        raise BadInputError(f"{vm!r} is a request: name one of its VMs, such as {vm}-1")
    path = f"{target.path}/console"
    if force and (log or read_only or session.json):
        raise BadInputError("--force cannot be used with --log, --read-only or -o")
    if not (log or read_only or session.json):
        if sys.stdin.isatty() and sys.stdout.isatty():
            _attach_terminal(session, path, force=force)
            return
        if force:
            raise BadInputError("--force needs a terminal")
        echo("fuga: not a terminal, so the console is read-only", err=True)
    answer = session.api.get(path)
    if session.json:
        print_json(answer)
        return
    plain = PlainTextFilter()
    with contextlib.suppress(KeyboardInterrupt):
        _print_last_output(plain, answer)
        while not log:
            time.sleep(_FOLLOW_EVERY_S)
            answer = session.api.get(path, after=answer["end"])
            _print_last_output(plain, answer)


def _print_last_output(plain: PlainTextFilter, answer: dict[str, Any]) -> None:
    echo_lines(plain.clean(base64.b64decode(answer["content"])), nl=False)


def _attach_terminal(session: Session, path: str, *, force: bool) -> None:
    """Connect this terminal to the console of a VM until its user leaves."""
    from controller.cli.vms.console_session import ConsoleSession  # noqa: PLC0415 - needs the client, as api does

    attached = ConsoleSession(
        session.api, path, stdin=sys.stdin.fileno(), stdout=sys.stdout.fileno()
    )
    reason = attached.run(force=force)
    if reason is not None:
        raise CliError(reason)
