"""A command whose output nobody takes ends with a status and a line, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from controller.cli.main import main
from controller.terminal.guarded_stdout import READER_LEFT

FUGA = Path(sys.executable).with_name("fuga")
PROBLEM = Path(__file__).parents[4] / "docs" / "examples" / "drfh_figure.json"
COMMANDS = [
    ["--help"],
    ["vms", "--help"],
    ["solve", "--list"],
    ["solve", str(PROBLEM), "--policy", "drfh"],
]


def run(
    command: list[str], env: dict[str, str] | None = None, **streams: object
) -> subprocess.CompletedProcess[str]:
    started: dict[str, object] = {"stderr": subprocess.PIPE, **streams}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [FUGA, *command], env={**os.environ, **(env or {})}, text=True, check=False, **started
    )


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_said_in_a_line(command: list[str], unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        ran = run(command, {"PYTHONUNBUFFERED": unbuffered}, stdout=full)

    assert ran.stderr == "fuga: cannot write the output: No space left on device\n"
    assert ran.returncode == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_leaves_ends_it_as_the_shell_expects(command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ran = run(command, stdout=writer)
    finally:
        os.close(writer)

    assert (ran.stderr, ran.returncode) == ("", READER_LEFT)


def test_messages_that_nobody_can_read_change_no_status() -> None:
    with Path("/dev/full").open("w") as full:
        ran = run(["tenant", "create", "x", "--weight", "nan"], stderr=full)

    assert ran.returncode == 2


def test_streams_that_are_closed_are_no_error() -> None:
    ran = subprocess.run(
        ["sh", "-c", '"$0" --help >&- 2>&-', FUGA], capture_output=True, check=False
    )

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_of_few_characters_gets_all_that_it_can_show(encoding: str) -> None:
    ran = run(["--help"], {"PYTHONIOENCODING": encoding}, stdout=subprocess.PIPE)

    assert (ran.stderr, ran.returncode) == ("", 0)
    assert "Place VMs on KVM hosts" in ran.stdout


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "NaN", "Infinity", "1e999"])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["tenant", "create", "x"], "--weight"),
        (["tenant", "set", "x"], "--weight"),
        (["host", "add", "h", "test:///h"], "--timeout"),
    ],
)
def test_what_is_no_number_is_refused(
    command: list[str], option: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, f"{option}={number}"])

    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert f"{option} is" in said
    assert "finite" in said


@pytest.mark.parametrize("target", ["a pipe without a reader", "/dev/full"])
def test_a_supervisor_goes_on_where_nobody_reads_what_it_says(target: str, tmp_path: Path) -> None:
    says = "from controller.embedded import up\nfor _ in range(3): up.print_line('well')\n"
    script = f"{says}open({str(tmp_path / 'on')!r}, 'x')"
    reader, writer = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    stdout = full if target == "/dev/full" else writer
    subprocess.run([sys.executable, "-c", script], stdout=stdout, check=False, timeout=120)
    for each in (writer, full):
        os.close(each)

    assert (tmp_path / "on").exists()
