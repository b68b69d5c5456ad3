"""What systemd reads of a process: a real datagram socket in its place."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from controller.control_center.slot_loop import SlotLoopRunner
from controller.rounds.interfaces import PolicyChoice, Slot
from monitor.service import Monitor
from registry import upgrade
from service import Check
from service.systemd_notify import NotifySocket, supervised
from tests.servers.running import FUGA, eventually

WELL = Check("database", True, "it answers")
ILL = Check("database", False, "it does not answer")
LONG_AGO = time.monotonic() - 1e6


class Systemd:
    """Receives notifications."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + path[1:] if path.startswith("@") else path)
        self.socket.settimeout(60)

    def environ(self, watchdog_s: float | None = None, pid: int | None = None) -> dict[str, str]:
        found = {"NOTIFY_SOCKET": self.path}
        if watchdog_s is not None:
            found |= {"WATCHDOG_USEC": str(int(watchdog_s * 1e6))}
            found |= {"WATCHDOG_PID": str(os.getpid() if pid is None else pid)}
        return found

    def next(self) -> str:
        return self.socket.recv(4096).decode()

    def wait_for(self, line: str) -> list[str]:
        """Return what came until a line came."""
        found = []
        while line not in (shown := self.next()).splitlines():
            found.append(shown)
        return found

    def pending(self) -> list[str]:
        """Return what lies in the socket already."""
        self.socket.setblocking(False)
        found = []
        try:
            while True:
                found.append(self.socket.recv(4096).decode())
        except BlockingIOError:
            return found
        finally:
            self.socket.settimeout(60)


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    path = str(tmp_path / "notify")
    found = Systemd(path if request.param == "path" else f"@{path}")
    yield found
    found.socket.close()


def test_a_process_is_ready_when_its_checks_are_and_then_notifies_the_watchdog(
    systemd: Systemd,
) -> None:
    checks = iter([[ILL], RuntimeError("away"), [WELL]])

    def ready() -> list[Check]:
        found = next(checks)
        if isinstance(found, Exception):
            raise found
        return found

    supervisor = NotifySocket(systemd.environ(0.02))
    with supervised(ready, time.monotonic, supervisor=supervisor):
        longer = "\nEXTEND_TIMEOUT_USEC=60000000"
        assert systemd.next() == f"STATUS=not ready: database: it does not answer{longer}"
        assert systemd.next() == f"STATUS=not ready: RuntimeError{longer}"
        assert systemd.next() == "READY=1\nSTATUS=ready"
        assert [systemd.next() for _ in range(3)] == ["WATCHDOG=1"] * 3

    assert set(systemd.wait_for("STOPPING=1")) <= {"WATCHDOG=1"}


def test_no_notification_comes_while_the_main_loop_hangs(systemd: Systemd) -> None:
    hangs = threading.Event()

    def turned_at() -> float:
        return LONG_AGO if hangs.is_set() else time.monotonic()

    supervisor = NotifySocket(systemd.environ(0.2))
    with capture_logs() as logs, supervised(lambda: [WELL], turned_at, supervisor=supervisor):
        systemd.wait_for("WATCHDOG=1")
        hangs.set()
        eventually(lambda: any(each["event"] == "main_loop_hangs" for each in logs))
        systemd.pending()
        eventually(lambda: len([e for e in logs if e["event"] == "main_loop_hangs"]) >= 4)
        assert systemd.pending() == []
        hangs.clear()
        systemd.wait_for("WATCHDOG=1")


def test_a_loop_that_waits_for_what_is_away_is_excused(systemd: Systemd) -> None:
    supervisor = NotifySocket(systemd.environ(0.02))
    with supervised(lambda: [WELL], lambda: LONG_AGO, excused=lambda: True, supervisor=supervisor):
        systemd.wait_for("WATCHDOG=1")


def test_an_excuse_that_fails_is_none_and_ends_no_notifications(systemd: Systemd) -> None:
    excuses = iter([RuntimeError("no broker"), *[True] * 1000])

    def excused() -> bool:
        found = next(excuses)
        if isinstance(found, Exception):
            raise found
        return found

    supervisor = NotifySocket(systemd.environ(0.02))
    with supervised(lambda: [WELL], lambda: LONG_AGO, excused=excused, supervisor=supervisor):
        systemd.wait_for("WATCHDOG=1")


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
    ],
)
def test_a_watchdog_of_another_process_or_none_is_not_notified(environ: dict[str, str]) -> None:
    assert NotifySocket(environ).watchdog_s is None
    assert not NotifySocket(environ).is_there


def test_a_supervisor_that_is_gone_does_no_harm(tmp_path: Path) -> None:
    supervisor = NotifySocket({"NOTIFY_SOCKET": str(tmp_path / "gone")})

    with capture_logs() as logs, supervised(lambda: [WELL], time.monotonic, supervisor=supervisor):
        eventually(lambda: bool(logs))

    assert {each["event"] for each in logs} == {"supervisor_not_notified"}


def test_the_loops_of_control_centre_and_monitor_stand_still_with_what_hangs() -> None:
    """A leader that hangs would keep its lease, a monitor its hosts."""
    hanging, release = threading.Event(), threading.Event()

    class Hangs:
        def take(self) -> None:
            hanging.set()
            release.wait(600)

    clock = iter([59.9, 59.9, *[60.0] * 1000])
    loop = SlotLoopRunner(
        cast(Any, None),
        cast(Any, Hangs()),
        cast(Any, None),
        cast(Any, None),
        slot_length_s=60,
        on_committed=lambda: None,
        metrics=cast(Any, type("M", (), {"count_slot": lambda *_: None})()),
        now=lambda: next(clock),
    )
    monitor = object.__new__(Monitor)
    monitor._scheduler = cast(Any, type("R", (), {"is_alive": True, "end": lambda *_: None})())
    monitor._settings = cast(Any, type("S", (), {"poll_interval_s": 2.0})())
    monitor.turned_at = LONG_AGO
    followed, stop = threading.Event(), threading.Event()

    def follow() -> None:
        followed.set()
        release.wait(600)

    monitor.follow_hosts = follow  # type: ignore[method-assign]
    monitor._shut_down = lambda: None  # type: ignore[method-assign]
    loop.turned_at = LONG_AGO
    threads = [
        threading.Thread(target=loop.run, args=(stop,)),
        threading.Thread(target=monitor.run, args=(stop,)),
    ]
    for each in threads:
        each.start()
    try:
        assert hanging.wait(60)
        assert followed.wait(60)
        at = (loop.turned_at, monitor.turned_at)
        assert all(each > LONG_AGO for each in at)
        time.sleep(1.5)
        assert (loop.turned_at, monitor.turned_at) == at
    finally:
        stop.set()
        release.set()
        for each in threads:
            each.join(60)


class Clock:
    """A clock that is set by two hours, back or ahead, while a slot is waited for."""

    def __init__(self, change_s: float) -> None:
        self.at_s, self.change_s, self.looks = 1_000_030.0, change_s, 0

    def __call__(self) -> float:
        self.looks += 1
        if self.looks == 3:
            self.at_s += self.change_s
        self.at_s += 0.5 * (self.looks > 3)
        return self.at_s


class Leads:
    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop

    def take(self) -> Any:
        self.stop.set()
        return object()


@pytest.mark.parametrize("change_s", [-7200.0, 7200.0, 0.0])
def test_a_clock_that_is_set_stops_no_slots_and_a_round_may_take_its_time(
    change_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.control_center.slot_loop._TURN_S", 0.001)
    stop, clock = threading.Event(), Clock(change_s)
    choice = PolicyChoice(name="fuga", parameters={}, budget_units=None, decision_time_s=450)
    loop = SlotLoopRunner(
        cast(Any, None),
        cast(Any, Leads(stop)),
        cast(Any, None),
        choice,
        slot_length_s=60,
        on_committed=lambda: None,
        metrics=cast(Any, None),
        now=clock,
    )
    decided: list[tuple[float, float]] = []

    def run_slot(slot: Slot, _lease: Any) -> None:
        decided.append((slot.start_at.timestamp(), loop.turned_at - time.monotonic()))

    loop.run_slot = run_slot  # type: ignore[method-assign]
    loop.run(stop)

    ((start, ahead_s),) = decided
    # One that is set ahead decides the slot that was waited for at once.
    assert abs(start - (1_000_030.0 + min(change_s, 0.0))) <= 60
    # Policy and bound have 450 s each, the fallback 30.
    assert 920 < ahead_s <= 930


@pytest.mark.parametrize("process", ["api", "control", "monitor", "worker"])
def test_each_process_is_ready_and_its_loop_turns(process: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    upgrade(f"sqlite:///{state}/fuga.db")
    systemd = Systemd(str(tmp_path / "notify"))
    with systemd.socket:
        environ = os.environ | systemd.environ(4.0) | {"FUGA_STATE_DIR": str(state)}
        environ |= {"FUGA_LISTEN": "127.0.0.1:0"}
        del environ["WATCHDOG_PID"]
        with (tmp_path / "log").open("wb") as log:
            child = subprocess.Popen([FUGA, process], env=environ, stderr=log, stdout=log)
        try:
            systemd.wait_for("READY=1")
            # Beyond half of the watchdog's time only a loop that turns is fresh.
            assert [systemd.next() for _ in range(5)] == ["WATCHDOG=1"] * 5
            child.terminate()
            assert child.wait(60) == 0
            assert set(systemd.wait_for("STOPPING=1")) <= {"WATCHDOG=1"}
        finally:
            child.kill()
            child.wait()
