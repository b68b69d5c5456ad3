"""`--wait` for plans of moves: waits for the decision and for the end, with a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import typer

from controller.session.polling import change_printer, poll_attempts, progress
from controller.terminal.errors import CliError, WaitExpiredError
from controller.terminal.output import echo
from controller.terminal.progress_bars import new_bar
from plain_text import plain

if TYPE_CHECKING:
    from controller.client.http import Client, Json

#: A plan is decided or fails within a minute; after this time, no control centre is working.
_DECIDED_S = 180.0
#: Leftovers of VMs that moved away are removed within seconds.
_EMPTY_S = 300.0
_NAMED: Final = 5
_INTERRUPTED: Final = 130  #: the exit status of a command that Ctrl-C ended


class Bar(Protocol):
    """A function that shows the progress of a plan or a what-if."""

    def __call__(self, done: int, total: int, line: str) -> None:
        """Show the number done, the total, and a line of text."""
        ...


def wait_until_decided(api: Client, plan: Mapping[str, Any], *, quiet: bool = False) -> Json:
    """Poll a plan until the control centre has decided it."""
    seen = dict(plan)
    with progress(quiet=quiet) as show:
        for look in poll_attempts(_DECIDED_S):
            if seen["state"] != "pending":
                return seen
            with look:
                show("the control centre decides the plan")
                seen = api.get(f"plans/{seen['id']}")
    raise WaitExpiredError(
        f"plan {seen['id']} is not decided after {_DECIDED_S:g} s; `fuga status` says"
        " whether a control centre leads, and whether it is paused"
    )


def wait_for_plan(
    api: Client, plan: Mapping[str, Any], *, timeout_s: float, quiet: bool = False
) -> Json:
    """Poll a plan until it is over, with a bar of its moves; Ctrl-C ends the command alone."""
    seen = dict(plan)
    try:
        with progress_bar(quiet=quiet) as show:
            for look in poll_attempts(timeout_s):
                with look:
                    seen = api.get(f"plans/{seen['id']}")
                    if seen["ended_at"] is not None:
                        show(seen["ended"], seen["moves"], seen["state"])
                        return seen
                    show(seen["ended"], seen["moves"], moves_under_way(api))
    except KeyboardInterrupt:
        echo(f"plan {seen['id']}: {_next_commands_text(seen)}", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    raise WaitExpiredError(
        f"plan {seen['id']}: {seen['ended']} of {seen['moves']} moves are over after"
        f" {timeout_s:g} s. {_next_commands_text(seen)}"
    )


def _next_commands_text(plan: Mapping[str, Any]) -> str:
    return (
        f"It goes on: `fuga plan show {plan['id']}` shows it,"
        f" `fuga plan cancel {plan['id']}` ends it."
    )


def wait_until_empty(api: Client, host: str) -> None:
    """Wait until an evacuated host holds nothing: the disks of moved VMs are removed last.

    Raises `CliError` if another VM arrived on the host in between.
    """
    for look in poll_attempts(_EMPTY_S):
        with look:
            if not any(each["committed"] for each in api.get(f"hosts/{host}")["inventories"]):
                return
            there = [each for each in api.items("vms", host=host) if each["host"] == host]
            came = [str(each["name"]) for each in there if each["desired"] != "deleted"]
            if came:
                more = f" and {len(came) - _NAMED} more" if len(came) > _NAMED else ""
                raise CliError(
                    f"VMs came to host {host} while its own moved away:"
                    f" {', '.join(came[:_NAMED])}{more}. The same command moves these, too."
                )
    raise WaitExpiredError(
        f"its VMs are elsewhere, but host {host} still holds what they had there after"
        f" {_EMPTY_S:g} s; `fuga host show {host}` says how much, `fuga status` whether"
        " workers are late"
    )


def moves_under_way(api: Client) -> str:
    """Return the moves under way with their remaining data, as text; empty if none has begun."""
    lines = []
    for each in api.items("moves", state="moving", max_items=4):
        left = each["remaining_bytes"]
        how = "" if left is None else f" {left / (1 << 20):.0f} MiB left"
        lines.append(f"{each['vm_name']} → {each['to_host']}{how}")
    return ", ".join(lines)


@contextmanager
def progress_bar(*, quiet: bool = False, of: str = "moves over") -> Iterator[Bar]:
    """Show a bar on a terminal, else one line per change, on standard error."""
    if quiet:
        yield lambda _done, _total, _line: None
    elif sys.stderr.isatty():
        from rich.progress import MofNCompleteColumn  # noqa: PLC0415

        with new_bar(MofNCompleteColumn()) as shown:
            task = shown.add_task("", total=None)
            yield lambda done, total, line: shown.update(
                task, completed=done, total=total, description=plain(line)
            )
    else:
        say = change_printer()
        yield lambda done, total, line: say(
            (done, total), f"{done} of {total} {of}  {line}".rstrip()
        )
