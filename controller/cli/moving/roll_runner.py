"""Drives a roll: runs the command on hosts that are empty, and reports its end to the API."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.cli.moving.commands_on_hosts import CommandsOnHosts
from controller.client.errors import ApiProblemError, ApiUnreachableError
from controller.session.plan_progress import moves_under_way
from controller.terminal.output import echo, text
from controller.terminal.progress_bars import new_bar
from plain_text import plain

if TYPE_CHECKING:
    from controller.client.http import Client, Json

_LOOK_EVERY_S = 1.0
_MAX_ERROR: Final = 500  #: characters that the API takes
_SERVERS_FAULT: Final = 500
_TOO_MANY: Final = 429
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PHASES: Final[Mapping[str, str]] = {
    "emptying": "VMs move away",
    "empty": "empty",
    "running": "the command runs",
    "returning": "the command is over; waiting until the host is seen up",
    "done": "done",
    "skipped": "skipped",
}


class Screen(Protocol):
    """Prints permanent lines, and below them the progress of the current turn's moves."""

    def print_line(self, line: str) -> None:
        """Print a line that stays on the screen."""
        ...

    def show_moves(self, done: int, total: int, what: str) -> None:
        """Show how many moves of the turn are over; hide the bar without moves and text."""
        ...


class RollRunner:
    """Drives a roll, step by step, until it ends or stops.

    The first Ctrl-C lets nothing more begin and waits for hosts at work; the second ends their
    commands, as SIGTERM and a terminal that goes away do.
    """

    def __init__(
        self, api: Client, claim: Mapping[str, Any], argv: Sequence[str], screen: Screen
    ) -> None:
        self._api = api
        self._path = f"rolls/{claim['roll']['id']}/drivers/{claim['token']}"
        self._screen = screen
        self._commands = CommandsOnHosts(
            argv,
            within_s=claim["roll"]["run_within_s"],
            report=lambda host, line: screen.print_line(f"{host} | {line}"),
        )
        self._wakes = threading.Event()
        self._signals: list[int] = []
        self._stop: str | None = None
        self._leave = False
        self._printed_lines: dict[str, str] = {}

    def run(self) -> Json:
        """Carry out the roll until it ends or stops; return its last state."""
        begun: list[str] = []
        ended: dict[str, str | None] = {}
        with self._handling_signals():
            while True:
                self._process_signals()
                ended |= self._commands.take_results()
                turn = self._report_progress(begun, ended)
                if turn is not None:
                    self._show_turn(turn)
                    if turn["roll"]["state"] != "running":
                        return dict(turn["roll"])
                    ended = self._start_commands(turn)
                    begun = [each["host"] for each in turn["hosts"] if each["phase"] == "empty"]
                    begun = begun if self._stop is None else []
                if turn is None or not begun:
                    self._wakes.wait(_LOOK_EVERY_S)
                    self._wakes.clear()

    def _report_progress(
        self, begun: Sequence[str], ended: Mapping[str, str | None]
    ) -> Json | None:
        """Report progress to the API; return its answer."""
        report = {
            "begun": list(begun),
            "ended": [
                {"host": host, "error": None if error is None else text(error)[:_MAX_ERROR]}
                for host, error in ended.items()
            ],
            "stop": self._stop,
            "leave": self._leave and not self._commands.hosts,
        }
        try:
            return self._api.put(self._path, report)
        except ApiProblemError as problem:
            status = problem.http_status
            if status < _SERVERS_FAULT and status != _TOO_MANY:
                self._commands.end("another drives the roll")
                raise
        except ApiUnreachableError:
            if report["leave"]:
                raise
        self._print_once("api", "the API does not answer; trying again")
        return None

    def _start_commands(self, turn: Json) -> dict[str, str | None]:
        """Start the command for hosts whose start is recorded; return them if the roll stops.

        The API records the start first: a resumed roll then knows that the command may have run.
        """
        too_late: dict[str, str | None] = {}
        for each in turn["hosts"]:
            waits = each["phase"] == "running" and each["error"] is None
            if not waits or each["host"] in self._commands.hosts:
                continue
            if self._stop is None:
                self._commands.begin(each["host"])
            else:
                too_late[each["host"]] = "the command did not begin"
        return too_late

    def _show_turn(self, turn: Json) -> None:
        """Show the phase of each host of the turn, and the moves of the plans that empty them."""
        self._printed_lines.pop("api", None)
        for each in turn["hosts"]:
            said = _PHASES[each["phase"]] if each["error"] is None else f"FAILED: {each['error']}"
            self._print_once(each["host"], f"{each['host']}: {said}")
        plans = {each["plan_id"] for each in turn["hosts"] if each["phase"] == "emptying"} - {None}
        if not plans:
            self._screen.show_moves(0, 0, "")
        for plan_id in plans:
            try:
                plan = self._api.get(f"plans/{plan_id}")
                is_pending = plan["state"] == "pending"
                what = (
                    "the control centre plans the moves"
                    if is_pending
                    else moves_under_way(self._api)
                )
            except (ApiUnreachableError, ApiProblemError):
                continue  # the next step reports it, if it lasts
            self._screen.show_moves(plan["ended"], plan["moves"], what)

    def _process_signals(self) -> None:
        """Act on received signals, outside of their handlers."""
        while self._signals:
            signum = self._signals.pop(0)
            if self._stop is None and signum == signal.SIGINT:
                self._stop = "stopped with Ctrl-C"
                self._screen.print_line("no other host begins. Ctrl-C again ends commands that run")
            else:
                self._stop = self._stop or f"stopped by {signal.Signals(signum).name}"
                self._leave = True
                self._commands.end("ended with its driver")

    @contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """Record signals that end processes, for `_process_signals`, during the block."""

        def record_signal(signum: int, _frame: object) -> None:
            self._signals.append(signum)
            self._wakes.set()

        # Ignored signals stay ignored: SIGHUP by nohup, SIGINT by a script's background.
        heard = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
        before = {each: signal.signal(each, record_signal) for each in heard}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _print_once(self, about: str, line: str) -> None:
        """Print a line about a host or the API unless it is the last one printed about it."""
        if self._printed_lines.get(about) != line:
            self._printed_lines[about] = line
            self._screen.print_line(line)


@contextmanager
def open_screen(*, quiet: bool) -> Iterator[Screen]:
    """Open the display of a roll on standard error: lines, and on a terminal a bar below them.

    With ``quiet``, only the output of commands is shown, because it is stored nowhere else.
    """
    if sys.stderr.isatty() and not quiet:
        with _progress_bar() as shown:
            yield shown
    else:
        yield _LineScreen(only_output=quiet)


class _LineScreen:
    """Prints lines alone, if standard error is no terminal or only output is wanted."""

    def __init__(self, *, only_output: bool) -> None:
        self._only_output = only_output
        self._last: tuple[int, int] | None = None

    def print_line(self, line: str) -> None:
        if not self._only_output or " | " in line:
            echo(line, err=True)

    def show_moves(self, done: int, total: int, what: str) -> None:
        if total and self._last != (done, total) and not self._only_output:
            echo(f"{done} of {total} moves over  {what}".rstrip(), err=True)
        self._last = (done, total)


@contextmanager
def _progress_bar() -> Iterator[Screen]:
    """Show a bar of the moves of the current turn on the terminal."""
    from rich.progress import MofNCompleteColumn  # noqa: PLC0415

    with new_bar(MofNCompleteColumn()) as shown:
        task = shown.add_task("", total=None, visible=False)

        class BarScreen:
            def print_line(self, line: str) -> None:
                shown.console.print(text(line), markup=False, highlight=False, soft_wrap=True)

            def show_moves(self, done: int, total: int, what: str) -> None:
                shown.update(
                    task,
                    completed=done,
                    total=total or None,
                    description=plain(what),
                    visible=bool(total or what),
                )

        yield BarScreen()


def run_roll(api: Client, claim: Mapping[str, Any], argv: Sequence[str], *, quiet: bool) -> Json:
    """Carry out a roll from this terminal until it ends or stops."""
    with open_screen(quiet=quiet) as shown:
        return RollRunner(api, claim, argv, shown).run()
