"""`fuga console`: what a VM writes on its serial console, wherever it runs."""

from __future__ import annotations

import base64
import codecs
import contextlib
import time
from typing import Annotated, Any

import typer

from controller.cli.errors import BadInputError
from controller.cli.output import print_json
from controller.cli.session import Session, with_session
from controller.cli.targets import find_target

_FOLLOW_EVERY_S = 1.0


class PlainText:
    """Turns what a guest wrote into text that cannot command the reader's terminal."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def of(self, content: bytes) -> str:
        """Return it with line ends of ours; other control characters are left out."""
        text = self._decode(content)
        return "".join(each for each in text if each in "\n\t" or each.isprintable())


@with_session
def console(
    session: Session,
    vm: Annotated[str, typer.Argument(metavar="VM", help="Name, id or the end of it.")],
    log: Annotated[bool, typer.Option("--log", help="Print the last 64 KiB, and end.")] = False,
) -> None:
    """Show what a VM writes on its serial console, until Ctrl-C; or with --log what it wrote."""
    target = find_target(session.api, vm)
    if target.kind != "vm":
        raise BadInputError(f"{vm!r} is a request: name one of its VMs, such as {vm}-1")
    path = f"{target.path}/console"
    answer = session.api.get(path)
    if session.json:
        print_json(answer)
        return
    plain = PlainText()
    _print(plain, answer)
    with contextlib.suppress(KeyboardInterrupt):
        while not log:
            time.sleep(_FOLLOW_EVERY_S)
            answer = session.api.get(path, after=answer["end"])
            _print(plain, answer)


def _print(plain: PlainText, answer: dict[str, Any]) -> None:
    typer.echo(plain.of(base64.b64decode(answer["content"])), nl=False)
