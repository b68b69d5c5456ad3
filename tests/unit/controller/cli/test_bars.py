"""Bars of commands that wait, as a terminal of 80 columns shows them."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr
from typing import Any

import pytest

from controller.cli.moving import move_progress, roll_runner
from controller.session import plan_progress

#: The longest name of a VM is about so long.
LONG = "x" * 60
HOSTILE = "[bold]up[/bold]\x1b[2Jdown"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """Return what was shown, without what moves the cursor or colours."""
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())
        return [line for line in re.split(r"[\r\n]+", plain) if line.strip()]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def is_whole(line: str, count: str) -> bool:
    return (
        len(line) <= 80
        and line.count("━") + line.count("╸") + line.count("╺") == 20
        and count in line
    )


@pytest.mark.parametrize("what", [f"{LONG} → host-1 63 MiB left, {LONG} → host-2", HOSTILE, ""])
def test_a_plans_bar_and_its_count_stay_whatever_moves(terminal: Terminal, what: str) -> None:
    with redirect_stderr(terminal), plan_progress.progress_bar() as show:
        show(7, 120, what)

    assert is_whole(terminal.lines()[-1], "7/120")
    assert "\x1b[2J" not in terminal.getvalue()


@pytest.mark.parametrize("what", [f"{LONG} → host-1 63 MiB left, {LONG} → host-2", HOSTILE, ""])
def test_a_rolls_bar_and_its_count_stay_whatever_moves(terminal: Terminal, what: str) -> None:
    with redirect_stderr(terminal), roll_runner.open_screen(quiet=False) as shown:
        shown.show_moves(7, 120, what)

    assert is_whole(terminal.lines()[-1], "7/120")
    assert "\x1b[2J" not in terminal.getvalue()


def test_a_moves_bar_and_what_is_left_stay_whatever_its_vm_is_called(terminal: Terminal) -> None:
    move: dict[str, Any] = {
        "vm_name": LONG,
        "from_host": "host-1",
        "to_host": "host-2",
        "state": "moving",
        "cancelled_by": None,
        "total_bytes": 100 << 20,
        "remaining_bytes": 63 << 20,
        "rate_bytes_s": 1 << 20,
    }

    with redirect_stderr(terminal), move_progress._move_bar(quiet=False) as show:
        show(move)

    assert is_whole(terminal.lines()[-1], "63 MiB left, 1 MiB/s, 63 s to go")


def test_a_plans_bar_tells_of_vms_that_move_and_not_of_those_that_wait() -> None:
    requested = []

    class Api:
        def items(self, path: str, **query: object) -> list[dict[str, object]]:
            requested.append((path, query["state"]))
            return [{"vm_name": "web-1", "to_host": "host-2", "remaining_bytes": 3 << 20}]

    api: Any = Api()

    assert plan_progress.moves_under_way(api) == "web-1 → host-2 3 MiB left"
    assert requested == [("moves", "moving")]
