"""An operator's command for several hosts at once: how it ends is told, in time."""

from __future__ import annotations

import sys
import time

import pytest

from controller.cli.moving.commands_on_hosts import CommandsOnHosts


def python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", code]


def until_over(commands: CommandsOnHosts, *, within_s: float = 60) -> dict[str, str | None]:
    ended: dict[str, str | None] = {}
    end = time.monotonic() + within_s
    while commands.hosts:
        assert time.monotonic() < end, f"still running for {commands.hosts}"
        ended |= commands.take_results()
        time.sleep(0.01)
    return ended


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("", None),
        ("import sys; print('disk full'); sys.exit(3)", "exit status 3: disk full"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
        ("import sys; sys.exit(sys.stdin.read() != '')", None),
    ],
)
def test_the_end_is_told_with_the_last_line(code: str, error: str | None) -> None:
    lines: list[tuple[str, str]] = []
    commands = CommandsOnHosts(python(code), within_s=60, report=lambda *each: lines.append(each))

    commands.begin("h1")

    assert until_over(commands) == {"h1": error}
    assert commands.take_results() == {}


def test_each_is_given_the_name_of_its_host() -> None:
    lines: list[tuple[str, str]] = []
    code = "import sys; print('hello', *sys.argv[1:])"
    commands = CommandsOnHosts(python(code), within_s=60, report=lambda *each: lines.append(each))

    commands.begin("h1")
    commands.begin("h2")

    assert until_over(commands) == {"h1": None, "h2": None}
    assert sorted(lines) == [("h1", "hello h1"), ("h2", "hello h2")]


def test_one_that_hangs_and_hears_no_signal_is_killed() -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(999)"
    clock = [0.0]
    heard: list[str] = []
    commands = CommandsOnHosts(
        python(deaf),
        within_s=5,
        report=lambda _host, line: heard.append(line),
        grace_s=10,
        now=lambda: clock[0],
    )
    commands.begin("h1")
    end = time.monotonic() + 60
    while not heard:
        assert time.monotonic() < end
        time.sleep(0.01)

    clock[0] = 6
    assert commands.take_results() == {}
    clock[0] = 17

    assert until_over(commands) == {"h1": "it took longer than 5 s: deaf"}


def test_what_it_leaves_running_is_not_waited_for() -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '30'])"
    commands = CommandsOnHosts(python(code), within_s=60, report=lambda *_: None)

    commands.begin("h1")

    assert until_over(commands, within_s=20) == {"h1": None}


def test_a_program_that_is_gone_is_an_end_like_others() -> None:
    commands = CommandsOnHosts(["/no/such/program"], within_s=60, report=lambda *_: None)

    commands.begin("h1")

    assert "did not start" in str(until_over(commands)["h1"])


def test_a_command_sees_no_token_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FUGA_TOKEN", "FUGA_DATABASE_URL", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret")
    lines: list[tuple[str, str]] = []
    code = "import os; print('secret' in os.environ.values(), 'PATH' in os.environ)"
    commands = CommandsOnHosts(python(code), within_s=60, report=lambda *each: lines.append(each))

    commands.begin("h1")

    assert until_over(commands) == {"h1": None}
    assert lines == [("h1", "False True")]
