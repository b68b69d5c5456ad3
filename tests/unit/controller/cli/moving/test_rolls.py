"""`fuga roll` as a person types it: what it tells the API, runs, prints and leaves behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.cli.moving import roll_runner
from tests.fakes.http_api import HttpApi, RecordedCall, problem
from tests.unit.controller.cli.api_documents import Fuga

ROLL_ID = "0193a333-0000-7000-8000-00000000cafe"
TOKEN = "6f1c1c9e-0000-4000-8000-00000000beef"
STEP = f"/v1/rolls/{ROLL_ID}/drivers/{TOKEN}"


def a_roll(**changes: Any) -> dict[str, Any]:
    return {
        "id": ROLL_ID,
        "state": "running",
        "at_once": 1,
        "checked": 2,
        "command": "./update",
        "empty_within_s": 14_400,
        "run_within_s": 60,
        "up_within_s": 900,
        "began_by": "operator:ops",
        "began_at": "2026-01-01T00:00:00Z",
        "ended_at": None,
        "cancelled_by": None,
        "last_error": None,
        "driver": "fuga on desk, process 1",
        "driver_lease_until": "2026-01-01T00:01:00Z",
        "hosts": 2,
        "done": 0,
        "skipped": 0,
        **changes,
    }


class Rolling:
    """The API of one roll: hosts go on by one phase with each step, as they would there."""

    def __init__(self, *hosts: str) -> None:
        self.roll = a_roll(hosts=len(hosts), checked=len(hosts))
        self.waiting, self.turn = list(hosts), list[dict[str, Any]]()
        self.over: list[dict[str, Any]] = []
        self.told: list[Any] = []
        self.before_step: Callable[[], None] = lambda: None

    def step(self, asked: RecordedCall) -> tuple[int, Any]:
        self.before_step()
        self.told.append(asked.body)
        over = all(each["phase"] == "done" for each in self.turn)
        ended = {each["host"]: each["error"] for each in asked.body["ended"]}
        for each in self.turn:
            if each["host"] in ended and each["phase"] == "running":
                each["error"] = ended[each["host"]]
                each["phase"] = "running" if each["error"] else "returning"
            elif each["phase"] == "empty" and each["host"] in asked.body["begun"]:
                each["phase"] = "running"
            elif each["phase"] == "returning":
                each["phase"] = "done"
        failed = [each for each in self.turn if each["error"]]
        at_work = any(each["phase"] == "running" and not each["error"] for each in self.turn)
        if (failed or asked.body["stop"]) and (not at_work or asked.body["leave"]):
            why = asked.body["stop"] or f"host {failed[0]['host']}: {failed[0]['error']}"
            self.roll |= {"state": "stopped", "last_error": why}
        elif over:
            self._begin_next()
        self.roll["done"] = sum(each["phase"] == "done" for each in (*self.over, *self.turn))
        return 200, {"roll": self.roll, "hosts": self.turn}

    def _begin_next(self) -> None:
        if not self.waiting:
            self.roll |= {"state": "done", "ended_at": "2026-01-01T01:00:00Z"}
            return
        self.over += self.turn
        self.turn = [self._host(self.waiting.pop(0), "empty")]

    @staticmethod
    def _host(name: str, phase: str) -> dict[str, Any]:
        return {
            "turn": int(name[1:]) - 1,
            "host": name,
            "phase": phase,
            "since": "2026-01-01T00:00:00Z",
            "admin_before": "active",
            "plan_id": None,
            "error": None,
        }

    def hosts(self, _asked: RecordedCall) -> tuple[int, Any]:
        waiting = [self._host(each, "waiting") | {"admin_before": None} for each in self.waiting]
        return 200, {"items": [*self.over, *self.turn, *waiting], "next": None}


@pytest.fixture
def rolling(api: HttpApi, monkeypatch: pytest.MonkeyPatch) -> Rolling:
    monkeypatch.setattr(roll_runner, "_LOOK_EVERY_S", 0.01)
    rolling = Rolling("h1", "h2")
    claim = {"roll": rolling.roll, "token": TOKEN}
    api.on("POST", "/v1/rolls", claim, status=201)
    api.on("POST", f"/v1/rolls/{ROLL_ID}/resume", claim, status=202)
    api.on_list("/v1/rolls", rolling.roll)
    api.routes["PUT", STEP] = rolling.step
    api.routes["GET", f"/v1/rolls/{ROLL_ID}/hosts"] = rolling.hosts
    return rolling


@pytest.fixture
def heard() -> Iterator[None]:
    """Let SIGINT be heard, also where these tests run in a background that ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    def write(body: str) -> str:
        path = tmp_path / "update"
        path.write_text(f"#!/bin/sh\ncd {tmp_path}\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return write


def test_the_command_runs_here_for_each_host_in_turn(
    api: HttpApi, fuga: Fuga, rolling: Rolling, script: Callable[[str], str], tmp_path: Path
) -> None:
    command = script("echo $1 >>ran; echo updated $1")

    ended = fuga(
        "roll", "--hosts", "label=rack3", "--hosts", "h9", "--at-once", "2", "--run", command
    )

    assert ended.status == 0, ended.err
    (call,) = api.calls("POST", "/v1/rolls")
    assert (call.body["hosts"], call.body["at_once"]) == (["label=rack3", "h9"], 2)
    assert (call.body["command"], call.body["skipped"]) == (command, [])
    assert (tmp_path / "ran").read_text().split() == ["h1", "h2"]
    assert f"roll {ROLL_ID} is done: 2 hosts" in ended.out
    for line in ("h1: the command runs", "h1 | updated h1", "h1: done", "h2: done"):
        assert line in ended.err.splitlines()
    assert all(len(line) <= 80 for line in ended.err.splitlines())


def test_it_is_told_that_the_command_begins_before_it_does(
    fuga: Fuga, rolling: Rolling, script: Callable[[str], str], tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    seen: list[tuple[bool, Any]] = []
    rolling.before_step = lambda: seen.append((ran.exists(), len(rolling.told)))

    fuga("roll", "--hosts", "all", "--run", script("touch ran"))

    first = next(at for at, shown in enumerate(rolling.told) if shown["begun"] == ["h1"])
    assert not seen[first][0]


def test_a_failure_says_what_was_done_and_how_to_go_on(
    fuga: Fuga, rolling: Rolling, script: Callable[[str], str]
) -> None:
    command = script("test $1 = h1 || { echo disk full; exit 3; }")

    ended = fuga("roll", "--hosts", "all", "--run", command)

    assert ended.status == 1
    assert "is stopped: host h2: exit status 3: disk full" in ended.err
    assert "1/2 hosts are done" in ended.err
    assert "in maintenance: h2" in ended.err
    assert f"fuga roll --resume {ROLL_ID} --run {command}" in ended.err


def test_a_cancelled_roll_names_hosts_in_maintenance_on_a_line_of_their_own(
    api: HttpApi, fuga: Fuga, rolling: Rolling
) -> None:
    rolling.turn = [rolling._host("h1", "emptying")]
    ended = rolling.roll | {"state": "cancelled", "ended_at": "2026-01-01T01:00:00Z"}
    api.on("POST", f"/v1/rolls/{ROLL_ID}/cancel", ended, status=202)

    output = fuga("roll", "cancel", ROLL_ID).out.splitlines()

    assert output[0] == f"roll {ROLL_ID} is cancelled"
    assert "h1" in output[1]
    assert len(output) == 2


def test_programs_are_given_the_roll_alone(
    fuga: Fuga, rolling: Rolling, script: Callable[[str], str]
) -> None:
    ended = fuga("roll", "-o", "json", "--hosts", "all", "--run", script("echo hello $1"))

    assert ended.json["state"] == "done"
    assert ended.err.splitlines() == ["h1 | hello h1", "h2 | hello h2"]


def test_a_roll_goes_on_without_hosts_that_are_left_out(
    api: HttpApi, fuga: Fuga, rolling: Rolling, script: Callable[[str], str]
) -> None:
    ended = fuga("roll", "--resume", "cafe", "--run", script("true"), "--except", "h7")

    assert ended.status == 0, ended.err
    (call,) = api.calls("POST", f"/v1/rolls/{ROLL_ID}/resume")
    assert call.body["skipped"] == ["h7"]
    assert api.calls("POST", "/v1/rolls") == []


@pytest.mark.usefixtures("heard")
def test_the_first_ctrl_c_waits_for_the_host_at_work_and_begins_no_other(
    fuga: Fuga, rolling: Rolling, script: Callable[[str], str], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go-on")

    def interrupt() -> None:
        if any(each["phase"] == "running" for each in rolling.turn):
            rolling.before_step = let_go_on
            os.kill(os.getpid(), signal.SIGINT)

    def let_go_on() -> None:
        if rolling.told[-1]["stop"]:
            rolling.before_step = lambda: None
            (tmp_path / "go-on").write_text("now")

    rolling.before_step = interrupt
    ended = fuga("roll", "--hosts", "all", "--run", script("cat go-on; echo $1 >>ran"))

    assert ended.status == 1
    assert (tmp_path / "ran").read_text() == "h1\n"
    assert "is stopped: stopped with Ctrl-C" in ended.err
    assert rolling.turn[0]["error"] is None
    assert rolling.waiting == ["h2"]


@pytest.mark.usefixtures("heard")
def test_the_second_ctrl_c_ends_the_command(
    fuga: Fuga, rolling: Rolling, script: Callable[[str], str], tmp_path: Path
) -> None:
    def interrupt() -> None:
        if any(each["phase"] == "running" for each in rolling.turn):
            os.kill(os.getpid(), signal.SIGINT)

    rolling.before_step = interrupt
    ended = fuga("roll", "--hosts", "all", "--run", script("exec sleep 999"))

    assert ended.status == 1
    assert rolling.told[-1]["ended"] == [{"host": "h1", "error": "ended with its driver"}]
    assert rolling.told[-1]["leave"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_api_that_is_away_is_asked_again_and_told_the_same(
    api: HttpApi, fuga: Fuga, rolling: Rolling, script: Callable[[str], str]
) -> None:
    away = [True]

    def step(requested: RecordedCall) -> tuple[int, Any]:
        if requested.body["ended"] and away:
            away.clear()
            return 500, problem(500, "internal", "logged as incident 7")
        return rolling.step(requested)

    api.routes["PUT", STEP] = step
    ended = fuga("roll", "--hosts", "all", "--run", script("true"))

    assert ended.status == 0, ended.err
    assert "the API does not answer; trying again" in ended.err


def test_who_was_overtaken_ends_its_commands(
    api: HttpApi, fuga: Fuga, rolling: Rolling, script: Callable[[str], str]
) -> None:
    def step(requested: RecordedCall) -> tuple[int, Any]:
        if any(each["phase"] == "running" for each in rolling.turn):
            return 409, problem(409, "conflict", "another fuga drives the roll by now: x")
        return rolling.step(requested)

    api.routes["PUT", STEP] = step
    ended = fuga("roll", "--hosts", "all", "--run", script("exec sleep 999"))

    assert ended.status == 2
    assert "another fuga drives the roll by now" in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hosts", "all", "--run", "no-such-program"], "no program 'no-such-program' here"),
        (["--hosts", "all", "--run", "'unended"], "is no command"),
        (["--run", "true"], "either --hosts, or --resume"),
        (["--hosts", "all", "--resume", "cafe", "--run", "true"], "either --hosts, or --resume"),
        (["--resume", "beef", "--run", "true"], "no roll with an id like 'beef'"),
        (["--resume", "cafe", "--run", "true", "--at-once", "2"], "leave --at-once out"),
        (["--resume", "cafe", "--run", "true", "--up-within", "9"], "leave --up-within out"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_begins(
    api: HttpApi, fuga: Fuga, rolling: Rolling, words: list[str], said: str
) -> None:
    ended = fuga("roll", *words)

    assert ended.status == 2
    assert said in ended.err
    assert not any(requested.method in ("POST", "PUT") for requested in api.asked)


def test_rolls_are_listed_and_shown(fuga: Fuga, rolling: Rolling) -> None:
    rolling.step(RecordedCall("PUT", STEP, {}, {}, {"begun": [], "ended": [], "stop": None}))

    listed, shown = fuga("roll", "list"), fuga("roll", "show", "0000cafe")

    assert "running" in listed.out
    assert "0/2" in listed.out
    assert "2 of 2 turns before it began" in shown.out
    assert [line.split()[:3] for line in shown.out.splitlines()[-2:]] == [
        ["1", "h1", "empty"],
        ["2", "h2", "waiting"],
    ]
    for words in (["-o", "json", "list"], ["list", "-o", "json"]):
        assert [each["id"] for each in fuga("roll", *words).json] == [ROLL_ID]


def test_a_turn_goes_on_without_a_host_of_it_that_was_left_out(
    api: HttpApi, fuga: Fuga, rolling: Rolling, script: Callable[[str], str]
) -> None:
    turn = [rolling._host("h1", "skipped"), rolling._host("h2", "done")]
    api.routes["PUT", STEP] = lambda _asked: (
        200,
        {"roll": rolling.roll | {"state": "done", "done": 1, "skipped": 1}, "hosts": turn},
    )

    ended = fuga("roll", "--resume", ROLL_ID, "--run", script("true"), "--except", "h1")

    assert ended.status == 0, ended.err
    assert "h1: skipped" in ended.err.splitlines()


def test_a_crowd_at_the_api_ends_no_command(
    fuga: Fuga, rolling: Rolling, api: HttpApi, script: Callable[[str], str]
) -> None:
    steps = []

    def step(requested: RecordedCall) -> tuple[int, Any]:
        steps.append(requested)
        if len(steps) == 4:
            return 429, problem(429, "too_many_calls", "try again later")
        return rolling.step(requested)

    api.routes["PUT", STEP] = step

    ended = fuga("roll", "--hosts", "all", "--run", script("sleep 0.2"))

    assert ended.status == 0, ended.err
    assert "the API does not answer; trying again" in ended.err
