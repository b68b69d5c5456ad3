"""`--wait` for a move: a bar with what is left, the rate and the time to go."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import typer

from controller.session.polling import change_printer, poll_attempts
from controller.terminal.errors import WaitExpiredError
from controller.terminal.output import echo, short_id
from controller.terminal.progress_bars import new_bar
from controller.terminal.times import duration_text
from plain_text import plain

if TYPE_CHECKING:
    from controller.client.http import Client, Json

_MIB: Final = 1 << 20
_INTERRUPTED: Final = 130  #: the exit status of a command that Ctrl-C ended

#: Shows the present state of a move.
Show = Callable[[Mapping[str, Any]], None]


def route_text(move: Mapping[str, Any]) -> str:
    """Return the hosts of a move as text: ``host-1 → host-2``."""
    return f"{move['from_host']} → {move['to_host']}"


def fraction_done(move: Mapping[str, Any]) -> float | None:
    """Return the transferred fraction of a move, from 0 to 1; None if not known yet."""
    total, left = move["total_bytes"], move["remaining_bytes"]
    if not total or left is None:
        return None
    return float(1 - min(left, total) / total)


def progress_text(move: Mapping[str, Any]) -> str:
    """Return the remaining data, the rate and the remaining time of a move, as text."""
    if move["state"] == "pending":
        return "waits for a worker"
    if move["cancelled_by"] is not None:
        return "is being cancelled"
    left, rate = move["remaining_bytes"], move["rate_bytes_s"]
    if left is None:
        return "begins"
    text = f"{left / _MIB:.0f} MiB left"
    if rate:
        text += f", {rate / _MIB:.0f} MiB/s, {duration_text(left / rate)} to go"
    return text


def wait_for_move(
    api: Client, move: Mapping[str, Any], *, timeout_s: float, quiet: bool = False
) -> Json:
    """Poll a move until it ends, successfully or not, and return it.

    Ctrl-C ends the command, not the move.

    Raises
    ------
    WaitExpiredError
        After ``timeout_s``; the move goes on.
    """
    seen = dict(move)
    try:
        with _move_bar(quiet=quiet) as show:
            for look in poll_attempts(timeout_s):
                with look:
                    seen = api.get(f"moves/{move['id']}")
                    if seen["ended_at"] is not None:
                        return seen
                    show(seen)
    except KeyboardInterrupt:
        echo(f"the move of {seen['vm_name']} continues: {_next_commands_text(seen)}", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    raise WaitExpiredError(
        f"the move of {seen['vm_name']} is not over after {timeout_s:g} s: {progress_text(seen)}\n"
        f"It continues: {_next_commands_text(seen)}"
    )


def _next_commands_text(move: Mapping[str, Any]) -> str:
    key = short_id(move["id"])
    return f"`fuga move show {key}` shows it, `fuga move cancel {key}` cancels it."


@contextmanager
def _move_bar(*, quiet: bool) -> Iterator[Show]:
    """Show a bar on a terminal, else one line for each tenth, on standard error."""
    if quiet:
        yield lambda _move: None
    elif sys.stderr.isatty():
        from rich.progress import TextColumn  # noqa: PLC0415 - `fuga --help` is to be there at once

        with new_bar(TextColumn("{task.fields[far]}", markup=False)) as shown:
            task = shown.add_task("", total=None, far="")

            def report(move: Mapping[str, Any]) -> None:
                done = fraction_done(move)
                shown.update(
                    task,
                    description=plain(f"{move['vm_name']}: {route_text(move)}"),
                    total=None if done is None else 1.0,
                    completed=done or 0.0,
                    far=plain(progress_text(move)),
                )

            yield report
    else:
        say = change_printer()

        def report_tenth(move: Mapping[str, Any]) -> None:
            tenth = None if (done := fraction_done(move)) is None else int(10 * done)
            line = f"{move['vm_name']}: {route_text(move)}  {progress_text(move)}"
            say((move["state"], tenth), line)

        yield report_tenth
