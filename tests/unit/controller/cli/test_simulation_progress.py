"""What is told of simulations under way, on a terminal and elsewhere."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr

import pytest

from controller.cli.simulations.progress import show_progress
from simulation import RunProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())
        return [line.rstrip() for line in re.split(r"[\r\n]", plain) if line.strip()]


def at(part: float, worker: str | None = None) -> RunProgress:
    return RunProgress(part=part, slot=7, running=12, waiting=3, worker=worker)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_a_terminal_has_a_bar_for_everything_and_for_each_run(terminal: Terminal) -> None:
    with redirect_stderr(terminal), show_progress(["a[1]", "b", "c", "d"], fleet=True) as shown:
        shown.update({"a[1]": at(0.5, "sim-1:7"), "b": at(1.0), "c": at(0.5)})
    lines = terminal.lines()

    last = lines[-3:]
    assert re.match(r"4 runs .* 50 % ", last[0])
    assert re.match(r"a\[1\] on sim-1:7: 12 VMs, 3 wait .* 50 % ", last[1])
    assert re.match(r"c: 12 VMs, 3 wait .* 50 % ", last[2])


def test_a_run_that_has_ended_or_was_let_go_of_has_no_bar(terminal: Terminal) -> None:
    with redirect_stderr(terminal), show_progress(["a", "b"], fleet=True) as shown:
        shown.update({"a": at(0.5, "sim-1:7"), "b": at(0.5, "sim-2:7")})
        shown.warn("the broker [redis] does not answer")
        shown.update({"a": at(1.0)})
    lines = terminal.lines()

    assert "the broker [redis] does not answer" in lines
    assert re.match(r"2 runs .* 50 % ", lines[-1])


def test_elsewhere_a_fleet_tells_in_lines_who_is_at_what(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with show_progress(["a", "b"], fleet=True) as shown:
        shown.update({"a": at(0.0, "sim-1:7")})
        shown.update({"a": at(0.5, "sim-1:7")})
        shown.update({})
        shown.warn("nobody is at any run")
        shown.update({"a": at(0.5, "sim-2:9")})
        shown.update({"a": at(1.0), "b": at(1.0)})
        shown.update({"a": at(1.0), "b": at(1.0)})

    assert capsys.readouterr().err.splitlines() == [
        "a: started on sim-1:7",
        "a: sim-1:7 left it; another worker may continue",
        "nobody is at any run",
        "a: started on sim-2:9",
        "a: ended, 1 of 2",
        "b: ended, 2 of 2",
    ]


def test_elsewhere_a_machine_alone_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(["a"], fleet=False) as shown:
        shown.update({"a": at(0.5)})

    assert capsys.readouterr().err == ""
